// What passes between clients and the coordinator, in native types. Meaning of each field:
// proto/cluster_service.proto.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/bucket_plan.h"
#include "common/encoding.h"
#include "common/ids.h"
#include "common/job_loss.h"
#include "common/layout.h"
#include "common/standstill.h"

namespace lodestar {

struct ShardAddress {
  int shard = 0;
  std::string address;  // where workers reach it
  ElementRange range;
};

// Where each parameter lives. Immutable once built; shared with calls in flight.
struct ClusterMap {
  Layout layout;
  std::vector<ShardAddress> shards;  // by shard
  std::vector<Bucket> buckets;       // by index
};

struct RegisterCall {
  std::string name;
  uint64_t instance_id = 0;
  std::string device;
  std::string peer;                                     // address of the connection, for people
  std::optional<Layout> layout;                         // model `client` only
  std::vector<Encoding> encodings = {Encoding::kFp32};  // that the client can send and take
};

struct RegisterAnswer {
  WorkerId worker;
  Incarnation incarnation;
  uint64_t server_incarnation = 0;
  absl::Duration lease;
  absl::Duration heartbeat;
  std::shared_ptr<const ClusterMap> map;
  bool needs_initial_weights = false;
};

struct DatasetClaim {
  std::string fingerprint;  // empty: the client's own business
  int64_t num_train_samples = 0;
  int64_t num_heldout_samples = 0;
  int64_t tokens_per_sample = 1;
  bool own_partition = false;
  std::string claimant = {};  // name of the worker that has it, for people
  friend bool operator==(const DatasetClaim&, const DatasetClaim&) = default;
};

// A life of a worker, as carried by every call but Register.
struct WorkerLife {
  WorkerId worker;
  Incarnation incarnation;
};

struct HeartbeatCall {
  WorkerLife life;
  uint64_t bytes_pushed = 0;  // since Register
  uint64_t bytes_pulled = 0;
  std::string activity;
  std::optional<Standstill> standstill = {};
};

struct HeartbeatAnswer {
  ViewId view;
  std::string waiting_for;
};

struct GrantReport {
  Round round;
  double loss_sum = 0.0;  // nats
  int64_t num_predictions = 0;
  int64_t num_samples = 0;
  absl::Duration compute;
  absl::Duration communication;
  absl::Duration wait;
  double heldout_loss_sum = 0.0;
  int64_t heldout_correct = 0;
  int64_t heldout_predictions = 0;
  Version base_version;
};

struct Grant {
  enum class Kind : uint8_t { kTrain, kEvaluate, kDone };
  Kind kind = Kind::kTrain;
  Round round;
  ViewId view;
  int64_t first_sample = 0;
  int64_t first_position = 0;
  int64_t num_samples = 0;
  int local_steps = 1;
  std::vector<double> learning_rates;  // one per local step
  Round min_round;                     // whose rounds before are over in the weights to be pulled
  int64_t first_heldout_sample = 0;
  int64_t num_heldout_samples = 0;
  int64_t evaluation_set_size = 0;
  std::string reason;       // kDone
  bool has_failed = false;  // kDone: and that is why
  int64_t total_rounds = 0;
  JobLoss loss;  // when the grant was given
  friend bool operator==(const Grant&, const Grant&) = default;
};

// No grant: hold the call, ask again after state_version() has changed, answer WAIT with the reason
// when the caller's patience is over.
struct GrantAnswer {
  std::optional<Grant> grant;
  std::string pending_reason;
};

}  // namespace lodestar
