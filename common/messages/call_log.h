// SPDX-License-Identifier: Apache-2.0

// Logs the calls between workers and servers, in the same words on both sides: a line for each
// failed call, and at debug level for every call. A stranger cannot fill the disk with calls that
// fail again and again: if there are many failures, only some are logged, with the number of those
// left out.
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

namespace lodestar::messages {

// Identifies a call. A value that is empty or not set is unknown, or does not apply to the call.
struct CallFacts {
  std::string call = {};     // method, such as "Join"
  std::string request = {};  // id of the call; see common/runtime/request_id.h
  std::string name = {};     // name of the worker
  std::optional<WorkerLife> life = {};
  std::optional<Round> round = {};
  std::string peer = {};  // address that the call came from
};

// Returns text such as "call=Join request=3fa9c1d2-17 name=a worker=1 incarnation=5 round=7
// peer=ipv4:10.0.0.1:40312". Values that are not known are left out. Values from peers are cut to
// one word: see PeerWord().
std::string CallText(const CallFacts& facts);

// Limits the number of log lines for failed calls. Pure.
class CallQuota {
 public:
  static constexpr int kMostAtOnce = 32;
  // After a burst of lines, one line is allowed per this time.
  static constexpr absl::Duration kPerLine = absl::Milliseconds(500);

  // Returns nullopt if a failure is not to be logged. Otherwise returns the number of failures that
  // were left out since the last logged failure.
  std::optional<int64_t> Take(absl::Time now);

 private:
  double room_ = kMostAtOnce;
  absl::Time last_ = absl::InfinitePast();
  int64_t left_out_ = 0;
};

// Logs calls. Thread-safe.
class CallLog {
 public:
  using Sink = std::function<void(logging::LogLevel, absl::string_view)>;

  // `clock` must outlive this object.
  explicit CallLog(Clock* clock, Sink sink = logging::LogLine)
      : clock_(clock), sink_(std::move(sink)) {}

  // Logs a call that has ended with `status`. Failed calls are logged at info level, as long as the
  // quota has room. These calls are logged at debug level only: successful calls, calls that their
  // caller has cancelled, and failed calls without room in the quota.
  void Note(const CallFacts& facts, const absl::Status& status) ABSL_LOCKS_EXCLUDED(mutex_);
  // Logs the call at debug level, whatever its status.
  void NoteQuietly(const CallFacts& facts, const absl::Status& status) const;

 private:
  Clock* const clock_;
  const Sink sink_;
  absl::Mutex mutex_;
  CallQuota quota_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lodestar::messages
