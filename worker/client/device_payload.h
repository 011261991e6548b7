// Payloads in the memory of a device: where a transport gets them from and brings them to when it
// lets the device copy straight to and from the memory that it shares with a server, in place of
// the processor.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace lodestar {

// All methods block and are thread-safe. Errors: those of the device, as of this machine: trying
// again is of no use.
class PayloadSource {
 public:
  virtual ~PayloadSource() = default;
  // Copies the bytes from `begin` on to `destination`, in memory of the HostMemoryRegistry.
  virtual absl::Status CopyOut(absl::Span<std::byte> destination, int64_t begin) = 0;
  // Copies bytes to host memory where they stay as long as they do on the device. No two calls at a
  // time for the same bytes.
  virtual absl::StatusOr<absl::Span<const std::byte>> Fetch(int64_t begin, int64_t bytes) = 0;
};

// As PayloadSource.
class PayloadSink {
 public:
  virtual ~PayloadSink() = default;
  // Copies `source`, in memory of the HostMemoryRegistry or at the host's place of the same bytes,
  // to the bytes from `begin` on, and calls
  // `meanwhile` while that runs.
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
  // `memory` begins at a page and stays mapped until it is unregistered. Errors: why not; nothing
  // has changed then.
  virtual absl::Status Register(absl::Span<char> memory) = 0;
  // Nobody copies any more.
  virtual void Unregister(absl::Span<char> memory) = 0;
};

}  // namespace lodestar
