// SPDX-License-Identifier: Apache-2.0

// `psctl plan` says how much memory a job takes, and how long its rounds take over a given network.
// It also says which way of exchanging is best. No server needs to run. It uses memory_plan and
// common/plan/exchange_choice.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/plan/exchange_choice.h"

namespace lodestar::psctl {

struct PlanOptions {
  std::string model;        // A preset or a file, as for --model of ps_server.
  double parameters = 0.0;  // Size of the model. 0 means that `model` is given.
  int workers = 2;
  int servers = 1;
  // Rates of each worker's link and of each server's link, in Mbit/s. All workers share a server's
  // link. 0 for a server's link means that it has the rate of a worker's link. If no value about
  // the network is given, the plan covers memory only.
  double up = 0.0;
  double down = 0.0;
  double server_up = 0.0;
  double server_down = 0.0;
  double rtt_ms = -1.0;  // Below 0 means that it is not given.
  double step_ms = 0.0;
  double packet_loss_percent = 0.0;
  int64_t packet_bytes = 1500;
  double utilisation = 0.95;
  double loss_budget_percent = plan::kMostLossPercent;
  int max_local_steps = 500;
  // Number of steps of the job. 0 means that it is not known, and the plan is that of a long job.
  int64_t total_steps = 0;
  double worker_threads = 1.0;
  double server_threads = 1.0;
  double overhead_ms = 3.0;
  std::string output = "table";        // "table" or "json".
  std::vector<std::string> job_flags;  // Flags of ps_server. If given, their job is forecast, too.
};

struct PlanAnswer {
  std::string text;  // Ends with a line end.
  // True if an option keeps the loss and the speed within the given bounds, or if the plan covers
  // memory only.
  bool is_met = false;
};

// Makes the plan. Errors: InvalidArgument (a flag is wrong), naming the flag, the value and what is
// allowed; those of reading a model file.
absl::StatusOr<PlanAnswer> MakePlan(const PlanOptions& options, int columns);

}  // namespace lodestar::psctl
