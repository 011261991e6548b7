// SPDX-License-Identifier: Apache-2.0

// ContributionPush sends one contribution to the servers, bucket by bucket, while backward still
// computes the rest. It repeats the contribution until every server has acknowledged it. Each
// repeat has the same key and the same bytes, so the contribution counts once.
//
// If the bytes have to come from the device first, a thread of the push waits for the bytes of each
// bucket and hands them over. The thread that computes then never waits. The thread of the push
// waits only for the device, never for a server, so it always ends.
#pragma once

#include <deque>
#include <memory>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/messages/cluster_messages.h"
#include "common/messages/contribution.h"
#include "common/params/layout.h"
#include "common/process/trace_recorder.h"
#include "common/runtime/clock.h"
#include "worker/client/bulk_transport.h"
#include "worker/model/model.h"
#include "worker/trainer/contribution_bytes.h"
#include "worker/trainer/pull_order.h"
#include "worker/trainer/weights_pull.h"

namespace lodestar::trainer {

// The session of one contribution. Averaged tensors are neither encoded nor scaled. If the
// contribution has averaged tensors beside other tensors, a second session carries the averaged
// tensors.
class ContributionSession {
 public:
  // The registration and the transport must outlive the object.
  ContributionSession(const messages::Registration& registration,
                      const client::ContributionHeader& header,
                      client::ParameterTransport* transport);

  void AddBucket(const params::Bucket& bucket, Version base_version,
                 absl::Span<const std::byte> data) {
    SessionOf(bucket).AddBucket(bucket.index, base_version, data);
  }
  // Adds a bucket whose bytes are prepared and awaited. Errors: those of the device.
  absl::Status AddBucket(const params::Bucket& bucket, Version base_version,
                         ContributionBytes& bytes);
  // Returns the sum of PushSession::bytes_unsent() over both sessions.
  int64_t bytes_unsent() const;
  // Does PushSession::Finish() for both sessions.
  absl::StatusOr<client::PushResult> Finish();

 private:
  client::PushSession& SessionOf(const params::Bucket& bucket);

  const messages::Registration& registration_;
  const client::ContributionHeader header_;
  client::ParameterTransport* const transport_;
  std::unique_ptr<client::PushSession> session_;
  // The session of the averaged tensors. Null means that no averaged tensor was added, or that
  // session_ carries them.
  std::unique_ptr<client::PushSession> averaged_;
};

// A contribution whose bytes are made. It can be pushed again, under the same key, until `bytes`
// begins the next contribution.
struct MadeContribution {
  client::ContributionHeader header;
  ContributionBytes* bytes = nullptr;
  std::vector<uint32_t> buckets;       // The buckets of the contribution.
  std::vector<Version> base_versions;  // The base version of each of `buckets`.
};

// Pushes the contribution until every server has acknowledged it. Returns the buckets that were not
// counted, and does not call Commit() of `bytes`. Errors: Aborted, Cancelled, refusals.
absl::StatusOr<std::vector<uint32_t>> DeliverAgain(const messages::Registration& registration,
                                                   const MadeContribution& made,
                                                   client::ParameterTransport* transport,
                                                   Clock* clock);
// Does the same as DeliverAgain(), and then calls Commit() of `bytes`.
absl::Status PushAgain(const messages::Registration& registration, const MadeContribution& made,
                       client::ParameterTransport* transport, Clock* clock);

class ContributionPush final : public model::GradientSink {
 public:
  // Says when buckets leave: as soon as they are made, or none before Finish().
  enum class Leaves : uint8_t { kAtOnce, kWithFinish };

  // The device's vector behind `bytes` must have no other push at the same time, and must not
  // change before Finish() has returned. `base` has the versions of the weights that the vector was
  // computed on. `trace` may be null. All arguments must outlive the push.
  ContributionPush(const messages::Registration& registration,
                   const client::ContributionHeader& header, ContributionBytes* bytes,
                   BaseVersions* base, client::ParameterTransport* transport, Clock* clock,
                   process::TraceRecorder* trace = nullptr, Leaves leaves = Leaves::kAtOnce);
  // Gives up the buckets that have not been sent, unless Finish() has returned.
  ~ContributionPush() override;

  // Must be called once the work given to the compute stream makes the block's values final. The
  // block's buckets leave as soon as the device has computed them. Errors: those of the device.
  absl::Status BlockReady(int block) override;
  // Does the same as BlockReady(), for the buckets that lie in one of the parts. A later
  // BlockReady() handles the block's other buckets.
  absl::Status PartsReady(int block, absl::Span<const params::ElementRange> parts) override;
  absl::Status AllBlocksReady();
  // Does the same as AllBlocksReady() for the buckets with these indices only. The contribution
  // then has no other buckets.
  absl::Status BucketsReady(absl::Span<const uint32_t> buckets);

  // Returns what DeliverAgain() needs to push the contribution again. May be called after
  // AllBlocksReady(), after BucketsReady(), or after BlockReady() of each block.
  MadeContribution made() const;
  // Blocks until all bytes of the contribution are made. May be called when made() may be called.
  // Errors: those of the device.
  absl::Status AwaitMade();
  // Returns the buckets of the contribution that have not left yet, in the order in which they will
  // leave. Returns nothing once the contribution is delivered. May be called when made() may be
  // called.
  std::vector<LeavingBucket> leaving() const;
  // Blocks until every server has acknowledged the contribution. Errors: Aborted, Cancelled,
  // refusals, and those of the device.
  absl::Status Finish();
  // Does the same as Finish() without Commit() of the bytes. Returns the buckets that were not
  // counted. Does not use the device.
  absl::StatusOr<std::vector<uint32_t>> Deliver();
  // Return times spent in Finish() or Deliver(). blocked() is the part of the transfer that
  // computing did not hide. waited() is the time in which nothing was left to transfer, because the
  // server waited for other workers.
  absl::Duration blocked() const { return blocked_; }
  absl::Duration waited() const { return waited_; }

 private:
  struct Prepared {
    const params::Bucket* bucket = nullptr;
    kernels::EventId event = 0;
  };

  void Ready(const params::Bucket& bucket);
  void PrepareAndAdd(const params::Bucket& bucket);
  // Begins to make the bytes of the bucket. If the transport reads device memory, the bytes stay
  // there, unless they are kept on disk before they leave.
  kernels::EventId Prepare(const params::Bucket& bucket);
  // Hands over the prepared buckets, in order. Runs on pusher_.
  void HandOver() ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Await(const Prepared& prepared);
  // Waits for the end of pusher_. If `drop` is true, pusher_ ends without the buckets that are
  // still queued.
  void JoinPusher(bool drop) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Add(const params::Bucket& bucket) { return AddTo(*session_, bucket); }
  absl::Status AddTo(ContributionSession& session, const params::Bucket& bucket);
  // Keeps an error. The next call of another method returns it.
  void NoteFailure(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status failure() ABSL_LOCKS_EXCLUDED(mutex_);

  const messages::Registration& registration_;
  const client::ContributionHeader header_;
  ContributionBytes* const bytes_;
  BaseVersions* const base_;
  client::ParameterTransport* const transport_;
  Clock* const clock_;
  process::TraceRecorder* const trace_;
  const Leaves leaves_;
  std::vector<const params::Bucket*> ready_;  // Buckets in the order in which they leave.
  std::vector<bool> is_ready_;                // One entry per bucket.
  absl::Duration blocked_;
  absl::Duration waited_;
  // Only pusher_ uses it until pusher_ has been joined.
  std::unique_ptr<ContributionSession> session_;

  absl::Mutex mutex_;
  std::deque<Prepared> prepared_ ABSL_GUARDED_BY(mutex_);
  bool no_more_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);  // The first error of the device.
  // Not running if Prepare() makes the bytes at once.
  std::thread pusher_;
};

}  // namespace lodestar::trainer
