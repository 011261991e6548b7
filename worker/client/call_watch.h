// CallWatch: when a bulk call that is quiet is asked about, and when it is ended. A call may be
// quiet for a reason: the server waits for other workers or for room, or this worker computes what
// it sends next. So it is not ended after a fixed time, but once nothing has moved for `patience`
// and nobody has given a reason: then something is lost on its way, or the path is.
//
// Pure: the time and what is known are given. Not thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>

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
  CallWatch(absl::Time now, absl::Duration patience)
      : patience_(patience), good_at_(now), next_question_(now + patience / 3) {}

  // kAsk: the server is to be asked what it knows of the call.
  enum class Verdict : uint8_t { kFine, kAsk, kEnd };

  // Called every now and then.
  Verdict Check(absl::Time now, const OwnCall& own) {
    if (own.moved != own_.moved || own.is_idle) IsGood(now);
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
    if (has_reason || served.bytes > served_bytes_) IsGood(now);
    served_bytes_ = std::max(served_bytes_, served.bytes);
  }

  absl::Duration patience() const { return patience_; }
  // The longest time that the call was quiet without a reason, and yet went on.
  absl::Duration longest_quiet() const { return longest_quiet_; }

 private:
  void IsGood(absl::Time now) {
    longest_quiet_ = std::max(longest_quiet_, now - good_at_);
    good_at_ = now;
    next_question_ = now + patience_ / 3;
  }

  absl::Duration patience_;
  OwnCall own_;
  uint64_t served_bytes_ = 0;
  absl::Time good_at_;  // something moved, or there was a reason why not
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
  void OnDone(absl::Duration longest_quiet) { now_ = std::max(least_, 2 * longest_quiet); }

 private:
  static constexpr absl::Duration kLongest = absl::Minutes(10);

  const absl::Duration least_;
  absl::Duration now_;
};

}  // namespace lodestar
