// SPDX-License-Identifier: Apache-2.0

// Messages between workers and the coordinator, in native types. Both sides use the same types.
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

namespace lodestar::messages {

// One life of a worker. Every call except Register says which life it belongs to.
struct WorkerLife {
  WorkerId worker;
  Incarnation incarnation;
  friend bool operator==(const WorkerLife&, const WorkerLife&) = default;
};

struct ServerAddress {
  int shard = 0;
  std::string address;  // address at which workers reach the server
  params::ElementRange range;
};

// Says which server has which parameters. It does not change once built, and calls in flight share
// it.
struct ClusterMap {
  uint64_t version = 0;  // grows when the address of a server changes, and only then
  params::Layout layout;
  std::vector<ServerAddress> servers;   // indexed by shard
  std::vector<params::Bucket> buckets;  // indexed by Bucket::index
};

// The tensors of a training program. The servers may not know its model.
struct OfferedLayout {
  params::Layout layout;
  // True means that the program uses the order and the blocks of the job's layout instead of its
  // own.
  bool adopts_order = false;
  // Hash of the program's frozen weights, which are not in `layout`. They must be the same in all
  // programs. Empty means that they are not compared.
  std::string frozen_hash = {};
};

// The last report of a process that the coordinator has acknowledged.
struct AcknowledgedReport {
  uint64_t server_incarnation = 0;  // the servers' incarnation at that time
  Incarnation life;                 // the worker's incarnation at that time
  Round round;
  friend bool operator==(const AcknowledgedReport&, const AcknowledgedReport&) = default;
};

// What a process says about itself when it registers.
struct ProcessHistory {
  std::optional<absl::Duration> age = {};  // time since it started; nullopt: has contributed before
  std::optional<AcknowledgedReport> acknowledged = {};
};

struct RegisterCall {
  std::string name;
  uint64_t instance_id = 0;
  std::string device;
  std::string peer;                      // address of the connection, for messages
  std::optional<params::Layout> layout;  // layout of a program that brings its own model
  bool adopts_order = false;             // see OfferedLayout
  std::string frozen_hash = {};          // see OfferedLayout
  // Kinds of encodings that the client can send and receive.
  std::vector<params::Encoding::Kind> encodings = {params::Encoding::Kind::kFp32};
  std::string identity = {};  // name in the caller's certificate; empty means that it has none
  job::ProposedSettings proposed = {};  // only for the model `client`
  ProcessHistory process = {};
  // Another process may be registered under the same name. True means that its connection is
  // closed, so that this process may get the name: see Coordinator::PeerOfHolder().
  bool holder_is_gone = false;
};

// The workers that are registered or members at this time.
struct LiveWorkers {
  int64_t count = 0;
  uint32_t lowest_index = 0;  // the lowest Registration::index among them
  friend bool operator==(const LiveWorkers&, const LiveWorkers&) = default;
};

// The answer to RegisterCall.
struct Registration {
  WorkerLife life;
  uint64_t server_incarnation = 0;
  absl::Duration lease;
  absl::Duration heartbeat_interval;
  job::JobSpec job;
  std::shared_ptr<const ClusterMap> map;
  bool needs_initial_weights = false;
  // Secret that every call in the worker's name must show; empty means none is needed.
  std::string life_secret;
  uint64_t rounds_completed = 0;  // of all workers that had this name, over all incarnations
  // The first round that has not been opened. 0 means that no round was opened, or that the server
  // is of an earlier release.
  Round next_round;
  // Index of the worker: the lowest number, from 0 on, that no other living worker had when this
  // life began. Not set if this server, or the server that began this life, is of an earlier
  // release.
  std::optional<uint32_t> index;
  std::optional<LiveWorkers> live_workers;  // not set by servers of earlier releases

  const params::Layout& layout() const { return map->layout; }
  const std::vector<ServerAddress>& servers() const { return map->servers; }
  const std::vector<params::Bucket>& buckets() const { return map->buckets; }
};

struct DatasetInfo {
  std::string fingerprint;  // empty means that only the client knows its data
  int64_t num_train_samples = 0;
  int64_t num_heldout_samples = 0;
  int64_t tokens_per_sample = 1;
  bool own_partition = false;
  friend bool operator==(const DatasetInfo&, const DatasetInfo&) = default;
};

// A network path between a worker and a server on which repeated calls move no bytes.
struct Standstill {
  int shard = 0;
  absl::Duration age;  // time since bytes moved, or since the server gave a reason for the pause
};

// Recent speed of the path between a worker and all its servers together. 0 means not known, for
// example because payloads go through shared memory, or too few bytes have moved.
struct PathFacts {
  double up_bytes_per_second = 0.0;    // speed of transfers from the worker
  double down_bytes_per_second = 0.0;  // speed of transfers to the worker
  absl::Duration round_trip;
  friend bool operator==(const PathFacts&, const PathFacts&) = default;
};

struct HeartbeatCall {
  WorkerLife life;
  uint64_t bytes_pushed = 0;  // payload bytes since Register
  uint64_t bytes_pulled = 0;
  std::string activity;
  std::optional<Standstill> standstill = {};
  // Version of the server addresses that the worker has. nullopt means that the worker does not ask
  // for new addresses.
  std::optional<uint64_t> map_version = {};
  PathFacts path = {};
  // The last round of this incarnation whose report the coordinator has acknowledged.
  std::optional<Round> acknowledged = {};
};

// Addresses of the servers, indexed by shard.
struct ServerAddresses {
  uint64_t map_version = 0;
  std::vector<std::string> addresses;
};

struct HeartbeatAnswer {
  ViewId view;
  std::string waiting_for;                 // why the cluster does not go on; empty if it goes on
  std::optional<ServerAddresses> servers;  // not set if the worker has these addresses already
  std::optional<LiveWorkers> live_workers = {};  // not set by servers of earlier releases
};

struct Grant {
  enum class Kind : uint8_t { kTrain, kEvaluate, kWait, kDone };
  Kind kind = Kind::kTrain;
  Round round;
  ViewId view;
  int64_t first_sample = 0;  // position in the order of this worker's data set
  // Position of the round's first sample, over all workers that have this worker's data set. Not
  // set by servers of earlier releases.
  std::optional<int64_t> round_first_sample = {};
  int64_t first_position = 0;  // position among all samples of the job
  int64_t num_samples = 0;     // number of samples of all local steps together
  int local_steps = 1;
  std::vector<double> learning_rates;  // one rate per local step
  // If DefersContributions(): number of samples, over all workers, in the contributions to this
  // round. They were computed for earlier grants.
  int64_t round_samples = 0;
  Round min_round;  // the pulled weights must include every round before this one
  int64_t first_heldout_sample = 0;
  int64_t num_heldout_samples = 0;
  int64_t evaluation_set_size = 0;
  std::string reason;       // set for kWait and kDone
  bool has_failed = false;  // kDone: true means that the job has failed, and `reason` says why
  int64_t total_rounds = 0;
  job::JobLoss
      loss;  // loss of the job over all workers when the grant was given; not set with kWait
  // Set only in the answer that is sent to a worker. It is not set in the grants that the
  // coordinator keeps, in answers with kWait, and in answers of earlier releases.
  std::optional<LiveWorkers> live_workers = {};
  friend bool operator==(const Grant&, const Grant&) = default;
};

struct RoundReport {
  Round round;
  double loss_sum = 0.0;  // nats
  int64_t num_predictions = 0;
  int64_t num_samples = 0;
  absl::Duration compute;
  // Exposed communication: time in which the worker could not compute, because it waited for
  // weights to arrive or for gradients to be sent. It includes time in which the servers had no new
  // weights yet. On a GPU this time is measured with the GPU's own clock.
  absl::Duration communication;
  // Time in which the worker waited for a grant, or its push waited for pushes of other workers.
  absl::Duration wait;
  absl::Duration evaluation;  // time of evaluation, a part of `compute`; not sent
  // Time of computing before the grant came, a part of `compute`. Not sent.
  absl::Duration computed_ahead;
  double heldout_loss_sum = 0.0;
  int64_t heldout_correct = 0;
  int64_t heldout_predictions = 0;
  Version base_version;
  Metrics metrics = {};  // from the worker's program; means over the steps
  // Set in the first report of a process, if error feedback is used. Number of rounds that earlier
  // processes of this worker completed and whose residual is lost.
  int64_t lost_residual_rounds = 0;
  // If DefersContributions(): true means that the worker computes nothing on this grant, so that it
  // has nothing to contribute to the next round.
  bool leaves_nothing_in_hand = false;
};

}  // namespace lodestar::messages
