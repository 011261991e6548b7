// SPDX-License-Identifier: Apache-2.0

// The configuration that a coordinator gets at its start.
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

namespace lodestar::coordinator {

struct CoordinatorConfig {
  job::JobSpec job;
  // Names of the flags that the operator has given: see job::Settle(). For the model `client`, the
  // values of all other flags come from the first client, or from the checkpoint that the job goes
  // on from.
  std::set<std::string> given;
  // Settings that the job chooses by itself. Their values in `job` are not used. If
  // open_settings.are_lengths_in_steps(), all lengths in `job`, such as the number of rounds, are
  // given in steps. See ExchangeTuning.
  job::OpenSettings open_settings;
  int num_shards = 1;
  // Memory that the shard of this server may use. The coordinator assumes that every other shard
  // may use as much. If all fields are 0, the memory is not known. Used only if a client brings the
  // layout. Any other layout is checked by each server itself.
  machine::HostMemory memory = {};
  // Part of `memory` that incomplete pushes of contributions may take.
  int64_t staging_bytes = 0;
  // Key from which the servers compute the secret of each worker's life. A coordinator that goes on
  // from a journal uses the key in the journal instead. Empty means that lives have no secrets.
  std::string life_key;
  absl::Duration lease = absl::Seconds(10);
  // True means that the life of a worker whose connections were closed may end before its lease.
  // See ClosedConnections.
  bool ends_unconnected = false;
  membership::RegistrationLimit::Config registrations = {};
  std::string checkpoint_dir;    // empty if nothing is saved
  uint64_t folder_claim_id = 0;  // see SharedFolder
  std::string fallback_dir;      // for a last save that fails in checkpoint_dir; empty if none
  checkpoints::CheckpointSchedule::Config checkpoint_schedule;
  bool has_journal = false;  // everything acknowledged survives the end of a process
  // Maximum number of bytes in a server's journal since the newest checkpoint. Beyond it, an extra
  // checkpoint is taken. 0 means that the limit follows from the size of the server's weights.
  int64_t journal_limit_bytes = 0;
  shards::JournalFacts journal = {};
  // Maximum time that a round waits for a member.
  absl::Duration round_timeout = absl::Hours(1);
  // Time that workers have to hand in their rounds after the job is stopped. Also the time for the
  // last save of a job that fails.
  absl::Duration stop_timeout = absl::Minutes(1);
  bool exit_when_done = false;
  // If this is a site, HOST:PORT of the upstream servers, which order its rounds: see SiteOrder.
  // Empty means that this is no site, and the job's settings define the rounds.
  std::string upstream = {};
  faults::DivergencePolicy divergence;
};

}  // namespace lodestar::coordinator
