// SPDX-License-Identifier: Apache-2.0

#include "deploy/psctl/top_text.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/runtime/text_table.h"
#include "deploy/psctl/history_command.h"
#include "proto/status_text.h"

namespace lodestar::psctl {
namespace {

constexpr int kMostCurveColumns = 160;
constexpr int kFewestEvents = 4;

constexpr std::array<absl::string_view, 8> kBlocks = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
constexpr std::array<absl::string_view, 8> kLetters = {"_", ".", "-", ":", "=", "+", "*", "#"};

std::vector<std::string> LinesOf(absl::string_view text) {
  std::vector<std::string> lines = absl::StrSplit(text, '\n');
  while (!lines.empty() && lines.back().empty()) lines.pop_back();
  return lines;
}

// Keeps at most `count` lines. If lines are left out, the last line says how many.
void Shorten(std::vector<std::string>& lines, size_t count) {
  if (lines.size() <= count) return;
  const size_t hidden = lines.size() - count + 1;
  lines.resize(count);
  if (count > 0) lines.back() = absl::StrCat("... and ", hidden, " more lines");
}

// Sorts the lines above the tables, because a terminal may not have room for all of them. Lines
// about progress and problems come first. A line that begins with a space belongs to the line
// before it.
std::vector<std::string> WithNewsFirst(const std::vector<std::string>& head) {
  constexpr std::array<absl::string_view, 7> kNews = {"ALARM",  "progress", "loss", "curve",
                                                      "paused", "waiting",  "round"};
  std::vector<std::string> news;
  std::vector<std::string> rest;
  bool is_news = false;
  for (const std::string& line : head) {
    if (!absl::StartsWith(line, " ")) {
      is_news = std::any_of(kNews.begin(), kNews.end(), [&line](absl::string_view label) {
        return absl::StartsWith(line, label);
      });
    }
    (is_news ? news : rest).push_back(line);
  }
  news.insert(news.end(), rest.begin(), rest.end());
  return news;
}

// Returns the newest events in order of time, with at most `count` lines in total.
std::vector<std::string> EventLines(const history::RunHistory& history, size_t count, int columns) {
  std::vector<std::string> lines;
  for (auto event = history.events.rbegin(); event != history.events.rend(); ++event) {
    const std::vector<std::string> own = LinesOf(EventText(*event, columns));
    if (lines.size() + own.size() > count) break;
    lines.insert(lines.begin(), own.begin(), own.end());
  }
  return lines;
}

// Divides `points` into at most `width` parts with about the same number of points. Returns the
// mean loss of each part.
std::vector<double> MeansOf(const std::vector<history::HistoryPoint>& points, size_t width) {
  std::vector<double> means;
  const size_t parts = std::min(width, points.size());
  for (size_t part = 0; part < parts; ++part) {
    double sum = 0.0;
    double count = 0.0;
    for (size_t i = part * points.size() / parts; i < (part + 1) * points.size() / parts; ++i) {
      sum += points[i].train_loss * static_cast<double>(points[i].num_losses);
      count += static_cast<double>(points[i].num_losses);
    }
    if (count > 0.0 && std::isfinite(sum)) means.push_back(sum / count);
  }
  return means;
}

// Cuts UTF-8 text to a number of columns. Each character counts as one column.
std::string CutToColumns(absl::string_view line, int columns) {
  if (columns == kUnlimitedColumns) return std::string(line);
  const auto begins_character = [](char byte) { return (byte & 0xc0) != 0x80; };
  int width = 0;
  size_t end = 0;
  for (; end < line.size(); ++end) {
    if (begins_character(line[end]) && ++width > columns) break;
  }
  return std::string(line.substr(0, end));
}

}  // namespace

std::string LossCurveText(const history::RunHistory& history, int width, bool has_blocks) {
  const std::vector<double> means =
      MeansOf(history.trained, static_cast<size_t>(std::max(width, 0)));
  if (means.size() < 2) return "";
  const auto [lowest, highest] = std::minmax_element(means.begin(), means.end());
  const double span = *highest - *lowest;
  const auto& steps = has_blocks ? kBlocks : kLetters;
  std::string text;
  for (const double mean : means) {
    const double share = span > 0.0 ? (mean - *lowest) / span : 0.0;
    absl::StrAppend(&text, steps[static_cast<size_t>(share * (steps.size() - 1) + 0.5)]);
  }
  return text;
}

std::string TopText(const v1::ClusterStatus& status, const history::RunHistory& history,
                    const TopPicture& picture) {
  const int columns = picture.columns;
  std::vector<std::string> head = LinesOf(wire::StatusHeadText(status, columns));
  constexpr absl::string_view kLabel = "curve     ";
  const int label_columns = static_cast<int>(kLabel.size());
  const std::string curve = LossCurveText(
      history,
      columns == kUnlimitedColumns ? kMostCurveColumns
                                   : std::min(columns - label_columns, kMostCurveColumns),
      picture.has_blocks);
  if (!curve.empty()) head.push_back(absl::StrCat(kLabel, curve));
  std::vector<std::string> tables = LinesOf(
      absl::StrCat(wire::ShardsText(status, columns), "\n", wire::WorkersText(status, columns)));
  const bool is_terminal = picture.rows > 0;
  const std::string last = picture.note.empty() && is_terminal ? "q: quit" : picture.note;
  size_t num_events = history.events.size();
  if (is_terminal) {
    // Two empty lines and the last line also take room.
    const size_t rows = static_cast<size_t>(std::max(picture.rows - 3, 1));
    const size_t most = std::max<size_t>(rows / 2, 1);
    if (head.size() > most) head = WithNewsFirst(head);
    Shorten(head, most);
    const size_t below = rows - std::min(rows, head.size());
    Shorten(tables, below - std::min<size_t>(below / 3, kFewestEvents));
    num_events = below - tables.size();
  }
  std::vector<std::string> lines = std::move(head);
  lines.emplace_back();
  lines.insert(lines.end(), tables.begin(), tables.end());
  lines.emplace_back();
  const std::vector<std::string> events = EventLines(history, num_events, columns);
  lines.insert(lines.end(), events.begin(), events.end());
  if (!last.empty()) lines.push_back(last);
  std::string text;
  for (const std::string& line : lines) absl::StrAppend(&text, CutToColumns(line, columns), "\n");
  return text;
}

}  // namespace lodestar::psctl
