// SPDX-License-Identifier: Apache-2.0

#include "common/plan/exchange_choice.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <tuple>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/job/job_settings.h"
#include "common/job/outer_step.h"
#include "common/params/encoding.h"
#include "common/plan/exchange_sizes.h"
#include "common/runtime/status_macros.h"

namespace lodestar::plan {
namespace {

constexpr int kFragments[] = {2, 4, 8, 16};

// Top-k encoding with the least loss in measurements (low_communication.md).
constexpr int kTopK = 256;
constexpr int kTopKBits = 4;

// Returns the numbers of local steps to try, at most `most`: all small multiples of `fragments`,
// and larger ones in increments of about a tenth. Each window of steps / fragments has at least
// `overlap_steps` steps. If no number is possible, returns only fragments * max(overlap_steps, 1).
std::vector<int> StepsToTry(int most, int fragments, int overlap_steps) {
  const int fewest = fragments * std::max(overlap_steps, 1);
  std::vector<int> steps;
  for (int step = 2; step <= most; step += step < 20 ? 1 : step < 100 ? 4 : step < 400 ? 20 : 100) {
    const int whole = (step + fragments - 1) / fragments * fragments;
    if (whole >= fewest && whole <= most && (steps.empty() || steps.back() < whole)) {
      steps.push_back(whole);
    }
  }
  if (steps.empty()) steps.push_back(fewest);
  return steps;
}

// Maximum outer learning rate for overlapped rounds. With higher rates, late contributions can make
// steps grow (docs/howto/slow_links.md).
constexpr double kMostRateOfOverlappedRounds = 0.4;

// Settings in which a kind of exchange may differ from the base job. Each kind is tried with
// several values of the other open settings.
struct Kind {
  job::Mode mode = job::Mode::kSync;
  params::Encoding push = params::Encoding::kFp32;
  params::Encoding pull = params::Encoding::kFp32;
  bool is_cut = false;       // true: the model is cut into fragments
  bool has_overlap = false;  // true: local steps overlap with the exchange
  bool overlaps_rounds = false;
  friend bool operator==(const Kind&, const Kind&) = default;
};

std::string FamilyName(const job::JobSpec& job) {
  const bool is_diloco = job.outer_optimizer == job::OuterOptimizerKind::kNesterov;
  switch (job.mode) {
    case job::Mode::kSync:
      return "sync";
    case job::Mode::kAsync:
      return "async";
    case job::Mode::kLocalSgd:
      return is_diloco ? "DiLoCo" : "local SGD";
    case job::Mode::kAsyncLocalSgd:
      return is_diloco ? "async DiLoCo" : "async local SGD";
  }
  return "";
}

std::string NameOf(const Kind& kind, const job::JobSpec& job) {
  const std::string encodings =
      kind.push == kind.pull
          ? std::string(params::EncodingName(kind.push))
          : absl::StrCat(kind.push.is_topk() ? "top-k" : params::EncodingName(kind.push), " up, ",
                         params::EncodingName(kind.pull), " down");
  return absl::StrCat(FamilyName(job), ", ", encodings,
                      kind.is_cut            ? ", fragments"
                      : kind.has_overlap     ? ", overlapped steps"
                      : kind.overlaps_rounds ? ", overlapped rounds"
                                             : "");
}

constexpr Kind Plain(job::Mode mode, params::Encoding push, params::Encoding pull) {
  return {.mode = mode, .push = push, .pull = pull};
}
constexpr Kind Cut(params::Encoding push, params::Encoding pull) {
  return {.mode = job::Mode::kLocalSgd,
          .push = push,
          .pull = pull,
          .is_cut = true,
          .has_overlap = true};
}

// Returns the kinds in the order of the output.
std::vector<Kind> AllKinds() {
  constexpr params::Encoding kFp32 = params::Encoding::kFp32;
  constexpr params::Encoding kBf16 = params::Encoding::kBf16;
  constexpr params::Encoding kInt8 = params::Encoding::kInt8;
  constexpr params::Encoding kInt4 = params::Encoding::kInt4;
  constexpr params::Encoding kSparse = params::Encoding::TopK(kTopK, kTopKBits);
  return {Plain(job::Mode::kSync, kFp32, kFp32),
          Plain(job::Mode::kSync, kBf16, kBf16),
          Plain(job::Mode::kSync, kInt8, kInt8),
          Plain(job::Mode::kSync, kInt4, kInt4),
          Plain(job::Mode::kAsync, kInt8, kInt8),
          Plain(job::Mode::kLocalSgd, kFp32, kFp32),
          Plain(job::Mode::kLocalSgd, kInt8, kInt8),
          Plain(job::Mode::kLocalSgd, kInt4, kInt4),
          Plain(job::Mode::kLocalSgd, kSparse, kInt4),
          Plain(job::Mode::kAsyncLocalSgd, kInt4, kInt4),
          {.mode = job::Mode::kLocalSgd, .push = kInt4, .pull = kInt4, .has_overlap = true},
          Cut(kInt8, kInt8),
          Cut(kInt4, kInt4),
          Cut(kSparse, kInt4),
          {.mode = job::Mode::kLocalSgd, .push = kInt4, .pull = kInt4, .overlaps_rounds = true}};
}

std::vector<Kind> KindsOf(const job::JobSpec& base, const ExchangeBounds& bounds) {
  const bool is_client = std::holds_alternative<params::ClientModelSpec>(base.model.architecture);
  const job::OpenSettings& open = bounds.open;
  std::vector<Kind> kinds;
  for (Kind kind : AllKinds()) {
    const bool has_local_steps =
        kind.mode == job::Mode::kLocalSgd || kind.mode == job::Mode::kAsyncLocalSgd;
    const std::vector<job::Mode>& modes = bounds.modes;
    if (!modes.empty() && std::count(modes.begin(), modes.end(), kind.mode) == 0) continue;
    if (!open.mode && kind.mode != base.mode) continue;
    if (!has_local_steps && !job::GoesWithoutLocalSteps(base, open)) continue;
    if (has_local_steps && !open.fragments) kind.is_cut = base.fragments > 1;
    if (has_local_steps && !open.overlap) {
      kind.has_overlap = base.overlap_steps > 0;
      kind.overlaps_rounds = base.overlap_rounds;
    }
    if (!open.push_encoding) kind.push = base.push_encoding;
    if (!open.pull_encoding) kind.pull = base.pull_encoding;
    const bool is_late = kind.is_cut || kind.has_overlap || kind.overlaps_rounds;
    if (is_client && is_late) continue;
    // Overlapped rounds are left out in two cases:
    // - together with fragments or overlapped steps, which hide the same time;
    // - if the base's outer learning rate may make their steps grow (docs/howto/slow_links.md).
    if (kind.overlaps_rounds && (kind.is_cut || kind.has_overlap)) continue;
    const bool may_grow = !open.mode &&
                          base.outer_optimizer == job::OuterOptimizerKind::kNesterov &&
                          base.outer_learning_rate > kMostRateOfOverlappedRounds;
    if (open.overlap && kind.overlaps_rounds && may_grow) continue;
    if (std::count(kinds.begin(), kinds.end(), kind) == 0) kinds.push_back(kind);
  }
  return kinds;
}

bool IsAsynchronous(const job::JobSpec& job) {
  return job.mode == job::Mode::kAsync || job.mode == job::Mode::kAsyncLocalSgd;
}

job::JobSpec JobOf(const Kind& kind, const job::JobSpec& base, int num_workers,
                   const job::OpenSettings& open) {
  job::JobSpec chosen = base;
  chosen.mode = kind.mode;
  chosen.push_encoding = kind.push;
  chosen.pull_encoding = kind.pull;
  chosen.feedback_decay = job::DefaultFeedbackDecay(kind.push);
  chosen.topk_divisor =
      kind.push.is_topk() ? job::TopKDivisor::kSenders : job::TopKDivisor::kWorkers;
  chosen.fragments = 1;
  chosen.overlap_steps = 0;
  chosen.overlap_rounds = kind.overlaps_rounds;
  chosen.local_steps = 1;
  // The residual of top-k acts as a momentum (SparseLoCo, arXiv:2508.15706), so the outer optimizer
  // has no momentum of its own.
  chosen.outer_optimizer =
      kind.push.is_topk() ? job::OuterOptimizerKind::kSgd : job::OuterOptimizerKind::kNesterov;
  chosen.outer_learning_rate = kind.push.is_topk() ? 1.0 : job::kDefaultOuterLearningRate;
  chosen.outer_momentum = job::kDefaultOuterMomentum;
  if (kind.overlaps_rounds) {
    chosen.outer_learning_rate = std::min(chosen.outer_learning_rate, kMostRateOfOverlappedRounds);
  }
  job::JobSpec job = job::WithOpenOf(chosen, base, open);
  job.min_workers = num_workers;
  if (open.mode) {
    job.outer_reduction = job::OuterReduction::kMean;
    job.momentum_correction = job::MomentumCorrectionKind::kNone;
    job.anchor = job::Anchor::kWorker;
  }
  return job;
}

// Returns the facts of the same job if its exchanges take `times` times as long.
ExchangeFacts Slower(const ExchangeFacts& facts, double times) {
  ExchangeFacts slower = facts;
  for (double* rate : {&slower.path.worker_up, &slower.path.worker_down, &slower.path.server_up,
                       &slower.path.server_down}) {
    *rate /= times;
  }
  slower.path.round_trip *= times;
  slower.worker_rates = facts.worker_rates.TimesThreads(1.0 / times);
  slower.server_rates = facts.server_rates.TimesThreads(1.0 / times);
  return slower;
}

// Says which of two options is better. There is a bound for the loss and one for the utilisation.
// The first of these rules that distinguishes the options decides:
// - An option within the bound of the loss is better.
// - An option within the bound of the utilisation is better.
// - If both are beyond the bound of the loss, less loss is better.
// - If both are beyond the bound of the utilisation, more utilisation is better.
// - An option with spare time is better.
// - Less loss is better.
// - Fewer local steps, then less overlap, then fewer fragments are better.
class Preference {
 public:
  Preference(double utilisation, double most_loss_percent)
      : utilisation_(utilisation), most_loss_percent_(most_loss_percent) {}

  // Sets which bounds `option` meets. `slower` is the forecast of the option if its exchanges take
  // longer by ExchangeBounds::spare.
  void Judge(ExchangeOption& option, const ExchangeForecast& slower) const {
    // Differences that are too small to be shown do not count.
    constexpr double kTolerance = 5e-4;
    option.protects_loss =
        option.loss.percent.has_value() && *option.loss.percent <= most_loss_percent_ + kTolerance;
    const double wanted = utilisation_ - kTolerance;
    option.reaches_utilisation = option.forecast.utilisation() >= wanted;
    option.has_spare = slower.utilisation() >= wanted;
  }
  bool IsBetter(const ExchangeOption& a, const ExchangeOption& b) const {
    if (a.protects_loss != b.protects_loss) return a.protects_loss;
    if (a.reaches_utilisation != b.reaches_utilisation) return a.reaches_utilisation;
    const double loss_a = a.loss.percent.value_or(kUnknown);
    const double loss_b = b.loss.percent.value_or(kUnknown);
    if (!a.protects_loss && loss_a != loss_b) return loss_a < loss_b;
    if (!a.reaches_utilisation) return a.forecast.utilisation() > b.forecast.utilisation();
    if (a.has_spare != b.has_spare) return a.has_spare;
    if (loss_a != loss_b) return loss_a < loss_b;
    const auto effort = [](const ExchangeOption& option) {
      return std::tuple(option.job.local_steps, option.job.overlap_steps, option.job.fragments);
    };
    return effort(a) < effort(b);
  }

 private:
  static constexpr double kUnknown = 1e9;
  const double utilisation_;
  const double most_loss_percent_;
};

class Chooser {
 public:
  Chooser(const job::JobSpec& base, const params::Layout& layout, int num_servers,
          const ExchangeFacts& facts, const ExchangeBounds& bounds)
      : base_(base),
        layout_(layout),
        num_servers_(num_servers),
        facts_(facts),
        slower_(Slower(facts, 1.0 + bounds.spare)),
        bounds_(bounds) {}

  absl::StatusOr<ExchangeChoice> Choose() {
    const std::vector<Kind> kinds = KindsOf(base_, bounds_);
    ExchangeChoice choice;
    choice.most_loss_percent = LeastLoss(kinds) + bounds_.loss_percent;
    const Preference preference(bounds_.utilisation, choice.most_loss_percent);
    for (const Kind& kind : kinds) {
      ASSIGN_OR_RETURN(std::optional<ExchangeOption> best, BestOf(kind, preference));
      if (best.has_value()) choice.options.push_back(*std::move(best));
    }
    std::optional<size_t> chosen;
    if (bounds_.prefers_sync) {
      ASSIGN_OR_RETURN(chosen, SyncThatLinksAllow(choice.options));
      choice.is_sync_that_links_allow = chosen.has_value();
    }
    for (size_t i = 0; i < choice.options.size() && !choice.is_sync_that_links_allow; ++i) {
      if (IsAsynchronous(choice.options[i].job)) continue;
      const bool is_better =
          !chosen.has_value() || preference.IsBetter(choice.options[i], choice.options[*chosen]);
      if (is_better) chosen = i;
    }
    if (!chosen.has_value()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "with the given flags, no setting of sync or local_sgd is possible",
          impossible_.ok() ? ""
                           : absl::StrCat("; the reason for the first setting that was tried: ",
                                          impossible_.message())));
    }
    choice.chosen = static_cast<int>(*chosen);
    const ExchangeOption& best = choice.options[*chosen];
    choice.is_met =
        best.protects_loss && (best.reaches_utilisation || choice.is_sync_that_links_allow);
    return choice;
  }

 private:
  // Returns the option of `sync` with the least loss. Only options count that are within the bound
  // of the loss and that the links do not slow down too much. An option is slowed down too much if
  // its round would be shorter than `utilisation` * its present round with unlimited links. Nullopt
  // means that no option counts.
  absl::StatusOr<std::optional<size_t>> SyncThatLinksAllow(
      const std::vector<ExchangeOption>& options) {
    ExchangeFacts unlimited = facts_;
    unlimited.path = NetworkPath();
    std::optional<size_t> best;
    for (size_t i = 0; i < options.size(); ++i) {
      const ExchangeOption& option = options[i];
      if (option.job.mode != job::Mode::kSync || !option.protects_loss) continue;
      ASSIGN_OR_RETURN(const ExchangeSizes* const sizes, SizesOf(option.job));
      const ExchangeForecast fastest = ForecastExchange(option.job, *sizes, unlimited);
      if (fastest.round < bounds_.utilisation * option.forecast.round) continue;
      if (!best.has_value() || *option.loss.percent < *options[*best].loss.percent) best = i;
    }
    return best;
  }

  // Calls `visit` with every possible exchange of this kind, for the settings that `bounds` allows.
  absl::Status ForEach(const Kind& kind,
                       absl::FunctionRef<absl::Status(const job::JobSpec&)> visit) {
    const auto visit_if_possible = [&](const job::JobSpec& job) {
      const absl::Status possible = bounds_.possible(job);
      impossible_.Update(possible);
      return possible.ok() ? visit(job) : absl::OkStatus();
    };
    const job::OpenSettings& open = bounds_.open;
    const job::JobSpec job = JobOf(kind, base_, facts_.num_workers, open);
    if (!job::HasLocalSteps(job)) return visit_if_possible(job);
    std::vector<int> cuts = {1};
    if (kind.is_cut) cuts.assign(std::begin(kFragments), std::end(kFragments));
    if (!open.fragments) cuts = {base_.fragments};
    for (const int fragments : cuts) {
      job::JobSpec cut = job;
      cut.fragments = fragments;
      const std::vector<int> local_steps =
          open.local_steps ? StepsToTry(bounds_.max_local_steps, fragments, job.overlap_steps)
                           : std::vector{base_.local_steps};
      for (const int steps : local_steps) {
        cut.local_steps = steps;
        const int window = steps / fragments;
        const bool is_open = open.overlap && kind.has_overlap;
        const int least = is_open ? 1 : job.overlap_steps;
        const int most = std::min(window, is_open ? bounds_.max_overlap_steps : least);
        for (cut.overlap_steps = least; cut.overlap_steps <= most; ++cut.overlap_steps) {
          RETURN_IF_ERROR(visit_if_possible(cut));
        }
      }
    }
    return absl::OkStatus();
  }

  LossEstimate LossOf(const job::JobSpec& job) const {
    return EstimateLoss(job, {.num_parameters = layout_.num_elements(),
                              .num_workers = facts_.num_workers,
                              .total_steps = bounds_.total_steps,
                              .begins_with_trained_weights = bounds_.begins_with_trained_weights});
  }

  // Returns the least loss of all exchanges that may be chosen, whatever time they take. Returns 0
  // if no loss is known.
  double LeastLoss(const std::vector<Kind>& kinds) {
    std::optional<double> least;
    for (const Kind& kind : kinds) {
      ForEach(kind, [&](const job::JobSpec& job) {
        const std::optional<double> percent =
            IsAsynchronous(job) ? std::nullopt : LossOf(job).percent;
        if (percent.has_value()) least = std::min(*percent, least.value_or(*percent));
        return absl::OkStatus();
      }).IgnoreError();  // a kind without options is skipped
    }
    return least.value_or(0.0);
  }

  // Returns the best option of the kind. Returns nullopt if the model has too few buckets for the
  // fragments, or if no exchange of the kind is possible.
  absl::StatusOr<std::optional<ExchangeOption>> BestOf(const Kind& kind,
                                                       const Preference& preference) {
    std::optional<ExchangeOption> best;
    RETURN_IF_ERROR(ForEach(kind, [&](const job::JobSpec& job) -> absl::Status {
      ASSIGN_OR_RETURN(const ExchangeSizes* const sizes, SizesOf(job));
      if (sizes == nullptr) return absl::OkStatus();
      ExchangeOption option = {.name = NameOf(kind, job),
                               .job = job,
                               .forecast = ForecastExchange(job, *sizes, facts_),
                               .loss = LossOf(job)};
      preference.Judge(option, ForecastExchange(job, *sizes, slower_));
      if (!best.has_value() || preference.IsBetter(option, *best)) best = std::move(option);
      return absl::OkStatus();
    }));
    return best;
  }

  // Returns the sizes of the job's exchanges, or null if the model has too few buckets for the
  // fragments.
  absl::StatusOr<const ExchangeSizes*> SizesOf(const job::JobSpec& job) {
    const Key key = {params::EncodingText(job.push_encoding),
                     params::EncodingText(job.pull_encoding), job.fragments};
    const auto known = sizes_.find(key);
    if (known != sizes_.end()) return known->second.has_value() ? &*known->second : nullptr;
    absl::StatusOr<ExchangeSizes> sizes = PlanExchangeSizes(job, layout_, num_servers_);
    if (!sizes.ok() && job.fragments == 1) return sizes.status();
    std::optional<ExchangeSizes>& kept = sizes_[key];
    if (sizes.ok()) kept = *std::move(sizes);
    return kept.has_value() ? &*kept : nullptr;
  }

  using Key = std::tuple<std::string, std::string, int>;

  const job::JobSpec& base_;
  const params::Layout& layout_;
  const int num_servers_;
  const ExchangeFacts& facts_;
  const ExchangeFacts slower_;
  const ExchangeBounds& bounds_;
  absl::Status impossible_;  // first error of ExchangeBounds::possible
  std::map<Key, std::optional<ExchangeSizes>> sizes_;
};

std::string PercentText(double share) { return absl::StrFormat("%.1f %%", 100 * share); }

std::string LossText(const LossEstimate& loss) {
  return loss.percent.has_value() ? absl::StrFormat("%+.1f %%", *loss.percent) : "unknown";
}

// Returns the smallest factor, at most 2^20, by which all links must be faster to meet the bounds.
// Nullopt means that faster links are not enough, because the round trip or the processors take too
// much time.
std::optional<double> FasterLinksThatDo(const job::JobSpec& base, const params::Layout& layout,
                                        int num_servers, const ExchangeFacts& facts,
                                        const ExchangeBounds& bounds) {
  const auto is_enough = [&](double times) {
    ExchangeFacts faster = facts;
    for (double* rate : {&faster.path.worker_up, &faster.path.worker_down, &faster.path.server_up,
                         &faster.path.server_down}) {
      *rate *= times;
    }
    const absl::StatusOr<ExchangeChoice> choice =
        Chooser(base, layout, num_servers, faster, bounds).Choose();
    return choice.ok() && choice->is_met;
  };
  constexpr double kMost = 1 << 20;
  if (!is_enough(kMost)) return std::nullopt;
  double low = 1.0;
  double high = kMost;
  constexpr double kPrecision = 1.05;
  while (high / low > kPrecision) {
    const double middle = std::sqrt(low * high);
    (is_enough(middle) ? high : low) = middle;
  }
  return high;
}

// Returns text for users if the servers' links limit the exchange. Otherwise returns an empty text.
std::string NarrowestLinks(const ExchangeFacts& facts, int num_servers) {
  const NetworkPath& path = facts.path;
  const double share = static_cast<double>(num_servers) / facts.num_workers;
  const bool is_of_servers = facts.num_workers > 1 && (share * path.server_down < path.worker_up ||
                                                       share * path.server_up < path.worker_down);
  if (!is_of_servers) return "";
  return absl::StrCat("; the servers' links limit the job most, because ", facts.num_workers,
                      " workers share them: use more servers, or give the servers faster links");
}

std::string WhatWouldDo(const ExchangeChoice& choice, const job::JobSpec& base,
                        const params::Layout& layout, int num_servers, const ExchangeFacts& facts,
                        const ExchangeBounds& bounds) {
  const auto option_within = [&](const ExchangeBounds& wider) -> std::optional<ExchangeOption> {
    const absl::StatusOr<ExchangeChoice> other =
        Chooser(base, layout, num_servers, facts, wider).Choose();
    if (!other.ok() || !other->is_met) return std::nullopt;
    return other->options[other->chosen];
  };
  ExchangeBounds any_loss = bounds;
  any_loss.loss_percent = 1e9;
  std::vector<std::string> ways;
  if (const auto other = option_within(any_loss); other.has_value()) {
    ways.push_back(absl::StrFormat("accept a loss of %s, with %s and --local_steps=%d",
                                   LossText(other->loss), other->name, other->job.local_steps));
  } else {
    constexpr int kManySteps = 20'000;
    ExchangeBounds many_steps = any_loss;
    many_steps.max_local_steps = kManySteps;
    if (const auto far = option_within(many_steps); far.has_value()) {
      ways.push_back(
          absl::StrFormat("give --local_steps=%d with %s, which are more steps than the plan tried",
                          far->job.local_steps, far->name));
    }
  }
  if (const auto times = FasterLinksThatDo(base, layout, num_servers, facts, bounds);
      times.has_value()) {
    ways.insert(ways.begin(), absl::StrFormat("use links that are %.1f times as fast", *times));
  }
  const ExchangeOption& best = choice.options[choice.chosen];
  constexpr double kWorthIt = 0.5;
  if (best.protects_loss && best.forecast.utilisation() > kWorthIt) {
    ways.push_back(absl::StrCat("accept that workers compute only ",
                                PercentText(best.forecast.utilisation()), " of the time"));
  }
  if (ways.empty())
    return absl::StrCat(
        "no change of a single limit helps (loss, local steps or speed of the links); change "
        "several of them",
        NarrowestLinks(facts, num_servers));
  std::string text = "what helps: ";
  for (size_t i = 0; i < ways.size(); ++i) absl::StrAppend(&text, i == 0 ? "" : "; or ", ways[i]);
  return absl::StrCat(text, NarrowestLinks(facts, num_servers));
}

std::string ReasonOf(const ExchangeChoice& choice, const job::JobSpec& base,
                     const params::Layout& layout, int num_servers, const ExchangeFacts& facts,
                     const ExchangeBounds& bounds) {
  const ExchangeOption& best = choice.options[choice.chosen];
  const std::string what =
      absl::StrCat("workers compute ", PercentText(best.forecast.utilisation()),
                   " of the time; loss compared with sync in fp32: ", LossText(best.loss), " (",
                   best.loss.reason, ")");
  if (choice.is_sync_that_links_allow) {
    return absl::StrCat(best.name, ": with these links it makes more than ",
                        PercentText(bounds.utilisation),
                        " of the steps that it would make with unlimited links; ", what);
  }
  if (choice.is_met) {
    return absl::StrCat(best.name, ": of all settings with which workers compute ",
                        PercentText(bounds.utilisation), " of the time",
                        best.has_spare ? absl::StrFormat(", even if exchanges take %.0f %% longer,",
                                                         100 * bounds.spare)
                                       : ",",
                        " it has the least loss; ", what);
  }
  const std::string missed =
      best.protects_loss
          ? absl::StrFormat(
                "no setting lets workers compute %s of the time with a loss of at most %+.1f %% "
                "(compared with sync in fp32) and at most %d local steps",
                PercentText(bounds.utilisation), choice.most_loss_percent, bounds.max_local_steps)
          : absl::StrFormat("no setting keeps the loss within %+.1f %% of the loss of sync in fp32",
                            choice.most_loss_percent);
  return absl::StrCat(missed, "; the nearest setting is ", best.name, ": ", what, "; ",
                      WhatWouldDo(choice, base, layout, num_servers, facts, bounds));
}

}  // namespace

absl::StatusOr<ExchangeChoice> ChooseExchange(const job::JobSpec& base,
                                              const params::Layout& layout, int num_servers,
                                              const ExchangeFacts& facts,
                                              const ExchangeBounds& bounds) {
  ASSIGN_OR_RETURN(ExchangeChoice choice,
                   Chooser(base, layout, num_servers, facts, bounds).Choose());
  choice.reason = ReasonOf(choice, base, layout, num_servers, facts, bounds);
  return choice;
}

std::vector<std::string> ExchangeFlags(const job::JobSpec& job) {
  static constexpr absl::string_view kNames[] = {"mode",
                                                 "local_steps",
                                                 "fragments",
                                                 "overlap_steps",
                                                 "overlap_rounds",
                                                 "outer_optimizer",
                                                 "outer_learning_rate",
                                                 "outer_momentum",
                                                 "push_encoding",
                                                 "pull_encoding",
                                                 "topk",
                                                 "topk_bits",
                                                 "topk_divisor"};
  // Settings without an effect in this job are left out, because the server would refuse them.
  std::vector<std::string> idle;
  for (const job::IdleSetting& setting : job::IdleSettings(job)) idle.push_back(setting.flag);
  job::JobSpec plain;
  plain.mode = job.mode;
  plain.outer_learning_rate = job::kDefaultOuterLearningRate;
  plain.outer_momentum = job::kDefaultOuterMomentum;
  const std::vector<job::JobSetting> defaults = job::JobSettings(plain);
  std::vector<std::string> flags;
  for (const job::JobSetting& setting : job::JobSettings(job)) {
    if (std::find(std::begin(kNames), std::end(kNames), setting.flag) == std::end(kNames)) continue;
    if (std::find(idle.begin(), idle.end(), setting.flag) != idle.end()) continue;
    const bool is_default = std::find(defaults.begin(), defaults.end(), setting) != defaults.end();
    if (is_default && setting.flag != "mode") continue;
    flags.push_back(absl::StrCat("--", setting.flag, "=", setting.value));
  }
  return flags;
}

}  // namespace lodestar::plan
