#include "server/status/run_history.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "common/json.h"
#include "common/overloaded.h"

namespace lodestar {
namespace {

// Two points that follow each other.
HistoryPoint Joined(const HistoryPoint& a, const HistoryPoint& b) {
  HistoryPoint joined = b;
  joined.first_round = a.first_round;
  joined.num_losses = a.num_losses + b.num_losses;
  if (joined.num_losses > 0) {
    joined.train_loss =
        (a.train_loss * a.num_losses + b.train_loss * b.num_losses) / joined.num_losses;
  }
  return joined;
}

void JoinNeighbours(std::vector<HistoryPoint>& points) {
  size_t kept = 0;
  for (size_t i = 0; i < points.size(); i += 2, ++kept) {
    points[kept] = i + 1 < points.size() ? Joined(points[i], points[i + 1]) : points[i];
  }
  points.resize(kept);
}

}  // namespace

void RunHistory::Note(const Announcement& announcement, absl::Time now) {
  absl::MutexLock lock(&mutex_);
  ++version_;
  std::visit(Overloaded{
                 [this](const RestoredPoint& point) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
                   if (!point.is_from_journal) GoBackTo(point.next_round);
                   for (const RoundSummary& summary : point.last_rounds) NoteRound(summary);
                 },
                 [this](const RoundSummary& summary)
                     ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { NoteRound(summary); },
                 [&](const Event& event) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
                   NoteEvent({.time = now, .is_alarm = false, .text = event.text});
                 },
                 [&](const Alarm& alarm) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
                   NoteEvent({.time = now, .is_alarm = true, .text = alarm.text});
                 },
             },
             announcement);
}

void RunHistory::NoteRound(const RoundSummary& summary) {
  const double seconds = absl::ToDoubleSeconds(summary.trained_time);
  if (summary.heldout_loss.has_value()) {
    if (heldout_.size() == kMaxPoints) {
      // Every other one, and always the last.
      for (size_t i = 0; i < kMaxPoints / 2; ++i) heldout_[i] = heldout_[2 * i + 1];
      heldout_.resize(kMaxPoints / 2);
    }
    heldout_.push_back(
        {summary.round, summary.total_samples - summary.samples, seconds, *summary.heldout_loss});
  }
  if (!summary.trained) return;
  const HistoryPoint point = {.first_round = summary.round,
                              .last_round = summary.round,
                              .samples = summary.total_samples,
                              .seconds = seconds,
                              .train_loss = summary.train_loss.value_or(0.0),
                              .num_losses = summary.train_loss.has_value() ? 1 : 0};
  const bool fills_last =
      !trained_.empty() &&
      trained_.back().last_round - trained_.back().first_round + 1 < rounds_per_point_;
  if (fills_last) {
    trained_.back() = Joined(trained_.back(), point);
    return;
  }
  if (trained_.size() == kMaxPoints) {
    JoinNeighbours(trained_);
    rounds_per_point_ *= 2;
  }
  trained_.push_back(point);
}

void RunHistory::GoBackTo(Round next_round) {
  while (!trained_.empty() && trained_.back().last_round >= next_round) trained_.pop_back();
  while (!heldout_.empty() && heldout_.back().round >= next_round) heldout_.pop_back();
}

void RunHistory::NoteEvent(HistoryEvent event) {
  if (events_.size() == kMaxEvents) events_.pop_front();
  events_.push_back(std::move(event));
}

RunHistory::Content RunHistory::Read() const {
  absl::MutexLock lock(&mutex_);
  return {.trained = trained_,
          .heldout = heldout_,
          .events = {events_.begin(), events_.end()},
          .rounds_per_point = rounds_per_point_};
}

uint64_t RunHistory::version() const {
  absl::MutexLock lock(&mutex_);
  return version_;
}

std::string HistoryJson(const RunHistory::Content& content) {
  struct Curve {
    Json rounds = Json::array();
    Json samples = Json::array();
    Json seconds = Json::array();
    Json losses = Json::array();

    Json Get() && {
      return {{"round", std::move(rounds)},
              {"samples", std::move(samples)},
              {"seconds", std::move(seconds)},
              {"loss", std::move(losses)}};
    }
  };
  Curve trained;
  for (const HistoryPoint& point : content.trained) {
    trained.rounds.push_back(point.last_round.value());
    trained.samples.push_back(point.samples);
    trained.seconds.push_back(point.seconds);
    trained.losses.push_back(point.num_losses > 0 ? Json(point.train_loss) : Json());
  }
  Curve heldout;
  for (const HeldoutPoint& point : content.heldout) {
    heldout.rounds.push_back(point.round.value());
    heldout.samples.push_back(point.samples);
    heldout.seconds.push_back(point.seconds);
    heldout.losses.push_back(point.loss);
  }
  Json events = Json::array();
  for (const HistoryEvent& event : content.events) {
    events.push_back({{"time", absl::ToDoubleSeconds(event.time - absl::UnixEpoch())},
                      {"alarm", event.is_alarm},
                      {"text", event.text}});
  }
  return FormatJson({{"rounds_per_point", content.rounds_per_point},
                     {"trained", std::move(trained).Get()},
                     {"heldout", std::move(heldout).Get()},
                     {"events", std::move(events)}});
}

}  // namespace lodestar
