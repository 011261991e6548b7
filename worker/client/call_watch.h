// CallWatch says when the server is asked about a bulk call that is quiet, and when such a call is
// ended. A call may be quiet for a reason: the server waits for other workers or for room, or this
// worker computes what it sends next. So a call is ended only once nothing has moved for `patience`
// and neither side has given a reason. Then something is lost on its way, or the path is lost.
//
// CallWatch reads no clock and calls no server: the caller gives the time and what is known. Not
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

// A bulk call as this worker knows it.
struct OwnCall {
  uint64_t moved = 0;     // chunks or bytes in either direction; changes when something moves
  uint64_t received = 0;  // payload that a pull has brought
  bool is_push = false;
  bool is_idle = false;  // true if a push has sent all it was given so far, and will be given more
};

// The same call as its server knows it: CallState in proto/parameter_service.proto.
struct ServedCall {
  bool is_held = false;
  uint64_t bytes = 0;  // payload that has arrived, or that was sent
};

class CallWatch {
 public:
  // `reach` is that of StillPaths. While the path is not proven, the server is asked even if chunks
  // go out.
  CallWatch(absl::Time now, absl::Duration patience, std::optional<uint64_t> reach = std::nullopt)
      : patience_(patience),
        reach_(reach.value_or(0)),
        is_path_proven_(!reach.has_value()),
        good_at_(now),
        next_question_(now + patience / 3) {}

  // kAsk means that the server is to be asked what it knows of the call.
  enum class Verdict : uint8_t { kFine, kAsk, kEnd };

  // To be called every now and then.
  Verdict Check(absl::Time now, const OwnCall& own) {
    if (own.moved != own_.moved || own.is_idle) IsGood(now);
    if (own.received > std::max(own_.received, reach_)) Prove();
    own_ = own;
    if (now - good_at_ >= patience_) return Verdict::kEnd;
    if (now < next_question_) return Verdict::kFine;
    next_question_ = now + patience_ / 3;
    return Verdict::kAsk;
  }

  // Takes the server's answer. While the server holds a push, it does not read it, so the push may
  // be behind. If the server holds a pull, the pull must have brought all that was sent.
  void OnAnswer(absl::Time now, const ServedCall& served) {
    const bool has_reason = served.is_held && (own_.is_push || served.bytes <= own_.received);
    const bool has_moved = served.bytes > served_bytes_;
    served_bytes_ = std::max(served_bytes_, served.bytes);
    if (has_reason || has_moved) IsGood(now);
    if (has_reason || (has_moved && bytes() > reach_)) Prove();
  }

  // Returns true if the path has been seen to work since the last call of this. There is a proof if
  // this call has moved more than the calls before it that came to a standstill, or if the server
  // holds the call. Chunks that went out prove nothing: they may lie in a buffer of this machine.
  bool TakeProof() { return std::exchange(has_proof_, false); }
  // Returns true if this call has given such a proof, now or before.
  bool has_proved() const { return has_proved_; }
  // Returns the payload that is known to have reached the other end.
  uint64_t bytes() const { return own_.is_push ? served_bytes_ : own_.received; }

  absl::Duration patience() const { return patience_; }
  // Returns when something moved last, or when there was last a reason why nothing moved.
  absl::Time good_at() const { return good_at_; }
  // Returns the longest time that the call was quiet without a reason, and yet went on.
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

// Pace says how the calls of one direction of a path are carried out: how large their chunks are,
// and how long calls may be quiet before they are ended.
//
// A chunk is only seen to move once it has arrived whole, so on a slow path a large chunk looks
// like a standstill. The first calls, whose path is not known yet, have small chunks. So have calls
// after one that was ended. If a call with small chunks is ended as well, later calls may be quiet
// for twice as long. Each call that goes well leads to larger chunks.
class Pace {
 public:
  // Such a chunk takes 2.6 seconds at 50 kbit/s.
  static constexpr size_t kSmallChunkBytes = size_t{16} << 10;

  Pace(absl::Duration least_patience, size_t largest_chunk_bytes)
      : least_patience_(least_patience),
        largest_chunk_bytes_(largest_chunk_bytes),
        patience_(least_patience),
        chunk_bytes_(SmallChunkBytes()) {}

  absl::Duration patience() const { return patience_; }
  size_t chunk_bytes() const { return chunk_bytes_; }
  // If a call with the smallest chunks is quiet for patience(), it seems to stand still.
  bool has_small_chunks() const { return chunk_bytes_ == SmallChunkBytes(); }

  void OnEnded() {
    if (has_small_chunks()) {
      patience_ = std::min(2 * patience_, std::max(least_patience_, kLongestPatience));
    }
    chunk_bytes_ = SmallChunkBytes();
  }
  void OnDone(absl::Duration longest_quiet) {
    // Chunks that are twice as large are quiet for twice as long.
    int times_larger = 1;
    if (chunk_bytes_ < largest_chunk_bytes_) {
      if (longest_quiet <= least_patience_ / 2) times_larger = 2;
      if (longest_quiet <= least_patience_ / 16) times_larger = 4;
    }
    chunk_bytes_ = std::min(times_larger * chunk_bytes_, largest_chunk_bytes_);
    // If a call was quiet for less than the one before, the patience sinks by at most half.
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

// StillPaths has the paths of one worker on which calls have failed, and on which nothing new is
// known to have moved since, however often it was tried again.
//
// There are paths that let the first part of every connection through and then no more. So what a
// call has moved is only a proof if it is more than what the calls before it had moved.
class StillPaths {
 public:
  // Notes that a call on the path has failed after it had moved `bytes`, and that nothing has moved
  // since `since`. If not `is_sure`, the path may only be slow: the call had large chunks, or had
  // got on before it was quiet for too long. First() tells of a path once a call on it has failed
  // for sure.
  void OnStill(int path, absl::Time since, uint64_t bytes, bool is_sure = true) {
    Still& still = still_.try_emplace(path, Still{since}).first->second;
    still.reach = std::max(still.reach, bytes);
    still.is_sure |= is_sure;
  }
  void OnProof(int path) { still_.erase(path); }

  // Returns the most that a call which failed on the path has moved, or nothing if no call failed.
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
