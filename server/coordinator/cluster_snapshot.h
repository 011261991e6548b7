// The state of the cluster for people and tools, as plain data. Wire form: ClusterStatus in
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

namespace lodestar {

// The data of a worker.
struct DataSnapshot {
  bool is_own = false;  // --data_partition=own
  std::string fingerprint;
  int64_t num_train_samples = 0;
  int64_t num_heldout_samples = 0;
  double epoch = 0.0;  // passes over it, by all that have it together
};

struct WorkerSnapshot {
  std::string name;
  WorkerId worker;
  Incarnation incarnation;
  std::string state;  // registered, member, waiting, left, expired, dropped, refused
  std::string activity;
  int64_t round = -1;     // The last one granted. -1 means none.
  int64_t staleness = 0;  // rounds behind the newest grant
  absl::Duration lease_age;
  double samples_per_second = 0.0;
  double push_bytes_per_second = 0.0;
  double pull_bytes_per_second = 0.0;
  double compute_share = 0.0;
  double communication_share = 0.0;  // exposed; see RoundReport
  absl::Duration exposed_per_round;  // the same, a mean
  double wait_share = 0.0;
  std::string device;
  std::string peer;
  uint64_t rounds_completed = 0;
  uint64_t residuals_lost = 0;  // see WorkerAssignment::Memory
  // The time until the first contribution of its process. Not set means that there was none, or
  // that it is not known.
  std::optional<absl::Duration> start_to_contribution;
  std::optional<absl::Duration> registration_to_contribution;
  PathFacts path;
  std::optional<DataSnapshot> data;  // of a member
  std::string reason;                // why it is not there: of the last five states
  absl::Duration ended_age;          // since then; zero if not known
};

struct MissingSnapshot {
  std::string worker;
  absl::Duration age;
  std::string what;
  absl::Duration time_left = absl::InfiniteDuration();  // until it is dropped
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
  ElementRange range;
  std::string journal_replica = "";  // see JournalState; empty if its server is not there
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
  // since it is over; not set if it may last
  std::optional<absl::Duration> over_age = std::nullopt;
};

// What an operator has asked for and what has not come yet.
struct RequestSnapshot {
  std::string what;    // "stop", "checkpoint"
  std::string reason;  // of a stop
  absl::Duration age;
  std::string waiting_for;          // empty if nothing holds it up
  std::string waiting_for_undated;  // without ages, to see whether it has changed
  std::string way_out;              // what the operator can do about it; empty if only wait
};

struct PauseSnapshot {
  std::string reason;
  absl::Duration age;  // in this process
};

struct DivergenceSnapshot {
  Round round;
  std::string text;
  absl::Duration age;
};

struct ClusterSnapshot {
  JobSpec job;
  uint64_t server_incarnation = 0;
  absl::Duration uptime;
  std::string state;            // see StateName() in cluster_words.h
  std::string exchange_choice;  // see ExchangeTuning::text()
  // One sentence that says what is waited for, in which round, and for how long. Empty means that
  // nothing is waited for.
  std::string waiting_for;
  bool is_held_up = false;  // by that, for longer than rounds take
  int64_t round = 0;        // rounds opened (granted, if asynchronous)
  int64_t total_rounds = 0;
  double epoch = 0.0;
  int64_t samples = 0;            // handed out
  int64_t trained_samples = 0;    // of them: in rounds that are over
  int64_t untrained_samples = 0;  // of them: that no worker will train on
  JobLoss loss;
  std::map<std::string, MetricSnapshot> metrics;  // the last of each name
  int64_t metrics_dropped = 0;                    // values: not finite, or too many
  double samples_per_second = 0.0;
  double tokens_per_second = 0.0;
  double learning_rate = 0.0;
  ViewId view;
  std::vector<WorkerSnapshot> workers;
  int64_t num_workers_not_shown = 0;  // that have not joined, or ended not long ago
  std::optional<OpenRoundSnapshot> open_round;
  std::vector<ShardSnapshot> shards;
  std::string upstream;  // of a site: HOST:PORT of the servers that it is a worker of
  std::optional<CheckpointSnapshot> last_checkpoint;
  std::optional<ResumeSnapshot> resumed;
  std::vector<AlarmSnapshot> alarms;
  std::vector<RequestSnapshot> requests;
  uint64_t num_parameters = 0;
  std::string layout_hash;
  std::optional<absl::Duration> eta;
  uint64_t rounds_committed_short = 0;
  std::optional<DivergenceSnapshot> divergence;  // the last one
  int64_t rollbacks = 0;
  double learning_rate_scale = 1.0;  // what rollbacks and operators have made of the learning rate
  std::optional<PauseSnapshot> pause;  // rounds that are open end all the same
};

}  // namespace lodestar
