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

#include "common/messages/cluster_messages.h"
#include "common/params/bucket_plan.h"
#include "common/params/encoding.h"
#include "common/runtime/ids.h"
#include "worker/client/bulk_transport.h"

namespace lodestar::trainer {

class ShadowReplica {
 public:
  explicit ShadowReplica(Encoding encoding) : encoding_(encoding) {}

  Encoding encoding() const { return encoding_; }
  // Returns the main memory that a shadow takes. 0 means that the encoding is fp32, which needs
  // none.
  static int64_t Bytes(Encoding encoding, int64_t num_elements);

  // Must be called before the first pull of a life. What is held stays if the servers are still the
  // same.
  void Attach(const Registration& registration);

  // Returns the target of a pull of the bucket into `weights`.
  client::PullTarget TargetOf(const Bucket& bucket, float* weights);
  // Completes the bucket in `weights` with what the pull has brought. Several threads may complete
  // buckets at the same time.
  void Complete(const Bucket& bucket, const client::PulledBucket& pulled, float* weights);

 private:
  const Encoding encoding_;
  uint64_t server_incarnation_ = 0;
  std::vector<float> shadow_;
  std::vector<std::byte> changes_;
  std::vector<int64_t> places_;               // in changes_, by bucket
  std::vector<std::optional<Version>> held_;  // by bucket
};

}  // namespace lodestar::trainer
