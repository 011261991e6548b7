// HostMirror: the host's view of a flat vector in device memory. On devices whose memory the host
// can address it is that memory itself; elsewhere a pinned copy, moved range by range on the copy
// streams while the device computes and the host goes on.
//
// The copy has the length of the vector, not a ring of slots: a contribution in fp32 must stay
// readable until every server has acknowledged it, because it is sent again, whole, after a lost
// connection.
//
// Where a server is on this machine, the transport has ranges copied straight between the vector
// and the memory that it shares with the server, past the mirror. A range is then in one of the two
// places: whoever wants the other has it copied first.
#pragma once

#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/layout.h"
#include "kernels/device.h"
#include "worker/client/device_payload.h"
#include "worker/trainer/device_timeline.h"

namespace lodestar {

class HostMirror final : public PayloadSource, public PayloadSink {
 public:
  // `vector` is f32 and outlives the mirror; so does `timeline`, which shows the copies and may be
  // null. Errors: ResourceExhausted for pinned memory.
  static absl::StatusOr<std::unique_ptr<HostMirror>> Create(Device* device, Buf vector,
                                                            DeviceTimeline* timeline = nullptr);
  // Waits for copies under way.
  ~HostMirror() override;
  HostMirror(const HostMirror&) = delete;
  HostMirror& operator=(const HostMirror&) = delete;

  float* data() { return data_; }
  Device* device() const { return device_; }
  // data() is the device's own memory: nothing is copied, and operations run inline.
  bool is_shared() const { return data_ == vector_.data; }

  // Comes before the host writes data() anew and hands it over with ToDevice(): blocks until
  // earlier copies are done with data(), and makes later ones come after all that the compute
  // stream has been given up to now: CopyIn() may come once the event has been awaited. Errors:
  // those of the device.
  absl::StatusOr<EventId> BeginToDevice();
  // Queues the copy of `range`; what the compute stream is given from now on sees it.
  void ToDevice(ElementRange range);

  // Queues the copy of `range` as of all that the compute stream has been given up to now.
  // Await(): data() has it.
  EventId ToHost(ElementRange range);
  // What the compute stream has been given up to now.
  EventId Computed() { return device_->Record(StreamKind::kCompute); }
  // Blocks until the event has happened. Thread-safe. Errors: those of the device.
  absl::Status Await(EventId event) { return device_->Synchronize(event); }

  // Where a range's bytes begin in the vector and in data().
  static int64_t ByteOf(int64_t element) { return element * static_cast<int64_t>(sizeof(float)); }
  // Of ranges that are computed, which somebody has awaited, and until they change.
  absl::Status CopyOut(absl::Span<std::byte> destination, int64_t begin) override;
  absl::StatusOr<absl::Span<const std::byte>> Fetch(int64_t begin, int64_t bytes) override;
  // Between BeginToDevice() and what the compute stream is given of the range afterwards.
  absl::Status CopyIn(int64_t begin, absl::Span<const std::byte> source,
                      absl::FunctionRef<void()> meanwhile) override;

 private:
  HostMirror(Device* device, Buf vector, DeviceTimeline* timeline)
      : device_(device), vector_(vector), timeline_(timeline) {}
  absl::Status AwaitCopies();
  std::byte* OnDevice(int64_t begin) const { return static_cast<std::byte*>(vector_.data) + begin; }
  void Copy(float* destination, const float* source, int64_t num_elements, StreamKind stream);

  Device* const device_;
  const Buf vector_;
  DeviceTimeline* const timeline_;
  float* data_ = nullptr;
  std::optional<EventId> last_to_device_;
  std::optional<EventId> last_to_host_;
};

}  // namespace lodestar
