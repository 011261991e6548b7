// The current weights of all shards as one safetensors file, piece by piece: what `psctl export`
// receives.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/ids.h"
#include "common/job_spec.h"
#include "server/coordinator/messages.h"
#include "server/fleet/shard_host.h"

namespace lodestar {

class WeightsExport {
 public:
  // Takes the next bytes of the file; an error ends the export.
  using Sink = absl::FunctionRef<absl::Status(absl::string_view)>;

  // Of `min_version` or newer. `local` outlives the object and owns the buckets of shard 0; the
  // other servers are asked under their addresses.
  WeightsExport(std::shared_ptr<const ClusterMap> map, JobSpec job, Version min_version,
                const ShardHost* local)
      : map_(std::move(map)), job_(std::move(job)), min_version_(min_version), local_(local) {}

  // Blocks for the network, and for updates under way up to the version, for a bounded time per
  // bucket. Every bucket is whole and of one version; while training goes on, buckets may be one
  // round apart. Errors: NotFound (no weights yet), DeadlineExceeded with what is waited for, those
  // of Pull, of the sink.
  absl::Status WriteTo(Sink sink) const;

 private:
  absl::Status WriteHeader(Sink sink) const;
  absl::Status WriteLocalBucket(const Bucket& bucket, Sink sink) const;
  absl::Status WriteRemoteBuckets(const ShardAddress& shard, Sink sink) const;

  const std::shared_ptr<const ClusterMap> map_;
  const JobSpec job_;
  const Version min_version_;
  const ShardHost* const local_;
};

}  // namespace lodestar
