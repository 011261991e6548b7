// SPDX-License-Identifier: Apache-2.0

// HostMirror is the host's view of a flat vector in device memory. If the host can address device
// memory, the mirror is the vector itself. Otherwise the mirror is a pinned copy. Ranges are copied
// on the copy streams, while the device computes and the host continues.
//
// The copy has the length of the vector. It is not a ring of slots, because a contribution in fp32
// must stay readable until every server has acknowledged it. After a lost connection the whole
// contribution is sent again.
//
// If a server is on this machine, the transport copies ranges directly between the vector and the
// memory that it shares with the server. These ranges are not copied to the mirror. So a range may
// be only in the vector, or only in the mirror. A caller that needs it in the other place must copy
// it first.
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
  // Returns true if data() is the device's own memory. In that case nothing is copied, and
  // operations run inline.
  bool is_shared() const { return data_ == vector_.data; }

  // Must be called before the host writes new values to data() and calls ToDevice(). Blocks until
  // no earlier copy uses data() any more. Later copies wait for all work that is on the compute
  // stream now. After Await() of the returned event, CopyIn() may be called. Errors: those of the
  // device.
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
  // Read a range. May be called once the caller has awaited the work that computes the range, until
  // the range changes again.
  absl::Status CopyOut(absl::Span<std::byte> destination, int64_t begin) override;
  absl::StatusOr<absl::Span<const std::byte>> Fetch(int64_t begin, int64_t bytes) override;
  // Writes a range. May be called after BeginToDevice(), and before work on the range is queued on
  // the compute stream.
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
