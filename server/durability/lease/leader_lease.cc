// SPDX-License-Identifier: Apache-2.0

#include "server/durability/lease/leader_lease.h"

#include <utility>

#include "common/logging/logging.h"

namespace lodestar::lease {
namespace {

// Interval at which Watch() checks whether an action is due. It is far shorter than the unused part
// of a lease.
constexpr absl::Duration kTick = absl::Milliseconds(50);
constexpr absl::Duration kSayAgain = absl::Seconds(10);

}  // namespace

absl::StatusOr<std::unique_ptr<LeaderLease>> LeaderLease::Take(LeaseCourse::Config config,
                                                               Deps deps) {
  const absl::Duration ttl = config.ttl;
  config.num_endpoints = deps.store->num_endpoints();
  std::unique_ptr<LeaderLease> lease(new LeaderLease(std::move(config), std::move(deps)));
  lease->watch_ = std::thread([raw = lease.get()] { raw->Watch(); });
  if (const absl::Status held = lease->AwaitHeld(); !held.ok()) return held;
  logging::LogInfo("this process holds {}, which lasts {} after each renewal", lease->name_,
                   absl::FormatDuration(ttl));
  return lease;
}

LeaderLease::LeaderLease(LeaseCourse::Config config, Deps deps)
    : name_(config.name),
      key_(config.key),
      deps_(std::move(deps)),
      course_(std::move(config)),
      calls_(std::make_unique<ThreadPool>(1, "leader-lease")) {}

LeaderLease::~LeaderLease() {
  {
    absl::MutexLock lock(&mutex_);
    const absl::Time now = deps_.clock->Now();
    course_.Release(now);
    release_until_ = now + kReleasePatience;
    has_news_ = true;
  }
  watch_.join();
  calls_.reset();
}

absl::Status LeaderLease::AwaitHeld() {
  absl::MutexLock lock(&mutex_);
  const auto is_decided = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return course_.IsHeld(deps_.clock->Now()) || !course_.refusal().ok() || !course_.lost().ok();
  };
  while (!deps_.clock->Await(mutex_, absl::Condition(&is_decided), kTick)) {
    if (deps_.is_interrupted()) return absl::CancelledError("told to stop");
  }
  if (!course_.refusal().ok()) return course_.refusal();
  return course_.lost();
}

absl::Status LeaderLease::CheckHeld() const {
  absl::MutexLock lock(&mutex_);
  return course_.CheckHeld(deps_.clock->Now());
}

int64_t LeaderLease::revision() const {
  absl::MutexLock lock(&mutex_);
  return course_.revision();
}

void LeaderLease::Watch() {
  const auto has_news = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return has_news_; };
  while (true) {
    std::optional<LeaseCall> call;
    absl::Status lost;
    std::string notice;
    bool is_store_away = false;
    absl::Time now;
    {
      absl::MutexLock lock(&mutex_);
      has_news_ = false;
      now = deps_.clock->Now();
      call = course_.Next(now);
      lost = course_.lost();
      notice = course_.notice();
      is_store_away = course_.is_store_away();
      const bool is_wanted = !release_until_.has_value();
      if (!is_wanted && (course_.is_over() || now >= *release_until_)) return;
    }
    if (!lost.ok()) return deps_.on_lost(lost);
    if (call.has_value()) calls_->Schedule([this, call = *call] { Carry(call); });
    Say(notice, is_store_away, now);
    absl::MutexLock lock(&mutex_);
    deps_.clock->Await(mutex_, absl::Condition(&has_news), kTick);
  }
}

void LeaderLease::Carry(const LeaseCall& call) {
  const LeaseAnswer answer = deps_.store->Call(call);
  absl::MutexLock lock(&mutex_);
  course_.OnAnswer(answer, deps_.clock->Now());
  has_news_ = true;
}

void LeaderLease::Say(const std::string& notice, bool is_store_away, absl::Time now) {
  if (notice.empty()) return;
  if (is_store_away) {
    if (now - said_away_ < kSayAgain) return;
    said_away_ = now;
    return logging::LogWarn("{}", notice);
  }
  if (notice != said_) logging::LogInfo("{}", notice);
  said_ = notice;
}

}  // namespace lodestar::lease
