// What the log says of calls between workers and servers, in the same words on both sides: a line
// for each that has failed, and at debug level for each. A stranger whose calls fail again and
// again fills no disk: of many failures only some are told, with the number of those that were not.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/logging/logging.h"
#include "common/messages/cluster_messages.h"
#include "common/runtime/clock.h"
#include "common/runtime/ids.h"

namespace lodestar {

// Which call it was; what is empty or not set is not known, or has no meaning for it.
struct CallFacts {
  std::string call = {};     // the method: "Join"
  std::string request = {};  // its id; see common/runtime/request_id.h
  std::string name = {};     // of the worker
  std::optional<WorkerLife> life = {};
  std::optional<Round> round = {};
  std::string peer = {};  // where it came from
};

// "call=Join request=3fa9c1d2-17 name=a worker=1 incarnation=5 round=7 peer=ipv4:10.0.0.1:40312",
// without what is not there. What peers have sent is one word each: see PeerWord().
std::string CallText(const CallFacts& facts);

// How many lines of failed calls there is room for. Pure.
class CallQuota {
 public:
  static constexpr int kMostAtOnce = 32;
  static constexpr absl::Duration kPerLine = absl::Milliseconds(500);  // beyond those

  // Whether a failure is for the log, and how many were not since the last one that was; nothing:
  // it is not.
  std::optional<int64_t> Take(absl::Time now);

 private:
  double room_ = kMostAtOnce;
  absl::Time last_ = absl::InfinitePast();
  int64_t left_out_ = 0;
};

// Thread-safe.
class CallLog {
 public:
  using Sink = std::function<void(LogLevel, absl::string_view)>;

  // `clock` outlives it.
  explicit CallLog(Clock* clock, Sink sink = LogLine) : clock_(clock), sink_(std::move(sink)) {}

  // The call has ended with `status`. A call that was answered, or that its caller has cancelled
  // and does not wait for, is logged at debug level only. So is a call that the quota has no room
  // for.
  void Note(const CallFacts& facts, const absl::Status& status) ABSL_LOCKS_EXCLUDED(mutex_);
  // Logs the call at debug level, however it has ended.
  void NoteQuietly(const CallFacts& facts, const absl::Status& status) const;

 private:
  Clock* const clock_;
  const Sink sink_;
  absl::Mutex mutex_;
  CallQuota quota_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lodestar
