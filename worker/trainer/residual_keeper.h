// SPDX-License-Identifier: Apache-2.0

// ResidualKeeper keeps the residual of error feedback when the worker's process ends. Before a
// contribution is sent, it has the store write contribution and residual. At the first contribution
// of a process, or after a contribution that may not have been counted, it asks the servers which
// buckets of the last written contribution were counted. The matching residual is then used.
//
// It asks by sending the same bytes under the same key again:
//   the life goes on     each bucket is counted now, was counted before, or its round ended
//                        without it
//   the life has ended   a bucket that counted the bytes says so; any other bucket can never
//                        count them (Aborted)
// The outcome is then known for each bucket. The residual is right even if only some buckets were
// counted. If the process begins again within the lease, it shows the instance of the earlier
// process and its life goes on. Then nothing of the round at hand is lost.
//
// One case cannot be decided. For workers that are not members any more, servers remember the last
// counted contribution only of the 64 workers whose lives began last (DedupTable). If more than 64
// other workers have left since, a counted contribution is taken for one that was not counted. One
// residual is then sent twice. In one more case the residual may be wrong: if the disk takes no new
// file and the old file cannot be removed, a residual that is too old stays. The log says so.
//
// A residual that cannot be used is no error. The worker logs the reason once and begins without
// it.
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
  // All arguments must outlive the object.
  ResidualKeeper(ResidualStore* store, EncodedContribution* residual, Clock* clock)
      : store_(store), residual_(residual), clock_(clock) {}

  // Must be called when the last contribution may not have been counted. The next Settle() asks the
  // servers.
  void Doubt() { is_settled_ = false; }
  // Must be called before a contribution is begun. If this life's contribution to `round` was
  // written before and is delivered now, returns its report, and the round is done. Errors: Aborted
  // if this life is over; Cancelled; those of the device.
  absl::StatusOr<std::optional<messages::RoundReport>> Settle(const LifeContext& life, Round round);
  // Returns true once a kept residual is in use, or this process has kept one.
  bool has_residual() const { return has_residual_; }

  // Writes a contribution whose bytes are all made. Must be called before any of them is sent.
  // Errors: those of the device.
  absl::Status Keep(const messages::Registration& registration, const MadeContribution& made,
                    const messages::RoundReport& report);
  // Removes the file of the store, because the job is done.
  void Forget();

 private:
  absl::StatusOr<std::optional<messages::RoundReport>> TakeUp(const LifeContext& life, Round round,
                                                              const ResidualStore::Stored& stored);
  // Asks the servers which buckets have counted the stored contribution. Returns one entry per
  // bucket: true if the bucket has counted it.
  absl::StatusOr<std::vector<bool>> AskWhatCounted(const LifeContext& life,
                                                   const ResidualStore::Stored& stored);
  absl::StatusOr<bool> AskOfEndedLife(const LifeContext& life, const ResidualStore::Stored& stored,
                                      const params::Bucket& bucket,
                                      client::ParameterTransport* transport);

  ResidualStore* const store_;
  EncodedContribution* const residual_;
  Clock* const clock_;
  bool is_settled_ = false;
  bool has_residual_ = false;
  logging::ChangeLogger logger_;
};

}  // namespace lodestar::trainer
