// CallTrace: what the log says of one call of a worker, once it is answered, under the id that the
// worker has given it; see common/messages/call_log.h.
#pragma once

#include <grpcpp/grpcpp.h>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/messages/call_log.h"

namespace lodestar::rpc {

// Copies are of the same call: one of them is to end it, before the call is finished, while
// `context` lives. Not thread-safe.
class CallTrace {
 public:
  // `log` and `context` outlive the call. `call` is its method.
  CallTrace(CallLog* log, grpc::CallbackServerContext* context, absl::string_view call);

  // What is known of the caller is added here.
  CallFacts& facts() { return facts_; }

  // Logs that the call ends with `status`, and returns what it is to be finished with. A refusal
  // gives the id back, so that the worker knows that the server has it in its log.
  grpc::Status End(const absl::Status& status) const;

 private:
  CallLog* const log_;
  grpc::CallbackServerContext* const context_;
  CallFacts facts_;
};

}  // namespace lodestar::rpc
