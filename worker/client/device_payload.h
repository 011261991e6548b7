// These are the interfaces for payloads in the memory of a device. With them a transport lets the
// device, in place of the processor, copy straight to and from the memory that the transport shares
// with a server.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace lodestar::client {

// All methods block and are thread-safe. Errors are those of the device, which is part of this
// machine: trying again is of no use.
class PayloadSource {
 public:
  virtual ~PayloadSource() = default;
  // Copies the bytes from `begin` on to `destination`, which is in memory of the
  // HostMemoryRegistry.
  virtual absl::Status CopyOut(absl::Span<std::byte> destination, int64_t begin) = 0;
  // Copies bytes to host memory, where they stay as long as they do on the device. Two calls for
  // the same bytes must not run at a time.
  virtual absl::StatusOr<absl::Span<const std::byte>> Fetch(int64_t begin, int64_t bytes) = 0;
};

// All methods block and are thread-safe, with errors as for PayloadSource.
class PayloadSink {
 public:
  virtual ~PayloadSink() = default;
  // Copies `source` to the bytes from `begin` on, and calls `meanwhile` while that runs. `source`
  // is in memory of the HostMemoryRegistry, or at the host's place of the same bytes.
  virtual absl::Status CopyIn(int64_t begin, absl::Span<const std::byte> source,
                              absl::FunctionRef<void()> meanwhile) = 0;
};

// A part of a source.
struct DevicePayload {
  PayloadSource* source = nullptr;
  int64_t begin = 0;
  int64_t bytes = 0;
};

// Host memory that the device copies to and from directly. Thread-safe.
class HostMemoryRegistry {
 public:
  virtual ~HostMemoryRegistry() = default;
  // `memory` must begin at a page and stay mapped until it is unregistered. Errors say why the
  // memory is not registered; nothing has changed then.
  virtual absl::Status Register(absl::Span<char> memory) = 0;
  // No copy to or from the memory may be running.
  virtual void Unregister(absl::Span<char> memory) = 0;
};

}  // namespace lodestar::client
