#include "server/rpc/coordinator_strand.h"

#include "common/check.h"

namespace lodestar {
namespace {

void Deliver(std::vector<CoordinatorStrand::Delivery>& deliveries) {
  for (CoordinatorStrand::Delivery& delivery : deliveries) delivery();
}

}  // namespace

CoordinatorStrand::CoordinatorStrand(Clock* clock, absl::Duration tick)
    : clock_(clock), tick_(tick) {}

CoordinatorStrand::~CoordinatorStrand() { Stop(); }

void CoordinatorStrand::Start(std::unique_ptr<Coordinator> coordinator, CarryOut carry_out) {
  {
    absl::MutexLock lock(&mutex_);
    LODESTAR_CHECK(coordinator_ == nullptr) << "started twice";
    coordinator_ = std::move(coordinator);
    carry_out_ = std::move(carry_out);
    asked_at_version_ = coordinator_->state_version();
  }
  if (tick_ != absl::InfiniteDuration()) timer_ = std::thread([this] { RunTimer(); });
}

absl::Time CoordinatorStrand::Now() {
  const absl::Duration gap = time_.Advance(clock_->Now());
  if (gap > absl::ZeroDuration() && !stopping_) coordinator_->OnGap(gap, time_.now());
  return time_.now();
}

void CoordinatorStrand::RunUntyped(absl::FunctionRef<void(Coordinator&, absl::Time)> call) {
  std::vector<Delivery> deliveries;
  {
    absl::MutexLock lock(&mutex_);
    const absl::Time now = Now();
    call(*coordinator_, now);
    Settle(now, &deliveries);
  }
  Deliver(deliveries);
}

void CoordinatorStrand::Report(absl::FunctionRef<void(Coordinator&, absl::Time)> report) {
  std::vector<Delivery> deliveries;
  {
    absl::MutexLock lock(&mutex_);
    if (stopping_) return;
    const absl::Time now = Now();
    report(*coordinator_, now);
    Settle(now, &deliveries);
  }
  Deliver(deliveries);
}

void CoordinatorStrand::Await(uint64_t key, absl::Duration patience, Attempt attempt) {
  std::vector<Delivery> deliveries;
  {
    absl::MutexLock lock(&mutex_);
    const absl::Time now = Now();
    if (key != 0) {
      EndWaiters(
          now, Occasion::kReplaced, [key](const Waiter& other) { return other.key == key; },
          &deliveries);
    }
    const Occasion occasion = stopping_                          ? Occasion::kStopping
                              : patience <= absl::ZeroDuration() ? Occasion::kPatienceOver
                                                                 : Occasion::kChange;
    Delivery delivery = attempt(*coordinator_, now, occasion);
    if (delivery) {
      deliveries.push_back(std::move(delivery));
    } else {
      LODESTAR_CHECK(occasion == Occasion::kChange) << "no answer at the last attempt";
      waiters_.push_back({key, time_.clock_now() + patience, std::move(attempt)});
    }
    Settle(now, &deliveries);
  }
  Deliver(deliveries);
}

void CoordinatorStrand::Settle(absl::Time now, std::vector<Delivery>* deliveries) {
  bool has_new_answers = true;
  while (has_new_answers && coordinator_->state_version() != asked_at_version_) {
    asked_at_version_ = coordinator_->state_version();
    has_new_answers = false;
    std::vector<Waiter> waiting;
    waiting.swap(waiters_);
    for (Waiter& waiter : waiting) {
      Delivery delivery = waiter.attempt(*coordinator_, now, Occasion::kChange);
      if (delivery) {
        deliveries->push_back(std::move(delivery));
        has_new_answers = true;
      } else {
        waiters_.push_back(std::move(waiter));
      }
    }
  }
  CarryOutEffects();
}

void CoordinatorStrand::CarryOutEffects() {
  for (Effect& effect : coordinator_->TakeEffects()) carry_out_(std::move(effect));
}

void CoordinatorStrand::EndWaiters(absl::Time now, Occasion occasion,
                                   absl::FunctionRef<bool(const Waiter&)> which,
                                   std::vector<Delivery>* deliveries) {
  std::vector<Waiter> waiting;
  waiting.swap(waiters_);
  for (Waiter& waiter : waiting) {
    if (which(waiter)) {
      deliveries->push_back(waiter.attempt(*coordinator_, now, occasion));
    } else {
      waiters_.push_back(std::move(waiter));
    }
  }
  CarryOutEffects();
}

void CoordinatorStrand::Tick() {
  std::vector<Delivery> deliveries;
  {
    absl::MutexLock lock(&mutex_);
    if (stopping_) return;
    const absl::Time now = Now();
    coordinator_->Tick(now);
    Settle(now, &deliveries);
    EndWaiters(
        now, Occasion::kPatienceOver,
        [over = time_.clock_now()](const Waiter& waiter) { return waiter.deadline <= over; },
        &deliveries);
  }
  Deliver(deliveries);
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
  std::vector<Delivery> deliveries;
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
    if (coordinator_ != nullptr) {
      EndWaiters(
          Now(), Occasion::kStopping, [](const Waiter&) { return true; }, &deliveries);
    }
  }
  Deliver(deliveries);
  if (timer_.joinable()) timer_.join();
}

}  // namespace lodestar
