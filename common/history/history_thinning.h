// Makes the curves of a run shorter, so that a long run has a bounded history.
#pragma once

#include <vector>

#include "common/history/run_history.h"

namespace lodestar {

// Two points that follow each other, as one.
HistoryPoint Joined(const HistoryPoint& a, const HistoryPoint& b);

// Halves them: of an odd number the last stays as it is.
void JoinNeighbours(std::vector<HistoryPoint>& points);

// Every other one, and always the last.
void DropEveryOther(std::vector<HeldoutPoint>& points);

// Until each curve has at most `max_points` of them, which is at least 1. `rounds_per_point` is
// that of the points that are there then.
void ThinCurves(size_t max_points, RunHistory& history);

}  // namespace lodestar
