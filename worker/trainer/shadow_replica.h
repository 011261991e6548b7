// SPDX-License-Identifier: Apache-2.0

// ShadowReplica is the worker's copy of the servers' weights if weights travel as encoded changes
// (see ParameterService.Pull in proto/parameter_service.proto). All workers at the same version
// have the same bits.
//
// It takes as much memory as the parameters, and a smaller amount for the changes of one pull.
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
  explicit ShadowReplica(params::Encoding encoding) : encoding_(encoding) {}

  params::Encoding encoding() const { return encoding_; }
  // Returns the main memory that a shadow takes, in bytes. It is 0 for fp32, which needs no shadow.
  static int64_t Bytes(params::Encoding encoding, int64_t num_elements);

  // Must be called before the first pull of a life. If the servers are still the same, the shadow
  // stays. Otherwise it is cleared.
  void Attach(const messages::Registration& registration);

  // Returns the target of a pull of this bucket into `weights`.
  client::PullTarget TargetOf(const params::Bucket& bucket, float* weights);
  // Writes the bucket into `weights` from what the pull has brought. Several threads may complete
  // buckets at the same time.
  void Complete(const params::Bucket& bucket, const client::PulledBucket& pulled, float* weights);

 private:
  const params::Encoding encoding_;
  uint64_t server_incarnation_ = 0;
  std::vector<float> shadow_;
  std::vector<std::byte> changes_;
  // Where each bucket begins in changes_.
  std::vector<int64_t> places_;
  // The version of each bucket in the shadow. Not set means that the shadow does not have the
  // bucket.
  std::vector<std::optional<Version>> held_;
};

}  // namespace lodestar::trainer
