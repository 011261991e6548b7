// What passes between a worker and the coordinator, in native types. Meaning:
// proto/cluster_service.proto.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/bucket_plan.h"
#include "common/ids.h"
#include "common/job_loss.h"
#include "common/job_spec.h"
#include "common/layout.h"

namespace lodestar {

// Who this process is to the cluster during one life.
struct WorkerIdentity {
  WorkerId worker;
  Incarnation incarnation;
};

// A life of a worker under one life of the servers: what a contribution and its report belong to.
struct LifeId {
  uint64_t server_incarnation = 0;
  Incarnation incarnation;
  friend bool operator==(const LifeId&, const LifeId&) = default;
};

struct ServerEndpoint {
  int shard = 0;
  std::string address;
  ElementRange range;
};

struct Registration {
  WorkerIdentity identity;
  uint64_t server_incarnation = 0;
  absl::Duration heartbeat_interval;
  JobSpec job;
  Layout layout;
  std::vector<ServerEndpoint> servers;  // by shard
  std::vector<Bucket> buckets;          // by index

  LifeId life() const { return {server_incarnation, identity.incarnation}; }
};

struct DatasetFacts {
  std::string fingerprint;
  int64_t num_train_samples = 0;
  int64_t num_heldout_samples = 0;
  int64_t tokens_per_sample = 1;
  bool own_partition = false;
};

enum class GrantKind : uint8_t { kTrain, kEvaluate, kWait, kDone };

struct WorkGrant {
  GrantKind kind = GrantKind::kWait;
  Round round;
  int64_t first_sample = 0;    // position in the order of this worker's data set
  int64_t first_position = 0;  // place among all samples of the job
  int64_t num_samples = 0;     // for all local steps together
  int local_steps = 1;
  std::vector<double> learning_rates;  // one per local step
  Round min_round;
  int64_t first_heldout_sample = 0;
  int64_t num_heldout_samples = 0;
  int64_t evaluation_set_size = 0;
  std::string reason;
  bool has_failed = false;  // kDone: the job has, and `reason` says why
  int64_t total_rounds = 0;
  JobLoss loss;  // of the job so far, over all workers
};

struct RoundReport {
  Round round;
  double loss_sum = 0.0;  // nats
  int64_t num_predictions = 0;
  int64_t num_samples = 0;
  absl::Duration compute;
  absl::Duration communication;  // not hidden behind computing
  absl::Duration wait;           // for grants
  absl::Duration evaluation;     // part of `compute`
  double heldout_loss_sum = 0.0;
  int64_t heldout_correct = 0;
  int64_t heldout_predictions = 0;
  Version base_version;
};

}  // namespace lodestar
