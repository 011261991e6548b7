// ContributionBytes: what a worker contributes, as it travels: made from a vector in device memory,
// bucket by bucket, while the device still computes the rest. One class per way of making them,
// chosen in exchange_state.h.
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

// Await(), Of() and OnDevice() may be called from any thread, everything else by one thread at a
// time.
class ContributionBytes {
 public:
  virtual ~ContributionBytes() = default;

  virtual Encoding encoding() const = 0;
  // Whether the elements travel as they are. If they do, the servers scale them.
  bool is_exact() const { return encoding() == Encoding::kFp32; }
  // Whether the bytes are made when Prepare() returns, so that there is nothing to wait for.
  virtual bool is_inline() const = 0;

  // Begins a contribution, which is `scale` times the vector, or the vector if is_exact(). What was
  // not committed of the last one is forgotten.
  virtual void Begin(const Registration& registration, Round round, float scale) = 0;

  // Queues the work that makes the bytes of a bucket. They are made of its elements as they are
  // after all that the compute stream has been given up to now. Must be called once per bucket.
  virtual kernels::EventId Prepare(const Bucket& bucket) = 0;
  // Does the same as Prepare(), but does not bring the bytes to host memory. If they are not there
  // already, OnDevice() has them.
  virtual kernels::EventId PrepareOnDevice(const Bucket& bucket) { return Prepare(bucket); }
  // Blocks until the bytes are there. Errors: those of the device.
  virtual absl::Status Await(kernels::EventId prepared) = 0;
  // Returns the bytes, in host memory. They stay until the next Begin(), or as long as the vector
  // if is_exact() and is_inline().
  virtual absl::Span<const std::byte> Of(const Bucket& bucket) const = 0;
  // Returns the bytes, if they are in a device's memory alone. In that case Of() does not have
  // them. They stay until the next Begin(), or as long as the vector if is_exact().
  virtual std::optional<client::DevicePayload> OnDevice(const Bucket& /*bucket*/) {
    return std::nullopt;
  }

  // Must be called when the servers have acknowledged all buckets. They did not count those in
  // `late`. The vector has not changed since the buckets were prepared. What the compute stream is
  // given from now on may change it.
  virtual void Commit(absl::Span<const uint32_t> late) = 0;
};

}  // namespace lodestar::trainer
