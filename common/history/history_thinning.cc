// SPDX-License-Identifier: Apache-2.0

#include "common/history/history_thinning.h"

namespace lodestar::history {

HistoryPoint Joined(const HistoryPoint& a, const HistoryPoint& b) {
  HistoryPoint joined = b;
  joined.first_round = a.first_round;
  joined.num_losses = a.num_losses + b.num_losses;
  if (joined.num_losses > 0) {
    joined.train_loss = (a.train_loss * static_cast<double>(a.num_losses) +
                         b.train_loss * static_cast<double>(b.num_losses)) /
                        static_cast<double>(joined.num_losses);
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

void DropEveryOther(std::vector<HeldoutPoint>& points) {
  size_t kept = 0;
  for (size_t i = 1 - points.size() % 2; i < points.size(); i += 2) points[kept++] = points[i];
  points.resize(kept);
}

void ThinCurves(size_t max_points, RunHistory& history) {
  for (; history.trained.size() > max_points; history.rounds_per_point *= 2) {
    JoinNeighbours(history.trained);
  }
  while (history.heldout.size() > max_points) DropEveryOther(history.heldout);
}

}  // namespace lodestar::history
