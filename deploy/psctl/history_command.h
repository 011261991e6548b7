// SPDX-License-Identifier: Apache-2.0

// psctl history and events show the curves and the events of a job.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "common/history/run_history.h"

namespace lodestar::psctl {

// Reads the history at `path`, which is the --checkpoint_dir of a job or its history file. Errors:
// those of ReadHistory().
absl::StatusOr<history::RunHistory> ReadKeptHistory(const std::string& path);

// Returns a text for operators. It has at most `max_rows` lines of losses, spread over the run and
// including its last round, and the last `max_rows` events. A line has at most `columns`
// characters; kUnlimitedColumns means no limit.
std::string HistoryText(const history::RunHistory& history, int max_rows, int columns);

// Returns one event in the form that it has in HistoryText().
std::string EventText(const history::HistoryEvent& event, int columns);

}  // namespace lodestar::psctl
