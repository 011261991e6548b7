#include "worker/trainer/contribution_push.h"

#include "common/logging.h"
#include "common/status_macros.h"
#include "worker/trainer/retry.h"

namespace lodestar {

ContributionPush::ContributionPush(const Registration& registration,
                                   const ContributionHeader& header, HostMirror* values,
                                   WeightsPull* base, ParameterTransport* transport, Clock* clock)
    : registration_(registration),
      header_(header),
      values_(values),
      base_(base),
      transport_(transport),
      clock_(clock),
      session_(transport->StartPush(header)) {}

absl::Status ContributionPush::BlockReady(int block) {
  RETURN_IF_ERROR(values_->ToHost(registration_.layout.block(block)));
  ready_blocks_.push_back(block);
  AddBucketsOf(block);
  return absl::OkStatus();
}

absl::Status ContributionPush::AllBlocksReady() {
  for (int block = registration_.layout.num_blocks() - 1; block >= 0; --block) {
    RETURN_IF_ERROR(BlockReady(block));
  }
  return absl::OkStatus();
}

void ContributionPush::AddBucketsOf(int block) {
  for (const Bucket& bucket : registration_.buckets) {
    if (bucket.block != block) continue;
    session_->AddBucket(
        bucket.index, base_->version(bucket.index),
        absl::MakeConstSpan(values_->data() + bucket.range.begin, bucket.range.size()));
  }
}

absl::Status ContributionPush::Finish() {
  const absl::Time start = clock_->Now();
  TransferRetry retry(clock_);
  while (true) {
    const absl::StatusOr<PushResult> result = session_->Finish();
    if (result.ok()) {
      if (result->buckets_late > 0) {
        LogDebug("round {} was committed without {} buckets of ours", header_.round,
                 result->buckets_late);
      }
      blocked_ = clock_->Now() - start;
      return absl::OkStatus();
    }
    if (!TransferRetry::MayHelp(result.status())) return result.status();
    retry.BackOff(result.status(), "push");
    session_ = transport_->StartPush(header_);
    for (int block : ready_blocks_) AddBucketsOf(block);
  }
}

}  // namespace lodestar
