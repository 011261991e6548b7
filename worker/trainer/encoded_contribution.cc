// SPDX-License-Identifier: Apache-2.0

#include "worker/trainer/encoded_contribution.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/params/shard_plan.h"
#include "common/runtime/check.h"
#include "common/runtime/random.h"
#include "common/runtime/remedy.h"
#include "common/runtime/status_macros.h"

namespace lodestar::trainer {
namespace {

// Alignment of each bucket's bytes, which makes writing and copying fast.
constexpr int64_t kAlignment = 64;

// Returns the key for random rounding. Each worker has another key. If all workers rounded in the
// same way, their errors would not average out.
uint64_t NoiseKey(uint64_t seed, WorkerId worker) {
  // Selects the random numbers of rounding, so that they differ from those of other code with the
  // same seed.
  constexpr uint64_t kNoiseStream = 0x9054;
  const PhiloxBlock block = Philox(seed, kNoiseStream, worker.value());
  return uint64_t{block[0]} << 32 | block[1];
}

// Returns a number of bytes that is enough for every way in which the servers may divide the vector
// into buckets. There are at most as many buckets as segments. In addition to the encoded vector,
// each bucket may need:
// - the bytes of one alignment;
// - the bytes of a second block, if the bucket's end divides a block of the encoding. This is one
//   scale and half a byte, or a whole block with top-k.
int64_t RoomFor(params::Encoding encoding, const params::Layout& layout) {
  const params::ElementRange all = {0, layout.num_elements()};
  const auto most_buckets = static_cast<int64_t>(params::SegmentsOf(layout, all).size());
  const int64_t of_cut = encoding.is_topk()
                             ? params::EncodedBytes(encoding, params::BlockElements(encoding))
                             : static_cast<int64_t>(sizeof(float));
  return params::EncodedBytes(encoding, all.size()) + most_buckets * (kAlignment + of_cut);
}

int64_t ResidualBytes(const job::JobSpec& job, int64_t num_elements) {
  return job.error_feedback ? num_elements * static_cast<int64_t>(sizeof(float)) : 0;
}

// If there are two residuals, encoding also computes the new residual, so the vector and the old
// residual are read only once. On a card there is only one residual, because a card has less
// memory, and reads it faster.
int NumResiduals(bool memory_is_host) { return memory_is_host ? 2 : 1; }

}  // namespace

int64_t EncodedContribution::DeviceBytes(const job::JobSpec& job, const params::Layout& layout,
                                         bool memory_is_host) {
  return RoomFor(job.push_encoding, layout) +
         NumResiduals(memory_is_host) * ResidualBytes(job, layout.num_elements());
}

int64_t EncodedContribution::PinnedBytes(const job::JobSpec& job, const params::Layout& layout,
                                         bool foresees) {
  return RoomFor(job.push_encoding, layout) +
         (foresees ? 2 * ResidualBytes(job, layout.num_elements()) : 0);
}

absl::StatusOr<std::unique_ptr<EncodedContribution>> EncodedContribution::Create(
    const job::JobSpec& job, const params::Layout& layout, kernels::Device* device,
    kernels::Buf vector, DeviceTimeline* timeline) {
  LODESTAR_CHECK(job.push_encoding != params::Encoding::kFp32);
  LODESTAR_CHECK(vector.dtype == kernels::DType::kF32 &&
                 vector.num_elements == layout.num_elements());
  auto result =
      std::unique_ptr<EncodedContribution>(new EncodedContribution(job, device, vector, timeline));
  const absl::Status allocated =
      result->Allocate(ResidualBytes(job, vector.num_elements), RoomFor(job.push_encoding, layout));
  if (allocated.ok()) return result;
  return absl::Status(
      allocated.code(),
      absl::StrCat("there is not enough memory to encode contributions with --push_encoding=",
                   params::EncodingName(job.push_encoding), ": ", allocated.message()));
}

absl::Status EncodedContribution::Allocate(int64_t residual_bytes, int64_t room) {
  room_ = room;
  ASSIGN_OR_RETURN(device_bytes_, model::DeviceMemory::Allocate(device_, room_));
  host_ = static_cast<std::byte*>(device_bytes_.data());
  if (!device_->capabilities().memory_is_host) {
    ASSIGN_OR_RETURN(host_bytes_, model::DeviceMemory::AllocateHost(device_, room_));
    host_ = static_cast<std::byte*>(host_bytes_.data());
  }
  if (residual_bytes == 0) return absl::OkStatus();
  ASSIGN_OR_RETURN(residual_memory_, model::DeviceMemory::Allocate(device_, residual_bytes));
  residual_ = kernels::Buf{residual_memory_.data(), kernels::DType::kF32, vector_.num_elements};
  if (!device_->capabilities().memory_is_host) return absl::OkStatus();
  ASSIGN_OR_RETURN(next_residual_memory_, model::DeviceMemory::Allocate(device_, residual_bytes));
  next_residual_ =
      kernels::Buf{next_residual_memory_.data(), kernels::DType::kF32, vector_.num_elements};
  return absl::OkStatus();
}

EncodedContribution::~EncodedContribution() {
  for (const std::optional<kernels::EventId>& last : {last_prepared_, last_committed_}) {
    if (last.has_value()) device_->Synchronize(*last).IgnoreError();
  }
}

void EncodedContribution::Begin(const messages::Registration& registration, Round round,
                                float scale) {
  buckets_ = registration.buckets();
  noise_key_ = NoiseKey(registration.job.seed, registration.life.worker);
  round_ = round;
  scale_ = scale;
  ForgetUncommitted(registration.server_incarnation);
  is_prepared_.assign(buckets_.size(), false);
  is_on_device_.assign(buckets_.size(), 0);
  int64_t end = 0;
  places_.clear();
  for (const params::Bucket& bucket : registration.buckets()) {
    places_.push_back(end);
    end += params::EncodedBytes(encoding_, bucket.range.size());
    end = (end + kAlignment - 1) / kAlignment * kAlignment;
  }
  LODESTAR_CHECK(end <= room_) << registration.buckets().size() << " buckets take " << end << " of "
                               << room_ << " bytes";
}

void EncodedContribution::ForgetUncommitted(uint64_t server_incarnation) {
  if (!residual_) return;
  if (is_foreseen_) {
    device_->Copy(residual_.data, foreseen_memory_->data(), residual_bytes(),
                  kernels::StreamKind::kCompute);
    is_foreseen_ = false;
  }
  if (server_incarnation_ == server_incarnation) return;
  device_->Fill(residual_, 0.0);
  server_incarnation_ = server_incarnation;
}

void EncodedContribution::Encode(const params::Bucket& bucket) {
  constexpr kernels::StreamKind kStream = kernels::StreamKind::kDeviceToHost;
  is_prepared_[bucket.index] = true;
  device_->Wait(kStream, device_->Record(kernels::StreamKind::kCompute));
  DeviceSpan span(timeline_, kStream, "encode", {.block = bucket.block, .bucket = bucket.index});
  const kernels::Rounding rounding = {.kind = residual_ ? kernels::Rounding::Kind::kToNearest
                                                        : kernels::Rounding::Kind::kStochastic,
                                      .key = noise_key_,
                                      .stream = static_cast<uint64_t>(round_.value()),
                                      .first_element = bucket.range.begin};
  if (next_residual_) {
    device_->EncodeAndUpdate(encoding_, EncodedOf(bucket), PartOf(next_residual_, bucket),
                             PartOf(vector_, bucket), scale_, PartOf(residual_, bucket), rounding,
                             decay_, kStream);
  } else {
    device_->Encode(encoding_, EncodedOf(bucket), PartOf(vector_, bucket), scale_,
                    PartOf(residual_, bucket), rounding, kStream);
  }
}

kernels::EventId EncodedContribution::Prepared() {
  last_prepared_ = device_->Record(kernels::StreamKind::kDeviceToHost);
  return *last_prepared_;
}

kernels::EventId EncodedContribution::Prepare(const params::Bucket& bucket) {
  constexpr kernels::StreamKind kStream = kernels::StreamKind::kDeviceToHost;
  Encode(bucket);
  if (!is_inline()) {
    const int64_t bytes = params::EncodedBytes(encoding_, bucket.range.size());
    DeviceSpan span(timeline_, kStream, "copy", {.bytes = bytes});
    device_->Copy(host_ + places_[bucket.index], EncodedOf(bucket), bytes, kStream);
  }
  return Prepared();
}

kernels::EventId EncodedContribution::PrepareOnDevice(const params::Bucket& bucket) {
  Encode(bucket);
  is_on_device_[bucket.index] = is_inline() ? 0 : 1;
  return Prepared();
}

std::optional<client::DevicePayload> EncodedContribution::OnDevice(const params::Bucket& bucket) {
  if (is_on_device_[bucket.index] == 0) return std::nullopt;
  return client::DevicePayload{this, places_[bucket.index],
                               params::EncodedBytes(encoding_, bucket.range.size())};
}

absl::Status EncodedContribution::CopyOut(absl::Span<std::byte> destination, int64_t begin) {
  return AsFinal(device_->CopyNow(destination.data(),
                                  static_cast<std::byte*>(device_bytes_.data()) + begin,
                                  destination.size(), kernels::StreamKind::kDeviceToHost, [] {}));
}

absl::StatusOr<absl::Span<const std::byte>> EncodedContribution::Fetch(int64_t begin,
                                                                       int64_t bytes) {
  const absl::Span<std::byte> part = {host_ + begin, static_cast<size_t>(bytes)};
  RETURN_IF_ERROR(CopyOut(part, begin));
  return part;
}

absl::Span<const std::byte> EncodedContribution::Of(const params::Bucket& bucket) const {
  return {host_ + places_[bucket.index],
          static_cast<size_t>(params::EncodedBytes(encoding_, bucket.range.size()))};
}

// Queues the update on the compute stream. So the update reads the vector before later work on that
// stream changes it. Encode() runs on another stream, but first waits for the compute stream, so it
// reads the updated residual.
void EncodedContribution::UpdateResidual(const std::vector<bool>& is_counted) {
  if (!next_residual_) {
    for (const params::Bucket& bucket : buckets_) {
      if (!is_counted[bucket.index]) continue;
      device_->UpdateResidual(encoding_, PartOf(residual_, bucket), PartOf(vector_, bucket), scale_,
                              EncodedOf(bucket), decay_, kernels::StreamKind::kCompute);
    }
    return;
  }
  // Swaps the residuals if fewer elements have to be copied after a swap than without it.
  int64_t num_counted = 0;
  for (const params::Bucket& bucket : buckets_) {
    if (is_counted[bucket.index]) num_counted += bucket.range.size();
  }
  const bool change_places = 2 * num_counted > residual_.num_elements;
  if (change_places) std::swap(residual_, next_residual_);
  for (const params::Bucket& bucket : buckets_) {
    if (is_counted[bucket.index] == change_places) continue;
    CopyPart(PartOf(residual_, bucket), PartOf(next_residual_, bucket));
  }
}

void EncodedContribution::Commit(absl::Span<const uint32_t> late) {
  if (!residual_) return;
  constexpr kernels::StreamKind kStream = kernels::StreamKind::kCompute;
  if (last_prepared_.has_value()) device_->Wait(kStream, *last_prepared_);
  DeviceSpan span(timeline_, kStream, "residual");
  std::vector<bool> is_late(buckets_.size());
  for (const uint32_t bucket : late) {
    if (bucket < is_late.size()) is_late[bucket] = true;
  }
  if (is_foreseen_) {
    const kernels::Buf before = {foreseen_memory_->data(), kernels::DType::kF32,
                                 residual_.num_elements};
    for (const params::Bucket& bucket : buckets_) {
      if (!is_prepared_[bucket.index] || !is_late[bucket.index]) continue;
      CopyPart(PartOf(residual_, bucket), PartOf(before, bucket));
    }
  } else {
    std::vector<bool> is_counted = is_prepared_;
    for (const params::Bucket& bucket : buckets_) {
      if (is_late[bucket.index]) is_counted[bucket.index] = false;
    }
    UpdateResidual(is_counted);
  }
  is_foreseen_ = false;
  last_committed_ = device_->Record(kStream);
}

absl::StatusOr<EncodedContribution::Foreseen> EncodedContribution::Foresee(
    const messages::Registration& registration, bool is_skipped) {
  LODESTAR_CHECK(has_residual() && (is_skipped || !is_foreseen_));
  constexpr kernels::StreamKind kStream = kernels::StreamKind::kCompute;
  if (!foreseen_memory_.has_value()) {
    ASSIGN_OR_RETURN(foreseen_memory_,
                     model::DeviceMemory::AllocateHost(device_, 2 * residual_bytes()));
  }
  auto* const before = static_cast<float*>(foreseen_memory_->data());
  float* const after = before + residual_.num_elements;
  if (is_skipped) ForgetUncommitted(registration.server_incarnation);
  if (last_prepared_.has_value()) device_->Wait(kStream, *last_prepared_);
  device_->Copy(before, residual_.data, residual_bytes(), kStream);
  if (!is_skipped) {
    UpdateResidual(is_prepared_);
  }
  device_->Copy(after, residual_.data, residual_bytes(), kStream);
  last_committed_ = device_->Record(kStream);
  RETURN_IF_ERROR(device_->Synchronize(*last_committed_));
  is_foreseen_ = !is_skipped;
  const auto size = static_cast<size_t>(residual_.num_elements);
  return Foreseen{.before = {before, size}, .after = {after, size}};
}

absl::Status EncodedContribution::SetResidual(uint64_t server_incarnation,
                                              absl::Span<const float> residual) {
  LODESTAR_CHECK(static_cast<int64_t>(residual.size()) == residual_.num_elements);
  constexpr kernels::StreamKind kStream = kernels::StreamKind::kCompute;
  is_foreseen_ = false;
  server_incarnation_ = server_incarnation;
  device_->Copy(residual_.data, residual.data(), residual_bytes(), kStream);
  last_committed_ = device_->Record(kStream);
  return device_->Synchronize(*last_committed_);
}

}  // namespace lodestar::trainer
