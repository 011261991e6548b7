// SPDX-License-Identifier: Apache-2.0

// CallTracer gives each control call of a worker an id, which the server also writes to its log. It
// logs the result of each call; see common/messages/call_log.h.
#pragma once

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <map>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "common/messages/call_log.h"
#include "common/runtime/clock.h"
#include "common/runtime/request_id.h"

namespace lodestar::client {

// Traces the control calls of one worker. Thread-safe.
class CallTracer {
 public:
  // `name` is the worker's name. `process` is a number for this process, with which all its ids
  // begin. `clock` must outlive the tracer.
  CallTracer(std::string name, uint32_t process, Clock* clock,
             messages::CallLog::Sink sink = logging::LogLine)
      : name_(std::move(name)), ids_(process), log_(clock, std::move(sink)) {}

  // Gives an id to the call that `context` belongs to. Must be called before the call begins.
  // `call` is the name of the method.
  messages::CallFacts Begin(absl::string_view call, grpc::ClientContext& context);

  // Must be called when the call has ended with `status`. Logs a refusal of the server. If the same
  // refusal is repeated before the method succeeds, logs it only once. Successes are logged at
  // debug level. Calls without an answer are also logged at debug level, because other code reports
  // servers that do not answer.
  void End(const messages::CallFacts& facts, const grpc::ClientContext& context,
           const absl::Status& status) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  const std::string name_;
  RequestIds ids_;
  messages::CallLog log_;
  absl::Mutex mutex_;
  // The last refusal of each method.
  std::map<std::string, std::string> last_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lodestar::client
