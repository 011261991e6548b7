// EncodedContribution: contributions in a wire encoding, made on the device, so that the encoded
// bytes alone are copied to the host. With error feedback it keeps what encoding has lost of the
// contributions that were counted, and adds it to the next one, so that in sum nothing is lost.
// With --feedback_decay below 1 what was lost shrinks by it with every contribution that is
// counted.
//
// The residual changes only when a contribution is acknowledged: one that was never counted leaves
// no trace. Until then the same bytes are sent again (RoundRunner keeps them), so that a bucket
// that was counted before has the residual of what was counted. What remains is one case that
// nobody can decide: a life that ended before the acknowledgement came may have been counted; then
// what it owed from before is sent twice. (ResidualKeeper asks the servers.)
// The residual is of one incarnation of the servers: after a restore the contributions that it
// belongs to have not happened.
//
// Takes device memory for the residual, as long as the vector, and for the encoded bytes. Where the
// device's memory is the host's, it takes a second residual; elsewhere pinned host memory for the
// encoded bytes. Foresee() takes such memory for two residuals.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "common/job_spec.h"
#include "common/layout.h"
#include "worker/model/device_memory.h"
#include "worker/trainer/contribution_bytes.h"
#include "worker/trainer/device_timeline.h"

namespace lodestar {

class EncodedContribution final : public ContributionBytes, public PayloadSource {
 public:
  // The job's push_encoding is not fp32. `vector` is f32, in the order of the layout, and outlives
  // the object; so does `timeline`, which shows the work and may be null. Errors:
  // ResourceExhausted.
  static absl::StatusOr<std::unique_ptr<EncodedContribution>> Create(const JobSpec& job,
                                                                     const Layout& layout,
                                                                     Device* device, Buf vector,
                                                                     DeviceTimeline* timeline);
  // Device memory that it takes; `memory_is_host`: as the device's capabilities say.
  static int64_t DeviceBytes(const JobSpec& job, const Layout& layout, bool memory_is_host);
  // Pinned host memory where the host cannot read the device's; `foresees`: with that of Foresee().
  static int64_t PinnedBytes(const JobSpec& job, const Layout& layout, bool foresees);
  // Waits for work under way.
  ~EncodedContribution() override;
  EncodedContribution(const EncodedContribution&) = delete;
  EncodedContribution& operator=(const EncodedContribution&) = delete;

  Encoding encoding() const override { return encoding_; }
  bool is_inline() const override { return host_ == device_bytes_.data(); }
  void Begin(const Registration& registration, Round round, float scale) override;
  EventId Prepare(const Bucket& bucket) override;
  EventId PrepareOnDevice(const Bucket& bucket) override;
  absl::Status Await(EventId prepared) override { return device_->Synchronize(prepared); }
  absl::Span<const std::byte> Of(const Bucket& bucket) const override;
  std::optional<DevicePayload> OnDevice(const Bucket& bucket) override;
  void Commit(absl::Span<const uint32_t> late) override;

  // Of the encoded bytes.
  absl::Status CopyOut(absl::Span<std::byte> destination, int64_t begin) override;
  absl::StatusOr<absl::Span<const std::byte>> Fetch(int64_t begin, int64_t bytes) override;

  bool has_residual() const { return static_cast<bool>(residual_); }
  // In host memory, until the next Foresee().
  struct Foreseen {
    absl::Span<const float> before;
    absl::Span<const float> after;  // once all that was prepared is counted
  };
  // All buckets of a contribution are prepared, and none has been sent; if `is_skipped`, it is one
  // without elements instead, which was not begun here. What Commit() will then make of the
  // residual. Errors: those of the device, ResourceExhausted.
  absl::StatusOr<Foreseen> Foresee(const Registration& registration, bool is_skipped);
  // Takes the place of the residual. Errors: those of the device.
  absl::Status SetResidual(uint64_t server_incarnation, absl::Span<const float> residual);

 private:
  EncodedContribution(const JobSpec& job, Device* device, Buf vector, DeviceTimeline* timeline)
      : encoding_(job.push_encoding),
        decay_(static_cast<float>(job.feedback_decay)),
        device_(device),
        vector_(vector),
        timeline_(timeline) {}
  absl::Status Allocate(int64_t residual_bytes, int64_t room);
  // Queues it on the stream that copies come on.
  void Encode(const Bucket& bucket);
  EventId Prepared();
  // The residual is what the contribution has left of it in the buckets that are counted, by
  // bucket.
  void UpdateResidual(const std::vector<bool>& is_counted);
  // f32, of the same size.
  void CopyPart(Buf to, Buf from) {
    device_->Copy(to.data, from.data, to.num_elements * sizeof(float), StreamKind::kCompute);
  }
  // What was foreseen does not happen, and nothing is left of other servers' rounds.
  void ForgetUncommitted(uint64_t server_incarnation);
  int64_t residual_bytes() const { return residual_.num_elements * sizeof(float); }
  std::byte* EncodedOf(const Bucket& bucket) const {
    return static_cast<std::byte*>(device_bytes_.data()) + places_[bucket.index];
  }
  Buf PartOf(Buf vector, const Bucket& bucket) const {
    return vector ? vector.Slice(bucket.range.begin, bucket.range.size()) : Buf{};
  }

  const Encoding encoding_;
  const float decay_;
  Device* const device_;
  const Buf vector_;
  DeviceTimeline* const timeline_;
  DeviceMemory residual_memory_;
  DeviceMemory next_residual_memory_;  // none where there is one residual
  DeviceMemory device_bytes_;
  DeviceMemory host_bytes_;    // none where the host reads the device's
  std::byte* host_ = nullptr;  // the bytes that travel
  int64_t room_ = 0;           // bytes there are
  Buf residual_;               // empty: no error feedback
  // What the residual becomes once the contribution is counted, of the buckets that are prepared;
  // empty: is computed then. Changes places with residual_.
  Buf next_residual_;
  std::optional<uint64_t> server_incarnation_;  // that the residual is of
  // Of Foresee(): before and after, one behind the other.
  std::optional<DeviceMemory> foreseen_memory_;
  bool is_foreseen_ = false;  // residual_ is that after, and not committed
  std::optional<EventId> last_prepared_;
  std::optional<EventId> last_committed_;

  // Of the contribution under way.
  std::vector<Bucket> buckets_;
  std::vector<int64_t> places_;        // among the bytes, by bucket
  std::vector<bool> is_prepared_;      // by bucket
  std::vector<uint8_t> is_on_device_;  // so; each read once its Prepare...() has returned
  uint64_t noise_key_ = 0;
  Round round_;
  float scale_ = 1.0f;
};

}  // namespace lodestar
