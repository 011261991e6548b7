// SPDX-License-Identifier: Apache-2.0

#include "server/status/metrics_file.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/runtime/file_io.h"
#include "common/runtime/status_macros.h"

namespace lodestar::status {
namespace {

constexpr absl::string_view kLineStart = R"({"round":)";

// The values of a line of the file. GoOnFrom() needs them to decide whether to keep the line.
struct LineFacts {
  int64_t round = 0;
  bool is_evaluation = false;  // true: an evaluation without training
  int64_t samples = -1;        // samples of the job so far; -1 means that the line has none
  std::optional<double> train_loss = std::nullopt;
};

// Returns the text of the number after `key`, or an empty text.
absl::string_view TextAfter(absl::string_view line, absl::string_view key) {
  const size_t begin = line.find(key);
  if (begin == absl::string_view::npos) return "";
  line.remove_prefix(begin + key.size());
  return line.substr(0, line.find_first_of(",}"));
}

std::optional<int64_t> NumberAfter(absl::string_view line, absl::string_view key) {
  int64_t number = 0;
  if (!absl::SimpleAtoi(TextAfter(line, key), &number)) return std::nullopt;
  return number;
}

std::optional<double> LossAfter(absl::string_view line, absl::string_view key) {
  double loss = 0;
  if (!absl::SimpleAtod(TextAfter(line, key), &loss)) return std::nullopt;
  return loss;
}

// Returns the facts of a complete line. Returns nullopt if the line is damaged, for example because
// an earlier release wrote it on a full disk.
std::optional<LineFacts> FactsOf(absl::string_view line) {
  if (!absl::StartsWith(line, kLineStart) || !absl::EndsWith(line, "}")) return std::nullopt;
  const std::optional<int64_t> round = NumberAfter(line, kLineStart);
  if (!round.has_value()) return std::nullopt;
  return LineFacts{*round, absl::StrContains(line, R"("train_loss":null)"),
                   NumberAfter(line, R"("samples":)").value_or(-1),
                   LossAfter(line, R"("train_loss":)")};
}

// The part of a file that is kept when training goes on from a RestoredPoint.
struct Kept {
  int64_t bytes = 0;
  int64_t num_cut = 0;            // lines that are cut, not counting an incomplete last line
  int64_t last_round = -1;        // last round of the lines that are kept; -1 means none
  int64_t samples = 0;            // samples of the job after these lines
  bool is_one_cut_early = false;  // true: a line of a round before the point is cut
  bool has_other_loss = false;    // true: a line's loss differs from the point's for the same round
  std::vector<rounds::RoundSummary> missing = {};
};

// Returns the key of the round's line: LineFacts::round and LineFacts::is_evaluation.
std::pair<int64_t, bool> KeyOf(const rounds::RoundSummary& round) {
  return {round.round.value(), !std::isfinite(round.train_loss.value_or(NAN))};
}

Kept KeptBefore(std::istream& file, const coordinator::RestoredPoint& point) {
  const int64_t next = point.next_round.value();
  Kept kept;
  std::set<std::pair<int64_t, bool>> lines;  // keys of the rounds to look for: see KeyOf()
  for (const rounds::RoundSummary& round : point.last_rounds) {
    lines.insert(KeyOf(round));
  }
  bool is_cutting = false;
  for (std::string line; std::getline(file, line) && !file.eof();) {
    const std::optional<LineFacts> facts = FactsOf(line);
    const bool is_final_evaluation =
        facts.has_value() && facts->is_evaluation && facts->round == next && point.is_evaluated;
    if (facts.has_value() && facts->round >= next && !is_final_evaluation) is_cutting = true;
    // In asynchronous modes, this line's round had not ended at the restored point. So the round
    // comes again.
    if (facts.has_value() && !point.is_in_order && facts->samples > point.trained_samples) {
      kept.is_one_cut_early |= facts->round < next;
      is_cutting = true;
    }
    if (is_cutting) {
      ++kept.num_cut;
      continue;
    }
    kept.bytes += static_cast<int64_t>(line.size()) + 1;
    if (!facts.has_value()) continue;
    // In asynchronous jobs, rounds may end in another order than they began, so the last line need
    // not have the highest round. The last line always has the highest count of samples.
    kept.last_round = std::max(kept.last_round, facts->round);
    kept.samples = facts->samples;
    const bool is_compared = facts->train_loss.has_value() && point.loss.train.has_value() &&
                             facts->round == point.loss.train_round.value();
    kept.has_other_loss |= is_compared && *facts->train_loss != *point.loss.train;
    lines.erase({facts->round, facts->is_evaluation});
  }
  for (const rounds::RoundSummary& round : point.last_rounds) {
    if (lines.contains(KeyOf(round))) kept.missing.push_back(round);
  }
  return kept;
}

// Returns true if the lines that are kept cannot belong to the run that continues at `point`.
bool IsAnotherRun(const Kept& kept, const coordinator::RestoredPoint& point) {
  if (point.next_round.value() == 0) return kept.bytes > 0 || kept.num_cut > 0;
  if (kept.last_round < 0) return kept.num_cut > 0 && !kept.is_one_cut_early;
  if (kept.has_other_loss) return true;
  // If the disk was full, the last lines may be missing. Then the kept lines have fewer samples
  // than the point, and that proves nothing.
  const bool is_complete = kept.last_round + 1 >= point.next_round.value();
  return kept.samples > point.trained_samples ||
         (is_complete && kept.samples != point.trained_samples);
}

}  // namespace

absl::StatusOr<MetricsFile> MetricsFile::Open(const std::string& path, bool may_share) {
  ASSIGN_OR_RETURN(const std::string target, output::ResolveOutput(path));
  std::string start(kLineStart.size(), '\0');
  std::ifstream there(target, std::ios::binary);
  there.read(start.data(), static_cast<std::streamsize>(start.size()));
  start.resize(static_cast<size_t>(there.gcount()));
  if (!absl::StartsWith(kLineStart, start)) {
    return absl::InvalidArgumentError(absl::StrCat(
        target,
        " exists, but is not a file of metrics, because its first line does not begin with ",
        kLineStart, ". Give the path of a new file"));
  }
  ASSIGN_OR_RETURN(output::LineFile file, output::LineFile::Open(path, may_share));
  return MetricsFile(std::move(file));
}

absl::StatusOr<MetricsFile::Change> MetricsFile::GoOnFrom(const coordinator::RestoredPoint& point) {
  std::ifstream there(file_.path(), std::ios::binary);
  if (!there) return ErrnoStatus(errno, "read", file_.path());
  const Kept kept = KeptBefore(there, point);
  if (there.bad()) return ErrnoStatus(errno, "read", file_.path());
  if (!std::exchange(is_of_this_run_, true) && IsAnotherRun(kept, point)) {
    ASSIGN_OR_RETURN(const std::string aside, SetAside());
    return Change{
        absl::StrCat(file_.path(), " had rounds of another run, which are now in ", aside),
        /*was_another_run=*/true};
  }
  RETURN_IF_ERROR(file_.CutTo(kept.bytes));
  Change change;
  change.missing = kept.missing;
  if (kept.num_cut > 0) {
    change.text =
        absl::StrCat(file_.path(), " now has ", kept.num_cut, " lines less, because rounds from ",
                     point.next_round.value(), " on are repeated",
                     kept.is_one_cut_early ? ", as are earlier rounds that were still open" : "");
    return change;
  }
  const Round there_again = kept.missing.empty() ? point.next_round : kept.missing.front().round;
  if (kept.last_round >= 0 && kept.last_round + 1 < there_again.value()) {
    change.text = absl::StrCat(
        file_.path(), " lacks rounds ", kept.last_round + 1, " to ", there_again.value() - 1,
        ", because their lines were not written before the restart; training is not affected");
  }
  return change;
}

absl::StatusOr<std::string> MetricsFile::SetAside() {
  const std::string path = file_.path();
  std::string aside;
  for (int i = 1; aside.empty() || std::filesystem::exists(aside); ++i) {
    aside = absl::StrCat(path, ".", i);
  }
  if (std::rename(path.c_str(), aside.c_str()) != 0) {
    return ErrnoStatus(errno, absl::StrCat("rename ", path, " to"), aside);
  }
  ASSIGN_OR_RETURN(output::LineFile file, output::LineFile::Open(path));
  file_ = std::move(file);
  return aside;
}

}  // namespace lodestar::status
