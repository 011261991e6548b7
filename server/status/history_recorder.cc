// SPDX-License-Identifier: Apache-2.0

#include "server/status/history_recorder.h"

#include <algorithm>
#include <string>
#include <utility>
#include <variant>

#include "common/history/history_thinning.h"
#include "common/job/job_settings.h"
#include "common/runtime/one_line.h"
#include "common/runtime/overloaded.h"

namespace lodestar::status {

void HistoryRecorder::GoOnFrom(const history::RunHistory& history) {
  history::RunHistory kept = history;
  history::ThinCurves(kMaxPoints, kept);  // the history may come from a release with other limits
  absl::MutexLock lock(&mutex_);
  ++version_;
  trained_ = std::move(kept.trained);
  heldout_ = std::move(kept.heldout);
  rounds_per_point_ = kept.rounds_per_point;
  tokens_per_sample_ = kept.tokens_per_sample;
  loss_unit_ = kept.loss_unit;
  settings_ = std::move(kept.settings);
  events_.assign(kept.events.begin(), kept.events.end());
  while (events_.size() > kMaxEvents) events_.pop_front();
}

void HistoryRecorder::Note(const coordinator::Announcement& announcement, absl::Time now) {
  absl::MutexLock lock(&mutex_);
  ++version_;
  std::visit(Overloaded{
                 [this](const coordinator::RestoredPoint& point)
                     ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { NoteRestored(point); },
                 [this](const coordinator::DecidedJob& decided)
                     ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { NoteJob(decided.job); },
                 [this](const rounds::RoundSummary& summary)
                     ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { NoteRound(summary); },
                 [&](const coordinator::Event& event) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
                   NoteEvent({.time = now, .is_alarm = false, .text = event.text});
                 },
                 [&](const coordinator::Alarm& alarm) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
                   NoteEvent({.time = now, .is_alarm = true, .text = alarm.text});
                 },
             },
             announcement);
}

void HistoryRecorder::NoteJob(const job::JobSpec& job) {
  loss_unit_ = job::LossUnitOf(job.model);
  settings_ = {{"model", job.model.name}};
  const std::vector<job::IdleSetting> idle = job::IdleSettings(job);
  for (job::JobSetting& setting : job::JobSettings(job)) {
    const bool is_idle =
        std::any_of(idle.begin(), idle.end(),
                    [&setting](const job::IdleSetting& it) { return it.flag == setting.flag; });
    if (!is_idle) settings_.push_back(std::move(setting));
  }
}

void HistoryRecorder::NoteRestored(const coordinator::RestoredPoint& point) {
  if (!point.is_from_journal) return GoBackTo(point.next_round);
  // The earlier process may have recorded these rounds already. So they are removed and recorded
  // again.
  if (!point.last_rounds.empty()) GoBackTo(point.last_rounds.front().round);
  for (const rounds::RoundSummary& summary : point.last_rounds) NoteRound(summary);
}

void HistoryRecorder::NoteRound(const rounds::RoundSummary& summary) {
  // The number of tokens per sample is not known while no worker with data is present, for example
  // in the last evaluation of a job.
  if (summary.tokens_per_sample > 0) tokens_per_sample_ = summary.tokens_per_sample;
  const double seconds = absl::ToDoubleSeconds(summary.trained_time);
  if (summary.heldout_loss.has_value()) {
    if (heldout_.size() == kMaxPoints) history::DropEveryOther(heldout_);
    const Round round =
        heldout_.empty() ? summary.round : std::max(summary.round, heldout_.back().round);
    heldout_.push_back(
        {round, summary.total_samples - summary.samples, seconds, *summary.heldout_loss});
  }
  if (!summary.trained) return;
  // In asynchronous modes, a round may end after a round that began later. Then its point gets the
  // number of the later round, so that round numbers in the curve never decrease.
  const Round round =
      trained_.empty() ? summary.round : std::max(summary.round, trained_.back().last_round);
  const history::HistoryPoint point = {.first_round = round,
                                       .last_round = round,
                                       .samples = summary.total_samples,
                                       .seconds = seconds,
                                       .train_loss = summary.train_loss.value_or(0.0),
                                       .num_losses = summary.train_loss.has_value() ? 1 : 0,
                                       .learning_rate = summary.learning_rate};
  const bool fills_last =
      !trained_.empty() &&
      trained_.back().last_round - trained_.back().first_round + 1 < rounds_per_point_;
  if (fills_last) {
    trained_.back() = history::Joined(trained_.back(), point);
    return;
  }
  if (trained_.size() == kMaxPoints) {
    history::JoinNeighbours(trained_);
    rounds_per_point_ *= 2;
  }
  trained_.push_back(point);
}

void HistoryRecorder::GoBackTo(Round next_round) {
  while (!trained_.empty() && trained_.back().last_round >= next_round) trained_.pop_back();
  while (!heldout_.empty() && heldout_.back().round >= next_round) heldout_.pop_back();
}

void HistoryRecorder::NoteEvent(history::HistoryEvent event) {
  event.text = OneLine(event.text);
  // Times are whole microseconds, as in the file, and ascend: a reader that has seen some events
  // asks for events after the last one.
  event.time = absl::FromUnixMicros(absl::ToUnixMicros(event.time));
  if (!events_.empty()) {
    event.time = std::max(event.time, events_.back().time + absl::Microseconds(1));
  }
  if (events_.size() == kMaxEvents) events_.pop_front();
  events_.push_back(std::move(event));
}

history::RunHistory HistoryRecorder::Read() const {
  absl::MutexLock lock(&mutex_);
  return {.trained = trained_,
          .heldout = heldout_,
          .events = {events_.begin(), events_.end()},
          .rounds_per_point = rounds_per_point_,
          .tokens_per_sample = tokens_per_sample_,
          .loss_unit = loss_unit_,
          .settings = settings_};
}

uint64_t HistoryRecorder::version() const {
  absl::MutexLock lock(&mutex_);
  return version_;
}

}  // namespace lodestar::status
