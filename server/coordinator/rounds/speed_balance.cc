// SPDX-License-Identifier: Apache-2.0

#include "server/coordinator/rounds/speed_balance.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "common/runtime/check.h"

namespace lodestar::rounds {
namespace {

// Returns the mean of the known speeds. Returns 1 if none is known.
double MeanOfKnown(absl::Span<const double> speeds) {
  double sum = 0.0;
  int known = 0;
  for (const double speed : speeds) {
    if (speed <= 0.0) continue;
    sum += speed;
    ++known;
  }
  return known == 0 ? 1.0 : sum / known;
}

}  // namespace

std::vector<int64_t> CutStep(job::Balance balance, int64_t total, absl::Span<const double> speeds) {
  if (balance == job::Balance::kSpeed) return CutBySpeed(total, speeds);
  return CutEqually(total, static_cast<int>(speeds.size()));
}

int CutSteps(job::Balance balance, int steps, double speed, double fastest) {
  return balance == job::Balance::kSpeed ? StepsBySpeed(steps, speed, fastest) : steps;
}

// Uses the largest-remainder method, but gives each worker at least one sample.
std::vector<int64_t> CutBySpeed(int64_t total, absl::Span<const double> speeds) {
  const int count = static_cast<int>(speeds.size());
  LODESTAR_CHECK(count >= 1 && total >= count) << total << " samples for " << count;
  const double unknown = MeanOfKnown(speeds);
  std::vector<double> weights;
  for (const double speed : speeds) weights.push_back(speed > 0.0 ? speed : unknown);
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::vector<int64_t> parts(count);
  std::vector<double> remainders(count);
  int64_t given = 0;
  for (int i = 0; i < count; ++i) {
    const double ideal = static_cast<double>(total) * (weights[i] / sum);
    parts[i] = std::max<int64_t>(static_cast<int64_t>(std::floor(ideal)), 1);
    remainders[i] = ideal - static_cast<double>(parts[i]);
    given += parts[i];
  }
  std::vector<int> order(count);
  std::iota(order.begin(), order.end(), 0);
  // `order` begins with the worker that is the first to get one more sample. If the minimum of one
  // sample has made the sum too high, the last workers in `order` get one sample less.
  const auto by_remainder = [&](int a, int b) { return remainders[a] > remainders[b]; };
  std::stable_sort(order.begin(), order.end(), by_remainder);
  for (int next = 0; given < total; next = (next + 1) % count, ++given) ++parts[order[next]];
  for (int next = count - 1; given > total; next = (next + count - 1) % count) {
    if (parts[order[next]] == 1) continue;
    --parts[order[next]];
    --given;
  }
  return parts;
}

std::vector<int64_t> CutEqually(int64_t total, int count) {
  std::vector<int64_t> parts(count, total / count);
  for (int i = 0; i < total % count; ++i) ++parts[i];
  return parts;
}

int StepsBySpeed(int steps, double speed, double fastest) {
  if (!(speed > 0.0) || !(fastest > speed)) return steps;
  return std::max(static_cast<int>(speed / fastest * steps), 1);
}

}  // namespace lodestar::rounds
