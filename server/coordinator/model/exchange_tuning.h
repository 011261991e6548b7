// SPDX-License-Identifier: Apache-2.0

// Chooses the settings of the exchange, or some of them (OpenSettings), for a job that is to choose
// them itself. The first rounds of the members are a trial, which measures steps and transfers. The
// choice is the least costly settings that let workers compute for most of the time. After the
// trial, the job begins again with its first weights. Pure.
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

namespace lodestar::model {

class ExchangeTuning {
 public:
  // Number of rounds that a member must report before its measurements are enough. In its first
  // round a member may compile and connect.
  static constexpr int kTrialRounds = 3;

  // Begins a trial: the job has not chosen its settings yet.
  void Begin();
  // Ends the trial: the job has its settings. `text` is a message for operators that says which
  // settings these are, and why.
  void End(std::string text);
  bool is_measuring() const { return is_measuring_; }
  // Returns a message for operators about the trial or the settings. Empty means that the operator
  // has given all settings.
  const std::string& text() const { return text_; }

  // Adds a report of a round with `local_steps` steps to the measurements of the member.
  void OnReport(WorkerId worker, const messages::RoundReport& report, int local_steps);
  void OnHeartbeat(WorkerId worker, const messages::PathFacts& path);
  void OnEnded(WorkerId worker) { measured_.erase(worker); }
  // Returns true if the worker has measured enough for a choice.
  bool HasMeasured(WorkerId worker) const;

  // Returns the slowest step and the slowest path of all members, because rounds wait for both. The
  // servers' links may be of two kinds: all workers share a link as fast as the fastest worker's,
  // or links have no limit. Assumes the kind that better explains how long exchanges took in the
  // trial of `asked`. Requires: a member has done a round. Errors: those of PlanExchangeSizes().
  absl::StatusOr<plan::ExchangeFacts> Facts(const job::JobSpec& asked, const params::Layout& layout,
                                            int num_shards) const;

  struct Choice {
    job::JobSpec job;
    std::string text;
  };
  // Chooses among ModesToChooseFrom(). Lengths in `asked`, such as the number of rounds, are in
  // steps if open.are_lengths_in_steps(). Lengths in the choice are in rounds. Errors: those of
  // Facts(); those of ChooseExchange(), also if no choice is a valid job.
  absl::StatusOr<Choice> Choose(const job::JobSpec& asked, const job::OpenSettings& open,
                                const params::Layout& layout, int num_shards) const;

 private:
  struct Measured {
    int rounds = 0;
    absl::Duration step = absl::InfiniteDuration();  // time of a step; shortest mean of a round
    // Time for communication and waiting in all rounds after the first.
    absl::Duration exchanges;
    messages::PathFacts path;
    bool has_path = false;  // true after a heartbeat that came after enough rounds
  };

  // Returns how long the exchange of a round takes. The result is the smallest of the members'
  // means, because the member with the slowest steps does not wait for others.
  absl::Duration MeanExchange() const;

  bool is_measuring_ = false;
  std::string text_;
  std::map<WorkerId, Measured> measured_;
};

}  // namespace lodestar::model
