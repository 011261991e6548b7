// SPDX-License-Identifier: Apache-2.0

// Interfaces for payloads in a device's memory. A transport shares memory with a server, and the
// device copies payloads to and from that memory. The processor does not copy them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace lodestar::client {

// A vector in a device's memory that can be read. All methods block and are thread-safe. Errors are
// those of the device. Do not retry after an error.
class PayloadSource {
 public:
  virtual ~PayloadSource() = default;
  // Copies bytes, from byte `begin` on, to `destination`, which must be in registered memory of the
  // HostMemoryRegistry.
  virtual absl::Status CopyOut(absl::Span<std::byte> destination, int64_t begin) = 0;
  // Copies bytes to host memory and returns them. The returned bytes are valid until the bytes on
  // the device change. Two calls for the same bytes must not run at the same time.
  virtual absl::StatusOr<absl::Span<const std::byte>> Fetch(int64_t begin, int64_t bytes) = 0;
};

// A vector in a device's memory that can be written. All methods block and are thread-safe. Errors
// are as for PayloadSource.
class PayloadSink {
 public:
  virtual ~PayloadSink() = default;
  // Copies `source` to the bytes from `begin` on. Calls `meanwhile` while the copy runs. `source`
  // must be one of these:
  // - a part of registered memory of the HostMemoryRegistry;
  // - the same bytes in the host's copy of this vector.
  virtual absl::Status CopyIn(int64_t begin, absl::Span<const std::byte> source,
                              absl::FunctionRef<void()> meanwhile) = 0;
};

// A range of bytes of a source.
struct DevicePayload {
  PayloadSource* source = nullptr;
  int64_t begin = 0;
  int64_t bytes = 0;
};

// Registers host memory that the device copies to and from directly. Thread-safe.
class HostMemoryRegistry {
 public:
  virtual ~HostMemoryRegistry() = default;
  // Registers `memory`, which must begin at a page boundary and stay mapped until Unregister().
  // After an error nothing is registered. The error says why.
  virtual absl::Status Register(absl::Span<char> memory) = 0;
  // Requires: no copy to or from the memory runs.
  virtual void Unregister(absl::Span<char> memory) = 0;
};

}  // namespace lodestar::client
