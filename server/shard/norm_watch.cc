#include "server/shard/norm_watch.h"

#include <algorithm>

namespace lodestar {

bool NormWatch::IsKnown() const {
  return limit_ > 0.0 && usual_.contributions >= kMinContributions && usual_.norm > 0.0;
}

float NormWatch::ScaleOf(double norm) const {
  if (!IsKnown() || norm <= limit_ * usual_.norm) return 1.0f;
  return static_cast<float>(usual_.norm / norm);
}

void NormWatch::Count(WorkerId worker, Incarnation incarnation, Round round, double norm) {
  if (limit_ > 0.0) counted_.push_back({worker, incarnation, round, norm});
}

// The middle one, or the lower of the two there.
double NormWatch::MedianOfRound() const {
  std::vector<double> norms;
  for (const Counted& counted : counted_) norms.push_back(counted.norm);
  const auto middle = norms.begin() + (norms.size() - 1) / 2;
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
  if (2 * beyond.size() > counted_.size()) beyond.clear();
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
  std::vector<Finding> beyond = Beyond();
  if (counted_.empty()) return beyond;
  usual_.norm = std::max(usual_.norm * kDecay, MedianOfRound());
  usual_.contributions = std::min<int64_t>(usual_.contributions + num_counted(), kMinContributions);
  counted_.clear();
  return beyond;
}

void NormWatch::Restore(const UsualNorm& usual) {
  usual_ = usual;
  counted_.clear();
}

}  // namespace lodestar
