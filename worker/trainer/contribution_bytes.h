// ContributionBytes: what a worker contributes, as it travels: made from a vector in device memory,
// bucket by bucket, while the device still computes the rest. One class per way of making them,
// chosen in exchange_state.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/bucket_plan.h"
#include "common/cluster_messages.h"
#include "common/encoding.h"
#include "common/ids.h"
#include "kernels/device.h"
#include "worker/client/device_payload.h"

namespace lodestar {

// Await(), Of() and OnDevice() may be called from any thread, everything else by one thread at a
// time.
class ContributionBytes {
 public:
  virtual ~ContributionBytes() = default;

  virtual Encoding encoding() const = 0;
  // Whether the elements travel as they are; then the servers scale them.
  bool is_exact() const { return encoding() == Encoding::kFp32; }
  // Whether the bytes are made when Prepare() returns, so that there is nothing to wait for.
  virtual bool is_inline() const = 0;

  // A contribution begins: `scale` times the vector, or the vector if is_exact(). What was not
  // committed of the last one is forgotten.
  virtual void Begin(const Registration& registration, Round round, float scale) = 0;

  // Queues what makes the bytes of a bucket, of its elements as of all that the compute stream has
  // been given up to now. Once per bucket.
  virtual EventId Prepare(const Bucket& bucket) = 0;
  // Prepare() but for bringing the bytes to host memory, if they are not there already: OnDevice()
  // has them then.
  virtual EventId PrepareOnDevice(const Bucket& bucket) { return Prepare(bucket); }
  // Blocks until the bytes are there. Errors: those of the device.
  virtual absl::Status Await(EventId prepared) = 0;
  // The bytes, in host memory. They stay until the next Begin(), or as long as the vector if
  // is_exact() and is_inline().
  virtual absl::Span<const std::byte> Of(const Bucket& bucket) const = 0;
  // The bytes, if they are in a device's memory alone; Of() does not have them. They stay until the
  // next Begin(), or as long as the vector if is_exact().
  virtual std::optional<DevicePayload> OnDevice(const Bucket& /*bucket*/) { return std::nullopt; }

  // The servers have acknowledged all buckets; those in `late` they did not count. The vector has
  // not changed since the buckets were prepared; what the compute stream is given from now on may
  // change it.
  virtual void Commit(absl::Span<const uint32_t> late) = 0;
};

}  // namespace lodestar
