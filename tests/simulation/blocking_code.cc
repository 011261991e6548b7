// SPDX-License-Identifier: Apache-2.0

#include "tests/simulation/blocking_code.h"

#include <utility>

#include "common/runtime/check.h"

namespace lodestar::simulation {

BlockingCode::BlockingCode(Process* process) : process_(process) {
  process_->OnEach([this] { Look(); });
}

BlockingCode::~BlockingCode() {
  LODESTAR_CHECK(!is_running_) << "code of " << process_->name() << " still runs";
  process_->OnEach(nullptr);
}

void BlockingCode::Run(std::function<void()> code) {
  LODESTAR_CHECK(!is_running_ && !is_ending_) << process_->name();
  is_running_ = true;
  thread_ = std::thread([this, code = std::move(code)] {
    AwaitTurn(Turn::kCode);
    code();
    is_running_ = false;
    Give(Turn::kRun);
  });
  Resume();
}

void BlockingCode::End() {
  is_ending_ = true;
  while (is_running_) Resume();
}

void BlockingCode::Sleep(absl::Duration) {
  LODESTAR_CHECK(false) << "code of " << process_->name() << " sleeps";
}

bool BlockingCode::Await(absl::Mutex& mutex, const absl::Condition& condition,
                         absl::Duration timeout) {
  if (condition.Eval()) return true;
  if (is_ending_) {
    LODESTAR_CHECK(timeout < absl::InfiniteDuration())
        << "code of " << process_->name() << " waits for ever when its process ends";
    return false;
  }
  waits_with_ = &mutex;
  waits_for_ = &condition;
  waits_until_ = Now() + timeout;
  // Plans an empty event, so that Look() runs at the end of the time.
  if (timeout < absl::InfiniteDuration()) process_->After(timeout, [] {});
  mutex.Unlock();
  Pass(Turn::kRun);
  mutex.Lock();
  waits_for_ = nullptr;
  return condition.Eval();
}

void BlockingCode::Look() {
  // An event may occur in the process while its code runs, and because of the code.
  if (waits_for_ == nullptr) return;
  bool is_there = Now() >= waits_until_;
  if (!is_there) {
    absl::MutexLock lock(waits_with_);
    is_there = waits_for_->Eval();
  }
  if (is_there) Resume();
}

void BlockingCode::Resume() {
  Pass(Turn::kCode);
  if (!is_running_) thread_.join();
}

void BlockingCode::Pass(Turn to) {
  Give(to);
  AwaitTurn(to == Turn::kRun ? Turn::kCode : Turn::kRun);
}

void BlockingCode::Give(Turn turn) {
  absl::MutexLock lock(&mutex_);
  turn_ = turn;
}

void BlockingCode::AwaitTurn(Turn turn) {
  const auto has_come = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return turn_ == turn; };
  absl::MutexLock lock(&mutex_);
  mutex_.Await(absl::Condition(&has_come));
}

}  // namespace lodestar::simulation
