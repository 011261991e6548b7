// psctl history and events: the curves and the events of a job.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "common/history/run_history.h"

namespace lodestar {

// Reads the history of `path`, which is --checkpoint_dir of a job, or its history file. Errors:
// those of ReadHistory().
absl::StatusOr<RunHistory> ReadKeptHistory(const std::string& path);

// Returns a text for people. It has at most `max_rows` lines of losses, spread over the run and
// with its last round, and the last `max_rows` events. Lines have at most `columns` characters, or
// kUnlimitedColumns.
std::string HistoryText(const RunHistory& history, int max_rows, int columns);

// Returns one event in the form that HistoryText() has.
std::string EventText(const HistoryEvent& event, int columns);

}  // namespace lodestar
