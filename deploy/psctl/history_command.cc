// SPDX-License-Identifier: Apache-2.0

#include "deploy/psctl/history_command.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "common/runtime/text_table.h"
#include "common/runtime/time_text.h"

namespace lodestar::psctl {
namespace {

constexpr TextTable::Align kRight = TextTable::Align::kRight;

// Returns the loss `nats` as text in `unit`, as other commands show it.
std::string LossIn(job::LossUnit unit, double nats) {
  return absl::StrFormat("%.4f",
                         unit == job::LossUnit::kBitsPerByte ? job::BitsFromNats(nats) : nats);
}

// Returns the loss of the last evaluation after round `after`, up to and including round `until`.
// Empty means that there was no evaluation.
std::string HeldoutText(const history::RunHistory& history, job::LossUnit unit, int64_t after,
                        int64_t until) {
  std::string text;
  for (const history::HeldoutPoint& point : history.heldout) {
    if (point.round.value() > after && point.round.value() <= until) {
      text = LossIn(unit, point.loss);
    }
  }
  return text;
}

}  // namespace

absl::StatusOr<history::RunHistory> ReadKeptHistory(const std::string& path) {
  std::error_code error;
  const bool is_folder = std::filesystem::is_directory(path, error);
  return history::ReadHistory(is_folder ? absl::StrCat(path, "/", history::kHistoryFileName)
                                        : path);
}

std::string HistoryText(const history::RunHistory& history, int max_rows, int columns) {
  const job::LossUnit unit = history.loss_unit.value_or(job::LossUnit::kNats);
  TextTable table({{"ROUNDS", kRight, 0},
                   {"SAMPLES", kRight, 2},
                   {"TRAINED FOR", kRight, 3},
                   {absl::StrCat("TRAIN LOSS, ", job::LossUnitName(unit)), kRight, 0},
                   {"HELD-OUT LOSS", kRight, 1}});
  const int64_t num_points = static_cast<int64_t>(history.trained.size());
  const int64_t num_rows = std::min<int64_t>(num_points, max_rows);
  int64_t shown_until = -1;
  for (int64_t row = 1; row <= num_rows; ++row) {
    const history::HistoryPoint& point = history.trained[row * num_points / num_rows - 1];
    const int64_t updates = point.last_round.value() + 1;
    table.AddRow({absl::StrCat(updates), absl::StrCat(point.samples),
                  DurationText(absl::Seconds(point.seconds)),
                  point.num_losses > 0 ? LossIn(unit, point.train_loss) : "",
                  HeldoutText(history, unit, shown_until, updates)});
    shown_until = updates;
  }
  std::string text = num_points == 0 ? "no round is complete yet\n" : table.Format(columns);
  const size_t num_events = history.events.size();
  const size_t first = num_events - std::min<size_t>(num_events, max_rows);
  if (first < num_events) absl::StrAppend(&text, "\n");
  for (size_t i = first; i < num_events; ++i) {
    absl::StrAppend(&text, EventText(history.events[i], columns));
  }
  return text;
}

std::string EventText(const history::HistoryEvent& event, int columns) {
  return Paragraph(absl::StrCat(UtcText(event.time), "  ", event.is_alarm ? "ALARM  " : ""),
                   event.text, columns);
}

}  // namespace lodestar::psctl
