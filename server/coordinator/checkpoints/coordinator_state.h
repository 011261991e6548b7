// All that the coordinator must remember across a restart; lives in the manifest of a checkpoint.
// JSON form: coordinator_state_json.h.
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

namespace lodestar {

// A data set and how far it is.
struct DataSetState {
  // As the first worker that had it told. own_partition: not the one that all with shared data
  // have.
  DatasetInfo info;
  int64_t next_sample = 0;    // position of its cursor
  std::string claimant = {};  // name of that worker, for people; empty if not known
  friend bool operator==(const DataSetState&, const DataSetState&) = default;
};

// Where the data and the schedules are. A checkpoint has it from between two rounds, or, in
// asynchronous jobs, with grants out.
struct LedgerState {
  int64_t next_round = 0;  // rounds opened, or grants given in asynchronous jobs
  // Rounds of these that no worker has reported. The job has one more round for each.
  int64_t lost_rounds = 0;
  int64_t next_sample = 0;      // samples handed out, of all data sets together
  int64_t trained_samples = 0;  // reported
  // Number of updates that it followed. -1 means that it is not done.
  int64_t final_evaluation_round = -1;
  std::vector<DataSetState> data_sets = {};  // that samples were handed out of
  int64_t rollbacks = 0;                     // since the job began
  double learning_rate_scale = 1.0;          // what they and operators have made of it
  double scale_by_operators = 1.0;           // the operators' part of that
  friend bool operator==(const LedgerState&, const LedgerState&) = default;
};

// How training went, for people.
struct ProgressState {
  JobLoss loss;
  absl::Duration trained_time;
  friend bool operator==(const ProgressState&, const ProgressState&) = default;
};

// What stays so over all lives of the servers until it is taken back.
struct StandingOrders {
  Quarantine::Memory quarantine = {};
  // Why no work is handed out. Not set means that work is handed out.
  std::optional<std::string> pause = std::nullopt;
  friend bool operator==(const StandingOrders&, const StandingOrders&) = default;
};

struct CoordinatorState {
  uint64_t server_incarnation = 0;
  LedgerState ledger;
  MembershipState membership;
  ProgressState progress = {};
  StandingOrders orders = {};
  friend bool operator==(const CoordinatorState&, const CoordinatorState&) = default;
};

}  // namespace lodestar
