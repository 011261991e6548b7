// SPDX-License-Identifier: Apache-2.0

// The state of the cluster for operators and tools, as plain data. Wire form: ClusterStatus in
// proto/status_service.proto.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/job/job_loss.h"
#include "common/job/job_spec.h"
#include "common/messages/cluster_messages.h"
#include "common/params/layout.h"
#include "common/runtime/ids.h"
#include "server/coordinator/model/resume_snapshot.h"
#include "server/coordinator/rounds/round_summary.h"

namespace lodestar::coordinator {

// The data of a worker.
struct DataSnapshot {
  bool is_own = false;  // --data_partition=own
  std::string fingerprint;
  int64_t num_train_samples = 0;
  int64_t num_heldout_samples = 0;
  double epoch = 0.0;  // passes over this data by all workers that have it
};

struct WorkerSnapshot {
  std::string name;
  WorkerId worker;
  Incarnation incarnation;
  std::string state;  // registered, member, waiting, left, expired, dropped, refused
  std::string activity;
  int64_t round = -1;     // The last round granted. -1 means none.
  int64_t staleness = 0;  // rounds behind the newest grant
  absl::Duration lease_age;
  double samples_per_second = 0.0;
  double push_bytes_per_second = 0.0;
  double pull_bytes_per_second = 0.0;
  double compute_share = 0.0;
  double communication_share = 0.0;  // the exposed part; see RoundReport
  absl::Duration exposed_per_round;  // exposed communication time, mean per round
  double wait_share = 0.0;
  std::string device;
  std::string peer;
  uint64_t rounds_completed = 0;
  // Index of the worker: see messages::Registration. Set only if the worker lives.
  std::optional<uint32_t> index;
  uint64_t residuals_lost = 0;  // see WorkerAssignment::Memory
  // Times that the worker's process took until its first contribution: from its start, and from its
  // registration. Not set means that the process has not contributed, or that the time is not
  // known.
  std::optional<absl::Duration> start_to_contribution;
  std::optional<absl::Duration> registration_to_contribution;
  messages::PathFacts path;
  std::optional<DataSnapshot> data;  // set if the worker is a member
  // Reason why the worker is not alive. Set if `state` is waiting, left, expired, dropped or
  // refused.
  std::string reason;
  // Time since `state` became waiting, left, expired, dropped or refused. Zero means not known.
  absl::Duration ended_age;
};

struct MissingSnapshot {
  std::string worker;
  absl::Duration age;
  std::string what;
  absl::Duration time_left = absl::InfiniteDuration();  // until the worker is dropped
};

struct OpenRoundSnapshot {
  Round round;
  absl::Duration age;
  std::vector<std::string> arrived;
  std::vector<MissingSnapshot> missing;
};

struct ShardSnapshot {
  int shard = 0;
  std::string address;
  std::string state;  // missing, attached, loading, serving, away
  params::ElementRange range;
  // See JournalState. Empty if the server of the shard is not there.
  std::string journal_replica = "";
};

struct CheckpointSnapshot {
  std::string path;
  Round round;
  absl::Duration age;
  uint64_t bytes = 0;
  absl::Duration write_time;
};

struct AlarmSnapshot {
  std::string text;
  absl::Duration age;  // since it was last raised
  uint64_t count = 0;
  bool is_reminder = false;  // see AlarmKind
  // Time since the alarm ended. Not set means that the alarm has not ended, as far as is known.
  std::optional<absl::Duration> over_age = std::nullopt;
};

// A request of an operator that is not fulfilled yet.
struct RequestSnapshot {
  std::string what;    // "stop", "checkpoint"
  std::string reason;  // if `what` is "stop": why
  absl::Duration age;
  std::string waiting_for;          // what the request waits for; empty if nothing
  std::string waiting_for_undated;  // waiting_for without ages, to see whether it has changed
  std::string way_out;              // what the operator can do; empty means only wait
};

struct PauseSnapshot {
  std::string reason;
  absl::Duration age;  // since the pause, or since the start of this process if that is later
};

struct DivergenceSnapshot {
  Round round;
  std::string text;
  absl::Duration age;
};

struct ClusterSnapshot {
  job::JobSpec job;
  uint64_t server_incarnation = 0;
  absl::Duration uptime;
  std::string state;            // see StateName() in cluster_words.h
  std::string exchange_choice;  // see ExchangeText()
  // One sentence that says what the cluster waits for, in which round, and for how long. Empty
  // means that the cluster waits for nothing.
  std::string waiting_for;
  bool is_held_up = false;  // the wait lasts longer than rounds take
  int64_t round = 0;        // rounds opened; without rosters, grants
  int64_t total_rounds = 0;
  double epoch = 0.0;
  int64_t samples = 0;            // handed out to workers
  int64_t trained_samples = 0;    // part of `samples`: in rounds that are over
  int64_t untrained_samples = 0;  // part of `samples`: that no worker will train on
  job::JobLoss loss;
  std::map<std::string, rounds::MetricSnapshot> metrics;  // the last value of each name
  // Number of metric values that were dropped, because they were not finite or there were too many.
  int64_t metrics_dropped = 0;
  double samples_per_second = 0.0;
  double tokens_per_second = 0.0;
  double learning_rate = 0.0;
  ViewId view;
  std::vector<WorkerSnapshot> workers;
  // Number of workers that are left out of `workers` to keep it short. These workers have
  // registered but not joined, or have ended within the last hour, or were refused.
  int64_t num_workers_not_shown = 0;
  std::optional<OpenRoundSnapshot> open_round;
  std::vector<ShardSnapshot> shards;
  std::string upstream;  // if this is a site, HOST:PORT of the servers that it is a worker of
  std::optional<CheckpointSnapshot> last_checkpoint;
  std::optional<model::ResumeSnapshot> resumed;
  std::vector<AlarmSnapshot> alarms;
  std::vector<RequestSnapshot> requests;
  uint64_t num_parameters = 0;
  std::string layout_hash;
  std::optional<absl::Duration> eta;
  uint64_t rounds_committed_short = 0;
  std::optional<DivergenceSnapshot> divergence;  // the last divergence of the run
  int64_t rollbacks = 0;
  double learning_rate_scale = 1.0;    // factor on the learning rate, from rollbacks and operators
  std::optional<PauseSnapshot> pause;  // open rounds end as without a pause
};

}  // namespace lodestar::coordinator
