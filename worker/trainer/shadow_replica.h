// ShadowReplica: what this worker has of the servers' weights where they travel as encoded changes:
// see ParameterService.Pull in proto/parameter_service.proto. All workers that are at one version
// have the same bits.
//
// Takes as much memory as the parameters, and room for the changes of one pull, which are smaller.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "common/bucket_plan.h"
#include "common/cluster_messages.h"
#include "common/encoding.h"
#include "common/ids.h"
#include "worker/client/bulk_transport.h"

namespace lodestar {

class ShadowReplica {
 public:
  explicit ShadowReplica(Encoding encoding) : encoding_(encoding) {}

  Encoding encoding() const { return encoding_; }
  // Main memory that one takes; 0 of fp32, which needs none.
  static int64_t Bytes(Encoding encoding, int64_t num_elements);

  // Before the first pull of a life. What is held stays if the servers are still the same.
  void Attach(const Registration& registration);

  // For a pull of the bucket into `weights`.
  PullTarget TargetOf(const Bucket& bucket, float* weights);
  // The pull has brought this: completes the bucket in `weights`. Buckets may be completed by
  // several threads at a time.
  void Complete(const Bucket& bucket, const PulledBucket& pulled, float* weights);

 private:
  const Encoding encoding_;
  uint64_t server_incarnation_ = 0;
  std::vector<float> shadow_;
  std::vector<std::byte> changes_;
  std::vector<int64_t> places_;               // in changes_, by bucket
  std::vector<std::optional<Version>> held_;  // by bucket
};

}  // namespace lodestar
