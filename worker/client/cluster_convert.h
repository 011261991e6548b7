// Between proto/cluster_service.proto and work_grant.h. What a server sends is checked before use.
#pragma once

#include <optional>

#include "absl/status/statusor.h"
#include "proto/cluster_service.pb.h"
#include "worker/client/work_grant.h"

namespace lodestar {

// Errors: InvalidArgument if layout, servers and buckets do not fit each other (the bucket plan is
// computed again and must be equal).
absl::StatusOr<Registration> FromProto(const v1::RegisterReply& reply);
absl::StatusOr<WorkGrant> FromProto(const v1::Grant& grant);
v1::DatasetInfo ToProto(const DatasetFacts& dataset);
v1::RoundReport ToProto(const RoundReport& report);

}  // namespace lodestar
