// SPDX-License-Identifier: Apache-2.0

// The calls at a bucket that wait for an answer: each kind of call, the table that gives them ids,
// and the callbacks that run once the lock is released.
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

// A call that wants to send a contribution.
struct PushCall {
  CallId id = 0;
  ContributionKey key;
  std::function<void(absl::StatusOr<StagedBucket>)> ready;
  std::shared_ptr<CallTicket> ticket;
  std::shared_ptr<StagingPool::Request> request = nullptr;  // null: not in the pool's queue
  bool is_answered = false;
};

// A contribution that has been received completely.
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

// A CallTable gives each call an id. Free ids are used again, so the table is as long as the
// largest number of calls at one time.
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

  // Calls function(id, call) for every call in the table.
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

// DeferredCalls collects callbacks under a lock, and calls them after the lock is released. Declare
// it before the lock: its destructor makes the calls, and must run after the lock's destructor.
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
