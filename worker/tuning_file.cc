// SPDX-License-Identifier: Apache-2.0

#include "worker/tuning_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/output/output_file.h"
#include "common/runtime/file_io.h"
#include "common/runtime/status_macros.h"

namespace lodestar::worker {
namespace {

// Maximum size of the file, in bytes. This is enough for some tens of thousands of choices.
constexpr int64_t kMaxBytes = int64_t{16} << 20;
constexpr absl::Duration kPause = absl::Milliseconds(20);
// Keys of the ChangeLogger. It logs a message only if it differs from the last message of the same
// key.
constexpr char kFile[] = "file";
constexpr char kDevice[] = "device";

// Locks the folder in which the file `path` will be replaced. The lock lasts until the returned
// descriptor is closed. On file systems without locks, two processes may write at the same time,
// and the later write wins. Errors: Unavailable (after `patience`); those of files.
absl::StatusOr<int> LockFolder(const std::string& path, Clock* clock, absl::Duration patience) {
  const std::string folder = DirectoryOf(path);
  const int descriptor = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return ErrnoStatus(errno, "open the folder", folder);
  const absl::Time deadline = clock->Now() + patience;
  while (flock(descriptor, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    if (errno != EWOULDBLOCK) break;
    if (clock->Now() >= deadline) {
      close(descriptor);
      return absl::UnavailableError(
          absl::StrCat(folder, " is held by another process, which writes ", path));
    }
    clock->Sleep(kPause);
  }
  return descriptor;
}

}  // namespace

TuningFile::TuningFile(std::string path, Clock* clock, logging::ChangeLogger::Sink sink)
    : path_(std::move(path)), clock_(clock), logger_(std::move(sink)) {}

absl::StatusOr<std::string> TuningFile::Read() const {
  // Checks the kind of file first. If it were a FIFO, opening it would wait for a writer.
  ASSIGN_OR_RETURN(const std::string target, output::ResolveOutput(path_));
  absl::StatusOr<std::string> text = ReadWholeFile(target, kMaxBytes);
  if (absl::IsNotFound(text.status())) return std::string();
  RETURN_IF_ERROR(text.status());
  if (text->empty() || absl::StartsWith(*text, kernels::kTuningTextBegin)) return text;
  return absl::FailedPreconditionError(absl::StrCat(
      path_, " is not a tuning file, because it does not begin with '", kernels::kTuningTextBegin,
      "', and is left unchanged; remove it, or give another path"));
}

absl::Status TuningFile::Update(absl::FunctionRef<std::string(absl::string_view kept)> merge,
                                absl::Duration patience) const {
  ASSIGN_OR_RETURN(const std::string target, output::ResolveOutput(path_));
  ASSIGN_OR_RETURN(const int lock, LockFolder(target, clock_, patience));
  const auto unlock = absl::MakeCleanup([lock] { close(lock); });
  ASSIGN_OR_RETURN(const std::string kept, Read());
  const std::string merged = merge(kept);
  if (merged == kept) return absl::OkStatus();
  return output::WriteFileAtomically(path_, merged);
}

std::string TuningFile::TextForDevice() {
  absl::StatusOr<std::string> text = Read();
  if (text.ok()) return *std::move(text);
  logger_.Log(logging::LogLevel::kWarn, kFile,
              absl::StrCat("--tuning_file is not used, so its values are measured again: ",
                           text.status().message()));
  return "";
}

void TuningFile::Tell(const kernels::Device& device) {
  if (device.MergeTuning("").empty()) {
    logger_.Log(logging::LogLevel::kWarn, kDevice,
                absl::StrCat("--tuning_file=", path_, " has no effect: ",
                             device.capabilities().name, " needs no measurements"));
    return;
  }
  if (const std::string unused = device.DescribeTuning(); !unused.empty()) {
    logger_.Log(logging::LogLevel::kWarn,
                absl::StrCat(kDevice, " ", reinterpret_cast<uintptr_t>(&device)),
                absl::StrCat("--tuning_file=", path_, ": ", unused));
  }
}

void TuningFile::Keep(const kernels::Device& device, absl::Duration patience) {
  Tell(device);
  std::string chosen = device.MergeTuning("");
  if (chosen.empty() || chosen == written_[&device]) return;
  const absl::Status status =
      Update([&](absl::string_view kept) { return device.MergeTuning(kept); }, patience);
  if (status.ok()) {
    written_[&device] = std::move(chosen);
    logger_.Forget(kFile);
  } else if (!absl::IsUnavailable(status) || patience > absl::ZeroDuration()) {
    logger_.Log(logging::LogLevel::kWarn, kFile,
                absl::StrCat("--tuning_file cannot be written, so later runs measure again: ",
                             status.message()));
  }
}

}  // namespace lodestar::worker
