// SPDX-License-Identifier: Apache-2.0

#include "server/shard/direction_watch.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace lodestar::shard {
namespace {

// Returns the median, or the lower of the two middle values.
double MedianOf(std::vector<double> values) {
  const auto middle = values.begin() + (values.size() - 1) / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

void DirectionWatch::History::Add(double cosine) {
  cosines_.push_back(cosine);
  if (cosines_.size() > kWindow) cosines_.pop_front();
}

double DirectionWatch::History::Statistic() const {
  double sum = 0.0;
  double squares = 0.0;
  for (const double cosine : cosines_) {
    sum += cosine;
    squares += cosine * cosine;
  }
  return squares > 0.0 ? sum / std::sqrt(squares) : 0.0;
}

double DirectionWatch::History::Mean() const {
  return std::accumulate(cosines_.begin(), cosines_.end(), 0.0) /
         std::max<double>(1.0, static_cast<double>(cosines_.size()));
}

std::vector<DirectionWatch::Finding> DirectionWatch::OnRound(
    Round round, absl::Span<const DirectionPart> parts) {
  absl::MutexLock lock(&mutex_);
  OpenRound& open = open_[round];
  for (const DirectionPart& part : parts) {
    DirectionPart& sum = open.sums[part.worker];
    sum.incarnation = part.incarnation;
    sum.product += part.product;
    sum.own_square += part.own_square;
    sum.others_square += part.others_square;
  }
  if (++open.num_buckets < num_buckets_) {
    if (open_.size() > kMaxOpenRounds) open_.erase(open_.begin());
    return {};
  }
  const OpenRound whole = std::move(open_.extract(round).mapped());
  if (histories_.size() > kMaxWorkers) {
    std::erase_if(histories_, [&](const auto& it) { return !whole.sums.contains(it.first); });
  }
  struct Seen {
    WorkerId worker;
    Incarnation incarnation;
    double statistic;
  };
  std::vector<Seen> seen;
  for (const auto& [worker, sum] : whole.sums) {
    const double squares = sum.own_square * sum.others_square;
    if (!(squares > 0.0) || !std::isfinite(squares)) continue;
    History& history = histories_[worker];
    history.Add(sum.product / std::sqrt(squares));
    seen.push_back({worker, sum.incarnation, history.Statistic()});
  }
  std::vector<Finding> findings;
  for (const Seen& one : seen) {
    const History& history = histories_[one.worker];
    const bool is_opposed = one.statistic < kOpposed;
    if (!is_opposed && (one.statistic > kUnrelated || history.num_rounds() < kWindow)) continue;
    std::vector<double> statistics;
    std::vector<double> means;
    for (const Seen& other : seen) {
      if (other.worker == one.worker) continue;
      statistics.push_back(other.statistic);
      means.push_back(histories_[other.worker].Mean());
    }
    if (statistics.size() < 2) continue;
    if (MedianOf(statistics) < (is_opposed ? kAgree : kAgreeWell)) continue;
    findings.push_back({.worker = one.worker,
                        .incarnation = one.incarnation,
                        .round = round,
                        .is_opposed = is_opposed,
                        .cosine = history.Mean(),
                        .others_cosine = MedianOf(means)});
  }
  return findings;
}

}  // namespace lodestar::shard
