// SPDX-License-Identifier: Apache-2.0

#include "worker/residual_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/logging/logging.h"
#include "common/runtime/file_io.h"
#include "common/runtime/status_macros.h"
#include "common/security/secret_file.h"
#include "common/storage/file_system.h"

namespace lodestar::worker {
namespace {

constexpr int64_t kMaxInstanceBytes = 32;
constexpr absl::Duration kPause = absl::Milliseconds(20);

}  // namespace

absl::StatusOr<KeepResiduals> ParseKeepResiduals(absl::string_view what, absl::string_view text) {
  if (text == "never") return KeepResiduals::kNever;
  if (text == "local_steps") return KeepResiduals::kLocalSteps;
  if (text == "always") return KeepResiduals::kAlways;
  return absl::InvalidArgumentError(
      absl::StrCat(what, "='", text, "' is unknown; allowed: never, local_steps, always"));
}

bool KeepsResidual(KeepResiduals keep, const job::JobSpec& job) {
  if (!job.error_feedback || job.push_encoding == params::Encoding::kFp32) return false;
  return keep == KeepResiduals::kAlways ||
         (keep == KeepResiduals::kLocalSteps && job::HasLocalSteps(job));
}

std::string ResidualFolderIn(absl::string_view state_dir, absl::string_view worker_name) {
  if (state_dir.empty() || worker_name.empty()) return "";
  return absl::StrCat(state_dir, "/residuals/", worker_name);
}

absl::StatusOr<std::unique_ptr<ResidualFolder>> ResidualFolder::Take(const std::string& path,
                                                                     const std::string& worker_name,
                                                                     Clock* clock,
                                                                     absl::Duration patience) {
  RETURN_IF_ERROR(security::MakeSecretFolder(path));
  const std::string lock_path = absl::StrCat(path, "/LOCK");
  const int lock =
      open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, S_IRUSR | S_IWUSR);
  if (lock < 0) return ErrnoStatus(errno, "open", lock_path);
  auto folder = std::unique_ptr<ResidualFolder>(new ResidualFolder(path, worker_name, lock));
  const absl::Time deadline = clock->Now() + patience;
  bool is_told = false;
  while (flock(lock, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK && clock->Now() < deadline) {
      if (!std::exchange(is_told, true)) {
        logging::LogInfo(
            "another process holds {}; this worker waits at most {} for that process to end", path,
            absl::FormatDuration(patience));
      }
      clock->Sleep(kPause);
      continue;
    }
    if (errno == EWOULDBLOCK) {
      return absl::AlreadyExistsError(
          absl::StrCat(path,
                       " is held by another process, and only one worker of a name may run at a "
                       "time; stop that process or give another --name"));
    }
    // If the file system has no locks, flock() fails with another errno. That is accepted, because
    // the servers refuse a second living worker of a name.
    if (errno != EINTR) break;
  }
  const absl::StatusOr<std::string> text =
      security::ReadKeptSecretFile(folder->instance_path_, kMaxInstanceBytes);
  if (!text.ok() && !absl::IsNotFound(text.status())) return text.status();
  // If there is no file, or the file has no number, no earlier instance is known.
  if (!text.ok() || !absl::SimpleAtoi(*text, &folder->former_instance_)) {
    folder->former_instance_ = 0;
  }
  return folder;
}

ResidualFolder::ResidualFolder(const std::string& path, const std::string& worker_name, int lock)
    : instance_path_(absl::StrCat(path, "/instance")),
      lock_(lock),
      store_(&storage::FileSystem::Real(), path, worker_name),
      inner_states_(&storage::FileSystem::Real(), path, worker_name) {}

ResidualFolder::~ResidualFolder() { close(lock_); }

absl::Status ResidualFolder::WriteInstance(uint64_t instance_id) {
  return security::WriteSecretFile(instance_path_, absl::StrCat(instance_id));
}

absl::Status ResidualFolder::RemoveInstance() {
  return storage::FileSystem::Real().RemoveAll(instance_path_);
}

}  // namespace lodestar::worker
