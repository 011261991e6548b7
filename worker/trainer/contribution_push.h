// SPDX-License-Identifier: Apache-2.0

// ContributionPush sends one contribution to the servers, bucket by bucket, while backward still
// computes the rest. If an attempt fails, it sends the same key and the same bytes again, until
// every server has acknowledged them. So the contribution counts once.
//
// If the device has to make the bytes first, a thread of the push waits for the bytes of each
// bucket and adds the bucket to the session. So the thread that computes never waits. The thread of
// the push waits only for the device, never for a server, so it always ends.
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
// contribution has both averaged and other tensors, a second session sends the averaged tensors.
class ContributionSession {
 public:
  // `registration` and `transport` must outlive the object.
  ContributionSession(const messages::Registration& registration,
                      const client::ContributionHeader& header,
                      client::ParameterTransport* transport);

  void AddBucket(const params::Bucket& bucket, Version base_version,
                 absl::Span<const std::byte> data) {
    SessionOf(bucket).AddBucket(bucket.index, base_version, data);
  }
  // Adds a bucket, whose bytes must be made already. Errors: those of the device.
  absl::Status AddBucket(const params::Bucket& bucket, Version base_version,
                         ContributionBytes& bytes);
  // Returns the sum of PushSession::bytes_unsent() over both sessions.
  int64_t bytes_unsent() const;
  // Calls PushSession::Finish() of both sessions, and returns one result for both.
  absl::StatusOr<client::PushResult> Finish();

 private:
  client::PushSession& SessionOf(const params::Bucket& bucket);

  const messages::Registration& registration_;
  const client::ContributionHeader header_;
  client::ParameterTransport* const transport_;
  std::unique_ptr<client::PushSession> session_;
  // The session of the averaged tensors. Null means that no averaged tensor was added, or that
  // session_ sends them.
  std::unique_ptr<client::PushSession> averaged_;
};

// A contribution whose bytes are made. It can be pushed again under the same key, until Begin() of
// `bytes` begins the next contribution.
struct MadeContribution {
  client::ContributionHeader header;
  ContributionBytes* bytes = nullptr;
  std::vector<uint32_t> buckets;       // The buckets of the contribution.
  std::vector<Version> base_versions;  // The base version of each of `buckets`.
};

// Pushes the contribution until every server has acknowledged it. Returns the buckets that were not
// counted. Does not call Commit() of `bytes`. Errors: Aborted; Cancelled; the error with which a
// server refuses the contribution.
absl::StatusOr<std::vector<uint32_t>> DeliverAgain(const messages::Registration& registration,
                                                   const MadeContribution& made,
                                                   client::ParameterTransport* transport,
                                                   Clock* clock);
// Does the same as DeliverAgain(), and then calls Commit() of `bytes`.
absl::Status PushAgain(const messages::Registration& registration, const MadeContribution& made,
                       client::ParameterTransport* transport, Clock* clock);

class ContributionPush final : public model::GradientSink {
 public:
  // Says when buckets are sent: as soon as they are made, or only in Finish().
  enum class Leaves : uint8_t { kAtOnce, kWithFinish };

  // `bytes` must not be used by another push at the same time. Its vector must not change before
  // Finish() has returned. `base` has the versions of the weights that the vector was computed on.
  // `trace` may be null. All arguments must outlive the push.
  ContributionPush(const messages::Registration& registration,
                   const client::ContributionHeader& header, ContributionBytes* bytes,
                   BaseVersions* base, client::ParameterTransport* transport, Clock* clock,
                   process::TraceRecorder* trace = nullptr, Leaves leaves = Leaves::kAtOnce);
  // Drops the buckets that have not been sent, unless Finish() has returned.
  ~ContributionPush() override;

  // Must be called once the work that computes the block's values is queued on the compute stream.
  // The block's buckets are sent when the device has computed them, or in Finish() with
  // kWithFinish. Errors: those of the device.
  absl::Status BlockReady(int block) override;
  // Does the same as BlockReady() for the buckets inside one of the parts. A later BlockReady()
  // handles the block's other buckets.
  absl::Status PartsReady(int block, absl::Span<const params::ElementRange> parts) override;
  absl::Status AllBlocksReady();
  // Does the same as AllBlocksReady() for a contribution that has only the buckets with these
  // indices.
  absl::Status BucketsReady(absl::Span<const uint32_t> buckets);

  // Returns what DeliverAgain() needs to push the contribution again. May be called after
  // AllBlocksReady(), after BucketsReady(), or after BlockReady() of each block.
  MadeContribution made() const;
  // Blocks until all bytes of the contribution are made. May be called when made() may be called.
  // Errors: those of the device.
  absl::Status AwaitMade();
  // Returns the buckets of the contribution that have not been sent yet, in the order of sending.
  // Returns an empty list once the contribution is delivered. May be called when made() may be
  // called.
  std::vector<LeavingBucket> leaving() const;
  // Blocks until every server has acknowledged the contribution. Errors: Aborted, Cancelled,
  // refusals, and those of the device.
  absl::Status Finish();
  // Does the same as Finish(), but does not call Commit() of the bytes and does not use the device.
  // Returns the buckets that were not counted.
  absl::StatusOr<std::vector<uint32_t>> Deliver();
  // blocked() and waited() divide the time that Finish() or Deliver() took. waited() is the time in
  // which everything was sent and the servers waited for other workers. blocked() is the rest: the
  // part of the transfer that did not overlap with computing.
  absl::Duration blocked() const { return blocked_; }
  absl::Duration waited() const { return waited_; }

 private:
  struct Prepared {
    const params::Bucket* bucket = nullptr;
    kernels::EventId event = 0;
  };

  void Ready(const params::Bucket& bucket);
  void PrepareAndAdd(const params::Bucket& bucket);
  // Begins to make the bytes of the bucket. If the transport reads device memory, the bytes stay on
  // the device, unless they must first be written to disk.
  kernels::EventId Prepare(const params::Bucket& bucket);
  // Adds the prepared buckets to the session, in order. Runs on pusher_.
  void HandOver() ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Await(const Prepared& prepared);
  // Waits for the end of pusher_. If `drop` is true, pusher_ ends without adding the buckets that
  // are still queued.
  void JoinPusher(bool drop) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Add(const params::Bucket& bucket) { return AddTo(*session_, bucket); }
  absl::Status AddTo(ContributionSession& session, const params::Bucket& bucket);
  // Stores `status` if it is the first error. failure() returns it.
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
  std::vector<const params::Bucket*> ready_;  // Buckets in the order of sending.
  std::vector<bool> is_ready_;                // One entry per bucket.
  absl::Duration blocked_;
  absl::Duration waited_;
  // While pusher_ runs, only pusher_ uses this session.
  std::unique_ptr<ContributionSession> session_;

  absl::Mutex mutex_;
  std::deque<Prepared> prepared_ ABSL_GUARDED_BY(mutex_);
  bool no_more_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);  // The first error of the device.
  // Not started if Prepare() makes the bytes at once.
  std::thread pusher_;
};

}  // namespace lodestar::trainer
