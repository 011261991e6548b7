// How a job that is to choose itself how it exchanges, or a part of that (OpenSettings), comes to
// its settings: the members' first rounds are a trial, by whose steps and transfers the least
// costly settings are chosen that let workers compute for most of the time. What the trial has
// trained is given up. Pure.
#pragma once

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/job/exchange_settings.h"
#include "common/job/job_spec.h"
#include "common/messages/cluster_messages.h"
#include "common/params/layout.h"
#include "common/plan/exchange_forecast.h"
#include "common/runtime/ids.h"

namespace lodestar {

class ExchangeTuning {
 public:
  // Rounds of each member before what it has measured counts. In the first round it may compile,
  // and connect.
  static constexpr int kTrialRounds = 3;

  // The job begins, or begins again, without settings of its own.
  void Begin();
  // The job has its settings. `text` says which, and why, for people.
  void End(std::string text);
  bool is_measuring() const { return is_measuring_; }
  // Empty means that the operator has given the settings.
  const std::string& text() const { return text_; }

  // A member has reported a round that it has done, with so many local steps.
  void OnReport(WorkerId worker, const RoundReport& report, int local_steps);
  void OnHeartbeat(WorkerId worker, const PathFacts& path);
  void OnEnded(WorkerId worker) { measured_.erase(worker); }
  // Returns whether the worker has measured enough to choose by.
  bool HasMeasured(WorkerId worker) const;

  // Rounds wait for the slowest step and the slowest path of all. The servers' links are what the
  // workers' are, for all of them together, or without a limit: whichever explains the exchanges of
  // the trial of `asked` better. Requires that a member has done a round. Errors: those of
  // PlanExchangeSizes().
  absl::StatusOr<ExchangeFacts> Facts(const JobSpec& asked, const Layout& layout,
                                      int num_shards) const;

  struct Choice {
    JobSpec job;
    std::string text;
  };
  // Chooses among modes in which members meet. The lengths of `asked` are in steps. Those of the
  // choice are in rounds. Errors: those of ChooseExchange(), and of a job that is not valid.
  absl::StatusOr<Choice> Choose(const JobSpec& asked, const OpenSettings& open,
                                const Layout& layout, int num_shards) const;

 private:
  struct Measured {
    int rounds = 0;
    absl::Duration step = absl::InfiniteDuration();  // the shortest of a round's means
    absl::Duration exchanges;  // of rounds after the first: all of their time but steps
    PathFacts path;
    bool has_path = false;  // of a heartbeat after enough rounds
  };

  // Returns how long a round's exchange takes: the shortest mean of any member, because the member
  // whose steps are the slowest waits for no other.
  absl::Duration MeanExchange() const;

  bool is_measuring_ = false;
  std::string text_;
  std::map<WorkerId, Measured> measured_;
};

}  // namespace lodestar
