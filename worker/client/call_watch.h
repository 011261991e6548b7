// CallWatch: when a bulk call that is quiet is asked about, and when it is ended. A call may be
// quiet for a reason: the server waits for other workers or for room, or this worker computes what
// it sends next. So it is not ended after a fixed time, but once nothing has moved for `patience`
// and nobody has given a reason: then something is lost on its way, or the path is.
//
// Pure: the time and what is known are given. Not thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>

#include "absl/time/time.h"

namespace lodestar {

// A bulk call as this worker knows it.
struct OwnCall {
  uint64_t moved = 0;     // chunks or bytes, either way: changes when something moves
  uint64_t received = 0;  // payload that a pull has brought
  bool is_push = false;
  bool is_idle = false;  // a push that has sent all it was given so far, and will be given more
};

// The same call as its server knows it: CallState in proto/parameter_service.proto.
struct ServedCall {
  bool is_held = false;
  uint64_t bytes = 0;  // payload that has arrived, or that was sent
};

class CallWatch {
 public:
  // `is_path_proven`: see TakeProof(). Where it is not, the server is asked although chunks go out.
  CallWatch(absl::Time now, absl::Duration patience, bool is_path_proven = true)
      : patience_(patience),
        is_path_proven_(is_path_proven),
        good_at_(now),
        next_question_(now + patience / 3) {}

  // kAsk: the server is to be asked what it knows of the call.
  enum class Verdict : uint8_t { kFine, kAsk, kEnd };

  // Called every now and then.
  Verdict Check(absl::Time now, const OwnCall& own) {
    if (own.moved != own_.moved || own.is_idle) IsGood(now);
    if (own.received > own_.received) Prove();
    own_ = own;
    if (now - good_at_ >= patience_) return Verdict::kEnd;
    if (now < next_question_) return Verdict::kFine;
    next_question_ = now + patience_ / 3;
    return Verdict::kAsk;
  }

  // The server's answer. A push that is held is not read meanwhile, and may be behind; a pull that
  // is held must have brought all that was sent.
  void OnAnswer(absl::Time now, const ServedCall& served) {
    const bool has_reason = served.is_held && (own_.is_push || served.bytes <= own_.received);
    if (has_reason || served.bytes > served_bytes_) {
      Prove();
      IsGood(now);
    }
    served_bytes_ = std::max(served_bytes_, served.bytes);
  }

  // Whether the path has been seen to work since the last time: the other side has something of
  // ours, or we of theirs. Chunks that went out prove nothing, they may lie in a buffer of this
  // machine.
  bool TakeProof() { return std::exchange(has_proof_, false); }

  absl::Duration patience() const { return patience_; }
  // When something moved last, or there was a reason why not.
  absl::Time good_at() const { return good_at_; }
  // The longest time that the call was quiet without a reason, and yet went on.
  absl::Duration longest_quiet() const { return longest_quiet_; }

 private:
  void IsGood(absl::Time now) {
    longest_quiet_ = std::max(longest_quiet_, now - good_at_);
    good_at_ = now;
    if (is_path_proven_) next_question_ = now + patience_ / 3;
  }
  void Prove() { has_proof_ = is_path_proven_ = true; }

  absl::Duration patience_;
  bool is_path_proven_;
  bool has_proof_ = false;
  OwnCall own_;
  uint64_t served_bytes_ = 0;
  absl::Time good_at_;
  absl::Time next_question_;
  absl::Duration longest_quiet_;
};

// How long calls of one worker are quiet before they are ended. A slow path takes its time for each
// chunk: after a call that was ended for nothing the next ones get twice as long, and what one that
// went well has taken is known.
class Patience {
 public:
  explicit Patience(absl::Duration least) : least_(least), now_(least) {}

  absl::Duration now() const { return now_; }
  void OnEnded() { now_ = std::min(2 * now_, std::max(least_, kLongest)); }
  // A call that meets with less than the one before does not make it forget at once.
  void OnDone(absl::Duration longest_quiet) {
    now_ = std::max({least_, 2 * longest_quiet, now_ / 2});
  }

 private:
  static constexpr absl::Duration kLongest = absl::Minutes(10);

  const absl::Duration least_;
  absl::Duration now_;
};

// The paths of one worker that stand still: that a call on one was ended, or broke, and since when
// nothing is known to have moved there, however often it was tried again.
class StillPaths {
 public:
  void OnStill(int path, absl::Time since) { since_.emplace(path, since); }
  void OnProof(int path) { since_.erase(path); }

  bool contains(int path) const { return since_.contains(path); }
  // The one that has stood still for longest, and since when.
  std::optional<std::pair<int, absl::Time>> First() const {
    const auto first =
        std::min_element(since_.begin(), since_.end(),
                         [](const auto& a, const auto& b) { return a.second < b.second; });
    if (first == since_.end()) return std::nullopt;
    return *first;
  }

 private:
  std::map<int, absl::Time> since_;
};

}  // namespace lodestar
