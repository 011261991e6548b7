// The configuration that a coordinator is told at its start.
#pragma once

#include <cstdint>
#include <set>
#include <string>

#include "absl/time/time.h"
#include "common/job/exchange_settings.h"
#include "common/job/job_spec.h"
#include "common/machine/host_memory.h"
#include "server/coordinator/checkpoints/checkpoint_schedule.h"
#include "server/coordinator/faults/divergence_policy.h"
#include "server/coordinator/shards/journal_comparison.h"
#include "server/membership/registration_limit.h"

namespace lodestar {

struct CoordinatorConfig {
  JobSpec job;
  // Flags that the operator has given: see Settle(). For a job of the model `client`, the other
  // settings are those that its first client proposes, or those of the checkpoint that it goes on
  // from.
  std::set<std::string> given;
  // If any are set, the job chooses these itself, whatever `job` says about them, and its lengths
  // are in steps. See ExchangeTuning.
  OpenSettings open_settings;
  int num_shards = 1;
  // The memory that the shard of this server may take, and that other shards are taken to have.
  // Zeros mean not known. It is only looked at if a client brings the layout: other layouts are
  // compared by the servers.
  HostMemory memory = {};
  // The part of that memory that contributions on their way into a server may take.
  int64_t staging_bytes = 0;
  // The key with which servers compute the secrets of workers' lives. A coordinator that goes on
  // from a journal keeps the key that it finds there. Empty means that lives have no secrets.
  std::string life_key;
  absl::Duration lease = absl::Seconds(10);
  // Whether the life of a worker whose connections were closed may end before its lease: see
  // ClosedConnections.
  bool ends_unconnected = false;
  RegistrationLimit::Config registrations = {};
  std::string checkpoint_dir;    // empty if nothing is saved
  uint64_t folder_claim_id = 0;  // see SharedFolder
  std::string fallback_dir;      // for a last checkpoint that fails there; empty if none
  CheckpointSchedule::Config checkpoint_schedule;
  bool has_journal = false;  // what was acknowledged survives the end of a process
  // Bytes that a server writes into its journal since the newest checkpoint before the next one
  // comes out of turn. 0 means that the limit follows from the size of its weights.
  int64_t journal_limit_bytes = 0;
  JournalFacts journal = {};
  absl::Duration round_timeout = absl::Hours(1);  // the longest that a round waits for a member
  // The time for the rounds at hand of a job that is stopped, and for the last checkpoint of a job
  // that fails.
  absl::Duration stop_timeout = absl::Minutes(1);
  bool exit_when_done = false;
  // HOST:PORT of the servers that these and their workers are one worker of. Those servers order
  // the rounds: see SiteOrder. Empty means that there are none, and the job's settings say what
  // rounds there are.
  std::string upstream = {};
  DivergencePolicy divergence;
};

}  // namespace lodestar
