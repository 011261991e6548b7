// SPDX-License-Identifier: Apache-2.0

// EncodedContribution makes contributions in a wire encoding on the device, so that only the
// encoded bytes are copied to the host.
//
// With error feedback it has a residual: the encoding error of the contributions that were counted.
// The residual is added to the next contribution, so that in sum nothing is lost. Each counted
// contribution first multiplies the residual by --feedback_decay.
//
// When the residual changes:
// - It changes only when a contribution is acknowledged. RoundRunner sends the same bytes until
//   they are acknowledged, so the residual matches the bytes that were counted.
// - If a life ends before the acknowledgement comes, the contribution may have been counted, but
//   the residual does not change. The old residual is then sent twice. ResidualKeeper avoids this
//   by asking the servers.
// - If the incarnation of the servers changes, the residual is dropped. Restored servers lack
//   contributions whose error is in the residual.
//
// Device memory: the encoded bytes, and the residual, which is as long as the vector. In addition:
// - If the device's memory is host memory: a second residual.
// - Otherwise: pinned host memory for the encoded bytes, and for two residuals if Foresee() is
//   called.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "common/job/job_spec.h"
#include "common/params/layout.h"
#include "worker/model/device_memory.h"
#include "worker/trainer/contribution_bytes.h"
#include "worker/trainer/device_timeline.h"

namespace lodestar::trainer {

class EncodedContribution final : public ContributionBytes, public client::PayloadSource {
 public:
  // Requires: the job's push_encoding is not fp32. `vector` is f32, in the order of the layout.
  // `vector` and `timeline` must outlive the object. `timeline` records the work and may be null.
  // Errors: ResourceExhausted.
  static absl::StatusOr<std::unique_ptr<EncodedContribution>> Create(const job::JobSpec& job,
                                                                     const params::Layout& layout,
                                                                     kernels::Device* device,
                                                                     kernels::Buf vector,
                                                                     DeviceTimeline* timeline);
  // Returns the device memory that an object takes, in bytes. `memory_is_host` is true if the
  // device's memory is host memory.
  static int64_t DeviceBytes(const job::JobSpec& job, const params::Layout& layout,
                             bool memory_is_host);
  // Returns the pinned host memory that an object takes if the host cannot read device memory. If
  // `foresees`, the memory of Foresee() is included.
  static int64_t PinnedBytes(const job::JobSpec& job, const params::Layout& layout, bool foresees);
  // Blocks until queued work is done.
  ~EncodedContribution() override;
  EncodedContribution(const EncodedContribution&) = delete;
  EncodedContribution& operator=(const EncodedContribution&) = delete;

  params::Encoding encoding() const override { return encoding_; }
  bool is_inline() const override { return host_ == device_bytes_.data(); }
  void Begin(const messages::Registration& registration, Round round, float scale) override;
  kernels::EventId Prepare(const params::Bucket& bucket) override;
  kernels::EventId PrepareOnDevice(const params::Bucket& bucket) override;
  absl::Status Await(kernels::EventId prepared) override { return device_->Synchronize(prepared); }
  absl::Span<const std::byte> Of(const params::Bucket& bucket) const override;
  std::optional<client::DevicePayload> OnDevice(const params::Bucket& bucket) override;
  void Commit(absl::Span<const uint32_t> late) override;

  // Read the encoded bytes. See client::PayloadSource.
  absl::Status CopyOut(absl::Span<std::byte> destination, int64_t begin) override;
  absl::StatusOr<absl::Span<const std::byte>> Fetch(int64_t begin, int64_t bytes) override;

  bool has_residual() const { return static_cast<bool>(residual_); }
  // Two residuals in host memory. They are valid until the next Foresee().
  struct Foreseen {
    absl::Span<const float> before;
    // The residual that results if all prepared buckets are counted.
    absl::Span<const float> after;
  };
  // Returns the residuals before and after the present contribution. Requires: all its buckets are
  // prepared, and none was sent. `is_skipped` means that the contribution has no elements, and that
  // Begin() was not called for it. Errors: those of the device; ResourceExhausted.
  absl::StatusOr<Foreseen> Foresee(const messages::Registration& registration, bool is_skipped);
  // Replaces the residual. Errors: those of the device.
  absl::Status SetResidual(uint64_t server_incarnation, absl::Span<const float> residual);

 private:
  EncodedContribution(const job::JobSpec& job, kernels::Device* device, kernels::Buf vector,
                      DeviceTimeline* timeline)
      : encoding_(job.push_encoding),
        decay_(static_cast<float>(job.feedback_decay)),
        device_(device),
        vector_(vector),
        timeline_(timeline) {}
  absl::Status Allocate(int64_t residual_bytes, int64_t room);
  // Queues the encoding on the stream for copies to the host.
  void Encode(const params::Bucket& bucket);
  kernels::EventId Prepared();
  // Sets the residual to the encoding error of the contribution, in the buckets that were counted.
  // `is_counted` has one entry per bucket.
  void UpdateResidual(const std::vector<bool>& is_counted);
  // Copies a vector of f32 into another of the same size.
  void CopyPart(kernels::Buf to, kernels::Buf from) {
    device_->Copy(to.data, from.data, to.num_elements * sizeof(float),
                  kernels::StreamKind::kCompute);
  }
  // Restores the residual from before Foresee(), if Foresee() was called and Commit() was not. Sets
  // the residual to zero if it belongs to another incarnation of the servers.
  void ForgetUncommitted(uint64_t server_incarnation);
  int64_t residual_bytes() const { return residual_.num_elements * sizeof(float); }
  std::byte* EncodedOf(const params::Bucket& bucket) const {
    return static_cast<std::byte*>(device_bytes_.data()) + places_[bucket.index];
  }
  kernels::Buf PartOf(kernels::Buf vector, const params::Bucket& bucket) const {
    return vector ? vector.Slice(bucket.range.begin, bucket.range.size()) : kernels::Buf{};
  }

  const params::Encoding encoding_;
  const float decay_;
  kernels::Device* const device_;
  const kernels::Buf vector_;
  DeviceTimeline* const timeline_;
  model::DeviceMemory residual_memory_;
  model::DeviceMemory next_residual_memory_;  // Not allocated if there is only one residual.
  model::DeviceMemory device_bytes_;
  model::DeviceMemory host_bytes_;  // Not allocated if the host reads device memory.
  std::byte* host_ = nullptr;       // The encoded bytes in host memory.
  int64_t room_ = 0;                // Capacity for encoded bytes.
  kernels::Buf residual_;           // Empty means no error feedback.
  // The residual after the contribution. Only its parts for prepared buckets are valid. Commit()
  // moves these parts to residual_. Empty means that Commit() computes the new residual.
  kernels::Buf next_residual_;
  std::optional<uint64_t> server_incarnation_;  // The servers that the residual belongs to.
  // The result of Foresee(): first the residual before the contribution, then the residual after
  // it.
  std::optional<model::DeviceMemory> foreseen_memory_;
  // True if residual_ is the residual after a contribution that is not yet committed.
  bool is_foreseen_ = false;
  std::optional<kernels::EventId> last_prepared_;
  std::optional<kernels::EventId> last_committed_;

  // The members below belong to the present contribution.
  std::vector<params::Bucket> buckets_;
  std::vector<int64_t> places_;    // The byte offset of each bucket.
  std::vector<bool> is_prepared_;  // One entry per bucket.
  // One entry per bucket. An entry may be read only after Prepare() or PrepareOnDevice() of the
  // bucket.
  std::vector<uint8_t> is_on_device_;
  uint64_t noise_key_ = 0;
  Round round_;
  float scale_ = 1.0f;
};

}  // namespace lodestar::trainer
