// ResidualKeeper carries the residual of error feedback over the end of a worker's process. Before
// a contribution is sent, it has the store write what there is. Before the first contribution of a
// process, or after one that came to nothing, it asks the servers. It learns what the last
// contribution that was written has become, and goes on from there.
//
// It asks by sending the same bytes under the same key again:
//   the life goes on     they are counted now, or were before, or their round is over without them
//   the life has ended   a bucket that counted them says so; of the others none can count them any
//                        more (Aborted)
// The truth is then known bucket by bucket. A round that some buckets have counted and others have
// not leaves the right residual. A life goes on if the process begins again within the lease, since
// it shows the instance of the process before. In that case nothing of the round at hand is lost.
//
// One case cannot be decided. For workers that are no members, servers remember the last
// contribution that they have counted. They do so only for the 64 workers whose lives began last
// (DedupTable). If more than 64 others have come and gone since, a contribution that was counted is
// taken for one that was not. One residual is then sent twice. Also, a disk that takes no new file
// and does not let the old one go keeps a residual that is too old; the log says so.
//
// A residual that cannot be used is no error. The log says why, once, and the worker begins
// without.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/logging/logging.h"
#include "common/messages/cluster_messages.h"
#include "common/runtime/clock.h"
#include "worker/trainer/contribution_push.h"
#include "worker/trainer/encoded_contribution.h"
#include "worker/trainer/life_context.h"
#include "worker/trainer/residual_store.h"

namespace lodestar::trainer {

class ResidualKeeper {
 public:
  // All arguments outlive the object.
  ResidualKeeper(ResidualStore* store, EncodedContribution* residual, Clock* clock)
      : store_(store), residual_(residual), clock_(clock) {}

  // Is called when the contribution that was made last may not have been counted.
  void Doubt() { is_settled_ = false; }
  // Must be called before a contribution is begun. It returns the report of `round` if this life's
  // contribution to that round was written, and has now been delivered. Then there is nothing left
  // to do for the round. Errors: Aborted if this life is over; Cancelled; those of the device.
  absl::StatusOr<std::optional<RoundReport>> Settle(const LifeContext& life, Round round);
  // Whether the process has a residual, or can have none. The residual may be its own, or one that
  // was kept.
  bool has_residual() const { return has_residual_; }

  // Keeps a contribution that is made, and of which nothing has been sent. Errors: those of the
  // device.
  absl::Status Keep(const Registration& registration, const MadeContribution& made,
                    const RoundReport& report);
  // Removes what is kept, because the job is done.
  void Forget();

 private:
  absl::StatusOr<std::optional<RoundReport>> TakeUp(const LifeContext& life, Round round,
                                                    const ResidualStore::Stored& stored);
  // Returns, for each bucket, whether it has counted the contribution.
  absl::StatusOr<std::vector<bool>> AskWhatCounted(const LifeContext& life,
                                                   const ResidualStore::Stored& stored);
  absl::StatusOr<bool> AskOfEndedLife(const LifeContext& life, const ResidualStore::Stored& stored,
                                      const Bucket& bucket, client::ParameterTransport* transport);

  ResidualStore* const store_;
  EncodedContribution* const residual_;
  Clock* const clock_;
  bool is_settled_ = false;
  bool has_residual_ = false;
  ChangeLogger logger_;
};

}  // namespace lodestar::trainer
