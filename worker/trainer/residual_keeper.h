// SPDX-License-Identifier: Apache-2.0

// ResidualKeeper preserves the residual of error feedback when the worker's process ends. Before a
// contribution is sent, it stores contribution and residual on disk. Before the first contribution
// of a process, and after a contribution that may not have been counted, it asks the servers which
// buckets of the last stored contribution were counted. Then the residual that matches the answer
// is used.
//
// It asks by sending the same bytes under the same key again:
//   the life goes on     each bucket is counted now, was counted before, or its round ended
//                        without it
//   the life has ended   a bucket that counted the bytes says so; any other bucket can never
//                        count them (Aborted)
// The result is then known for each bucket, so the residual is right even if only some buckets were
// counted. If a new process starts before the lease ends, it continues the life of the earlier
// process by its instance number. In that case nothing of the present round is lost.
//
// In two cases the residual is wrong. First: of the workers that have left, servers remember the
// last counted contribution of only 64, those whose lives began last (DedupTable). If more than 64
// other workers have left since, ResidualKeeper wrongly assumes that the contribution was not
// counted, and one residual is sent twice. Second: if the disk can neither store a new file nor
// remove the old file, a residual that is too old stays. The log reports this.
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

  // Must be called when it is not known whether the last contribution was counted. The next
  // Settle() asks the servers.
  void Doubt() { is_settled_ = false; }
  // Must be called before a contribution is begun. If this life has already stored its contribution
  // to `round`, pushes it now and returns its report. The round is then done. Errors: Aborted (if
  // this life is over); Cancelled; those of the device.
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
