// SPDX-License-Identifier: Apache-2.0

#include "server/rpc/bulk_calls.h"

#include "absl/strings/numbers.h"
#include "absl/strings/string_view.h"
#include "proto/bulk_options.h"

namespace lodestar::rpc {

std::shared_ptr<BulkCall> BulkCalls::Begin(const grpc::CallbackServerContext& context) {
  const auto& metadata = context.client_metadata();
  const auto entry = metadata.find(wire::kCallNumberKey);
  uint64_t number = 0;
  if (entry == metadata.end() ||
      !absl::SimpleAtoi(absl::string_view(entry->second.data(), entry->second.size()), &number)) {
    return std::make_shared<BulkCall>();
  }
  auto call = std::make_unique<BulkCall>();
  {
    absl::MutexLock lock(&mutex_);
    if (!open_.try_emplace(number, call.get()).second) return call;
  }
  return std::shared_ptr<BulkCall>(call.release(),
                                   [self = shared_from_this(), number](BulkCall* ended) {
                                     self->End(number);
                                     delete ended;
                                   });
}

v1::CallState BulkCalls::StateOf(uint64_t number) const {
  absl::MutexLock lock(&mutex_);
  const auto found = open_.find(number);
  return found == open_.end() ? v1::CallState() : found->second->state();
}

}  // namespace lodestar::rpc
