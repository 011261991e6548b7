// SPDX-License-Identifier: Apache-2.0

// ParameterTransport sends contributions to the servers and receives weights from them. One object
// serves one life (incarnation) of a worker. bulk_grpc_transport.h has the gRPC implementation, and
// tests of the trainer use a fake. proto/status_mapping.h lists the error codes and what to do
// about each.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/messages/cluster_messages.h"
#include "common/messages/contribution.h"
#include "common/params/encoding.h"
#include "common/runtime/ids.h"
#include "worker/client/device_payload.h"

namespace lodestar::client {

// Learning rates of a step, by block. A block that is not in the map has none.
using BlockRates = std::map<int, double>;

// The fields that all buckets of one push have in common.
struct ContributionHeader {
  Round round;
  messages::ContributionKind kind = messages::ContributionKind::kGradient;
  // The factor by which the servers multiply the contribution.
  float scale = 1.0f;
  params::Encoding encoding = params::Encoding::kFp32;
  // Number of samples that the contribution was computed on, which is its weight. 0 means all
  // samples of the grant. kSkippedSamples means that the contribution was skipped, and its buckets
  // have no data.
  int64_t num_samples = 0;
  BlockRates learning_rates = {};      // of the program, see PushChunk.learning_rate
  std::optional<int64_t> weight = {};  // of the program, see PushChunk.weight
  uint32_t state_vector = 0;           // see PushChunk.state_vector
  friend bool operator==(const ContributionHeader&, const ContributionHeader&) = default;
};

// Times of a push, as reported by the server. They tell how long the push transferred nothing.
struct PushWait {
  // Time for which the server did not read the push, because other pushes used the server's space
  // for contributions.
  absl::Duration held = {};
  // Time from the end of `held` to the answer.
  absl::Duration since_held = {};
  // Time from the arrival of the last byte to the answer.
  absl::Duration since_received = {};

  // Returns how long nothing was transferred in the last `duration` before the answer.
  absl::Duration Within(absl::Duration duration) const {
    const absl::Duration before = std::max(absl::ZeroDuration(), duration - since_held);
    return std::min(duration, since_received + std::min(held, before));
  }
};

// The result of a push, summed over all servers. Each added bucket counts in exactly one of the
// first three fields.
struct PushResult {
  int64_t buckets_counted = 0;
  int64_t buckets_duplicate = 0;  // Buckets that were counted before.
  // Buckets that arrived after their round had been committed.
  std::vector<uint32_t> late = {};
  // The wait of the server that answered last.
  PushWait wait = {};
};

// A session sends one contribution. Its buckets are sent in the order in which they are added. One
// thread at a time may call AddBucket() and Finish(). Any thread may call Cancel() and
// bytes_unsent().
class PushSession {
 public:
  // Cancels the session, unless Finish() has returned. Blocks until no memory of the caller is used
  // any more.
  virtual ~PushSession() = default;

  // Begins to send a whole bucket, and returns without waiting. `data`, in the header's encoding,
  // must stay unchanged until Finish() has returned or the session is destroyed. If the bucket's
  // index or size is wrong, Finish() returns the error.
  virtual void AddBucket(uint32_t bucket, Version base_version,
                         absl::Span<const std::byte> data) = 0;
  // Begins to send a bucket from a device's memory, like AddBucket(). The bucket must stay
  // unchanged for the same time. Only transports for which ReachesDevice() may be true implement
  // this method.
  virtual void AddDeviceBucket(uint32_t bucket, Version base_version, const DevicePayload& payload);

  // Blocks until all servers have acknowledged or one has failed. When it returns, also with an
  // error, no memory given to AddBucket() is used any more. After an error the caller may push the
  // same contribution again: servers count no bucket twice. Must be called only once.
  virtual absl::StatusOr<PushResult> Finish() = 0;

  // Makes Finish() return soon, with Cancelled.
  virtual void Cancel() = 0;

  // Returns the payload bytes that were added and have not been sent. 0 may also mean that the
  // number is not known.
  virtual int64_t bytes_unsent() { return 0; }
};

inline absl::Span<const std::byte> BytesOf(absl::Span<const float> values) {
  return {reinterpret_cast<const std::byte*>(values.data()), values.size() * sizeof(float)};
}
// Weights of at least this size are written to memory without using the CPU caches. They are too
// large for the caches.
inline constexpr size_t kLongPullBytes = 4 << 20;

struct PullTarget {
  uint32_t bucket = 0;
  absl::Span<float> destination;  // As long as the bucket.
  // `held` is the version of the worker's copy of the bucket, as the server last sent it. The
  // server may then send the changes since `held`, which go to `changes`. Not set means that there
  // is no copy, and the server sends the whole bucket. Used only for encodings other than fp32.
  std::optional<Version> held = {};
  absl::Span<std::byte> changes = {};
  // If not null, the weights of a whole bucket may go to `device`, from byte `device_begin` on,
  // instead of to `destination`. `destination` may be overwritten too.
  PayloadSink* device = nullptr;
  int64_t device_begin = 0;
};

struct PullSpec {
  // The servers send buckets once all rounds before `min_round` are over.
  Round min_round;
  std::vector<PullTarget> targets;  // In the order in which they are wanted.
  params::Encoding encoding = params::Encoding::kFp32;
  // 0 means the weights. n means the n-th vector of the state of the servers' optimizer.
  uint32_t state_vector = 0;
};

struct PulledBucket {
  uint32_t bucket = 0;
  Version version;
  // Number of encoded changes. They lie one after the other in PullTarget::changes. 0 means that
  // the bucket came whole.
  int64_t num_changes = 0;
  // True if the bucket is in PullTarget::device and not in `destination`.
  bool is_on_device = false;
};

// A session brings the weights of one pull. Thread-safe.
class PullSession {
 public:
  // Cancels the session, unless it is complete. Blocks until no destination is written and no
  // callback runs.
  virtual ~PullSession() = default;
  // Blocks until all buckets have arrived and their callbacks have returned, or one bucket has
  // failed. Afterwards no destination is written.
  virtual absl::Status Wait() = 0;
  // Makes Wait() return soon, with Cancelled.
  virtual void Cancel() = 0;
};

class ParameterTransport {
 public:
  // Called when a bucket, or all its changes, has arrived in the memory of its PullTarget and has
  // been verified. Runs on threads of the transport, for several buckets at a time and in any
  // order. Must not block.
  using BucketCallback = std::function<void(const PulledBucket&)>;

  virtual ~ParameterTransport() = default;

  // Begin a push or a pull. Several may run at the same time. Sessions must be destroyed before the
  // transport.
  virtual std::unique_ptr<PushSession> StartPush(const ContributionHeader& header) = 0;
  virtual std::unique_ptr<PullSession> StartPull(PullSpec spec, BucketCallback on_bucket) = 0;

  // Tests every connection by pulling one bucket through it, because a path may let small packets
  // through and stop large transfers. Errors: those of a server that cannot be reached or is not
  // ready.
  virtual std::unique_ptr<PullSession> StartTrial() { return StartPull({}, nullptr); }

  // Returns true if the transport can now copy the bucket directly to and from a device's memory.
  // If false, the caller should copy the bucket to host memory before AddBucket(). Thread-safe.
  virtual bool ReachesDevice(uint32_t /*bucket*/) { return false; }

  // Return payload bytes since the transport was made: those of pushed buckets that the servers
  // have acknowledged, and those of pulled buckets that have arrived. Thread-safe.
  virtual uint64_t bytes_pushed() const = 0;
  virtual uint64_t bytes_pulled() const = 0;

  // Returns the speed of recent transfers. Thread-safe.
  virtual messages::PathFacts path() const { return {}; }

  // Returns the path that has stood still for longest. nullopt means that no path stands still. A
  // path stands still if a call on it has failed and nothing has moved since. Thread-safe.
  virtual std::optional<messages::Standstill> standstill() const { return std::nullopt; }

  // Sets the addresses of the servers, by shard. If a server's address has changed, calls to the
  // old address end soon with Unavailable, and later calls use the new address. Thread-safe.
  virtual void MoveTo(const std::vector<std::string>& /*addresses*/) {}
};

}  // namespace lodestar::client
