// Chooses how a job exchanges: mode, encodings, local steps, fragments and overlap, so that workers
// compute for the share of the time that is asked for and the loss stays within bounds. Pure; with
// the reason in words. For `psctl plan`, and for servers that choose settings themselves.
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

namespace lodestar {

// Most that a way to exchange may lose beside synchronous training at equal samples, in percent, by
// default: of `psctl plan` and of servers that choose alike.
inline constexpr double kMostLossPercent = 1.5;

struct ExchangeBounds {
  double utilisation = 0.95;  // wanted; see ExchangeForecast
  // Exchanges may take longer than forecast by this share. What still reaches `utilisation` then
  // goes before what reaches it as forecast alone. Rounds of measured links took up to 0.15 longer
  // than forecast, and up to 0.33 where workers computed on the processors that move their bytes
  // (tests/bench/results/scaling.md).
  double spare = 0.25;
  // Most that EstimateLoss() may say beyond the least that can be with what is not open.
  double loss_percent = kMostLossPercent;
  // DiLoCo trained with as many (arXiv:2311.08105).
  int max_local_steps = 500;
  // The length of the job in steps, as in TrainingFacts.
  std::optional<int64_t> total_steps = std::nullopt;
  bool begins_with_trained_weights = false;
  // Prefers `sync` to all that costs loss unless the links forbid it: with the links it reaches
  // less than `utilisation` of the steps that it makes with links without limits.
  bool prefers_sync = false;
  // Published is up to 10, at a cost below 0.2 % (Streaming DiLoCo, arXiv:2501.18512).
  int max_overlap_steps = 10;
  // What of the base is replaced; the rest stays as the operator has given it.
  OpenSettings open = OpenSettings::All();
  // The modes to choose from, without those that the job cannot have or that are not wanted.
  // Asynchronous modes are forecast, but never chosen: they are for workers of unequal speed, which
  // no forecast knows. If the mode is not open, the mode of the base counts.
  std::vector<Mode> modes = {Mode::kSync, Mode::kAsync, Mode::kLocalSgd, Mode::kAsyncLocalSgd};
  // A job for which this is not OK is left out, such as one of top-k beside a robust mean.
  std::function<absl::Status(const JobSpec&)> possible = [](const JobSpec&) {
    return absl::OkStatus();
  };
};

// One way to exchange, with the least costly settings of its kind that do what is asked, or else
// those that come nearest.
struct ExchangeOption {
  std::string name;  // "DiLoCo, int4, 4 fragments"
  JobSpec job;
  ExchangeForecast forecast;
  LossEstimate loss;
  // Within the bounds: of the loss, and of what is asked.
  bool protects_loss = false;
  bool reaches_utilisation = false;
  bool has_spare = false;  // reaches it if the exchange takes longer, too
};

struct ExchangeChoice {
  std::vector<ExchangeOption> options;    // one of each kind; at least one
  int chosen = 0;                         // of options
  double most_loss_percent = 0.0;         // that was allowed
  bool is_met = false;                    // `chosen` is within all bounds
  bool is_sync_that_links_allow = false;  // `chosen` is by ExchangeBounds::prefers_sync
  std::string reason;                     // why this one; else what is missing, and what would do
};

// `base`: the job, whose model, optimizer and buckets count; what of it says how to exchange is
// replaced as far as `bounds` leaves it open. It need not be valid otherwise. Errors: those of
// PlanExchangeSizes() for a job without fragments; InvalidArgument if nothing of `bounds` is left,
// with what `possible` has said first.
absl::StatusOr<ExchangeChoice> ChooseExchange(const JobSpec& base, const Layout& layout,
                                              int num_servers, const ExchangeFacts& facts,
                                              const ExchangeBounds& bounds);

// The settings of `job` that say how to exchange, as flags of ps_server: "--mode=local_sgd", ...
std::vector<std::string> ExchangeFlags(const JobSpec& job);

}  // namespace lodestar
