// Calls at a bucket until they are answered: each kind of call, the table that names them, and the
// answers that go out once the lock is released.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "server/shard/bucket_handles.h"
#include "server/shard/bucket_protocol.h"
#include "server/shard/contribution.h"
#include "server/shard/shard_state.h"
#include "server/shard/staging_pool.h"

namespace lodestar::shard {

// Wants to send a contribution.
struct PushCall {
  CallId id = 0;
  ContributionKey key;
  std::function<void(absl::StatusOr<StagedBucket>)> ready;
  std::shared_ptr<CallTicket> ticket;
  std::shared_ptr<StagingPool::Request> request = nullptr;  // null: not in the pool's queue
  bool is_answered = false;
};

// A Contribution has been received.
struct Contribution {
  ContributionKey key;
  std::optional<NumbersCheck> numbers;
  std::shared_ptr<StagingSlot> slot;
  std::function<void(absl::StatusOr<PushOutcome>)> done;
};

struct ReadCall {
  ReadView view;
  std::function<void(absl::StatusOr<PublishedBucket>)> done;
  std::shared_ptr<CallTicket> ticket;
};

using CaptureCall = std::function<void(absl::StatusOr<BucketState>)>;

// Ids are given again when they are free, so a table is as long as the most calls at a time.
template <typename Call>
class CallTable {
 public:
  CallId Add(Call call) {
    if (free_.empty()) {
      free_.push_back(static_cast<CallId>(calls_.size()));
      calls_.emplace_back();
    }
    const CallId id = free_.back();
    free_.pop_back();
    calls_[id].emplace(std::move(call));
    return id;
  }

  Call& at(CallId id) { return calls_[id].value(); }

  Call Take(CallId id) {
    Call call = std::move(calls_[id].value());
    calls_[id].reset();
    free_.push_back(id);
    return call;
  }

  // function(id, call).
  template <typename Function>
  void ForEach(Function function) {
    for (CallId id = 0; id < calls_.size(); ++id) {
      if (calls_[id].has_value()) function(id, *calls_[id]);
    }
  }

 private:
  std::vector<std::optional<Call>> calls_;
  std::vector<CallId> free_;
};

// Callbacks collected under a lock, to be called after it is released. Declare it before the lock,
// so that its destructor, which calls, runs after the lock's.
class DeferredCalls {
 public:
  DeferredCalls() = default;
  DeferredCalls(const DeferredCalls&) = delete;
  DeferredCalls& operator=(const DeferredCalls&) = delete;
  ~DeferredCalls() {
    for (std::function<void()>& call : calls_) call();
  }

  bool empty() const { return calls_.empty(); }
  void Add(std::function<void()> call) { calls_.push_back(std::move(call)); }

 private:
  std::vector<std::function<void()>> calls_;
};

}  // namespace lodestar::shard
