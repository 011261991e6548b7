// SPDX-License-Identifier: Apache-2.0

// Shortens the curves of a run, so that the history of a long run has a bounded size.
#pragma once

#include <vector>

#include "common/history/run_history.h"

namespace lodestar::history {

// Joins two consecutive points into one.
HistoryPoint Joined(const HistoryPoint& a, const HistoryPoint& b);

// Halves the number of points by joining pairs. If the number is odd, the last point stays
// unchanged.
void JoinNeighbours(std::vector<HistoryPoint>& points);

// Keeps every second point, and always the last.
void DropEveryOther(std::vector<HeldoutPoint>& points);

// Shortens each curve to at most `max_points`, which is at least 1. Sets `rounds_per_point` to the
// value for the remaining points.
void ThinCurves(size_t max_points, RunHistory& history);

}  // namespace lodestar::history
