// ParameterTransport: contributions to the servers, weights from them. One object serves one life
// (incarnation) of a worker. The gRPC implementation is bulk_grpc_transport.h; tests of the trainer
// use a fake. Codes of errors and what to do about them: proto/status_mapping.h.
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
#include "common/cluster_messages.h"
#include "common/contribution.h"
#include "common/encoding.h"
#include "common/ids.h"
#include "worker/client/device_payload.h"

namespace lodestar {

// What the buckets of one push have in common.
struct ContributionHeader {
  Round round;
  ContributionKind kind = ContributionKind::kGradient;
  float scale = 1.0f;  // the servers multiply by it
  Encoding encoding = Encoding::kFp32;
  // That it was computed on: its weight; 0: all of the grant's; kSkippedSamples: buckets are added
  // without data.
  int64_t num_samples = 0;
  friend bool operator==(const ContributionHeader&, const ContributionHeader&) = default;
};

// Sums over all servers; every bucket added is in exactly one.
// Of a push: what was no transfer, as its server says.
struct PushWait {
  absl::Duration held = {};            // because others had not finished what takes its space
  absl::Duration since_held = {};      // from then to the answer
  absl::Duration since_received = {};  // from when all of it was there to the answer

  // Of the last `duration` before the answer.
  absl::Duration Within(absl::Duration duration) const {
    const absl::Duration before = std::max(absl::ZeroDuration(), duration - since_held);
    return std::min(duration, since_received + std::min(held, before));
  }
};

struct PushResult {
  int64_t buckets_counted = 0;
  int64_t buckets_duplicate = 0;    // counted before
  std::vector<uint32_t> late = {};  // the round had been committed without these buckets
  PushWait wait = {};               // of the part that was answered last
};

// One contribution on its way, its buckets in the order in which they are added. AddBucket() and
// Finish() are called by one thread at a time; Cancel() and bytes_unsent() by any.
class PushSession {
 public:
  // Cancels unless Finish() has returned, and waits until no memory given is referred to.
  virtual ~PushSession() = default;

  // Begins to send a whole bucket and returns without waiting for it. `data`, in the header's
  // encoding, must stay and not change until Finish() has returned or the session is destroyed.
  // What is wrong with the bucket is told by Finish().
  virtual void AddBucket(uint32_t bucket, Version base_version,
                         absl::Span<const std::byte> data) = 0;
  // The same of a bucket in a device's memory, where it stays and does not change for as long. Only
  // of a transport that may reach devices (ReachesDevice()).
  virtual void AddDeviceBucket(uint32_t bucket, Version base_version, const DevicePayload& payload);

  // Blocks until all servers have acknowledged or one has failed, and until no memory given to
  // AddBucket() is referred to any more, also after an error. After an error the same contribution
  // may be pushed again: what was counted counts once. Call once.
  virtual absl::StatusOr<PushResult> Finish() = 0;

  // Makes Finish() return soon, with Cancelled.
  virtual void Cancel() = 0;

  // Payload of what has been added that is not on its way yet; 0 if nobody knows.
  virtual int64_t bytes_unsent() { return 0; }
};

inline absl::Span<const std::byte> BytesOf(absl::Span<const float> values) {
  return {reinterpret_cast<const std::byte*>(values.data()), values.size() * sizeof(float)};
}
// Weights of so many bytes and more need not go through the caches: when the last have come, the
// first are in none.
inline constexpr size_t kLongPullBytes = 4 << 20;

struct PullTarget {
  uint32_t bucket = 0;
  absl::Span<float> destination;  // as long as the bucket
  // Where the encoding is not fp32: the version of the shadow that is held, and room for the
  // changes since then, if there is one.
  std::optional<Version> held = {};
  absl::Span<std::byte> changes = {};
  // Where else a bucket that comes whole may be brought, `device_begin` bytes from the begin of
  // `device`, rather than to `destination`, which may then be written, too; null: nowhere.
  PayloadSink* device = nullptr;
  int64_t device_begin = 0;
};

struct PullSpec {
  Round min_round;                  // buckets in which rounds before it go on are waited for
  std::vector<PullTarget> targets;  // in the order wanted
  Encoding encoding = Encoding::kFp32;
};

struct PulledBucket {
  uint32_t bucket = 0;
  Version version;
  int64_t num_changes = 0;    // encoded, one after the other in PullTarget::changes; 0: it is whole
  bool is_on_device = false;  // in PullTarget::device, and not in `destination`
};

// Weights on their way. Thread-safe.
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

  // Tries every path that buckets take, by pulling one of them: small packets alone may pass where
  // bulk does not. Errors: the one of a server that cannot be reached, or is not ready.
  virtual std::unique_ptr<PullSession> StartTrial() { return StartPull({}, nullptr); }

  // Whether payloads of the bucket may now be copied straight from a device's memory, and to it:
  // otherwise they are better in host memory when they are handed over. Thread-safe.
  virtual bool ReachesDevice(uint32_t /*bucket*/) { return false; }

  // Payload since the transport was made; of buckets that the servers have acknowledged, and that
  // have arrived. Thread-safe.
  virtual uint64_t bytes_pushed() const = 0;
  virtual uint64_t bytes_pulled() const = 0;

  // How fast transfers have been. Thread-safe.
  virtual PathFacts path() const { return {}; }

  // The path that has stood still for longest, if any does: a call on it has failed for that, and
  // nothing has been seen to move since. Thread-safe.
  virtual std::optional<Standstill> standstill() const { return std::nullopt; }

  // Where the servers are from now on, by shard. Calls to one at another address than before end
  // soon, with Unavailable; those that follow go to the new one. Thread-safe.
  virtual void MoveTo(const std::vector<std::string>& /*addresses*/) {}
};

}  // namespace lodestar
