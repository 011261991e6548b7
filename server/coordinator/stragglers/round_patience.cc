// SPDX-License-Identifier: Apache-2.0

#include "server/coordinator/stragglers/round_patience.h"

#include <algorithm>
#include <utility>

namespace lodestar::stragglers {
namespace {

constexpr int kTimesUsual = 10;
constexpr int kTimesUsualOfOthers = 100;
constexpr int kCreditFactor = 4;
// Minimum time that a member has for its work: kShortest if its usual time is known, otherwise
// kShortestForNewcomers.
constexpr absl::Duration kShortest = RoundPatience::kForNewPath;
constexpr absl::Duration kShortestForNewcomers = absl::Minutes(15);
// Maximum time for a message: the default of --message_timeout.
constexpr absl::Duration kLongestMessage = absl::Minutes(1);

int64_t SamplesOf(const messages::Grant& grant) {
  return std::max<int64_t>(1, grant.num_samples + grant.num_heldout_samples);
}

}  // namespace

MemberPace::Kind MemberPace::KindOf(const messages::Grant& grant) {
  if (grant.kind == messages::Grant::Kind::kEvaluate) return kEvaluation;
  return grant.num_heldout_samples > 0 ? kTrainingAndEvaluation : kTraining;
}

void MemberPace::OnRound(const messages::Grant& grant, absl::Duration took) {
  Usual& usual = usual_[KindOf(grant)];
  usual.took /= 2;
  if (usual.num_samples == 0 || took >= usual.took) usual = {took, SamplesOf(grant)};
  if (KindOf(grant) != kTraining) return;
  last_per_sample_ = std::exchange(newest_per_sample_, took / SamplesOf(grant));
}

std::optional<absl::Duration> MemberPace::UsualFor(const messages::Grant& grant) const {
  const Usual& usual = usual_[KindOf(grant)];
  if (usual.num_samples == 0) return std::nullopt;
  const double times_larger =
      static_cast<double>(SamplesOf(grant)) / static_cast<double>(usual.num_samples);
  return usual.took * std::max(1.0, times_larger);
}

std::optional<absl::Duration> MemberPace::LatelyFor(int64_t num_samples) const {
  const absl::Duration per_sample = std::min(newest_per_sample_, last_per_sample_);
  if (per_sample == absl::InfiniteDuration()) return std::nullopt;
  return per_sample * num_samples;
}

absl::Duration RoundPatience::ForWork(std::optional<absl::Duration> usual,
                                      absl::Duration usual_round, int times_dropped) const {
  if (usual.has_value()) {
    return Longer(std::max(kShortest, kTimesUsual * *usual) + 2 * lease_, times_dropped);
  }
  if (usual_round == absl::ZeroDuration()) return timeout_;
  return Longer(std::max(kShortestForNewcomers, kTimesUsualOfOthers * usual_round) + 2 * lease_,
                times_dropped);
}

absl::Duration RoundPatience::ForTransfer(absl::Duration for_work, absl::Duration moved) const {
  return std::min(timeout_, std::max(for_work, moved + 2 * lease_));
}

absl::Duration RoundPatience::ForPush(int64_t received_bytes, int64_t total_bytes) const {
  const double part =
      static_cast<double>(received_bytes) / static_cast<double>(std::max<int64_t>(1, total_bytes));
  return std::min(timeout_, kLongestMessage + timeout_ * part);
}

absl::Duration RoundPatience::ForPath(absl::Duration usual_round, bool has_reported,
                                      int times_dropped) const {
  absl::Duration patience = lease_ + usual_round;
  if (has_reported) return patience;
  // A path's speed is known only after the worker's first report. Until then the worker has more
  // time.
  for (int i = 0; i <= times_dropped && patience < kForNewPath; ++i) {
    patience = std::min(kCreditFactor * patience, kForNewPath);
  }
  return patience;
}

absl::Duration RoundPatience::ForAsking(int times_dropped) const {
  return Longer(kShortest + 2 * lease_, times_dropped);
}

absl::Duration RoundPatience::Longer(absl::Duration patience, int times_dropped) const {
  for (int i = 0; i < times_dropped && patience < timeout_; ++i) patience *= kCreditFactor;
  return std::min(patience, timeout_);
}

}  // namespace lodestar::stragglers
