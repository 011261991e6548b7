// SPDX-License-Identifier: Apache-2.0

// CallWatch decides when to ask the server about a quiet bulk call, and when to end the call. A
// call may be quiet for a reason: the server waits for other workers or for space, or this worker
// still computes what it sends next. A call is ended only if nothing has moved for `patience` and
// neither side has given a reason. In that case data were lost, or the path does not work.
//
// CallWatch reads no clock and calls no server. The caller passes the time and the facts in. Not
// thread-safe.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>

#include "absl/time/time.h"

namespace lodestar::client {

// The state of a bulk call on the worker's side.
struct OwnCall {
  // Count of chunks or bytes in either direction. It changes when something moves.
  uint64_t moved = 0;
  uint64_t received = 0;  // Payload bytes that a pull has brought.
  bool is_push = false;
  // True for a push that has sent all bytes added so far, if more will be added.
  bool is_idle = false;
};

// The state of the same call on the server's side: CallState in proto/parameter_service.proto.
struct ServedCall {
  bool is_held = false;
  uint64_t bytes = 0;  // Payload bytes that have arrived, or were sent.
};

class CallWatch {
 public:
  // If an earlier call on the path has failed, `reach` is the number of bytes that it has moved
  // (see StillPaths::ReachOf()). The watch then asks the server until the path is proven to work,
  // even while chunks go out.
  CallWatch(absl::Time now, absl::Duration patience, std::optional<uint64_t> reach = std::nullopt)
      : patience_(patience),
        reach_(reach.value_or(0)),
        is_path_proven_(!reach.has_value()),
        good_at_(now),
        next_question_(now + patience / 3) {}

  // The decision about a call. kAsk means that the server has to be asked about the call.
  enum class Verdict : uint8_t { kFine, kAsk, kEnd };

  // Returns the decision for the present time. Must be called regularly.
  Verdict Check(absl::Time now, const OwnCall& own) {
    if (own.moved != own_.moved || own.is_idle) IsGood(now);
    if (own.received > std::max(own_.received, reach_)) Prove();
    own_ = own;
    if (now - good_at_ >= patience_) return Verdict::kEnd;
    if (now < next_question_) return Verdict::kFine;
    next_question_ = now + patience_ / 3;
    return Verdict::kAsk;
  }

  // Must be called with the server's answer about this call. A server may make a call wait
  // (`is_held`). A push that waits counts as good: the server does not read, so sent data may be on
  // the way. A pull that waits counts as good only if all that the server has sent has arrived
  // here.
  void OnAnswer(absl::Time now, const ServedCall& served) {
    const bool has_reason = served.is_held && (own_.is_push || served.bytes <= own_.received);
    const bool has_moved = served.bytes > served_bytes_;
    served_bytes_ = std::max(served_bytes_, served.bytes);
    if (has_reason || has_moved) IsGood(now);
    if (has_reason || (has_moved && bytes() > reach_)) Prove();
  }

  // Returns true if the path was proven to work since the last TakeProof(). The path is proven if
  // one of these is true:
  // - The server holds this call for a reason.
  // - This call has moved more bytes than the failed calls before it. Sent bytes count once the
  //   server has received them.
  bool TakeProof() { return std::exchange(has_proof_, false); }
  // Returns true if this call has ever proven that its path works.
  bool has_proved() const { return has_proved_; }
  // Returns the payload bytes that are known to have arrived: at the server for a push, here for a
  // pull.
  uint64_t bytes() const { return own_.is_push ? served_bytes_ : own_.received; }

  absl::Duration patience() const { return patience_; }
  // Returns the last time that something moved, or that there was a reason why nothing moved.
  absl::Time good_at() const { return good_at_; }
  // Returns the longest time for which the call was quiet without a reason and then continued.
  absl::Duration longest_quiet() const { return longest_quiet_; }

 private:
  void IsGood(absl::Time now) {
    longest_quiet_ = std::max(longest_quiet_, now - good_at_);
    good_at_ = now;
    if (is_path_proven_) next_question_ = now + patience_ / 3;
  }
  void Prove() { has_proof_ = has_proved_ = is_path_proven_ = true; }

  absl::Duration patience_;
  uint64_t reach_;
  bool is_path_proven_;
  bool has_proof_ = false;
  bool has_proved_ = false;
  OwnCall own_;
  uint64_t served_bytes_ = 0;
  absl::Time good_at_;
  absl::Time next_question_;
  absl::Duration longest_quiet_;
};

// Pace chooses two things for the calls of one path and direction: the size of chunks, and how long
// calls may be quiet before they are ended.
//
// A chunk counts as moved only when it has arrived whole. So on a slow path a call with large
// chunks looks as if nothing moved. The rules:
// - The first calls have small chunks, because the speed of the path is not known yet.
// - After a call that was ended, calls have small chunks again.
// - If a call with small chunks is ended, later calls may be quiet for twice as long.
// - If a call completes and was never quiet for long, later calls have larger chunks.
class Pace {
 public:
  // Size of small chunks. One takes 2.6 seconds at 50 kbit/s.
  static constexpr size_t kSmallChunkBytes = size_t{16} << 10;

  Pace(absl::Duration least_patience, size_t largest_chunk_bytes)
      : least_patience_(least_patience),
        largest_chunk_bytes_(largest_chunk_bytes),
        patience_(least_patience),
        chunk_bytes_(SmallChunkBytes()) {}

  absl::Duration patience() const { return patience_; }
  size_t chunk_bytes() const { return chunk_bytes_; }
  // Returns true if chunks have the smallest size. If a call with such chunks is quiet for
  // patience(), we assume that nothing gets through on its path.
  bool has_small_chunks() const { return chunk_bytes_ == SmallChunkBytes(); }

  void OnEnded() {
    if (has_small_chunks()) {
      patience_ = std::min(2 * patience_, std::max(least_patience_, kLongestPatience));
    }
    chunk_bytes_ = SmallChunkBytes();
  }
  void OnDone(absl::Duration longest_quiet) {
    // Larger chunks make a call quiet for longer, so the patience grows with them.
    int times_larger = 1;
    if (chunk_bytes_ < largest_chunk_bytes_) {
      if (longest_quiet <= least_patience_ / 2) times_larger = 2;
      if (longest_quiet <= least_patience_ / 16) times_larger = 4;
    }
    chunk_bytes_ = std::min(times_larger * chunk_bytes_, largest_chunk_bytes_);
    // A fast call reduces the patience at most to half.
    patience_ = std::max({least_patience_, 2 * times_larger * longest_quiet, patience_ / 2});
  }

 private:
  static constexpr absl::Duration kLongestPatience = absl::Minutes(10);

  size_t SmallChunkBytes() const { return std::min(kSmallChunkBytes, largest_chunk_bytes_); }

  const absl::Duration least_patience_;
  const size_t largest_chunk_bytes_;
  absl::Duration patience_;
  size_t chunk_bytes_;
};

// StillPaths has the paths of one worker that stand still: a call on the path has failed, and later
// attempts have not moved more than that call.
//
// Some paths let only the first part of every connection through. So a call proves that its path
// works only if it has moved more than the failed calls before it.
class StillPaths {
 public:
  // Must be called when a call on the path has failed. The call had moved `bytes`, and nothing has
  // moved since `since`. `is_sure` is false if the path may only be slow: the call had large
  // chunks, or had made progress before. First() ignores paths without a sure failure.
  void OnStill(int path, absl::Time since, uint64_t bytes, bool is_sure = true) {
    Still& still = still_.try_emplace(path, Still{since}).first->second;
    still.reach = std::max(still.reach, bytes);
    still.is_sure |= is_sure;
  }
  void OnProof(int path) { still_.erase(path); }

  // Returns the largest number of bytes that a failed call on the path has moved. nullopt means
  // that the path does not stand still.
  std::optional<uint64_t> ReachOf(int path) const {
    const auto found = still_.find(path);
    if (found == still_.end()) return std::nullopt;
    return found->second.reach;
  }
  // Returns the path that has stood still for longest, and since when.
  std::optional<std::pair<int, absl::Time>> First() const {
    std::optional<std::pair<int, absl::Time>> first;
    for (const auto& [path, still] : still_) {
      if (!still.is_sure || (first.has_value() && first->second <= still.since)) continue;
      first = {path, still.since};
    }
    return first;
  }

 private:
  struct Still {
    absl::Time since;
    uint64_t reach = 0;
    bool is_sure = false;
  };
  std::map<int, Still> still_;
};

}  // namespace lodestar::client
