// `psctl plan` says what a job takes of memory, what it will take over a given network, and how it
// had best exchange. No server needs to run. It reads the flags, calls memory_plan and
// common/plan/exchange_choice, and prints.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/plan/exchange_choice.h"

namespace lodestar {

struct PlanOptions {
  std::string model;        // A preset or a file, as for --model of ps_server.
  double parameters = 0.0;  // The size of a model that is not given. 0 means that `model` is given.
  int workers = 2;
  int servers = 1;
  // Mbit/s of each worker's link, and of each server's, which all workers share. 0 for a server
  // means that its link is like the workers'. If nothing of the network is given, the plan is of
  // memory alone.
  double up = 0.0;
  double down = 0.0;
  double server_up = 0.0;
  double server_down = 0.0;
  double rtt_ms = -1.0;  // Below 0 means that it is not given.
  double step_ms = 0.0;
  double packet_loss_percent = 0.0;
  int64_t packet_bytes = 1500;
  double utilisation = 0.95;
  double loss_budget_percent = kMostLossPercent;
  int max_local_steps = 500;
  int64_t total_steps = 0;  // The steps of the job. 0 means many.
  double worker_threads = 1.0;
  double server_threads = 1.0;
  double overhead_ms = 3.0;
  std::string output = "table";        // Or "json".
  std::vector<std::string> job_flags;  // Flags of ps_server: a job to forecast beside the others.
};

struct PlanAnswer {
  std::string text;  // It ends with the end of the last line.
  // Whether an option reaches what was asked, if anything was asked of a network.
  bool is_met = false;
};

// Errors: InvalidArgument naming the flag, the value and what is allowed; those of reading a model
// file.
absl::StatusOr<PlanAnswer> MakePlan(const PlanOptions& options, int columns);

}  // namespace lodestar
