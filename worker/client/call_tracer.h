// CallTracer gives each control call of a worker an id, which the server also writes to its log. It
// says in this worker's log what came of the call; see common/messages/call_log.h.
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

// Thread-safe.
class CallTracer {
 public:
  // `name` is that of the worker, and `process` that of RequestIds. `clock` must outlive the
  // tracer.
  CallTracer(std::string name, uint32_t process, Clock* clock, CallLog::Sink sink = LogLine)
      : name_(std::move(name)), ids_(process), log_(clock, std::move(sink)) {}

  // Gives an id to the call of `context`, before the call begins. `call` is its method.
  CallFacts Begin(absl::string_view call, grpc::ClientContext& context);

  // Tells that the call has ended with `status`. A refusal by the server is logged, but only once
  // if it is repeated word for word before the method succeeds. If no server has answered, the
  // worker itself tells that: the line is then at debug level, as it is for success.
  void End(const CallFacts& facts, const grpc::ClientContext& context, const absl::Status& status)
      ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  const std::string name_;
  RequestIds ids_;
  CallLog log_;
  absl::Mutex mutex_;
  std::map<std::string, std::string> last_ ABSL_GUARDED_BY(mutex_);  // last refusal by method
};

}  // namespace lodestar::client
