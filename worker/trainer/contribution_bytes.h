// SPDX-License-Identifier: Apache-2.0

// ContributionBytes makes the bytes of a worker's contribution, in the encoding in which they are
// sent, from a vector in device memory. It works bucket by bucket, while the device still computes
// later buckets. There is one class per way to make the bytes. exchange_state.h chooses the class.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/messages/cluster_messages.h"
#include "common/params/bucket_plan.h"
#include "common/params/encoding.h"
#include "common/runtime/ids.h"
#include "kernels/device.h"
#include "worker/client/device_payload.h"

namespace lodestar::trainer {

// Makes the bytes of contributions, one contribution after the other. Await(), Of() and OnDevice()
// may be called from any thread. All other methods must be called by one thread at a time.
class ContributionBytes {
 public:
  virtual ~ContributionBytes() = default;

  virtual params::Encoding encoding() const = 0;
  // Returns true if the elements are sent unchanged, in fp32. The servers then multiply them by the
  // scale.
  bool is_exact() const { return encoding() == params::Encoding::kFp32; }
  // Returns true if the bytes are complete when Prepare() returns, so that Await() never waits.
  virtual bool is_inline() const = 0;

  // Begins a contribution. Its elements are the vector times `scale`, or the unchanged vector if
  // is_exact(). If Commit() was not called for the last contribution, that contribution is dropped.
  virtual void Begin(const messages::Registration& registration, Round round, float scale) = 0;

  // Queues the work that makes the bytes of a bucket, and returns an event for Await(). This work
  // reads the vector only after all work that is already queued on the compute stream. Must be
  // called once per bucket.
  virtual kernels::EventId Prepare(const params::Bucket& bucket) = 0;
  // Does the same as Prepare(), but does not copy the bytes from the device to host memory.
  // OnDevice() returns them, unless they are in host memory already.
  virtual kernels::EventId PrepareOnDevice(const params::Bucket& bucket) { return Prepare(bucket); }
  // Blocks until the bytes for the event `prepared` are made. Errors: those of the device.
  virtual absl::Status Await(kernels::EventId prepared) = 0;
  // Returns the bucket's bytes, in host memory. They are valid until the next Begin(). If
  // is_exact() and is_inline(), they are valid as long as the vector.
  virtual absl::Span<const std::byte> Of(const params::Bucket& bucket) const = 0;
  // Returns the bytes if they are only in the device's memory. Otherwise returns nullopt: Of() then
  // has the bytes, and only then may be called. The bytes are valid until the next Begin(), or as
  // long as the vector if is_exact().
  virtual std::optional<client::DevicePayload> OnDevice(const params::Bucket& /*bucket*/) {
    return std::nullopt;
  }

  // Must be called when the servers have acknowledged all buckets. `late` has the buckets that the
  // servers did not count.
  //
  // The part of the vector in a prepared bucket must not change before this call. Work that is
  // queued on the compute stream after this call may change it.
  virtual void Commit(absl::Span<const uint32_t> late) = 0;
};

}  // namespace lodestar::trainer
