// SPDX-License-Identifier: Apache-2.0

// Fuzzes histories of runs. The dashboard reads them, although any user may have put them beside
// its own history.

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/history/history_thinning.h"
#include "common/history/run_history.h"
#include "common/runtime/file_io.h"
#include "common/runtime/json.h"
#include "tests/fuzz/fuzz_target.h"

namespace lodestar::fuzz {
namespace {

void ReadRunHistory(absl::string_view bytes) {
  const absl::StatusOr<history::RunHistory> history = history::ParseHistory(bytes, "history");
  if (!history.ok()) return Refuse(history.status());
  Accept();
  history::RunHistory thin = *history;
  history::ThinCurves(/*max_points=*/1, thin);
  LODESTAR_CHECK(thin.trained.size() <= 1 && thin.heldout.size() <= 1);
  LODESTAR_CHECK(ParseJson(history::HistoryJson(*history)).ok());
}

std::vector<std::string> RunHistorySeeds() {
  std::string folder = absl::StrCat(std::filesystem::temp_directory_path().string(), "/XXXXXX");
  LODESTAR_CHECK(mkdtemp(folder.data()) != nullptr) << folder;
  history::RunHistory history;
  history.loss_unit = job::LossUnit::kNats;
  history.settings = {{"model", "tiny"}, {"batch_size", "2"}};
  history.trained = {{Round(0), Round(1), 20, 1.5, 2.25, 2, 0.125},
                     {Round(2), Round(3), 40, 3.0, 0.0, 0}};
  history.heldout = {{Round(2), 20, 1.5, 2.5}};
  history.events = {{absl::FromUnixMicros(1'234'567), true, "disk full"}};
  const std::string path = absl::StrCat(folder, "/", history::kHistoryFileName);
  LODESTAR_CHECK(history::WriteHistory(path, history).ok());
  const absl::StatusOr<std::string> bytes = ReadWholeFile(path, /*max_bytes=*/1 << 20);
  LODESTAR_CHECK(bytes.ok()) << bytes.status();
  std::filesystem::remove_all(folder);
  return {*bytes};
}

}  // namespace

absl::Span<const Case> Cases() {
  static constexpr Case kCases[] = {{"run_history", ReadRunHistory, RunHistorySeeds}};
  return kCases;
}

}  // namespace lodestar::fuzz
