// EncodedContribution makes contributions in a wire encoding on the device, so that only the
// encoded bytes are copied to the host. With error feedback it keeps what encoding has lost of the
// contributions that were counted, and adds it to the next one. In sum nothing is lost. With
// --feedback_decay below 1 what was lost is multiplied by it at every contribution that is counted.
//
// The residual changes only when a contribution is acknowledged: one that was never counted leaves
// no trace. Until then the same bytes are sent again (RoundRunner keeps them), so that a bucket
// that was counted before has the residual of what was counted. One case cannot be decided here. A
// life that ended before the acknowledgement came may have been counted. Its residual from before
// is then sent twice. (ResidualKeeper asks the servers.)
//
// The residual belongs to one incarnation of the servers: after a restore the contributions that it
// belongs to have not happened.
//
// It takes device memory for the residual, as long as the vector, and for the encoded bytes. If the
// device's memory is the host's, it takes a second residual. Otherwise it takes pinned host memory
// for the encoded bytes. Foresee() takes such memory for two residuals.
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
  // The job's push_encoding is not fp32. `vector` is f32, in the order of the layout, and outlives
  // the object; so does `timeline`, which shows the work and may be null. Errors:
  // ResourceExhausted.
  static absl::StatusOr<std::unique_ptr<EncodedContribution>> Create(const JobSpec& job,
                                                                     const Layout& layout,
                                                                     kernels::Device* device,
                                                                     kernels::Buf vector,
                                                                     DeviceTimeline* timeline);
  // Returns the device memory that it takes. `memory_is_host` is what the device's capabilities
  // say.
  static int64_t DeviceBytes(const JobSpec& job, const Layout& layout, bool memory_is_host);
  // Returns the pinned host memory that it takes if the host cannot read the device's. `foresees`
  // adds that of Foresee().
  static int64_t PinnedBytes(const JobSpec& job, const Layout& layout, bool foresees);
  // Waits for work under way.
  ~EncodedContribution() override;
  EncodedContribution(const EncodedContribution&) = delete;
  EncodedContribution& operator=(const EncodedContribution&) = delete;

  Encoding encoding() const override { return encoding_; }
  bool is_inline() const override { return host_ == device_bytes_.data(); }
  void Begin(const Registration& registration, Round round, float scale) override;
  kernels::EventId Prepare(const Bucket& bucket) override;
  kernels::EventId PrepareOnDevice(const Bucket& bucket) override;
  absl::Status Await(kernels::EventId prepared) override { return device_->Synchronize(prepared); }
  absl::Span<const std::byte> Of(const Bucket& bucket) const override;
  std::optional<client::DevicePayload> OnDevice(const Bucket& bucket) override;
  void Commit(absl::Span<const uint32_t> late) override;

  // These two read the encoded bytes.
  absl::Status CopyOut(absl::Span<std::byte> destination, int64_t begin) override;
  absl::StatusOr<absl::Span<const std::byte>> Fetch(int64_t begin, int64_t bytes) override;

  bool has_residual() const { return static_cast<bool>(residual_); }
  // The residuals lie in host memory until the next Foresee().
  struct Foreseen {
    absl::Span<const float> before;
    absl::Span<const float> after;  // The residual once all that was prepared is counted.
  };
  // Returns what Commit() will make of the residual. All buckets of a contribution are prepared,
  // and none has been sent. If `is_skipped`, the contribution is one without elements, which was
  // not begun here. Errors: those of the device, ResourceExhausted.
  absl::StatusOr<Foreseen> Foresee(const Registration& registration, bool is_skipped);
  // Replaces the residual. Errors: those of the device.
  absl::Status SetResidual(uint64_t server_incarnation, absl::Span<const float> residual);

 private:
  EncodedContribution(const JobSpec& job, kernels::Device* device, kernels::Buf vector,
                      DeviceTimeline* timeline)
      : encoding_(job.push_encoding),
        decay_(static_cast<float>(job.feedback_decay)),
        device_(device),
        vector_(vector),
        timeline_(timeline) {}
  absl::Status Allocate(int64_t residual_bytes, int64_t room);
  // Queues the encoding on the stream for copies to the host.
  void Encode(const Bucket& bucket);
  kernels::EventId Prepared();
  // Sets the residual, in the buckets that are counted, to what the contribution has left over.
  // `is_counted` has an entry for each bucket.
  void UpdateResidual(const std::vector<bool>& is_counted);
  // Copies between vectors of f32 that have the same size.
  void CopyPart(kernels::Buf to, kernels::Buf from) {
    device_->Copy(to.data, from.data, to.num_elements * sizeof(float),
                  kernels::StreamKind::kCompute);
  }
  // Takes back what was foreseen. Nothing stays of a residual of other servers.
  void ForgetUncommitted(uint64_t server_incarnation);
  int64_t residual_bytes() const { return residual_.num_elements * sizeof(float); }
  std::byte* EncodedOf(const Bucket& bucket) const {
    return static_cast<std::byte*>(device_bytes_.data()) + places_[bucket.index];
  }
  kernels::Buf PartOf(kernels::Buf vector, const Bucket& bucket) const {
    return vector ? vector.Slice(bucket.range.begin, bucket.range.size()) : kernels::Buf{};
  }

  const Encoding encoding_;
  const float decay_;
  kernels::Device* const device_;
  const kernels::Buf vector_;
  DeviceTimeline* const timeline_;
  model::DeviceMemory residual_memory_;
  model::DeviceMemory next_residual_memory_;  // Empty if there is one residual.
  model::DeviceMemory device_bytes_;
  model::DeviceMemory host_bytes_;  // Empty if the host reads the device's memory.
  std::byte* host_ = nullptr;       // The bytes that travel.
  int64_t room_ = 0;                // The bytes that there is room for.
  kernels::Buf residual_;           // Empty means that there is no error feedback.
  // What the residual becomes once the contribution is counted, in the buckets that are prepared.
  // It then changes places with residual_. Empty means that the new residual is computed only then.
  kernels::Buf next_residual_;
  std::optional<uint64_t> server_incarnation_;  // The incarnation that the residual belongs to.
  // The result of Foresee(): the residual before, and behind it the residual after.
  std::optional<model::DeviceMemory> foreseen_memory_;
  bool is_foreseen_ = false;  // Whether residual_ is the one after, and not committed.
  std::optional<kernels::EventId> last_prepared_;
  std::optional<kernels::EventId> last_committed_;

  // The members from here on belong to the contribution under way.
  std::vector<Bucket> buckets_;
  std::vector<int64_t> places_;    // The place of each bucket among the bytes.
  std::vector<bool> is_prepared_;  // by bucket
  // By bucket. Each is read once its Prepare...() has returned.
  std::vector<uint8_t> is_on_device_;
  uint64_t noise_key_ = 0;
  Round round_;
  float scale_ = 1.0f;
};

}  // namespace lodestar::trainer
