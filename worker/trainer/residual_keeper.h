// SPDX-License-Identifier: Apache-2.0

// ResidualKeeper preserves the residual of error feedback when the worker's process ends. Before a
// contribution is sent, it stores on disk the contribution and two residuals: for buckets that are
// counted, and for buckets that are not.
//
// Sometimes it is not known which buckets were counted: at the start of a process, and after a
// failed push. Before the next contribution, ResidualKeeper then asks the servers. It asks by
// sending the same bytes under the same key again. A server answers for each bucket:
//   If the life of the stored contribution goes on:
//     the bucket is counted now, was counted before, or is late (its round has ended without it).
//   If that life has ended:
//     the bucket was counted before, or can never be counted (Aborted).
// So the right residual is known for each bucket.
//
// If a new process starts before the lease ends, it continues the life of the earlier process by
// its instance number. In that case nothing of the present round is lost.
//
// In two cases the residual is wrong:
// - Among the workers that have left, servers remember the last contributions only of the 64 whose
//   lives began last (DedupTable). If this worker is not among them, ResidualKeeper wrongly assumes
//   that its contribution was not counted. One residual is then sent twice.
// - If the disk can neither store a new file nor remove the old file, an old residual stays. The
//   log reports this.
//
// If a residual cannot be used, the worker logs the reason once and begins without a residual.
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

  // Must be called when it is not known whether the last contribution was counted. The next
  // Settle() asks the servers.
  void Doubt() { is_settled_ = false; }
  // Must be called before a contribution is begun. If it is not known which buckets of the stored
  // contribution were counted, asks the servers, and sets the residual. If the stored contribution
  // is this life's contribution to `round`, returns the report of the round, which is then done.
  // Otherwise returns nullopt. Errors: Aborted (if this life is over); Cancelled; those of the
  // device.
  absl::StatusOr<std::optional<messages::RoundReport>> Settle(const LifeContext& life, Round round);
  // Returns true once this process uses a stored residual, or has stored one itself.
  bool has_residual() const { return has_residual_; }

  // Stores a contribution whose bytes are all made. Must be called before any bytes are sent.
  // Errors: those of the device.
  absl::Status Keep(const messages::Registration& registration, const MadeContribution& made,
                    const messages::RoundReport& report);
  // Removes the file of the store, because the job is done.
  void Forget();

 private:
  absl::StatusOr<std::optional<messages::RoundReport>> TakeUp(const LifeContext& life, Round round,
                                                              const ResidualStore::Stored& stored);
  // Asks the servers which buckets of the stored contribution were counted. Returns one entry per
  // bucket: true if it was counted.
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
