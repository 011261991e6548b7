// CallTracer: gives each control call of a worker an id, which the server writes to its log, too,
// and says in this worker's log what came of the call; see common/call_log.h.
#pragma once

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <map>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "common/call_log.h"
#include "common/clock.h"
#include "common/request_id.h"

namespace lodestar {

// Thread-safe.
class CallTracer {
 public:
  // `name`: of the worker. `process`: see RequestIds. `clock` outlives it.
  CallTracer(std::string name, uint32_t process, Clock* clock, CallLog::Sink sink = LogLine)
      : name_(std::move(name)), ids_(process), log_(clock, std::move(sink)) {}

  // Before the call that `context` is of: gives it an id. `call`: its method.
  CallFacts Begin(absl::string_view call, grpc::ClientContext& context);

  // The call has ended with `status`. A refusal by the server is told, but one that is repeated
  // word for word until the method succeeds only once. That nobody has answered the worker tells
  // itself: then, as of success, the line is at debug level.
  void End(const CallFacts& facts, const grpc::ClientContext& context, const absl::Status& status)
      ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  const std::string name_;
  RequestIds ids_;
  CallLog log_;
  absl::Mutex mutex_;
  std::map<std::string, std::string> last_ ABSL_GUARDED_BY(mutex_);  // refusal by method
};

}  // namespace lodestar
