// SPDX-License-Identifier: Apache-2.0

// Chooses how a job exchanges: mode, encodings, local steps, fragments and overlap. The aim is that
// workers compute for the wanted share of the time and that the loss stays within bounds. Pure.
// Gives the reason as text. Used by `psctl plan`, and by servers that choose settings themselves.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/job/exchange_settings.h"
#include "common/job/job_spec.h"
#include "common/params/layout.h"
#include "common/plan/exchange_forecast.h"
#include "common/plan/loss_estimate.h"

namespace lodestar::plan {

// Default maximum loss of an exchange in percent, compared with synchronous training on the same
// number of samples. `psctl plan` and servers use the same default.
inline constexpr double kMostLossPercent = 1.5;

struct ExchangeBounds {
  double utilisation = 0.95;  // wanted utilisation; see ExchangeForecast
  // Exchanges may take longer than forecast by this share. Options that reach `utilisation` even
  // then are preferred. Measured rounds on links took up to 0.15 longer than forecast. They took up
  // to 0.33 longer if workers computed on the same processors that moved the bytes
  // (tests/bench/results/scaling.md).
  double spare = 0.25;
  // Maximum loss in percent above the least loss of all exchanges that may be chosen. Both losses
  // are those of EstimateLoss().
  double loss_percent = kMostLossPercent;
  // Maximum number of local steps. DiLoCo trained with this number (arXiv:2311.08105).
  int max_local_steps = 500;
  // Number of steps of the whole job, as in TrainingFacts.
  std::optional<int64_t> total_steps = std::nullopt;
  bool begins_with_trained_weights = false;
  // True means that `sync` is preferred to exchanges with more loss, unless the links are too slow.
  // The links are too slow if `sync` runs at less than `utilisation` of its speed with unlimited
  // links.
  bool prefers_sync = false;
  // Maximum number of overlapped steps. Published results have up to 10 steps, with a loss below
  // 0.2 % (Streaming DiLoCo, arXiv:2501.18512).
  int max_overlap_steps = 10;
  // Settings of the base that may be replaced. All others stay as the operator has set them.
  job::OpenSettings open = job::OpenSettings::All();
  // Modes to choose from. The caller leaves out modes that the job cannot have or that the operator
  // does not want. Asynchronous modes are forecast but never chosen. They are for workers of
  // unequal speed, and the forecast assumes equal speed. If the mode is not open, only the mode of
  // the base is used. Empty means all modes.
  std::vector<job::Mode> modes = {};
  // Returns OK if a job is possible. Impossible jobs are not tried. An example is top-k with a
  // robust mean.
  std::function<absl::Status(const job::JobSpec&)> possible = [](const job::JobSpec&) {
    return absl::OkStatus();
  };
};

// The best settings for one kind of exchange. If some settings meet the bounds, these are the least
// costly of them. If none meets the bounds, these come nearest to the bounds.
struct ExchangeOption {
  std::string name;  // such as "DiLoCo, int4, 4 fragments"
  job::JobSpec job;
  ExchangeForecast forecast;
  LossEstimate loss;
  // True means that the option is within the bound of the loss.
  bool protects_loss = false;
  bool reaches_utilisation = false;
  bool has_spare = false;  // true: reaches it even if the exchange takes longer by `spare`
};

struct ExchangeChoice {
  std::vector<ExchangeOption> options;    // one option of each kind; at least one
  int chosen = 0;                         // index in `options`
  double most_loss_percent = 0.0;         // maximum loss that was allowed, in percent
  bool is_met = false;                    // true: `chosen` is within all bounds
  bool is_sync_that_links_allow = false;  // true: `chosen` because of ExchangeBounds::prefers_sync
  // Says why `chosen` was chosen. If no option meets the bounds, also says what is missing and what
  // would help.
  std::string reason;
};

// Chooses an exchange for `base`, the job with its model, optimizer and buckets. Replaces those
// exchange settings of `base` that `bounds` leaves open. `base` need not pass ValidateJobSpec().
// Errors: those of PlanExchangeSizes() for a job without fragments; InvalidArgument with the first
// error of `possible` if `bounds` leaves no option.
absl::StatusOr<ExchangeChoice> ChooseExchange(const job::JobSpec& base,
                                              const params::Layout& layout, int num_servers,
                                              const ExchangeFacts& facts,
                                              const ExchangeBounds& bounds);

// Returns the exchange settings of `job` as flags of ps_server: "--mode=local_sgd", ...
std::vector<std::string> ExchangeFlags(const job::JobSpec& job);

}  // namespace lodestar::plan
