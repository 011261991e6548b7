// SPDX-License-Identifier: Apache-2.0

// WeightsExport writes the current weights of all shards as one safetensors file, piece by piece.
// `psctl export` receives it.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/job/job_spec.h"
#include "common/messages/cluster_messages.h"
#include "common/runtime/ids.h"
#include "proto/parameter_service.grpc.pb.h"
#include "proto/transport_security.h"
#include "server/host/shard_host.h"
#include "server/rpc/outgoing_calls.h"

namespace lodestar::rpc {

class WeightsExport {
 public:
  // Must accept the next bytes of the file. An error ends the export.
  using Sink = absl::FunctionRef<absl::Status(absl::string_view)>;

  // The exported weights include all rounds before `min_round`. `local` has the buckets of shard 0.
  // The buckets of other shards are pulled from their servers. If `calls` are cancelled, the export
  // ends. `local` and `calls` must outlive the object. `export_keys` has one key per shard: see
  // StreamGuard.
  WeightsExport(std::shared_ptr<const messages::ClusterMap> map, job::JobSpec job, Round min_round,
                const host::ShardHost* local, OutgoingCalls* calls,
                wire::TransportSecurity security, std::vector<uint64_t> export_keys = {})
      : map_(std::move(map)),
        job_(std::move(job)),
        min_round_(min_round),
        local_(local),
        calls_(calls),
        security_(std::move(security)),
        export_keys_(std::move(export_keys)) {}

  // Writes the file. Blocks for the network and for updates, for a bounded time per bucket. Each
  // bucket is complete and of one version. If training goes on meanwhile, the versions of two
  // buckets may differ by one round. Errors: NotFound (no weights yet); DeadlineExceeded, saying
  // what is waited for; Unavailable (the calls are cancelled); those of Pull and of the sink.
  absl::Status WriteTo(Sink sink) const;

 private:
  absl::Status WriteHeader(Sink sink) const;
  absl::Status WriteLocalBucket(const params::Bucket& bucket, Sink sink) const;
  absl::Status WriteRemoteBuckets(const messages::ServerAddress& server, Sink sink) const;
  absl::StatusOr<std::string> PullBucket(v1::ParameterService::Stub& stub,
                                         const params::Bucket& bucket) const;

  const std::shared_ptr<const messages::ClusterMap> map_;
  const job::JobSpec job_;
  const Round min_round_;
  const host::ShardHost* const local_;
  OutgoingCalls* const calls_;
  const wire::TransportSecurity security_;
  const std::vector<uint64_t> export_keys_;
};

}  // namespace lodestar::rpc
