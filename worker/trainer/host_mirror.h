// HostMirror: the host's view of a flat vector in device memory. On devices whose memory the host
// can address it is that memory itself; elsewhere a pinned copy, moved range by range.
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/layout.h"
#include "kernels/device.h"

namespace lodestar {

class HostMirror {
 public:
  // `vector` is f32 and outlives the mirror. Errors: ResourceExhausted for pinned memory.
  static absl::StatusOr<std::unique_ptr<HostMirror>> Create(Device* device, Buf vector);
  ~HostMirror();
  HostMirror(const HostMirror&) = delete;
  HostMirror& operator=(const HostMirror&) = delete;

  float* data() { return data_; }
  // Make the other side see `range`. They return when the copy is done.
  absl::Status ToDevice(ElementRange range);
  absl::Status ToHost(ElementRange range);

 private:
  HostMirror(Device* device, Buf vector) : device_(device), vector_(vector) {}
  bool is_shared() const { return data_ == vector_.data; }

  Device* device_;
  Buf vector_;
  float* data_ = nullptr;
};

}  // namespace lodestar
