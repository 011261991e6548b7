// SPDX-License-Identifier: Apache-2.0

#include "server/rpc/call_trace.h"

#include <string>

#include "common/runtime/request_id.h"
#include "proto/bulk_options.h"
#include "proto/status_mapping.h"

namespace lodestar::rpc {
namespace {

std::string RequestIdOf(const grpc::CallbackServerContext& context) {
  const auto& metadata = context.client_metadata();
  const auto entry = metadata.find(wire::kRequestIdKey);
  if (entry == metadata.end()) return "";
  return PeerWord(absl::string_view(entry->second.data(), entry->second.size()));
}

}  // namespace

CallTrace::CallTrace(messages::CallLog* log, grpc::CallbackServerContext* context,
                     absl::string_view call)
    : log_(log), context_(context) {
  facts_.call = std::string(call);
  facts_.request = RequestIdOf(*context);
  facts_.peer = context->peer();
}

grpc::Status CallTrace::End(const absl::Status& status) const {
  log_->Note(facts_, status);
  if (!status.ok() && !facts_.request.empty()) {
    context_->AddTrailingMetadata(wire::kRequestIdKey, facts_.request);
  }
  return wire::ToGrpcStatus(status);
}

}  // namespace lodestar::rpc
