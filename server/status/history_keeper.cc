// SPDX-License-Identifier: Apache-2.0

#include "server/status/history_keeper.h"

#include <cstdio>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/history/run_history.h"
#include "common/storage/file_system.h"

namespace lodestar::status {

HistoryKeeper::HistoryKeeper(std::string path, Deps deps)
    : path_(std::move(path)), deps_(std::move(deps)) {
  if (const absl::StatusOr<history::RunHistory> history = history::ReadHistory(path_);
      history.ok()) {
    deps_.recorder->GoOnFrom(*history);
    is_kept_ = true;
  } else if (absl::IsDataLoss(history.status()) || absl::IsUnimplemented(history.status())) {
    const std::string aside = storage::UnusedPath(
        storage::FileSystem::Real(),
        absl::StrCat(path_, absl::IsDataLoss(history.status()) ? ".damaged" : ".later_release"));
    const bool is_moved = std::rename(path_.c_str(), aside.c_str()) == 0;
    lost_ = absl::StrCat(
        "the curves of this run begin again on the dashboard, because their file cannot be read: ",
        history.status().message(), "; ",
        is_moved ? "the old file is kept as " : "the old file cannot be moved to ", aside);
  } else if (!absl::IsNotFound(history.status())) {
    lost_ = absl::StrCat(
        "the curves of this run begin again on the dashboard, because their file cannot be read: ",
        history.status().message());
  }
  written_version_ = deps_.recorder->version();
  thread_ = std::thread([this] { Run(); });
}

HistoryKeeper::~HistoryKeeper() {
  {
    absl::MutexLock lock(&mutex_);
    is_ending_ = true;
  }
  thread_.join();
  WriteIfNew();
}

void HistoryKeeper::Run() {
  while (true) {
    const absl::Duration wait = is_kept_ ? deps_.interval : kFirstInterval;
    {
      absl::MutexLock lock(&mutex_);
      if (deps_.clock->Await(mutex_, absl::Condition(&is_ending_), wait)) return;
    }
    WriteIfNew();
  }
}

void HistoryKeeper::WriteIfNew() {
  const uint64_t version = deps_.recorder->version();
  if (version == written_version_) return;
  absl::Status written = deps_.confirm();
  if (written.ok()) written = history::WriteHistory(path_, deps_.recorder->Read());
  const bool was_failing = std::exchange(is_failing_, !written.ok());
  if (written.ok()) {
    written_version_ = version;
    is_kept_ = true;
    if (was_failing) deps_.on_trouble(written);
  } else {
    deps_.on_trouble(absl::Status(
        written.code(), absl::StrCat("the dashboard's curves of this run cannot be saved: ",
                                     written.message(), "; the server keeps trying")));
  }
}

}  // namespace lodestar::status
