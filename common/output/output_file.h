// Files that a program is told to write: --port_file, --trace, --metrics_out, exports.
//
// Only regular files are written or replaced: what a path leads to through symbolic links is
// resolved first, so that a link stays a link, and a device, a FIFO, a socket or a folder is
// refused. So is every file in a checkpoint: its files are those that its manifest describes, and
// it is removed with all that is in it. Errors name the path and, behind a link, where it leads.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/storage/file_system.h"

namespace lodestar {

// The path without symbolic links at its end: that of a regular file, or of none yet. Errors:
// InvalidArgument for anything else that is there and for what lies in a checkpoint; those of
// files.
absl::StatusOr<std::string> ResolveOutput(const std::string& path);

// Whether what `flag` names (if anything) can be written now: resolves it and creates, for a
// moment, another file beside it. Errors: those of both, behind the flag and its value.
absl::Status CheckOutput(absl::string_view flag, const std::string& path);

// A file that comes under its name, in place of one that is there, only when it is whole: written
// under a temporary name beside it. Blocks for the disk. Not thread-safe.
class ReplacementFile {
 public:
  // What exists keeps its permissions.
  static absl::StatusOr<ReplacementFile> Create(const std::string& path);

  ReplacementFile(ReplacementFile&& other) noexcept;
  ReplacementFile& operator=(ReplacementFile&&) = delete;
  ~ReplacementFile();  // without Commit(): removes what was written

  absl::Status Append(absl::string_view bytes) { return writer_.Append(bytes); }
  // All is written: the temporary name, under which it can be looked at before Commit().
  absl::StatusOr<std::string> Finish();
  // Returns once the disk has the file under its name.
  absl::Status Commit() { return CommitAs(target_); }
  // Gives the file another name in the same folder, in place of its own.
  absl::Status CommitAs(const std::string& target);
  // The path that Commit() gives it, without links.
  const std::string& target() const { return target_; }

 private:
  ReplacementFile(std::string target, SequentialFileWriter writer);

  std::string target_;
  SequentialFileWriter writer_;  // of the temporary file
  bool is_finished_ = false;
  bool is_pending_;  // the temporary file is this object's to rename or to remove
};

// `contents` replaces the file, or the old file stays.
absl::Status WriteFileAtomically(const std::string& path, absl::string_view contents);

// A file that grows by whole lines, each written at once. Not thread-safe.
class LineFile {
 public:
  // Creates it, or goes on behind what is there. The open file is locked, so that no other object
  // and no other process opens it. If `may_share`, it is opened even if it is locked. Errors:
  // AlreadyExists if it is locked; those of ResolveOutput() and of files.
  static absl::StatusOr<LineFile> Open(const std::string& path, bool may_share = false);

  LineFile(LineFile&& other) noexcept;
  LineFile& operator=(LineFile&& other) noexcept;
  ~LineFile();

  // Without links.
  const std::string& path() const { return path_; }

  // `line` without its end. After an error the file is as it was; where even that fails, the next
  // line starts anew, so that a line which was cut short spoils no other.
  absl::Status Append(absl::string_view line);

  // Leaves the first `num_bytes` of the file, which end a line. Needs no room on the disk.
  absl::Status CutTo(int64_t num_bytes);

 private:
  LineFile(std::string path, int descriptor) : path_(std::move(path)), descriptor_(descriptor) {}

  std::string path_;
  int descriptor_ = -1;
  bool is_cut_short_ = false;  // the last line in the file has no end
};

// All of `text` to the standard output, past every buffer. Errors: those of the write.
absl::Status WriteToStandardOutput(absl::string_view text);

}  // namespace lodestar
