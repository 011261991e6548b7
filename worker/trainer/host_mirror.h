// SPDX-License-Identifier: Apache-2.0

// HostMirror lets the host read and write a flat vector in device memory. If the host can address
// device memory, the mirror is the vector itself. Otherwise it is a pinned copy in host memory.
// Ranges are copied on the copy streams, while the device computes and the host continues.
//
// The pinned copy is as long as the vector, because all of a contribution in fp32 must stay
// readable. After a lost connection the whole contribution is sent again.
//
// If a server is on this machine, the transport may copy ranges between the vector and memory that
// it shares with the server. These copies do not use the pinned copy. So a range may be up to date
// only in the vector, or only in the pinned copy. The caller must copy it to where it is needed.
#pragma once

#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/params/layout.h"
#include "kernels/device.h"
#include "worker/client/device_payload.h"
#include "worker/trainer/device_timeline.h"

namespace lodestar::trainer {

class HostMirror final : public client::PayloadSource, public client::PayloadSink {
 public:
  // `vector` must be f32. `vector` and `timeline` must outlive the mirror. `timeline` records the
  // copies and may be null. Errors: ResourceExhausted for pinned memory.
  static absl::StatusOr<std::unique_ptr<HostMirror>> Create(kernels::Device* device,
                                                            kernels::Buf vector,
                                                            DeviceTimeline* timeline = nullptr);
  // Waits for queued copies.
  ~HostMirror() override;
  HostMirror(const HostMirror&) = delete;
  HostMirror& operator=(const HostMirror&) = delete;

  float* data() { return data_; }
  kernels::Device* device() const { return device_; }
  // Returns true if data() is the vector itself. In that case nothing is copied, and each device
  // operation is complete when its call returns.
  bool is_shared() const { return data_ == vector_.data; }

  // Prepares copies to the device. Must be called before the host writes new values to data().
  // Blocks until no earlier copy uses data(). Makes later copies to the device wait for all work
  // that is now on the compute stream. Returns an event that happens when this work is done.
  // CopyIn() may be called after Await() of this event. Errors: those of the device.
  absl::StatusOr<kernels::EventId> BeginToDevice();
  // Queues the copy of `range` to the device. Work that is queued on the compute stream later sees
  // the new values.
  void ToDevice(params::ElementRange range);

  // Queues the copy of `range` to the host, after all work that is on the compute stream now. Once
  // Await() of the returned event has returned, data() has the range.
  kernels::EventId ToHost(params::ElementRange range);
  // Returns an event that happens when the device has done all work that is on the compute stream
  // now.
  kernels::EventId Computed() { return device_->Record(kernels::StreamKind::kCompute); }
  // Blocks until the event has happened. Thread-safe. Errors: those of the device.
  absl::Status Await(kernels::EventId event) { return device_->Synchronize(event); }

  // Returns the byte offset of an element in the vector and in data().
  static int64_t ByteOf(int64_t element) { return element * static_cast<int64_t>(sizeof(float)); }
  // Read a range of the vector. Before the call, the caller must await the work that computes the
  // range. The range must not change during the call.
  absl::Status CopyOut(absl::Span<std::byte> destination, int64_t begin) override;
  absl::StatusOr<absl::Span<const std::byte>> Fetch(int64_t begin, int64_t bytes) override;
  // Writes a range of the vector. May be called after Await() of the event that BeginToDevice() has
  // returned. No work that uses the range may be queued on the compute stream before the call.
  absl::Status CopyIn(int64_t begin, absl::Span<const std::byte> source,
                      absl::FunctionRef<void()> meanwhile) override;

 private:
  HostMirror(kernels::Device* device, kernels::Buf vector, DeviceTimeline* timeline)
      : device_(device), vector_(vector), timeline_(timeline) {}
  absl::Status AwaitCopies();
  std::byte* OnDevice(int64_t begin) const { return static_cast<std::byte*>(vector_.data) + begin; }
  void Copy(float* destination, const float* source, int64_t num_elements,
            kernels::StreamKind stream);

  kernels::Device* const device_;
  const kernels::Buf vector_;
  DeviceTimeline* const timeline_;
  float* data_ = nullptr;
  std::optional<kernels::EventId> last_to_device_;
  std::optional<kernels::EventId> last_to_host_;
};

}  // namespace lodestar::trainer
