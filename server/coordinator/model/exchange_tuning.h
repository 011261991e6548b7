// SPDX-License-Identifier: Apache-2.0

// Chooses the exchange settings of a job that the operator has left open (OpenSettings). First, the
// members carry out a few rounds as a trial, in which steps and transfers are measured. The choice
// is the least costly settings with which workers compute for most of the time. After the trial,
// the job begins again with its first weights. Pure.
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
  // Number of rounds that a member must report before its measurements are enough. It needs
  // several, because a member may compile and connect in its first round.
  static constexpr int kTrialRounds = 3;

  // Begins a trial: the job has not chosen its settings yet.
  void Begin();
  // Ends the trial: the job has its settings. `text` is a message for operators that says which
  // settings these are, and why.
  void End(std::string text);
  bool is_measuring() const { return is_measuring_; }
  // Returns a message for operators about the trial or the chosen settings. Empty means that the
  // operator has given all settings.
  const std::string& text() const { return text_; }

  // Adds a report of a round with `local_steps` steps to the measurements of the member.
  void OnReport(WorkerId worker, const messages::RoundReport& report, int local_steps);
  void OnHeartbeat(WorkerId worker, const messages::PathFacts& path);
  void OnEnded(WorkerId worker) { measured_.erase(worker); }
  // Returns true if there are enough measurements of the worker for a choice.
  bool HasMeasured(WorkerId worker) const;

  // Returns the slowest step and the slowest network path of all members, because rounds wait for
  // the slowest member. Also finds out whether workers share a link of the servers:
  // - If they share it, the link is as fast as the path of the fastest worker.
  // - If they do not, the links of the servers have no limit.
  // Returns the case that better explains how long exchanges took in the trial of `asked`.
  // Requires: a member has reported a round. Errors: those of PlanExchangeSizes().
  absl::StatusOr<plan::ExchangeFacts> Facts(const job::JobSpec& asked, const params::Layout& layout,
                                            int num_shards) const;

  struct Choice {
    job::JobSpec job;
    std::string text;
  };
  // Chooses the settings that `open` leaves open. Only the modes of ModesToChooseFrom() are
  // possible. If open.are_lengths_in_steps(), lengths in `asked`, such as the number of rounds, are
  // in steps. Lengths in the choice are in rounds. Errors: those of Facts() and ChooseExchange().
  // It is also an error if no choice is a valid job.
  absl::StatusOr<Choice> Choose(const job::JobSpec& asked, const job::OpenSettings& open,
                                const params::Layout& layout, int num_shards) const;

 private:
  struct Measured {
    int rounds = 0;
    absl::Duration step = absl::InfiniteDuration();  // time of a step; shortest mean of a round
    // Sum of the times for communication and waiting in all rounds after the first.
    absl::Duration exchanges;
    messages::PathFacts path;
    bool has_path = false;  // true after a heartbeat that came after enough rounds
  };

  // Returns how long an exchange takes without waiting for other members. This is the smallest mean
  // of any member, because the slowest member waits for no other.
  absl::Duration MeanExchange() const;

  bool is_measuring_ = false;
  std::string text_;
  std::map<WorkerId, Measured> measured_;
};

}  // namespace lodestar::model
