// ContributionPush brings one contribution to the servers, bucket by bucket while backward still
// produces it. It sends the contribution again until every server has acknowledged it. It sends it
// under the same key and with the same bytes, so the contribution counts once.
//
// If the bytes have to come from the device first, a thread of the push waits for those of each
// bucket and hands them over. The thread that computes then never waits. The thread of the push
// waits for the device only, never for a server, and so always ends.
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

// The session of one contribution. Averaged tensors take no part in its encoding and scale. If it
// has any, they have a session of their own beside it.
class ContributionSession {
 public:
  // The registration and the transport outlive the object.
  ContributionSession(const Registration& registration, const client::ContributionHeader& header,
                      client::ParameterTransport* transport);

  void AddBucket(const Bucket& bucket, Version base_version, absl::Span<const std::byte> data) {
    SessionOf(bucket).AddBucket(bucket.index, base_version, data);
  }
  // Adds a bucket of `bytes` that is prepared and awaited. Errors: those of the device.
  absl::Status AddBucket(const Bucket& bucket, Version base_version, ContributionBytes& bytes);
  // Returns the sum of PushSession::bytes_unsent() over both sessions.
  int64_t bytes_unsent() const;
  // Does PushSession::Finish() for both sessions.
  absl::StatusOr<client::PushResult> Finish();

 private:
  client::PushSession& SessionOf(const Bucket& bucket);

  const Registration& registration_;
  const client::ContributionHeader header_;
  client::ParameterTransport* const transport_;
  std::unique_ptr<client::PushSession> session_;
  // Null means that none has been added, or that session_ has them.
  std::unique_ptr<client::PushSession> averaged_;
};

// A contribution whose bytes are made. It can be pushed again, under the same key, as long as the
// bytes stay.
struct MadeContribution {
  client::ContributionHeader header;
  ContributionBytes* bytes = nullptr;
  std::vector<uint32_t> buckets;       // The buckets that it has.
  std::vector<Version> base_versions;  // The versions for those buckets.
};

// Pushes the contribution until every server has acknowledged it. Returns the buckets that were not
// counted, of which `bytes` has not been told. Errors: Aborted, Cancelled, refusals.
absl::StatusOr<std::vector<uint32_t>> DeliverAgain(const Registration& registration,
                                                   const MadeContribution& made,
                                                   client::ParameterTransport* transport,
                                                   Clock* clock);
// Does the same as DeliverAgain(), and tells `bytes` which buckets were not counted.
absl::Status PushAgain(const Registration& registration, const MadeContribution& made,
                       client::ParameterTransport* transport, Clock* clock);

class ContributionPush final : public model::GradientSink {
 public:
  // Whether buckets leave as soon as they are made, or none before Finish().
  enum class Leaves : uint8_t { kAtOnce, kWithFinish };

  // The device's vector behind `bytes` has no other push meanwhile, and must not change before
  // Finish() has returned. `base` tells the versions that it was computed on. `trace` may be null.
  // All arguments outlive the push.
  ContributionPush(const Registration& registration, const client::ContributionHeader& header,
                   ContributionBytes* bytes, BaseVersions* base,
                   client::ParameterTransport* transport, Clock* clock,
                   TraceRecorder* trace = nullptr, Leaves leaves = Leaves::kAtOnce);
  // Gives up what has not been handed over, unless Finish() has returned.
  ~ContributionPush() override;

  // Must be called once what the compute stream has been given makes the block's values final. The
  // buckets of the block leave as soon as they are computed. Errors: those of the device.
  absl::Status BlockReady(int block) override;
  // Does the same for the buckets that lie in one of the parts. BlockReady() has the others.
  absl::Status PartsReady(int block, absl::Span<const ElementRange> parts) override;
  absl::Status AllBlocksReady();
  // Does the same for some buckets, by index. The contribution then has no others.
  absl::Status BucketsReady(absl::Span<const uint32_t> buckets);

  // May be called after AllBlocksReady(), after BucketsReady(), or after BlockReady() of each
  // block. Returns what it takes to push the contribution again.
  MadeContribution made() const;
  // May be called when made() may. Blocks until all bytes of the contribution are made. Errors:
  // those of the device.
  absl::Status AwaitMade();
  // May be called when made() may. Returns the buckets of the contribution that have not left yet,
  // in the order in which they will leave. Returns nothing once the contribution is delivered.
  std::vector<LeavingBucket> leaving() const;
  // Blocks until every server has acknowledged. Errors: Aborted, Cancelled, refusals, and those of
  // the device.
  absl::Status Finish();
  // Does the same as Finish(), but returns the buckets that were not counted in place of telling
  // `bytes`. It asks nothing of the device.
  absl::StatusOr<std::vector<uint32_t>> Deliver();
  // The time spent in Finish() or Deliver(). blocked() is the part of the transfer that computing
  // did not hide. waited() is the time in which no transfer was needed, because the server waited
  // for others.
  absl::Duration blocked() const { return blocked_; }
  absl::Duration waited() const { return waited_; }

 private:
  struct Prepared {
    const Bucket* bucket = nullptr;
    kernels::EventId event = 0;
  };

  void Ready(const Bucket& bucket);
  void PrepareAndAdd(const Bucket& bucket);
  // If the transport reaches the device, the bytes of the bucket stay there, unless they are kept
  // before they leave.
  kernels::EventId Prepare(const Bucket& bucket);
  // Hands over the prepared buckets, in order. It runs on pusher_.
  void HandOver() ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Await(const Prepared& prepared);
  // Lets pusher_ end. With `drop` it does not wait for what is still queued.
  void JoinPusher(bool drop) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Add(const Bucket& bucket) { return AddTo(*session_, bucket); }
  absl::Status AddTo(ContributionSession& session, const Bucket& bucket);
  // Keeps an error, which the next call returns.
  void NoteFailure(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status failure() ABSL_LOCKS_EXCLUDED(mutex_);

  const Registration& registration_;
  const client::ContributionHeader header_;
  ContributionBytes* const bytes_;
  BaseVersions* const base_;
  client::ParameterTransport* const transport_;
  Clock* const clock_;
  TraceRecorder* const trace_;
  const Leaves leaves_;
  std::vector<const Bucket*> ready_;  // in order
  std::vector<bool> is_ready_;        // by bucket
  absl::Duration blocked_;
  absl::Duration waited_;
  std::unique_ptr<ContributionSession> session_;  // of pusher_ until it has been joined

  absl::Mutex mutex_;
  std::deque<Prepared> prepared_ ABSL_GUARDED_BY(mutex_);
  bool no_more_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);  // of the device
  std::thread pusher_;                            // none where there is nothing to wait for
};

}  // namespace lodestar::trainer
