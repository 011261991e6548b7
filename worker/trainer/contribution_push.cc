#include "worker/trainer/contribution_push.h"

#include "common/logging.h"
#include "common/status_macros.h"
#include "worker/trainer/retry.h"

namespace lodestar {

ContributionPush::ContributionPush(const Registration& registration,
                                   const ContributionHeader& header, HostMirror* values,
                                   WeightsPull* base, ParameterTransport* transport, Clock* clock,
                                   TraceRecorder* trace)
    : registration_(registration),
      header_(header),
      values_(values),
      base_(base),
      transport_(transport),
      clock_(clock),
      trace_(trace),
      session_(transport->StartPush(header)) {
  if (!values_->is_shared()) pusher_ = std::thread([this] { HandOverCopies(); });
}

ContributionPush::~ContributionPush() { JoinPusher(/*drop=*/true); }

absl::Status ContributionPush::BlockReady(int block) {
  ready_blocks_.push_back(block);
  if (values_->is_shared()) {
    AddBucketsOf(block);
    return absl::OkStatus();
  }
  const EventId copied = values_->ToHost(registration_.layout.block(block));
  absl::MutexLock lock(&mutex_);
  copies_.push_back({block, copied});
  return failure_;
}

absl::Status ContributionPush::AllBlocksReady() {
  for (int block = registration_.layout.num_blocks() - 1; block >= 0; --block) {
    RETURN_IF_ERROR(BlockReady(block));
  }
  return absl::OkStatus();
}

void ContributionPush::HandOverCopies() {
  const auto has_news = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return !copies_.empty() || no_more_copies_;
  };
  while (true) {
    Copy copy;
    {
      absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(&has_news));
      if (copies_.empty()) return;
      copy = copies_.front();
      copies_.pop_front();
    }
    const absl::Status status = AwaitCopy(copy);
    if (!status.ok()) {
      absl::MutexLock lock(&mutex_);
      failure_ = status;
      return;
    }
    AddBucketsOf(copy.block);
  }
}

absl::Status ContributionPush::AwaitCopy(const Copy& copy) {
  TraceSpan span(trace_, "pusher", "copy wait", {.block = copy.block});
  return values_->Await(copy.copied);
}

void ContributionPush::JoinPusher(bool drop) {
  if (!pusher_.joinable()) return;
  {
    absl::MutexLock lock(&mutex_);
    no_more_copies_ = true;
    if (drop) copies_.clear();
  }
  pusher_.join();
}

void ContributionPush::AddBucketsOf(int block) {
  for (const Bucket& bucket : registration_.buckets) {
    if (bucket.block != block) continue;
    session_->AddBucket(
        bucket.index, base_->version(bucket.index),
        absl::MakeConstSpan(values_->data() + bucket.range.begin, bucket.range.size()));
  }
}

absl::Status ContributionPush::failure() {
  absl::MutexLock lock(&mutex_);
  return failure_;
}

absl::Status ContributionPush::Finish() {
  const absl::Time start = clock_->Now();
  TraceSpan span(trace_, "training", "push wait");
  JoinPusher(/*drop=*/false);
  RETURN_IF_ERROR(failure());
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
