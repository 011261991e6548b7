// ParameterTransport brings contributions to the servers, and weights from them. One object serves
// one life (incarnation) of a worker. The gRPC implementation is bulk_grpc_transport.h; tests of
// the trainer use a fake. proto/status_mapping.h has the codes of errors and what to do about them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
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

// The fields that the buckets of one push have in common.
struct ContributionHeader {
  Round round;
  ContributionKind kind = ContributionKind::kGradient;
  float scale = 1.0f;  // the servers multiply by it
  Encoding encoding = Encoding::kFp32;
  // The number of samples that the contribution was computed on, which is its weight. 0 means all
  // samples of the grant. kSkippedSamples means that buckets are added without data.
  int64_t num_samples = 0;
  friend bool operator==(const ContributionHeader&, const ContributionHeader&) = default;
};

// The times of a push in which nothing was transferred, as its server tells them.
struct PushWait {
  absl::Duration held = {};            // waiting for others, which still took the space it needs
  absl::Duration since_held = {};      // from the end of that wait to the answer
  absl::Duration since_received = {};  // from when all of it was there to the answer

  // Returns how much of the last `duration` before the answer was no transfer.
  absl::Duration Within(absl::Duration duration) const {
    const absl::Duration before = std::max(absl::ZeroDuration(), duration - since_held);
    return std::min(duration, since_received + std::min(held, before));
  }
};

// The numbers are sums over all servers. Every bucket that was added counts in exactly one of them.
struct PushResult {
  int64_t buckets_counted = 0;
  int64_t buckets_duplicate = 0;    // counted before
  std::vector<uint32_t> late = {};  // the round had been committed without these buckets
  PushWait wait = {};               // of the part that was answered last
};

// A session is one contribution on its way. Its buckets go in the order in which they are added.
// One thread at a time may call AddBucket() and Finish(). Any thread may call Cancel() and
// bytes_unsent().
class PushSession {
 public:
  // Cancels unless Finish() has returned, and waits until no memory given is referred to.
  virtual ~PushSession() = default;

  // Begins to send a whole bucket and returns without waiting for it. `data`, in the header's
  // encoding, must stay and not change until Finish() has returned or the session is destroyed.
  // If something is wrong with the bucket, Finish() returns the error.
  virtual void AddBucket(uint32_t bucket, Version base_version,
                         absl::Span<const std::byte> data) = 0;
  // Does the same for a bucket in a device's memory, where it must stay and not change for as long.
  // Only a transport that may reach devices has this (ReachesDevice()).
  virtual void AddDeviceBucket(uint32_t bucket, Version base_version, const DevicePayload& payload);

  // Blocks until all servers have acknowledged or one has failed, and until no memory given to
  // AddBucket() is referred to any more, also after an error. After an error the same contribution
  // may be pushed again: what was counted counts once. Call once.
  virtual absl::StatusOr<PushResult> Finish() = 0;

  // Makes Finish() return soon, with Cancelled.
  virtual void Cancel() = 0;

  // Returns the payload that has been added and is not on its way yet, or 0 if that is not known.
  virtual int64_t bytes_unsent() { return 0; }
};

inline absl::Span<const std::byte> BytesOf(absl::Span<const float> values) {
  return {reinterpret_cast<const std::byte*>(values.data()), values.size() * sizeof(float)};
}
// Weights of so many bytes and more need not go through the caches: when the last bytes have come,
// the first are in no cache any more.
inline constexpr size_t kLongPullBytes = 4 << 20;

struct PullTarget {
  uint32_t bucket = 0;
  absl::Span<float> destination;  // as long as the bucket
  // If the encoding is not fp32: the version of the shadow that is held, if there is one, and room
  // for the changes since that version.
  std::optional<Version> held = {};
  absl::Span<std::byte> changes = {};
  // If not null, a bucket that comes whole may be brought to `device`, `device_begin` bytes from
  // its begin, rather than to `destination`. `destination` may then be written as well.
  PayloadSink* device = nullptr;
  int64_t device_begin = 0;
};

struct PullSpec {
  Round min_round;                  // the pull waits for buckets in which earlier rounds go on
  std::vector<PullTarget> targets;  // in the order wanted
  Encoding encoding = Encoding::kFp32;
};

struct PulledBucket {
  uint32_t bucket = 0;
  Version version;
  // The number of encoded changes, which lie one after the other in PullTarget::changes. 0 means
  // that the bucket came whole.
  int64_t num_changes = 0;
  bool is_on_device = false;  // true if in PullTarget::device, and not in `destination`
};

// A session is weights on their way. Thread-safe.
class PullSession {
 public:
  // Cancels unless complete, and waits until no destination is written and no callback runs.
  virtual ~PullSession() = default;
  // Blocks until all buckets have arrived and their callbacks have returned, or one has failed.
  // Afterwards no destination is written.
  virtual absl::Status Wait() = 0;
  // Makes Wait() return soon, with Cancelled.
  virtual void Cancel() = 0;
};

class ParameterTransport {
 public:
  // A bucket, or what it takes to make it, lies whole and verified where the target says. Called on
  // threads of the transport, for several buckets at a time and not strictly in order; must not
  // block.
  using BucketCallback = std::function<void(const PulledBucket&)>;

  virtual ~ParameterTransport() = default;

  // Several pushes may be under way. Sessions must be destroyed before the transport.
  virtual std::unique_ptr<PushSession> StartPush(const ContributionHeader& header) = 0;
  virtual std::unique_ptr<PullSession> StartPull(PullSpec spec, BucketCallback on_bucket) = 0;

  // Tries every path that buckets take, by pulling one bucket over it: a path may let small packets
  // pass, but not bulk. Errors: the one of a server that cannot be reached, or is not ready.
  virtual std::unique_ptr<PullSession> StartTrial() { return StartPull({}, nullptr); }

  // Returns true if payloads of the bucket may now be copied straight from a device's memory, and
  // to it. Otherwise they had better be in host memory when they are handed over. Thread-safe.
  virtual bool ReachesDevice(uint32_t /*bucket*/) { return false; }

  // Return the payload since the transport was made: of buckets pushed that the servers have
  // acknowledged, and of buckets pulled that have arrived. Thread-safe.
  virtual uint64_t bytes_pushed() const = 0;
  virtual uint64_t bytes_pulled() const = 0;

  // Returns how fast transfers have been. Thread-safe.
  virtual PathFacts path() const { return {}; }

  // Returns the path that has stood still for longest, if any does. A call on such a path has
  // failed for that reason, and nothing has been seen to move since. Thread-safe.
  virtual std::optional<Standstill> standstill() const { return std::nullopt; }

  // Tells where the servers are from now on, by shard. If a server's address is another than
  // before, calls to the server end soon, with Unavailable. Later calls go to the new address.
  // Thread-safe.
  virtual void MoveTo(const std::vector<std::string>& /*addresses*/) {}
};

}  // namespace lodestar::client
