// SPDX-License-Identifier: Apache-2.0

#include "server/host/checkpoint_command.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/runtime/time_text.h"

namespace lodestar::host {
namespace {

constexpr absl::Duration kPause = absl::Milliseconds(50);
// If a command has run for this long, Add() reports it as late.
constexpr absl::Duration kLongRun = absl::Minutes(1);

}  // namespace

void CheckpointCommand::Add(std::string folder,
                            absl::StatusOr<std::vector<std::string>> set_aside) {
  absl::Status late;
  {
    absl::MutexLock lock(&mutex_);
    ++num_pending_;
    const absl::Duration at_work = deps_.clock->Now() - running_since_;
    if (!running_.empty() && at_work >= kLongRun) {
      late = absl::DeadlineExceededError(
          absl::StrCat("the command of --on_checkpoint has worked on ", running_, " for ",
                       DurationText(at_work), ", and ", num_pending_ - 1,
                       " newer checkpoints wait for it. Give a faster command or a longer "
                       "--checkpoint_interval"));
    }
  }
  if (!late.ok()) deps_.on_outcome(late);
  deps_.executor->Schedule([this, folder = std::move(folder), set_aside = std::move(set_aside)] {
    Run(folder, set_aside);
  });
}

void CheckpointCommand::Run(const std::string& folder,
                            const absl::StatusOr<std::vector<std::string>>& set_aside) {
  {
    absl::MutexLock lock(&mutex_);
    if (!dropped_.ok()) {
      --num_pending_;
      return;
    }
    running_ = folder;
    running_since_ = deps_.clock->Now();
  }
  absl::Status status;
  if (!set_aside.ok()) {
    status = set_aside.status();
  } else if (deps_.exists(folder)) {
    status = deps_.run(folder, *set_aside, [this] {
      absl::MutexLock lock(&mutex_);
      return !dropped_.ok();
    });
  } else {
    status = absl::NotFoundError(
        "the checkpoint was removed before the command could run for it; give a higher "
        "--checkpoint_keep");
  }
  // The status does not name the folder, so that repeated failures raise one alarm and not one per
  // checkpoint.
  deps_.on_outcome(
      status.ok() ? status
                  : absl::Status(status.code(),
                                 absl::StrCat("--on_checkpoint: ", status.message(),
                                              "; the command runs again for the next checkpoint")));
  if (!status.ok()) {
    status = absl::Status(status.code(),
                          absl::StrCat("--on_checkpoint for ", folder, ": ", status.message()));
  }
  std::vector<std::function<void(const absl::Status&)>> waiting;
  {
    absl::MutexLock lock(&mutex_);
    running_.clear();
    last_ = status;
    if (--num_pending_ == 0) waiting.swap(waiting_);
  }
  for (const auto& done : waiting) done(status);
}

void CheckpointCommand::OnceDone(std::function<void(const absl::Status& outcome)> done) {
  absl::Status outcome;
  {
    absl::MutexLock lock(&mutex_);
    if (dropped_.ok() && num_pending_ > 0) {
      waiting_.push_back(std::move(done));
      return;
    }
    outcome = dropped_.ok() ? last_ : dropped_;
  }
  done(outcome);
}

absl::Status CheckpointCommand::Finish(absl::Duration patience,
                                       const std::function<bool()>& is_interrupted) {
  const absl::Time until = deps_.clock->Now() + patience;
  absl::Status dropped;
  std::vector<std::function<void(const absl::Status&)>> waiting;
  {
    absl::MutexLock lock(&mutex_);
    const auto is_done = [this]()
                             ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return num_pending_ == 0; };
    bool is_late = false;
    while (!is_done() && !(is_late = deps_.clock->Now() >= until) && !is_interrupted()) {
      deps_.clock->Await(mutex_, absl::Condition(&is_done), kPause);
    }
    if (is_done()) return last_;
    dropped_ = dropped =
        absl::Status(is_late ? absl::StatusCode::kDeadlineExceeded : absl::StatusCode::kCancelled,
                     absl::StrCat("the command of --on_checkpoint was stopped while it worked on ",
                                  running_.empty() ? "the waiting checkpoints" : running_,
                                  ". It has not run for ", num_pending_,
                                  " checkpoints; run it for them yourself"));
    waiting.swap(waiting_);
  }
  for (const auto& done : waiting) done(dropped);
  return dropped;
}

}  // namespace lodestar::host
