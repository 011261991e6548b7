#include "server/coordinator/exchange_tuning.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/check.h"
#include "common/exchange_choice.h"
#include "common/exchange_settings.h"
#include "common/status_macros.h"

namespace lodestar {
namespace {

// Wanted are 95 %; forecasts miss by some.
constexpr double kWantedUtilisation = 0.965;
// Beside synchronous training at equal samples.
constexpr double kMostLossPercent = 1.5;

std::string RateText(double bytes_per_second) {
  return bytes_per_second == NetworkPath::kNoLimit
             ? "as fast as memory"
             : absl::StrFormat("%.3g Mbit/s", bytes_per_second * 8e-6);
}

std::string FactsText(const ExchangeFacts& facts) {
  return absl::StrFormat("a step takes %.3g ms, workers send %s and get %s, round trip %.3g ms",
                         absl::ToDoubleMilliseconds(facts.step), RateText(facts.path.worker_up),
                         RateText(facts.path.worker_down),
                         absl::ToDoubleMilliseconds(facts.path.round_trip));
}

}  // namespace

void ExchangeTuning::Begin() {
  is_measuring_ = true;
  text_ = "measures steps and paths: nothing of these rounds is kept";
  measured_.clear();
}

void ExchangeTuning::End(std::string text) {
  is_measuring_ = false;
  text_ = std::move(text);
}

void ExchangeTuning::OnReport(WorkerId worker, const RoundReport& report, int local_steps) {
  if (!is_measuring_ || report.num_samples <= 0 || local_steps < 1) return;
  Measured& measured = measured_[worker];
  ++measured.rounds;
  measured.step = std::min(measured.step, report.compute / local_steps);
}

void ExchangeTuning::OnHeartbeat(WorkerId worker, const PathFacts& path) {
  const auto measured = measured_.find(worker);
  if (measured == measured_.end() || measured->second.rounds < kTrialRounds) return;
  measured->second.path = path;
  measured->second.has_path = true;
}

bool ExchangeTuning::IsComplete(absl::Span<const WorkerId> members) const {
  return !members.empty() && std::all_of(members.begin(), members.end(), [this](WorkerId member) {
    const auto measured = measured_.find(member);
    return measured != measured_.end() && measured->second.has_path;
  });
}

int ExchangeTuning::num_measured() const {
  return static_cast<int>(std::count_if(measured_.begin(), measured_.end(),
                                        [](const auto& row) { return row.second.has_path; }));
}

ExchangeFacts ExchangeTuning::Facts() const {
  LODESTAR_CHECK(!measured_.empty()) << "nobody has measured anything";
  ExchangeFacts facts;
  facts.num_workers = static_cast<int>(measured_.size());
  // They have been measured while all exchanged at once, so what they share of the servers' links
  // is in the workers' own.
  const auto slower = [](double a, double b) { return b > 0.0 ? std::min(a, b) : a; };
  for (const auto& [worker, measured] : measured_) {
    facts.step = std::max(facts.step, measured.step);
    NetworkPath& path = facts.path;
    path.worker_up = slower(path.worker_up, measured.path.up_bytes_per_second);
    path.worker_down = slower(path.worker_down, measured.path.down_bytes_per_second);
    path.round_trip = std::max(path.round_trip, measured.path.round_trip);
  }
  return facts;
}

absl::StatusOr<ExchangeTuning::Choice> ExchangeTuning::Choose(const JobSpec& asked,
                                                              const Layout& layout,
                                                              int num_shards) const {
  const ExchangeFacts facts = Facts();
  ASSIGN_OR_RETURN(const ExchangeChoice all, ChooseExchange(asked, layout, num_shards, facts,
                                                            {.utilisation = kWantedUtilisation,
                                                             .loss_percent = kMostLossPercent,
                                                             .modes = ModesToChooseFrom()}));
  const ExchangeOption& option = all.options[all.chosen];
  Choice choice = {.job = InRounds(option.job), .text = ""};
  RETURN_IF_ERROR(ValidateJobSpec(choice.job));
  choice.text = absl::StrCat(option.name, " (", absl::StrJoin(ExchangeFlags(option.job), " "),
                             "): ", FactsText(facts), "; workers compute for ",
                             absl::StrFormat("%.1f", 100.0 * option.forecast.utilisation()),
                             " % of the time by forecast; ", all.reason);
  return choice;
}

}  // namespace lodestar
