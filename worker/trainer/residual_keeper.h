// ResidualKeeper: carries the residual of error feedback over the end of a worker's process. Before
// a contribution is sent it has the store write what there is; before the first contribution of a
// process, or after one that came to nothing, it learns from the servers what the last one that was
// written has become, and goes on from there.
//
// It asks by sending the same bytes under the same key again:
//   the life goes on     they are counted now, or were before, or their round is over without them
//   the life has ended   a bucket that counted them says so; of the others none can count them any
//                        more (Aborted)
// So the truth is known bucket by bucket, and a round that some buckets have counted and others not
// leaves the right residual. A life goes on if the process begins again within the lease, since it
// shows the instance of the one before; then nothing of the round at hand is lost, either.
//
// What remains undecidable: servers remember of each worker that is no member the last that they
// have counted, but only of the 64 whose lives began last (DedupTable). Where more than 64 others
// have come and gone since, a contribution that was counted is taken for one that was not, and one
// residual is sent twice. And a disk that takes no new file and does not let the old one go keeps a
// residual that is too old; the log says so.
//
// A residual that cannot be used is no error: it is told why, once, and the worker begins without.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/clock.h"
#include "common/cluster_messages.h"
#include "common/logging.h"
#include "worker/trainer/contribution_push.h"
#include "worker/trainer/encoded_contribution.h"
#include "worker/trainer/life_context.h"
#include "worker/trainer/residual_store.h"

namespace lodestar {

class ResidualKeeper {
 public:
  // All outlive the object.
  ResidualKeeper(ResidualStore* store, EncodedContribution* residual, Clock* clock)
      : store_(store), residual_(residual), clock_(clock) {}

  // What was made last may not have been counted.
  void Doubt() { is_settled_ = false; }
  // Before a contribution is begun. The report of `round` if the contribution of this life to it
  // was written, and has now been delivered: there is nothing left to do for it. Errors: Aborted:
  // this life is over; Cancelled; those of the device.
  absl::StatusOr<std::optional<RoundReport>> Settle(const LifeContext& life, Round round);
  // Whether the process has a residual, or can have none: of its own, or one that was kept.
  bool has_residual() const { return has_residual_; }

  // The contribution is made, and nothing of it has been sent. Errors: those of the device.
  absl::Status Keep(const Registration& registration, const MadeContribution& made,
                    const RoundReport& report);
  // The job is done.
  void Forget();

 private:
  absl::StatusOr<std::optional<RoundReport>> TakeUp(const LifeContext& life, Round round,
                                                    const ResidualStore::Stored& stored);
  // Whether each bucket has counted it.
  absl::StatusOr<std::vector<bool>> AskWhatCounted(const LifeContext& life,
                                                   const ResidualStore::Stored& stored);
  absl::StatusOr<bool> AskOfEndedLife(const LifeContext& life, const ResidualStore::Stored& stored,
                                      const Bucket& bucket, ParameterTransport* transport);

  ResidualStore* const store_;
  EncodedContribution* const residual_;
  Clock* const clock_;
  bool is_settled_ = false;
  bool has_residual_ = false;
  ChangeLogger logger_;
};

}  // namespace lodestar
