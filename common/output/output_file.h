// SPDX-License-Identifier: Apache-2.0

// Files that a program is told to write: --port_file, --trace, --metrics_out, exports.
//
// Only regular files are written or replaced. The symbolic links of a path are resolved first, so
// that a link stays a link. A device, a FIFO, a socket, a folder or the file of this program's
// standard error is refused. A file inside a checkpoint is refused also, because the manifest lists
// all files of a checkpoint, and removing a checkpoint removes everything in it. Errors name the
// path and, if it is a link, where it leads.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/storage/file_system.h"

namespace lodestar::output {

// Returns the path to which `path` leads through symbolic links. The file there is a regular file,
// or does not exist yet. Errors: InvalidArgument (something else is there, or the path is inside a
// checkpoint); those of files.
absl::StatusOr<std::string> ResolveOutput(const std::string& path);

// Checks that the path of `flag` can be written now: resolves the path, and creates and removes
// another file beside it. An empty path is allowed. Errors: those of ResolveOutput() and of
// creating a file, with the flag and its value.
absl::Status CheckOutput(absl::string_view flag, const std::string& path);

// Replaces a file atomically when the new file is complete. Until then the new file has a temporary
// name in the same folder. Blocks on the disk. Not thread-safe.
class ReplacementFile {
 public:
  // Creates the temporary file. If there is a file at `path`, the temporary file gets its
  // permissions.
  static absl::StatusOr<ReplacementFile> Create(const std::string& path);

  ReplacementFile(ReplacementFile&& other) noexcept;
  ReplacementFile& operator=(ReplacementFile&&) = delete;
  ~ReplacementFile();  // removes the temporary file unless Commit() was called

  absl::Status Append(absl::string_view bytes) { return writer_.Append(bytes); }
  // Writes all appended bytes to the temporary file and syncs it. Returns the path of the temporary
  // file, so that the caller can examine the file before Commit().
  absl::StatusOr<std::string> Finish();
  // Gives the new file its final name. Returns when the new name is on disk.
  absl::Status Commit() { return CommitAs(target_); }
  // As Commit(), but names the new file `target`. `target` must be in the same folder.
  absl::Status CommitAs(const std::string& target);
  // Returns the path that Commit() uses, with links resolved.
  const std::string& target() const { return target_; }

 private:
  ReplacementFile(std::string target, storage::SequentialFileWriter writer);

  std::string target_;
  storage::SequentialFileWriter writer_;  // writes the temporary file
  bool is_finished_ = false;
  bool is_pending_;  // true: this object must rename or remove the temporary file
};

// Replaces the content of the file with `contents`. If that fails, the old file stays.
absl::Status WriteFileAtomically(const std::string& path, absl::string_view contents);

// A file that grows by whole lines, each written with one call. Not thread-safe.
class LineFile {
 public:
  // Opens the file for appending, and creates it if it does not exist. Locks the file, so that no
  // other LineFile opens it. If `may_share` is true, opens the file even if it is locked. Errors:
  // AlreadyExists (the file is locked); those of ResolveOutput() and of opening a file.
  static absl::StatusOr<LineFile> Open(const std::string& path, bool may_share = false);

  LineFile(LineFile&& other) noexcept;
  LineFile& operator=(LineFile&& other) noexcept;
  ~LineFile();

  // Returns the path with links resolved.
  const std::string& path() const { return path_; }

  // Appends `line`, which has no newline, and a newline. If that fails, cuts off the part that was
  // written. If the cut fails too, the next call begins with a newline, so that its line stays
  // separate.
  absl::Status Append(absl::string_view line);

  // Keeps only the first `num_bytes` of the file, which must be whole lines. Needs no space on the
  // disk.
  absl::Status CutTo(int64_t num_bytes);

 private:
  LineFile(std::string path, int descriptor) : path_(std::move(path)), descriptor_(descriptor) {}

  std::string path_;
  int descriptor_ = -1;
  bool is_cut_short_ = false;  // true: the last line in the file has no newline
};

// Writes all of `text` to standard output, without buffering. Errors: those of write().
absl::Status WriteToStandardOutput(absl::string_view text);

}  // namespace lodestar::output
