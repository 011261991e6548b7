// SPDX-License-Identifier: Apache-2.0

// CoordinatorState is all that the coordinator must remember across a restart. The manifest of a
// checkpoint contains it. For its JSON form, see coordinator_state_json.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/job/job_loss.h"
#include "common/messages/cluster_messages.h"
#include "server/coordinator/faults/quarantine.h"
#include "server/membership/membership_table.h"

namespace lodestar::checkpoints {

// A data set and how far training has read it.
struct DataSetState {
  // The facts about the data set as the first worker with it reported them. All workers with shared
  // data have the same data set. Its own_partition is false.
  messages::DatasetInfo info;
  int64_t next_sample = 0;  // position of the next sample to hand out
  // Name of the worker that reported `info`, for messages to operators. Empty means that it is not
  // known.
  std::string claimant = {};
  friend bool operator==(const DataSetState&, const DataSetState&) = default;
};

// How much of the data and of the schedules is used up. A checkpoint contains the ledger as it was
// between two rounds. In asynchronous jobs, reports of some grants may be missing at that moment.
struct LedgerState {
  int64_t next_round = 0;  // number of rounds opened; of grants in asynchronous jobs
  // Number of opened rounds that ended without a report of any worker. The job does one more round
  // for each of them.
  int64_t lost_rounds = 0;
  int64_t next_sample = 0;      // samples handed out from all data sets together
  int64_t trained_samples = 0;  // samples that workers reported as trained
  // Value of next_round when the final evaluation was done. -1 means that it was not done.
  int64_t final_evaluation_round = -1;
  std::vector<DataSetState> data_sets = {};  // those that samples were handed out from
  int64_t rollbacks = 0;                     // number since the job began
  double learning_rate_scale = 1.0;          // product of the changes by roll-backs and operators
  double scale_by_operators = 1.0;           // the operators' part of this product
  friend bool operator==(const LedgerState&, const LedgerState&) = default;
};

// What training has reached so far. The status shows it.
struct ProgressState {
  job::JobLoss loss;
  absl::Duration trained_time;
  friend bool operator==(const ProgressState&, const ProgressState&) = default;
};

// Orders that hold over all incarnations of the servers until they are revoked.
struct StandingOrders {
  faults::Quarantine::Memory quarantine = {};
  // The reason of the pause, in which no work is handed out. Not set means that the job is not
  // paused.
  std::optional<std::string> pause = std::nullopt;
  friend bool operator==(const StandingOrders&, const StandingOrders&) = default;
};

struct CoordinatorState {
  uint64_t server_incarnation = 0;
  LedgerState ledger;
  membership::MembershipState membership;
  ProgressState progress = {};
  StandingOrders orders = {};
  friend bool operator==(const CoordinatorState&, const CoordinatorState&) = default;
};

}  // namespace lodestar::checkpoints
