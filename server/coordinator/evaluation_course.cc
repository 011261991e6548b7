#include "server/coordinator/evaluation_course.h"

#include <algorithm>

#include "common/check.h"

namespace lodestar {

void HeldoutSums::Add(const HeldoutSums& other) {
  loss_sum += other.loss_sum;
  correct += other.correct;
  predictions += other.predictions;
  complete &= other.complete;
}

void EvaluationCourse::Begin(absl::Span<const Part> parts) {
  LODESTAR_CHECK(can_begin()) << owed_.size() << " parts are owed";
  ++last_;
  for (const Part& part : parts) {
    if (part.num_samples > 0) owed_[part.data_set] = part.num_samples;
  }
  if (!owed_.empty()) unfinished_[last_] = {};
}

std::vector<EvaluationCourse::Part> EvaluationCourse::Take(Round round,
                                                           absl::Span<const size_t> data_sets) {
  std::vector<Part> parts;
  for (const size_t data_set : data_sets) {
    auto owed = owed_.find(data_set);
    if (owed == owed_.end()) continue;
    parts.push_back({data_set, owed->second});
    owed_.erase(owed);
    travelling_[round] = last_;
  }
  return parts;
}

void EvaluationCourse::KeepOnly(absl::Span<const size_t> data_sets) {
  for (auto it = owed_.begin(); it != owed_.end();) {
    if (std::binary_search(data_sets.begin(), data_sets.end(), it->first)) {
      ++it;
    } else {
      it = owed_.erase(it);
      unfinished_[last_].complete = false;
    }
  }
}

std::optional<HeldoutSums> EvaluationCourse::Return(Round round, const HeldoutSums& sums) {
  if (auto carried = travelling_.find(round); carried != travelling_.end()) {
    unfinished_[carried->second].Add(sums);
    travelling_.erase(carried);
  }
  for (auto it = unfinished_.begin(); it != unfinished_.end();) {
    const int64_t evaluation = it->first;
    const bool is_outstanding =
        (evaluation == last_ && !owed_.empty()) ||
        std::any_of(travelling_.begin(), travelling_.end(),
                    [&](const auto& entry) { return entry.second == evaluation; });
    if (is_outstanding) {
      ++it;
      continue;
    }
    const HeldoutSums result = it->second;
    it = unfinished_.erase(it);
    if (result.predictions > 0) return result;
  }
  return std::nullopt;
}

void EvaluationCourse::Lose(Round round) {
  auto carried = travelling_.find(round);
  if (carried == travelling_.end()) return;
  unfinished_[carried->second].complete = false;
  travelling_.erase(carried);
}

}  // namespace lodestar
