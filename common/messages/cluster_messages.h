// What passes between workers and the coordinator, in native types; both sides have the same ones.
// Meaning of each field: proto/cluster_service.proto. Wire form: proto/convert_cluster.h.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/job/job_loss.h"
#include "common/job/job_spec.h"
#include "common/job/proposed_settings.h"
#include "common/messages/program_metrics.h"
#include "common/params/bucket_plan.h"
#include "common/params/encoding.h"
#include "common/params/layout.h"
#include "common/runtime/ids.h"

namespace lodestar {

// A life of a worker, as carried by every call but Register.
struct WorkerLife {
  WorkerId worker;
  Incarnation incarnation;
  friend bool operator==(const WorkerLife&, const WorkerLife&) = default;
};

struct ServerAddress {
  int shard = 0;
  std::string address;  // where workers reach it
  ElementRange range;
};

// Where each parameter lives. Immutable once built; shared with calls in flight.
struct ClusterMap {
  uint64_t version = 0;  // grows when a server has another address, and nothing else has changed
  Layout layout;
  std::vector<ServerAddress> servers;  // by shard
  std::vector<Bucket> buckets;         // by index
};

// The tensors of a program, whose model the servers may not know.
struct OfferedLayout {
  Layout layout;
  // The program computes with them in whatever order and blocks the job has them.
  bool adopts_order = false;
};

// The last report of a process that the coordinator has answered.
struct AcknowledgedReport {
  uint64_t server_incarnation = 0;  // of the servers at that time
  Incarnation life;                 // of the worker
  Round round;
  friend bool operator==(const AcknowledgedReport&, const AcknowledgedReport&) = default;
};

// What a process has done when it registers.
struct ProcessHistory {
  std::optional<absl::Duration> age = {};  // not set: it has contributed before
  std::optional<AcknowledgedReport> acknowledged = {};
};

struct RegisterCall {
  std::string name;
  uint64_t instance_id = 0;
  std::string device;
  std::string peer;              // address of the connection, for people
  std::optional<Layout> layout;  // of a program of its own
  bool adopts_order = false;     // of OfferedLayout
  // That the client can send and take.
  std::vector<Encoding::Kind> encodings = {Encoding::Kind::kFp32};
  std::string identity = {};       // name in the caller's certificate; empty: it has none
  ProposedSettings proposed = {};  // model `client` only
  ProcessHistory process = {};
  // The connection of the process that holds the name is closed: see Coordinator::PeerOfHolder().
  bool holder_is_gone = false;
};

// The answer to it.
struct Registration {
  WorkerLife life;
  uint64_t server_incarnation = 0;
  absl::Duration lease;
  absl::Duration heartbeat_interval;
  JobSpec job;
  std::shared_ptr<const ClusterMap> map;
  bool needs_initial_weights = false;
  std::string life_secret;  // shown with every call in the worker's name; empty: none is asked for
  uint64_t rounds_completed = 0;  // under this worker's name, over all its lives
  // The first round that has not been opened. 0 means that none was, or that the server is of an
  // earlier release.
  Round next_round;

  const Layout& layout() const { return map->layout; }
  const std::vector<ServerAddress>& servers() const { return map->servers; }
  const std::vector<Bucket>& buckets() const { return map->buckets; }
};

struct DatasetInfo {
  std::string fingerprint;  // empty: the client's own business
  int64_t num_train_samples = 0;
  int64_t num_heldout_samples = 0;
  int64_t tokens_per_sample = 1;
  bool own_partition = false;
  friend bool operator==(const DatasetInfo&, const DatasetInfo&) = default;
};

// A path between a worker and a server on which nothing moves although something should, call after
// call.
struct Standstill {
  int shard = 0;
  absl::Duration age;  // since anything has moved, or its server gave a reason why not
};

// How fast the path between a worker and all its servers together was of late. 0 means that this is
// not known, for example because payloads go through shared memory, or little has moved.
struct PathFacts {
  double up_bytes_per_second = 0.0;    // from the worker
  double down_bytes_per_second = 0.0;  // to the worker
  absl::Duration round_trip;
  friend bool operator==(const PathFacts&, const PathFacts&) = default;
};

struct HeartbeatCall {
  WorkerLife life;
  uint64_t bytes_pushed = 0;  // since Register
  uint64_t bytes_pulled = 0;
  std::string activity;
  std::optional<Standstill> standstill = {};
  // The version of the map whose addresses the worker has. If it is not set, the worker has no use
  // for other addresses.
  std::optional<uint64_t> map_version = {};
  PathFacts path = {};
  // The last round of this life whose report the coordinator has answered.
  std::optional<Round> acknowledged = {};
};

// Where the servers are, by shard.
struct ServerAddresses {
  uint64_t map_version = 0;
  std::vector<std::string> addresses;
};

struct HeartbeatAnswer {
  ViewId view;
  std::string waiting_for;                 // why the cluster does not go on; empty if it does
  std::optional<ServerAddresses> servers;  // unless the worker has these
};

struct Grant {
  enum class Kind : uint8_t { kTrain, kEvaluate, kWait, kDone };
  Kind kind = Kind::kTrain;
  Round round;
  ViewId view;
  int64_t first_sample = 0;    // position in the order of this worker's data set
  int64_t first_position = 0;  // place among all samples of the job
  int64_t num_samples = 0;     // for all local steps together
  int local_steps = 1;
  std::vector<double> learning_rates;  // one per local step
  // DefersContributions(): that the contributions of the round stand for, of all workers.
  int64_t round_samples = 0;
  Round min_round;  // whose rounds before are over in the weights to be pulled
  int64_t first_heldout_sample = 0;
  int64_t num_heldout_samples = 0;
  int64_t evaluation_set_size = 0;
  std::string reason;       // kWait, kDone
  bool has_failed = false;  // kDone: the job has, and `reason` says why
  int64_t total_rounds = 0;
  JobLoss loss;  // of the job when the grant was given, over all workers; not with kWait
  friend bool operator==(const Grant&, const Grant&) = default;
};

struct RoundReport {
  Round round;
  double loss_sum = 0.0;  // nats
  int64_t num_predictions = 0;
  int64_t num_samples = 0;
  absl::Duration compute;
  // The exposed communication: there was nothing to compute, because weights had not arrived, also
  // if the servers had none yet, or because gradients had not left. A card measures it by its own
  // clock.
  absl::Duration communication;
  // The time of waiting for grants, and for others whose pushes came first.
  absl::Duration wait;
  absl::Duration evaluation;  // part of `compute`; does not travel
  // The part of `compute` that was over before the grant came. It does not travel.
  absl::Duration computed_ahead;
  double heldout_loss_sum = 0.0;
  int64_t heldout_correct = 0;
  int64_t heldout_predictions = 0;
  Version base_version;
  Metrics metrics = {};  // that the worker's program has told; means over the steps
  // Error feedback, in the first report of a process: of so many rounds before it the residual is
  // not there.
  int64_t lost_residual_rounds = 0;
  // DefersContributions(): nothing is computed on the grant.
  bool leaves_nothing_in_hand = false;
};

}  // namespace lodestar
