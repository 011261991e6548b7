// SPDX-License-Identifier: Apache-2.0

#include "server/coordinator/rounds/evaluation_course.h"

#include <algorithm>

#include "common/runtime/check.h"

namespace lodestar::rounds {

void HeldoutSums::Add(const HeldoutSums& other) {
  loss_sum += other.loss_sum;
  correct += other.correct;
  predictions += other.predictions;
  complete &= other.complete;
}

void EvaluationCourse::Begin(absl::Span<const Part> parts) {
  LODESTAR_CHECK(can_begin()) << memory_.owed.size() << " parts are owed";
  ++memory_.last;
  for (const Part& part : parts) {
    if (part.num_samples > 0) memory_.owed[part.data_set] = part.num_samples;
  }
  if (!memory_.owed.empty()) memory_.unfinished[memory_.last] = {};
}

std::vector<EvaluationCourse::Part> EvaluationCourse::Take(Round round,
                                                           absl::Span<const size_t> data_sets) {
  std::vector<Part> parts;
  for (const size_t data_set : data_sets) {
    auto owed = memory_.owed.find(data_set);
    if (owed == memory_.owed.end()) continue;
    parts.push_back({data_set, owed->second});
    memory_.owed.erase(owed);
    memory_.travelling[round] = memory_.last;
  }
  return parts;
}

void EvaluationCourse::KeepOnly(absl::Span<const size_t> data_sets) {
  for (auto it = memory_.owed.begin(); it != memory_.owed.end();) {
    if (std::binary_search(data_sets.begin(), data_sets.end(), it->first)) {
      ++it;
    } else {
      it = memory_.owed.erase(it);
      memory_.unfinished[memory_.last].complete = false;
    }
  }
}

std::optional<HeldoutSums> EvaluationCourse::Return(Round round, const HeldoutSums& sums) {
  if (auto carried = memory_.travelling.find(round); carried != memory_.travelling.end()) {
    memory_.unfinished[carried->second].Add(sums);
    memory_.travelling.erase(carried);
  }
  for (auto it = memory_.unfinished.begin(); it != memory_.unfinished.end();) {
    const int64_t evaluation = it->first;
    const bool is_outstanding =
        (evaluation == memory_.last && !memory_.owed.empty()) ||
        std::any_of(memory_.travelling.begin(), memory_.travelling.end(),
                    [&](const auto& entry) { return entry.second == evaluation; });
    if (is_outstanding) {
      ++it;
      continue;
    }
    const HeldoutSums result = it->second;
    it = memory_.unfinished.erase(it);
    if (result.predictions > 0) return result;
  }
  return std::nullopt;
}

void EvaluationCourse::Lose(Round round) {
  auto carried = memory_.travelling.find(round);
  if (carried == memory_.travelling.end()) return;
  memory_.unfinished[carried->second].complete = false;
  memory_.travelling.erase(carried);
}

}  // namespace lodestar::rounds
