// SPDX-License-Identifier: Apache-2.0

// ShadowReplica is the worker's copy of the servers' weights. It exists if weights are sent as
// encoded changes (see ParameterService.Pull in proto/parameter_service.proto). At the same
// version, the copies of all workers have the same bits.
//
// It needs as much memory as the parameters, and a smaller amount for the changes of one pull.
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
  // Returns the main memory that a shadow needs, in bytes. It is 0 for fp32, which needs no shadow.
  static int64_t Bytes(params::Encoding encoding, int64_t num_elements);

  // Must be called before the first pull of a life. Clears the shadow, unless the servers are still
  // the same.
  void Attach(const messages::Registration& registration);

  // Returns the PullTarget with which a pull of this bucket writes to `weights`.
  client::PullTarget TargetOf(const params::Bucket& bucket, float* weights);
  // Writes the bucket's new weights to `weights`, from the bytes that the pull has brought. Several
  // threads may complete buckets at the same time.
  void Complete(const params::Bucket& bucket, const client::PulledBucket& pulled, float* weights);

 private:
  const params::Encoding encoding_;
  uint64_t server_incarnation_ = 0;
  std::vector<float> shadow_;
  std::vector<std::byte> changes_;
  // Offset of each bucket in changes_.
  std::vector<int64_t> places_;
  // Version of each bucket in the shadow. Not set means that the shadow does not have the bucket.
  std::vector<std::optional<Version>> held_;
};

}  // namespace lodestar::trainer
