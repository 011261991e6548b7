// SPDX-License-Identifier: Apache-2.0

#include "server/shard/norm_watch.h"

#include <algorithm>
#include <map>

namespace lodestar::shard {

bool NormWatch::IsKnown() const {
  return limit_ > 0.0 && usual_.contributions >= min_contributions_ && usual_.norm > 0.0;
}

float NormWatch::ScaleOf(double norm) const {
  if (!IsKnown() || norm <= limit_ * usual_.norm) return 1.0f;
  return static_cast<float>(usual_.norm / norm);
}

void NormWatch::Count(WorkerId worker, Incarnation incarnation, Round round, double norm) {
  if (limit_ > 0.0) counted_.push_back({worker, incarnation, round, norm});
}

// Returns the median of the norms that are not 0, or the higher of the two middle norms.
double NormWatch::MedianOfRound() const {
  std::vector<double> norms;
  for (const Counted& counted : counted_) {
    if (counted.norm > 0.0) norms.push_back(counted.norm);
  }
  if (norms.empty()) return 0.0;
  const auto middle = norms.begin() + norms.size() / 2;
  std::nth_element(norms.begin(), middle, norms.end());
  return *middle;
}

std::vector<NormWatch::Finding> NormWatch::Beyond() const {
  std::vector<Finding> beyond;
  if (counted_.empty()) return beyond;
  const double usual = IsKnown() ? usual_.norm : MedianOfRound();
  if (usual == 0.0) return beyond;
  for (const auto& [worker, incarnation, round, norm] : counted_) {
    if (norm > limit_ * usual) beyond.push_back({worker, incarnation, round, norm, usual});
  }
  if (2 * beyond.size() >= counted_.size()) beyond.clear();
  return beyond;
}

std::vector<NormWatch::Finding> NormWatch::Blamed(std::vector<Finding> beyond) const {
  std::map<WorkerId, size_t> num_of, num_beyond_of;
  for (const Counted& counted : counted_) ++num_of[counted.worker];
  for (const Finding& finding : beyond) ++num_beyond_of[finding.worker];
  if (num_of.size() == counted_.size()) return beyond;
  std::erase_if(beyond, [&](const Finding& finding) {
    const size_t num = num_of[finding.worker];
    return num == 1 ? num_beyond_of.size() > 1 : 2 * num_beyond_of[finding.worker] <= num;
  });
  return beyond;
}

float NormWatch::ScaleOfSum() const {
  if (IsKnown()) return 1.0f;
  double sum = 0.0;
  for (const Counted& counted : counted_) sum += counted.norm;
  double excess = 0.0;
  for (const Finding& finding : Beyond()) excess += finding.norm - finding.usual;
  return excess == 0.0 ? 1.0f : static_cast<float>((sum - excess) / sum);
}

std::vector<NormWatch::Finding> NormWatch::EndRound() {
  std::vector<Finding> blamed = Blamed(Beyond());
  if (counted_.empty()) return blamed;
  if (const double median = MedianOfRound(); median > 0.0) {
    usual_.norm = std::max(usual_.norm * kDecay, median);
  }
  usual_.contributions =
      std::min<int64_t>(usual_.contributions + num_counted(), min_contributions_);
  counted_.clear();
  return blamed;
}

void NormWatch::Restore(const UsualNorm& usual) {
  usual_ = usual;
  counted_.clear();
}

}  // namespace lodestar::shard
