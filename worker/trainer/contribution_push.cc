// SPDX-License-Identifier: Apache-2.0

#include "worker/trainer/contribution_push.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>

#include "common/logging/logging.h"
#include "common/runtime/status_macros.h"
#include "worker/trainer/retry.h"

namespace lodestar::trainer {
namespace {

client::ContributionHeader HeaderOnTheWire(client::ContributionHeader header,
                                           const ContributionBytes& bytes) {
  header.encoding = bytes.encoding();
  // Encoded contributions are scaled before they are encoded, so the servers must not scale them.
  // The residual is then exactly the part that is missing in the servers' sum.
  if (!bytes.is_exact()) header.scale = 1.0f;
  return header;
}

// Calls Finish() of `session` and returns its result. If Finish() fails and a retry may succeed,
// makes a new session with `start`, which has the same content, and tries again.
absl::StatusOr<client::PushResult> DeliverAll(
    std::unique_ptr<ContributionSession> session, const client::ContributionHeader& header,
    Clock* clock,
    const std::function<absl::StatusOr<std::unique_ptr<ContributionSession>>()>& start) {
  TransferRetry retry(clock);
  while (true) {
    const absl::StatusOr<client::PushResult> result = session->Finish();
    if (result.ok()) {
      if (!result->late.empty()) {
        logging::LogDebug("round {} was completed without {} buckets of this worker", header.round,
                          result->late.size());
      }
      return *result;
    }
    if (!retry.MayHelp(result.status())) return result.status();
    retry.BackOff(result.status(), "push");
    session.reset();
    ASSIGN_OR_RETURN(session, start());
  }
}

}  // namespace

ContributionSession::ContributionSession(const messages::Registration& registration,
                                         const client::ContributionHeader& header,
                                         client::ParameterTransport* transport)
    : registration_(registration),
      header_(header),
      transport_(transport),
      session_(transport->StartPush(header)) {}

absl::Status ContributionSession::AddBucket(const params::Bucket& bucket, Version base_version,
                                            ContributionBytes& bytes) {
  client::PushSession& session = SessionOf(bucket);
  const std::optional<client::DevicePayload> on_device = bytes.OnDevice(bucket);
  if (!on_device.has_value()) {
    session.AddBucket(bucket.index, base_version, bytes.Of(bucket));
  } else if (transport_->ReachesDevice(bucket.index)) {
    session.AddDeviceBucket(bucket.index, base_version, *on_device);
  } else {
    ASSIGN_OR_RETURN(const absl::Span<const std::byte> data,
                     on_device->source->Fetch(on_device->begin, on_device->bytes));
    session.AddBucket(bucket.index, base_version, data);
  }
  return absl::OkStatus();
}

client::PushSession& ContributionSession::SessionOf(const params::Bucket& bucket) {
  client::ContributionHeader plain = header_;
  plain.encoding = params::Encoding::kFp32;
  plain.scale = 1.0f;
  if (plain == header_ || !registration_.layout().is_averaged(bucket.block)) return *session_;
  if (averaged_ == nullptr) averaged_ = transport_->StartPush(plain);
  return *averaged_;
}

int64_t ContributionSession::bytes_unsent() const {
  return session_->bytes_unsent() + (averaged_ == nullptr ? 0 : averaged_->bytes_unsent());
}

absl::StatusOr<client::PushResult> ContributionSession::Finish() {
  ASSIGN_OR_RETURN(client::PushResult result, session_->Finish());
  if (averaged_ == nullptr) return result;
  ASSIGN_OR_RETURN(const client::PushResult averaged, averaged_->Finish());
  result.buckets_counted += averaged.buckets_counted;
  result.buckets_duplicate += averaged.buckets_duplicate;
  result.late.insert(result.late.end(), averaged.late.begin(), averaged.late.end());
  result.wait = averaged.wait;
  return result;
}

ContributionPush::ContributionPush(const messages::Registration& registration,
                                   const client::ContributionHeader& header,
                                   ContributionBytes* bytes, BaseVersions* base,
                                   client::ParameterTransport* transport, Clock* clock,
                                   process::TraceRecorder* trace, Leaves leaves)
    : registration_(registration),
      header_(HeaderOnTheWire(header, *bytes)),
      bytes_(bytes),
      base_(base),
      transport_(transport),
      clock_(clock),
      trace_(trace),
      leaves_(leaves),
      is_ready_(registration.buckets().size(), false),
      session_(std::make_unique<ContributionSession>(registration, header_, transport)) {
  bytes_->Begin(registration, header.round, header.scale);
  if (!bytes_->is_inline()) pusher_ = std::thread([this] { HandOver(); });
}

ContributionPush::~ContributionPush() { JoinPusher(/*drop=*/true); }

absl::Status ContributionPush::BlockReady(int block) {
  return PartsReady(block, {registration_.layout().block(block)});
}

absl::Status ContributionPush::PartsReady(int block, absl::Span<const params::ElementRange> parts) {
  for (const params::Bucket& bucket : registration_.buckets()) {
    if (bucket.block != block || is_ready_[bucket.index]) continue;
    // Finds the first part that ends at or after the end of the bucket.
    const auto part = std::lower_bound(
        parts.begin(), parts.end(), bucket.range.end,
        [](const params::ElementRange& range, int64_t end) { return range.end < end; });
    if (part != parts.end() && part->begin <= bucket.range.begin) Ready(bucket);
  }
  return failure();
}

absl::Status ContributionPush::BucketsReady(absl::Span<const uint32_t> buckets) {
  for (const uint32_t bucket : buckets) Ready(registration_.buckets()[bucket]);
  return failure();
}

void ContributionPush::Ready(const params::Bucket& bucket) {
  ready_.push_back(&bucket);
  is_ready_[bucket.index] = true;
  if (bytes_->is_inline()) return PrepareAndAdd(bucket);
  const kernels::EventId event = Prepare(bucket);
  absl::MutexLock lock(&mutex_);
  prepared_.push_back({&bucket, event});
}

kernels::EventId ContributionPush::Prepare(const params::Bucket& bucket) {
  if (leaves_ == Leaves::kAtOnce && transport_->ReachesDevice(bucket.index)) {
    return bytes_->PrepareOnDevice(bucket);
  }
  return bytes_->Prepare(bucket);
}

absl::Status ContributionPush::AllBlocksReady() {
  for (int block = registration_.layout().num_blocks() - 1; block >= 0; --block) {
    RETURN_IF_ERROR(BlockReady(block));
  }
  return absl::OkStatus();
}

void ContributionPush::PrepareAndAdd(const params::Bucket& bucket) {
  {
    process::TraceSpan span(bytes_->is_exact() ? nullptr : trace_, "training", "encode",
                            {.block = bucket.block, .bucket = bucket.index});
    bytes_->Prepare(bucket);
  }
  if (leaves_ == Leaves::kAtOnce) NoteFailure(Add(bucket));
}

void ContributionPush::HandOver() {
  const auto has_news = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return !prepared_.empty() || no_more_;
  };
  while (true) {
    Prepared prepared;
    {
      absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(&has_news));
      if (prepared_.empty()) return;
      prepared = prepared_.front();
      prepared_.pop_front();
    }
    absl::Status status = Await(prepared);
    if (status.ok() && leaves_ == Leaves::kAtOnce) status = Add(*prepared.bucket);
    NoteFailure(status);
    if (!status.ok()) return;
  }
}

absl::Status ContributionPush::Await(const Prepared& prepared) {
  process::TraceSpan span(trace_, "pusher", "copy wait",
                          {.block = prepared.bucket->block, .bucket = prepared.bucket->index});
  return bytes_->Await(prepared.event);
}

void ContributionPush::JoinPusher(bool drop) {
  if (!pusher_.joinable()) return;
  {
    absl::MutexLock lock(&mutex_);
    no_more_ = true;
    if (drop) prepared_.clear();
  }
  pusher_.join();
}

absl::Status ContributionPush::AddTo(ContributionSession& session, const params::Bucket& bucket) {
  return session.AddBucket(bucket, base_->version(bucket.index), *bytes_);
}

void ContributionPush::NoteFailure(const absl::Status& status) {
  absl::MutexLock lock(&mutex_);
  failure_.Update(status);
}

absl::Status ContributionPush::failure() {
  absl::MutexLock lock(&mutex_);
  return failure_;
}

MadeContribution ContributionPush::made() const {
  MadeContribution made = {.header = header_, .bytes = bytes_, .buckets = {}, .base_versions = {}};
  for (const params::Bucket* bucket : ready_) {
    made.buckets.push_back(bucket->index);
    made.base_versions.push_back(base_->version(bucket->index));
  }
  return made;
}

std::vector<LeavingBucket> ContributionPush::leaving() const {
  std::vector<LeavingBucket> leaving;
  if (session_ == nullptr) return leaving;
  int64_t behind = 0;  // Bytes that are sent after this bucket.
  int64_t unsent = 0;
  for (const params::Bucket* bucket : ready_)
    unsent += static_cast<int64_t>(bytes_->Of(*bucket).size());
  if (leaves_ == Leaves::kAtOnce) unsent = std::min(unsent, session_->bytes_unsent());
  for (auto it = ready_.rbegin(); it != ready_.rend() && behind < unsent; ++it) {
    leaving.push_back({(*it)->index, unsent - behind});
    behind += static_cast<int64_t>(bytes_->Of(**it).size());
  }
  std::reverse(leaving.begin(), leaving.end());
  return leaving;
}

absl::Status ContributionPush::AwaitMade() {
  JoinPusher(/*drop=*/false);
  return failure();
}

absl::Status ContributionPush::Finish() {
  ASSIGN_OR_RETURN(const std::vector<uint32_t> late, Deliver());
  bytes_->Commit(late);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<uint32_t>> ContributionPush::Deliver() {
  const absl::Time start = clock_->Now();
  process::TraceSpan span(trace_, "training", "push wait");
  RETURN_IF_ERROR(AwaitMade());
  if (leaves_ == Leaves::kWithFinish) {
    for (const params::Bucket* bucket : ready_) RETURN_IF_ERROR(Add(*bucket));
  }
  const auto begin_again = [this]() -> absl::StatusOr<std::unique_ptr<ContributionSession>> {
    auto session = std::make_unique<ContributionSession>(registration_, header_, transport_);
    for (const params::Bucket* bucket : ready_) RETURN_IF_ERROR(AddTo(*session, *bucket));
    return session;
  };
  ASSIGN_OR_RETURN(client::PushResult result,
                   DeliverAll(std::move(session_), header_, clock_, begin_again));
  const absl::Duration took = clock_->Now() - start;
  waited_ = result.wait.Within(took);
  blocked_ = took - waited_;
  return std::move(result.late);
}

absl::StatusOr<std::vector<uint32_t>> DeliverAgain(const messages::Registration& registration,
                                                   const MadeContribution& made,
                                                   client::ParameterTransport* transport,
                                                   Clock* clock) {
  const auto start = [&]() -> absl::StatusOr<std::unique_ptr<ContributionSession>> {
    auto session = std::make_unique<ContributionSession>(registration, made.header, transport);
    for (size_t i = 0; i < made.buckets.size(); ++i) {
      RETURN_IF_ERROR(session->AddBucket(registration.buckets()[made.buckets[i]],
                                         made.base_versions[i], *made.bytes));
    }
    return session;
  };
  ASSIGN_OR_RETURN(std::unique_ptr<ContributionSession> session, start());
  ASSIGN_OR_RETURN(client::PushResult result,
                   DeliverAll(std::move(session), made.header, clock, start));
  return std::move(result.late);
}

absl::Status PushAgain(const messages::Registration& registration, const MadeContribution& made,
                       client::ParameterTransport* transport, Clock* clock) {
  ASSIGN_OR_RETURN(const std::vector<uint32_t> late,
                   DeliverAgain(registration, made, transport, clock));
  made.bytes->Commit(late);
  return absl::OkStatus();
}

}  // namespace lodestar::trainer
