// ContributionPush: one contribution on its way to the servers, bucket by bucket while backward
// still produces it, and again until every server has acknowledged it. Under one key, so it counts
// once.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/contribution.h"
#include "worker/client/bulk_transport.h"
#include "worker/client/work_grant.h"
#include "worker/model/model.h"
#include "worker/trainer/host_mirror.h"
#include "worker/trainer/weights_pull.h"

namespace lodestar {

class ContributionPush final : public GradientSink {
 public:
  // `values` must not change until Finish() has returned; `base` tells the versions that it was
  // computed on. All arguments outlive the push.
  ContributionPush(const Registration& registration, const ContributionHeader& header,
                   HostMirror* values, WeightsPull* base, ParameterTransport* transport,
                   Clock* clock);

  // The block's values are final: its buckets leave.
  absl::Status BlockReady(int block) override;
  absl::Status AllBlocksReady();

  // Blocks until every server has acknowledged. Errors: Aborted, Cancelled, and refusals.
  absl::Status Finish();
  // Time spent in Finish(): what computing did not hide.
  absl::Duration blocked() const { return blocked_; }

 private:
  void AddBucketsOf(int block);

  const Registration& registration_;
  const ContributionHeader header_;
  HostMirror* const values_;
  WeightsPull* const base_;
  ParameterTransport* const transport_;
  Clock* const clock_;
  std::vector<int> ready_blocks_;
  absl::Duration blocked_;
  std::unique_ptr<PushSession> session_;
};

}  // namespace lodestar
