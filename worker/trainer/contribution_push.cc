#include "worker/trainer/contribution_push.h"

#include "common/logging.h"
#include "common/status_macros.h"
#include "worker/trainer/retry.h"

namespace lodestar {
namespace {

ContributionHeader HeaderOnTheWire(ContributionHeader header, const PushEncoder& encoder) {
  header.encoding = encoder.encoding();
  // What is encoded is scaled before: the residual must be of what the servers count.
  if (!encoder.is_exact()) header.scale = 1.0f;
  return header;
}

}  // namespace

ContributionPush::ContributionPush(const Registration& registration,
                                   const ContributionHeader& header, HostMirror* values,
                                   WeightsPull* base, PushEncoder* encoder,
                                   ParameterTransport* transport, Clock* clock,
                                   TraceRecorder* trace)
    : registration_(registration),
      header_(HeaderOnTheWire(header, *encoder)),
      values_(values),
      base_(base),
      encoder_(encoder),
      transport_(transport),
      clock_(clock),
      trace_(trace),
      session_(transport->StartPush(header_)) {
  encoder_->Begin(registration, header.round, header.scale);
  if (!values_->is_shared()) pusher_ = std::thread([this] { HandOverCopies(); });
}

ContributionPush::~ContributionPush() { JoinPusher(/*drop=*/true); }

absl::Status ContributionPush::BlockReady(int block) {
  ready_blocks_.push_back(block);
  if (values_->is_shared()) {
    AddBucketsOf(block, Attempt::kFirst);
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
    AddBucketsOf(copy.block, Attempt::kFirst);
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

void ContributionPush::AddBucketsOf(int block, Attempt attempt) {
  for (const Bucket& bucket : registration_.buckets) {
    if (bucket.block != block) continue;
    session_->AddBucket(bucket.index, base_->version(bucket.index), Encode(bucket, attempt));
  }
}

absl::Span<const std::byte> ContributionPush::Encode(const Bucket& bucket, Attempt attempt) {
  const float* const values = values_->data() + bucket.range.begin;
  if (attempt == Attempt::kAgain) return encoder_->Encoded(bucket, values);
  TraceSpan span(encoder_->is_exact() ? nullptr : trace_,
                 values_->is_shared() ? "training" : "pusher", "encode",
                 {.block = bucket.block, .bucket = bucket.index});
  return encoder_->Encode(bucket, values);
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
      if (!result->late.empty()) {
        LogDebug("round {} was committed without {} buckets of ours", header_.round,
                 result->late.size());
      }
      encoder_->Commit(values_->data(), result->late);
      blocked_ = clock_->Now() - start;
      return absl::OkStatus();
    }
    if (!TransferRetry::MayHelp(result.status())) return result.status();
    retry.BackOff(result.status(), "push");
    session_ = transport_->StartPush(header_);
    for (int block : ready_blocks_) AddBucketsOf(block, Attempt::kAgain);
  }
}

}  // namespace lodestar
