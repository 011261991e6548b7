// SPDX-License-Identifier: Apache-2.0

// CallTrace writes one log entry about a worker's call when the call is answered. The entry has the
// id that the worker has given the call: see common/messages/call_log.h.
#pragma once

#include <grpcpp/grpcpp.h>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/messages/call_log.h"

namespace lodestar::rpc {

// A copy of a CallTrace belongs to the same call. One of the copies must call End() before the call
// is finished, while `context` exists. The class is not thread-safe.
class CallTrace {
 public:
  // `log` and `context` must outlive the call. `call` is the name of its method.
  CallTrace(messages::CallLog* log, grpc::CallbackServerContext* context, absl::string_view call);

  // Returns the facts that the log entry will have. The handler of the call sets those that it
  // knows.
  messages::CallFacts& facts() { return facts_; }

  // Logs that the call ends with `status`, and returns the status to finish the call with. A
  // refusal carries the id, so that the worker knows that the server has logged it.
  grpc::Status End(const absl::Status& status) const;

 private:
  messages::CallLog* const log_;
  grpc::CallbackServerContext* const context_;
  messages::CallFacts facts_;
};

}  // namespace lodestar::rpc
