// SPDX-License-Identifier: Apache-2.0

// Chooses the exchange settings of a job that the operator has left open (OpenSettings). First, the
// members carry out a few rounds as a trial, in which steps and transfers are measured. The choice
// is the least costly settings with which workers compute for most of the time. After the trial,
// the job begins again with its first weights. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/job/exchange_settings.h"
#include "common/job/job_spec.h"
#include "common/messages/cluster_messages.h"
#include "common/params/layout.h"
#include "common/plan/exchange_choice.h"
#include "common/plan/exchange_forecast.h"
#include "common/runtime/ids.h"

namespace lodestar::model {

// Where the exchange settings of a job come from.
enum class ExchangeOrigin : uint8_t {
  kFlags,       // The operator has given all settings.
  kTrial,       // The job has the settings of the trial, which is in progress.
  kChoice,      // The job has chosen its settings after a trial.
  kCheckpoint,  // The settings are those of the checkpoint from which the job resumed.
  kJournal,     // The settings are those of the journal from which the job resumed.
};

class ExchangeTuning {
 public:
  // Settings that the job has chosen, and the reasons.
  struct Choice {
    job::JobSpec job = {};
    plan::ExchangeFacts facts = {};
    plan::ExchangeOption option = {};
    std::string reason = {};  // see plan::ExchangeChoice
  };

  // Number of rounds that a member must report before its measurements are enough. It needs
  // several, because a member may compile and connect in its first round.
  static constexpr int kTrialRounds = 3;

  // Begins a trial: the job has not chosen its settings yet.
  void Begin();
  // Ends the trial with this choice.
  void End(Choice choice);
  // Ends the trial without a choice, because the checkpoint or journal has the settings.
  void EndWithSettingsOf(ExchangeOrigin origin) { origin_ = origin; }
  bool is_measuring() const { return origin_ == ExchangeOrigin::kTrial; }
  ExchangeOrigin origin() const { return origin_; }
  // Returns the choice. Requires: origin() is kChoice.
  const Choice& choice() const { return *choice_; }

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

  ExchangeOrigin origin_ = ExchangeOrigin::kFlags;
  std::optional<Choice> choice_;
  std::map<WorkerId, Measured> measured_;
};

}  // namespace lodestar::model
