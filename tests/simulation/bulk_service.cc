// SPDX-License-Identifier: Apache-2.0

#include "tests/simulation/bulk_service.h"

#include <cstring>
#include <utility>

namespace lodestar::simulation {

void ServedPush::Take(PushedBucket bucket) {
  if (is_over_) return;
  inbox_.push_back(std::move(bucket));
  if (!is_held_) Pump();
}

void ServedPush::Pump() {
  while (!is_over_ && !is_held_ && !inbox_.empty()) {
    const PushedBucket& next = inbox_.front();
    if (next.is_damaged) return Fail(absl::DataLossError("a chunk was damaged on its way"));
    is_held_ = true;
    const shard::PendingCall call = shard_->BeginBucket(
        next.key, next.bucket,
        [self = shared_from_this()](absl::StatusOr<shard::StagedBucket> staged) {
          self->OnSpace(std::move(staged));
        });
    if (is_held_) {
      waiting_ = call;
      if (is_over_) waiting_.Cancel();
    }
  }
}

void ServedPush::OnSpace(absl::StatusOr<shard::StagedBucket> staged) {
  is_held_ = false;
  if (!staged.ok()) return Fail(staged.status());
  if (is_over_) return;
  const PushedBucket pushed = std::move(inbox_.front());
  inbox_.pop_front();
  if (!staged->is_discard()) {
    std::memcpy(staged->bytes().data(), pushed.bytes->data(), pushed.bytes->size());
  }
  bytes_ += pushed.bytes->size();
  ++num_uncounted_;
  shard_->FinishBucket(*std::move(staged),
                       [self = shared_from_this(), key = pushed.key,
                        bucket = pushed.bucket](const absl::StatusOr<shard::PushOutcome>& outcome) {
                         self->OnCounted(key, bucket, outcome);
                       });
  Pump();
}

void ServedPush::OnCounted(const shard::ContributionKey& key, uint32_t bucket,
                           const absl::StatusOr<shard::PushOutcome>& outcome) {
  if (outcome.ok()) audit_->OnAnswered(key, bucket, *outcome);
  if (!outcome.ok()) return Fail(outcome.status());
  switch (*outcome) {
    case shard::PushOutcome::kCounted:
      ++result_.buckets_counted;
      break;
    case shard::PushOutcome::kDuplicate:
      ++result_.buckets_duplicate;
      break;
    case shard::PushOutcome::kLate:
      result_.late.push_back(bucket);
      break;
  }
  --num_uncounted_;
  MaybeFinish();
}

void ServedPush::OnClientDone() {
  client_done_ = true;
  MaybeFinish();
}

void ServedPush::MaybeFinish() {
  if (is_over_ || !client_done_ || num_uncounted_ > 0 || !inbox_.empty()) return;
  is_over_ = true;
  answer_(result_);
}

void ServedPush::Fail(const absl::Status& status) {
  if (std::exchange(is_over_, true)) return;
  waiting_.Cancel();
  inbox_.clear();
  answer_(status);
}

void ServedPull::ReadNext() {
  if (is_over_) return;
  if (num_read_ == order_.buckets.size()) {
    is_over_ = true;
    return answer_(absl::OkStatus());
  }
  const size_t position = num_read_++;
  const uint32_t bucket = order_.buckets[position];
  is_held_ = true;
  const shard::PendingCall call = shard_->ReadBucket(
      order_.worker, order_.incarnation, bucket, order_.min_round,
      [self = shared_from_this(), bucket](const absl::StatusOr<shard::PublishedBucket>& published) {
        self->OnRead(bucket, published);
      },
      {.shadow = order_.encoding != params::Encoding::kFp32, .held = order_.held[position]});
  if (is_held_) {
    waiting_ = call;
    if (is_over_) waiting_.Cancel();
  }
}

void ServedPull::OnRead(uint32_t bucket, const absl::StatusOr<shard::PublishedBucket>& published) {
  is_held_ = false;
  if (is_over_) return;
  if (!published.ok()) {
    is_over_ = true;
    return answer_(published.status());
  }
  DeliveredBucket delivered;
  delivered.bucket = bucket;
  delivered.version = published->version;
  if (published->page != nullptr) {
    delivered.elements.assign(published->data().begin(), published->data().end());
    bytes_ += delivered.elements.size() * sizeof(float);
  }
  const int64_t change_bytes = params::EncodedBytes(published->encoding, published->num_elements);
  for (const std::shared_ptr<const shard::Page>& change : published->changes) {
    const auto* bytes = reinterpret_cast<const std::byte*>(change->data());
    delivered.changes.emplace_back(bytes, bytes + change_bytes);
    bytes_ += change_bytes;
  }
  deliver_(std::move(delivered));
  ReadNext();
}

void ServedPull::Abandon() {
  is_over_ = true;
  waiting_.Cancel();
}

}  // namespace lodestar::simulation
