// `psctl plan`: what a job takes of memory, what it will take over a given network and how it had
// best exchange, before any server runs. It reads what is asked, calls memory_plan and
// common/exchange_choice and prints.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/exchange_choice.h"

namespace lodestar {

struct PlanOptions {
  std::string model;        // a preset or a file, as --model of ps_server
  double parameters = 0.0;  // instead of a model; 0: there is one
  int workers = 2;
  int servers = 1;
  // Mbit/s of each worker's link, and of each server's, which all workers share; servers 0: as the
  // workers'. Of a network of which nothing is given, the plan is of memory alone.
  double up = 0.0;
  double down = 0.0;
  double server_up = 0.0;
  double server_down = 0.0;
  double rtt_ms = -1.0;  // below 0: not given
  double step_ms = 0.0;
  double packet_loss_percent = 0.0;
  int64_t packet_bytes = 1500;
  double utilisation = 0.95;
  double loss_budget_percent = kMostLossPercent;
  int max_local_steps = 500;
  int64_t total_steps = 0;  // of the job; 0: many
  double worker_threads = 1.0;
  double server_threads = 1.0;
  double overhead_ms = 3.0;
  std::string output = "table";        // or "json"
  std::vector<std::string> job_flags;  // of ps_server: a job to forecast beside the others
};

struct PlanAnswer {
  std::string text;     // with the last line's end
  bool is_met = false;  // something reaches what was asked, if anything was asked of a network
};

// Errors: InvalidArgument naming the flag, the value and what is allowed; those of reading a model
// file.
absl::StatusOr<PlanAnswer> MakePlan(const PlanOptions& options, int columns);

}  // namespace lodestar
