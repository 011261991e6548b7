// ContributionPush: one contribution on its way to the servers, bucket by bucket while backward
// still produces it, and again until every server has acknowledged it. Under one key and with the
// same bytes, so it counts once.
//
// Where the bytes have to come from the device first, a thread of the push waits for each bucket's
// and hands them over, so that the thread that computes never waits. It waits for the device only,
// never for a server, and so always ends.
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
#include "common/clock.h"
#include "common/cluster_messages.h"
#include "common/contribution.h"
#include "common/layout.h"
#include "common/trace_recorder.h"
#include "worker/client/bulk_transport.h"
#include "worker/model/model.h"
#include "worker/trainer/contribution_bytes.h"
#include "worker/trainer/pull_order.h"
#include "worker/trainer/weights_pull.h"

namespace lodestar {

// The session of one contribution. Averaged tensors take no part in its encoding and scale: where
// it has any, they have a session of their own beside it.
class ContributionSession {
 public:
  // Both outlive the object.
  ContributionSession(const Registration& registration, const ContributionHeader& header,
                      ParameterTransport* transport);

  void AddBucket(const Bucket& bucket, Version base_version, absl::Span<const std::byte> data) {
    SessionOf(bucket).AddBucket(bucket.index, base_version, data);
  }
  // A bucket of `bytes` that is prepared, and awaited. Errors: those of the device.
  absl::Status AddBucket(const Bucket& bucket, Version base_version, ContributionBytes& bytes);
  // As PushSession::bytes_unsent(), of both.
  int64_t bytes_unsent() const;
  // As PushSession::Finish(), of both.
  absl::StatusOr<PushResult> Finish();

 private:
  PushSession& SessionOf(const Bucket& bucket);

  const Registration& registration_;
  const ContributionHeader header_;
  ParameterTransport* const transport_;
  std::unique_ptr<PushSession> session_;
  std::unique_ptr<PushSession> averaged_;  // null: none has been added, or session_ has them
};

// A contribution whose bytes are made: it can be pushed again, under the same key, as long as the
// bytes stay.
struct MadeContribution {
  ContributionHeader header;
  ContributionBytes* bytes = nullptr;
  std::vector<uint32_t> buckets;       // that it has
  std::vector<Version> base_versions;  // of those
};

// Pushes it until every server has acknowledged. Returns the buckets that were not counted, of
// which `bytes` has not been told. Errors: Aborted, Cancelled, refusals.
absl::StatusOr<std::vector<uint32_t>> DeliverAgain(const Registration& registration,
                                                   const MadeContribution& made,
                                                   ParameterTransport* transport, Clock* clock);
// So, and tells `bytes`.
absl::Status PushAgain(const Registration& registration, const MadeContribution& made,
                       ParameterTransport* transport, Clock* clock);

class ContributionPush final : public GradientSink {
 public:
  // Whether buckets leave as soon as they are made, or none before Finish().
  enum class Leaves : uint8_t { kAtOnce, kWithFinish };

  // The device's vector behind `bytes`, which has no other push meanwhile, must not change before
  // Finish() has returned; `base` tells the versions that it was computed on; `trace` may be null.
  // All arguments outlive the push.
  ContributionPush(const Registration& registration, const ContributionHeader& header,
                   ContributionBytes* bytes, BaseVersions* base, ParameterTransport* transport,
                   Clock* clock, TraceRecorder* trace = nullptr, Leaves leaves = Leaves::kAtOnce);
  // Gives up what has not been handed over, unless Finish() has returned.
  ~ContributionPush() override;

  // The block's values are final in what the compute stream has been given: its buckets leave as
  // soon as they are computed. Errors: those of the device.
  absl::Status BlockReady(int block) override;
  // So, of the buckets that lie in one of the parts: BlockReady() has the others.
  absl::Status PartsReady(int block, absl::Span<const ElementRange> parts) override;
  absl::Status AllBlocksReady();
  // The same of some buckets, by index; the contribution has no others then.
  absl::Status BucketsReady(absl::Span<const uint32_t> buckets);

  // After one of the last two, or BlockReady() of each: what it takes to push the contribution
  // again.
  MadeContribution made() const;
  // Then, too: blocks until all of its bytes are made. Errors: those of the device.
  absl::Status AwaitMade();
  // So, too: what of the contribution has not left yet, in the order in which it will; nothing once
  // it is delivered.
  std::vector<LeavingBucket> leaving() const;
  // Blocks until every server has acknowledged. Errors: Aborted, Cancelled, refusals, and those of
  // the device.
  absl::Status Finish();
  // Finish() but for telling `bytes` what was not counted, which it returns: nothing is asked of
  // the device.
  absl::StatusOr<std::vector<uint32_t>> Deliver();
  // Time spent in either: of the transfer, what computing did not hide; and what no transfer was
  // needed for, as the server waited for others.
  absl::Duration blocked() const { return blocked_; }
  absl::Duration waited() const { return waited_; }

 private:
  struct Prepared {
    const Bucket* bucket = nullptr;
    EventId event = 0;
  };

  void Ready(const Bucket& bucket);
  void PrepareAndAdd(const Bucket& bucket);
  // Where the transport reaches the device the bytes stay there; unless somebody keeps them before
  // they leave.
  EventId Prepare(const Bucket& bucket);
  // Hands over what is prepared, in order; runs on pusher_.
  void HandOver() ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Await(const Prepared& prepared);
  // Lets pusher_ end. `drop`: without waiting for what is still queued.
  void JoinPusher(bool drop) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Add(const Bucket& bucket) { return AddTo(*session_, bucket); }
  absl::Status AddTo(ContributionSession& session, const Bucket& bucket);
  // Returned by what comes next.
  void NoteFailure(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status failure() ABSL_LOCKS_EXCLUDED(mutex_);

  const Registration& registration_;
  const ContributionHeader header_;
  ContributionBytes* const bytes_;
  BaseVersions* const base_;
  ParameterTransport* const transport_;
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

}  // namespace lodestar
