// SPDX-License-Identifier: Apache-2.0

#include "server/rpc/coordinator_strand.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/runtime/check.h"
#include "server/coordinator/coordinator_memory_json.h"

namespace lodestar::rpc {
namespace {

absl::Status StoppingStatus() {
  return absl::UnavailableError("the server is stopping; connect again when it is back");
}

// Interval at which writes that the disk has refused are tried again.
constexpr absl::Duration kJournalTick = absl::Seconds(1);

// Delivers each CoordinatorStrand::Answer.
template <typename Answers>
void Deliver(const Answers& answers, const absl::Status& kept = absl::OkStatus()) {
  for (const auto& answer : answers) answer.deliver(kept);
}

// Returns what is wrong with the journal, and what to do. It is empty if nothing is wrong.
std::string TroubleOf(const host::CoordinatorJournal& journal) {
  const absl::Status trouble = journal.trouble();
  if (trouble.ok()) return "";
  return absl::StrCat(
      "the journal ", journal.folder(), " cannot be written: ", trouble.message(),
      absl::IsResourceExhausted(trouble) ? ". Make room there. The server" : ". The server",
      " tries again each second and then continues by itself");
}

absl::Status OrderIsNotKept(absl::string_view trouble) {
  return absl::UnavailableError(absl::StrCat(
      "the order is accepted, but not on disk yet; if the server is killed now, the order is lost",
      trouble.empty() ? "" : "; ", trouble));
}

}  // namespace

CoordinatorStrand::CoordinatorStrand(Clock* clock, absl::Duration tick)
    : clock_(clock), tick_(tick) {}

CoordinatorStrand::~CoordinatorStrand() { Stop(); }

void CoordinatorStrand::Start(std::unique_ptr<coordinator::Coordinator> coordinator,
                              CarryOut carry_out, host::CoordinatorJournal* journal) {
  {
    absl::MutexLock lock(&mutex_);
    LODESTAR_CHECK(coordinator_ == nullptr) << "started twice";
    coordinator_ = std::move(coordinator);
    carry_out_ = std::move(carry_out);
    journal_ = journal;
    if (journal != nullptr) kept_record_ = coordinator_->found_record();
    asked_at_version_ = coordinator_->state_version();
  }
  if (tick_ != absl::InfiniteDuration()) timer_ = std::thread([this] { RunTimer(); });
}

absl::Time CoordinatorStrand::Now() {
  const absl::Duration gap = time_.Advance(clock_->Now());
  if (gap > absl::ZeroDuration() && !stopping_) coordinator_->OnGap(gap, time_.now());
  return time_.now();
}

void CoordinatorStrand::RunUntyped(
    absl::FunctionRef<void(coordinator::Coordinator&, absl::Time)> call) {
  std::vector<Answer> answers;
  {
    absl::MutexLock lock(&mutex_);
    const absl::Time now = Now();
    call(*coordinator_, now);
    AskWaiters(now);
    answers = Release();
  }
  Deliver(answers);
}

void CoordinatorStrand::Report(
    absl::FunctionRef<void(coordinator::Coordinator&, absl::Time)> report) {
  std::vector<Answer> answers;
  {
    absl::MutexLock lock(&mutex_);
    if (stopping_) return;
    const absl::Time now = Now();
    report(*coordinator_, now);
    AskWaiters(now);
    answers = Release();
  }
  Deliver(answers);
}

void CoordinatorStrand::ReportTo(
    absl::FunctionRef<std::vector<uint64_t>(coordinator::Coordinator&, absl::Time)> report) {
  std::vector<Answer> answers;
  {
    absl::MutexLock lock(&mutex_);
    if (stopping_) return;
    const absl::Time now = Now();
    for (const uint64_t key : report(*coordinator_, now)) AskWaiter(key, now);
    AskWaiters(now);
    answers = Release();
  }
  Deliver(answers);
}

void CoordinatorStrand::AskWaiter(uint64_t key, absl::Time now) {
  const auto waiter = std::find_if(waiters_.begin(), waiters_.end(),
                                   [key](const Waiter& waiter) { return waiter.key == key; });
  if (waiter == waiters_.end()) return;
  Delivery delivery = waiter->attempt(*coordinator_, now, Occasion::kChange);
  if (!delivery) return;
  answered_.push_back({std::move(delivery)});
  waiters_.erase(waiter);
}

void CoordinatorStrand::Await(uint64_t key, absl::Duration patience, Attempt attempt) {
  std::vector<Answer> answers;
  {
    absl::MutexLock lock(&mutex_);
    const absl::Time now = Now();
    if (key != 0) {
      EndWaiters(now, Occasion::kReplaced, [key](const Waiter& other) { return other.key == key; });
    }
    const Occasion occasion = stopping_                          ? Occasion::kStopping
                              : patience <= absl::ZeroDuration() ? Occasion::kPatienceOver
                                                                 : Occasion::kChange;
    Delivery delivery = attempt(*coordinator_, now, occasion);
    if (delivery) {
      answered_.push_back({std::move(delivery)});
    } else {
      LODESTAR_CHECK(occasion == Occasion::kChange)
          << "the last attempt has given the call no answer";
      waiters_.push_back({key, time_.clock_now() + patience, std::move(attempt)});
    }
    AskWaiters(now);
    answers = Release();
  }
  Deliver(answers);
}

void CoordinatorStrand::AskWaiters(absl::Time now) {
  bool has_new_answers = true;
  while (has_new_answers && coordinator_->state_version() != asked_at_version_) {
    asked_at_version_ = coordinator_->state_version();
    has_new_answers = false;
    std::vector<Waiter> waiting;
    waiting.swap(waiters_);
    for (Waiter& waiter : waiting) {
      Delivery delivery = waiter.attempt(*coordinator_, now, Occasion::kChange);
      if (delivery) {
        answered_.push_back({std::move(delivery)});
        has_new_answers = true;
      } else {
        waiters_.push_back(std::move(waiter));
      }
    }
  }
}

void CoordinatorStrand::EndWaiters(absl::Time now, Occasion occasion,
                                   absl::FunctionRef<bool(const Waiter&)> which) {
  std::vector<Waiter> waiting;
  waiting.swap(waiters_);
  for (Waiter& waiter : waiting) {
    if (which(waiter)) {
      answered_.push_back({waiter.attempt(*coordinator_, now, occasion)});
    } else {
      waiters_.push_back(std::move(waiter));
    }
  }
}

std::vector<CoordinatorStrand::Answer> CoordinatorStrand::Release() {
  Batch batch = {coordinator_->TakeEffects(), std::exchange(answered_, {})};
  if (journal_ == nullptr && !has_left_journal_) return CarryOutAll(std::move(batch));
  std::erase_if(
      batch.effects, [this](coordinator::Effect& effect) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        const auto* announcement = std::get_if<coordinator::Announcement>(&effect);
        if (announcement == nullptr || !std::holds_alternative<coordinator::Alarm>(*announcement))
          return false;
        carry_out_(std::move(effect), kept_record_);
        return true;
      });
  if (has_left_journal_) {
    for (Answer& answer : batch.answers) {
      answer.deliver = [deliver = std::move(answer.deliver)](const absl::Status&) {
        deliver(StoppingStatus());
      };
    }
    return std::move(batch.answers);
  }
  if (coordinator_->may_not_keep()) return CarryOutAll(std::move(batch));
  const bool is_new = coordinator_->memory_version() != kept_version_;
  if (!is_new && !keeping_.has_value()) return CarryOutAll(std::move(batch));
  Batch& later = is_new ? next_ : *keeping_;
  std::move(batch.effects.begin(), batch.effects.end(), std::back_inserter(later.effects));
  std::move(batch.answers.begin(), batch.answers.end(), std::back_inserter(later.answers));
  if (!keeping_.has_value()) Keep();
  return {};
}

std::vector<CoordinatorStrand::Answer> CoordinatorStrand::CarryOutAll(Batch batch) {
  for (coordinator::Effect& effect : batch.effects) carry_out_(std::move(effect), kept_record_);
  return std::move(batch.answers);
}

void CoordinatorStrand::Keep() {
  keeping_ = std::exchange(next_, {});
  kept_version_ = coordinator_->memory_version();
  keeping_record_.journal_id = coordinator_->journal_id();
  coordinator::MemoryRecords::Record record =
      records_.Next(coordinator_->Memory(), time_.now(), keeping_record_.journal_id,
                    /*must_be_whole=*/journal_->wants_whole());
  keeping_record_.number =
      journal_->Keep(std::move(record.text), record.is_whole, [this] { OnKept(); });
}

void CoordinatorStrand::OnKept() {
  std::vector<Answer> answers;
  {
    absl::MutexLock lock(&mutex_);
    if (!keeping_.has_value()) return;  // the strand was stopped
    kept_record_ = keeping_record_;
    answers = CarryOutAll(*std::exchange(keeping_, std::nullopt));
    if (coordinator_->memory_version() != kept_version_) Keep();
  }
  Deliver(answers);
}

std::vector<CoordinatorStrand::Answer> CoordinatorStrand::TakeOverdue() {
  std::vector<Answer> overdue;
  const absl::Time now = time_.clock_now();
  for (Batch* batch : {keeping_.has_value() ? &*keeping_ : &next_, &next_}) {
    std::vector<Answer> waiting;
    waiting.swap(batch->answers);
    for (Answer& answer : waiting) {
      (answer.not_after <= now ? overdue : batch->answers).push_back(std::move(answer));
    }
  }
  return overdue;
}

absl::Status CoordinatorStrand::CheckCanOrder(Unwritable unwritable) const {
  absl::MutexLock lock(&mutex_);
  const bool asks = unwritable == Unwritable::kRefuse && journal_ != nullptr;
  const std::string trouble = asks ? TroubleOf(*journal_) : "";
  if (trouble.empty()) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("the order was not accepted: ", trouble,
                   ". Give the order again when the journal can be written"));
}

bool CoordinatorStrand::awaits_journal() const {
  absl::MutexLock lock(&mutex_);
  return keeping_.has_value();
}

void CoordinatorStrand::Tick() {
  std::vector<Answer> answers;
  std::vector<Answer> overdue;
  absl::Status why;
  {
    absl::MutexLock lock(&mutex_);
    if (stopping_) return;
    const absl::Time now = Now();
    coordinator_->Tick(now);
    AskWaiters(now);
    EndWaiters(now, Occasion::kPatienceOver, [over = time_.clock_now()](const Waiter& waiter) {
      return waiter.deadline <= over;
    });
    answers = Release();
    if (journal_ != nullptr && now - journal_ticked_at_ >= kJournalTick) {
      journal_ticked_at_ = now;
      journal_->Tick();
    }
    overdue = TakeOverdue();
    if (!overdue.empty()) why = OrderIsNotKept(TroubleOf(*journal_));
  }
  Deliver(answers);
  Deliver(overdue, why);
}

void CoordinatorStrand::TryJournalAgain() {
  absl::MutexLock lock(&mutex_);
  if (!stopping_ && journal_ != nullptr) journal_->Tick();
}

void CoordinatorStrand::RunTimer() {
  const auto is_stopping = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stopping_; };
  while (true) {
    {
      absl::MutexLock lock(&mutex_);
      if (mutex_.AwaitWithTimeout(absl::Condition(&is_stopping), tick_)) return;
    }
    Tick();
  }
}

void CoordinatorStrand::Stop() {
  std::vector<Answer> answers;
  Batch unkept;
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
    if (coordinator_ != nullptr) {
      EndWaiters(Now(), Occasion::kStopping, [](const Waiter&) { return true; });
      answers = Release();
    }
    has_left_journal_ |= std::exchange(journal_, nullptr) != nullptr;
    for (Batch* batch : {keeping_.has_value() ? &*keeping_ : &next_, &next_}) {
      std::move(batch->answers.begin(), batch->answers.end(), std::back_inserter(unkept.answers));
      *batch = {};
    }
    keeping_.reset();
  }
  Deliver(answers);
  Deliver(unkept.answers, StoppingStatus());
  if (timer_.joinable()) timer_.join();
}

}  // namespace lodestar::rpc
