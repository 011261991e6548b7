// What a coordinator is told at its start.
#pragma once

#include <cstdint>
#include <set>
#include <string>

#include "absl/time/time.h"
#include "common/exchange_settings.h"
#include "common/host_memory.h"
#include "common/job_spec.h"
#include "server/coordinator/checkpoint_schedule.h"
#include "server/coordinator/faults/divergence_policy.h"
#include "server/coordinator/journal_comparison.h"
#include "server/membership/registration_limit.h"

namespace lodestar {

struct CoordinatorConfig {
  JobSpec job;
  // Flags that the operator has given: see Settle(). The others of a job of the model `client` are
  // what its first client proposes, or the checkpoint has that it goes on from.
  std::set<std::string> given;
  // If any: the job chooses these itself, whatever `job` says about them, and its lengths are in
  // steps. See ExchangeTuning.
  OpenSettings open_settings;
  int num_shards = 1;
  // That the shard of this server may take, and those of others are taken to have. Zeros: not
  // known. Only looked at where a client brings the layout: others are compared by the servers.
  HostMemory memory = {};
  // Of that, what contributions that are on their way into a server may take.
  int64_t staging_bytes = 0;
  // With which servers compute the secrets of workers' lives. A coordinator that goes on from a
  // journal keeps the one that it finds there. Empty: lives have no secrets.
  std::string life_key;
  absl::Duration lease = absl::Seconds(10);
  // Whether the life of a worker whose connections were closed may end before its lease: see
  // ClosedConnections.
  bool ends_unconnected = false;
  RegistrationLimit::Config registrations = {};
  std::string checkpoint_dir;    // empty: nothing is saved
  uint64_t folder_claim_id = 0;  // see SharedFolder
  std::string fallback_dir;      // for a last checkpoint that fails there; empty: none
  CheckpointSchedule::Config checkpoint_schedule;
  bool has_journal = false;  // what was acknowledged survives the end of a process
  // Of a server, since the newest checkpoint, before the next one comes out of turn. 0: by the size
  // of its weights.
  int64_t journal_limit_bytes = 0;
  JournalFacts journal = {};
  absl::Duration round_timeout = absl::Hours(1);  // the longest that a round waits for a member
  // For the rounds at hand of a job that is stopped, and the last checkpoint of one that fails.
  absl::Duration stop_timeout = absl::Minutes(1);
  bool exit_when_done = false;
  // HOST:PORT of the servers that these and their workers are one worker of: rounds are what those
  // order, see SiteOrder. Empty: none, and the job's settings say what rounds there are.
  std::string upstream = {};
  DivergencePolicy divergence;
};

}  // namespace lodestar
