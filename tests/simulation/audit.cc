// SPDX-License-Identifier: Apache-2.0

#include "tests/simulation/audit.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>
#include <numeric>
#include <utility>
#include <variant>

#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "common/job/fragment_plan.h"
#include "common/job/gradient_clip.h"
#include "common/runtime/check.h"
#include "common/runtime/overloaded.h"
#include "common/runtime/status_hints.h"

namespace lodestar::simulation {
namespace {

// Tolerance for weights: far above the error of fp32 sums, and far below an error of one whole
// contribution.
constexpr double kTolerance = 4e-3;
// Numbers of incarnations of the servers, and of rounds, that late messages may still refer to.
constexpr size_t kLivesKept = 8;
constexpr size_t kWritersKept = 64;
constexpr size_t kRoundsKept = 2048;

bool SameBits(absl::Span<const float> a, absl::Span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// Returns the weight of a contribution: the samples that it was computed on, but not more than the
// plan has for the worker.
int64_t WeightIn(const sync::RoundPlan& plan, WorkerId worker, int64_t num_samples) {
  int64_t total = 0;
  int64_t mine = -1;
  for (const sync::RosterMember& member : plan.roster) {
    total += member.num_samples;
    if (member.worker == worker) mine = member.num_samples;
  }
  if (mine < 0) return 0;
  if (total == 0) return 1;
  return num_samples == 0 ? mine : std::min(num_samples, mine);
}

// Sets the tensor's part in the bucket to the mean direction of `sent`, with the mean of their
// lengths. If the directions cancel, leaves `mean` unchanged.
void TakeDirection(const params::TensorSpec& tensor, params::ElementRange bucket,
                   const std::vector<const std::vector<float>*>& sent,
                   const std::vector<int64_t>& weights, std::vector<double>& mean) {
  // Far below the sums of whole numbers that do not cancel, and far above the rounding of fp32.
  constexpr double kCancelled = 1e-3;
  const int64_t begin = std::max(tensor.offset, bucket.begin) - bucket.begin;
  const int64_t end = std::min(tensor.offset + tensor.num_elements(), bucket.end) - bucket.begin;
  if (begin >= end || tensor.embedding) return;
  std::vector<double> direction(end - begin, 0.0);
  double length = 0.0;
  double total = 0.0;
  for (size_t i = 0; i < sent.size(); ++i) {
    double square_sum = 0.0;
    for (int64_t e = begin; e < end; ++e) square_sum += std::pow((*sent[i])[e], 2);
    const auto weight = static_cast<double>(weights[i]);
    total += weight;
    length += weight * std::sqrt(square_sum);
    for (int64_t e = begin; square_sum > 0.0 && e < end; ++e) {
      direction[e - begin] += weight * (*sent[i])[e] / std::sqrt(square_sum);
    }
  }
  double square_sum = 0.0;
  for (const double element : direction) square_sum += element * element;
  if (std::sqrt(square_sum) <= kCancelled * total) return;
  for (int64_t e = begin; e < end; ++e) {
    mean[e] = length / total * direction[e - begin] / std::sqrt(square_sum);
  }
}

// Corrects the tensor's part in the bucket if it points against the momentum or hardly along it:
// server/optimizer/momentum_correction.h.
void Correct(const params::TensorSpec& tensor, params::ElementRange bucket,
             const std::vector<double>& momentum, double beta, std::vector<double>& contribution) {
  constexpr double kKept = 0.1;
  constexpr double kLeastMomentum = 1e-3;
  const int64_t begin = std::max(tensor.offset, bucket.begin) - bucket.begin;
  const int64_t end = std::min(tensor.offset + tensor.num_elements(), bucket.end) - bucket.begin;
  if (begin >= end || tensor.embedding) return;
  double own_square = 0.0;
  double square = 0.0;
  double product = 0.0;
  for (int64_t e = begin; e < end; ++e) {
    own_square += contribution[e] * contribution[e];
    square += momentum[e] * momentum[e];
    product += contribution[e] * momentum[e];
  }
  if (own_square == 0.0 || square == 0.0) return;
  const double own_length = std::sqrt(own_square);
  const double length = std::sqrt(square);
  if ((1.0 - beta) * length < kLeastMomentum * own_length) return;
  const double cosine = product / (own_length * length);
  if (cosine >= kKept) return;
  const double confidence = own_length / (own_length + (1.0 - beta) * length);
  // Shares of both directions, and the length of their sum.
  double own = 1.0;
  double other = confidence * cosine * cosine;
  double made = 1.0;
  if (cosine >= 0.0) {
    other = 0.5 * (1.0 - cosine) * confidence;
    own = 1.0 - other;
    made = std::sqrt(own * own + other * other + 2.0 * own * other * cosine);
  }
  for (int64_t e = begin; e < end; ++e) {
    contribution[e] = (own * contribution[e] + other * own_length * momentum[e] / length) / made;
  }
}

}  // namespace

BucketAudit::BucketAudit(Audit* audit, uint64_t server_incarnation, const params::Bucket& bucket)
    : audit_(audit), server_incarnation_(server_incarnation), bucket_(bucket) {}

template <typename... Pieces>
void BucketAudit::Fail(const Pieces&... pieces) const {
  audit_->Fail("bucket ", bucket_.index, " of servers' life ", server_incarnation_, ": ",
               pieces...);
}

const BucketSnapshot* BucketAudit::Find(Version version) const {
  const int64_t index = version - first_;
  if (index < 0 || index >= static_cast<int64_t>(history_.size())) return nullptr;
  return history_[index].get();
}

const BucketSnapshot* BucketAudit::FindNear(Version version,
                                            absl::Span<const float> weights) const {
  const BucketSnapshot* const newest = Find(version);
  if (newest == nullptr || IsNear(weights, *newest)) return newest;
  const auto [begin, end] = replaced_.equal_range(version);
  const auto found =
      std::find_if(begin, end, [&](const auto& entry) { return IsNear(weights, *entry.second); });
  return found == end ? nullptr : found->second.get();
}

bool BucketAudit::IsNear(absl::Span<const float> seen, const BucketSnapshot& expected) const {
  if (expected.is_exact) return SameBits(seen, expected.weights);
  for (size_t i = 0; i < seen.size(); ++i) {
    if (!(std::abs(seen[i] - expected.weights[i]) <= kTolerance)) return false;
  }
  return true;
}

void BucketAudit::OnLoaded(Version version, absl::Span<const float> weights,
                           absl::Span<const float> shadow, std::optional<Round> next_round,
                           const std::vector<const BucketAudit*>& candidates) {
  BucketSnapshot snapshot;
  snapshot.round = Round(-1);
  snapshot.weights.assign(weights.begin(), weights.end());
  snapshot.momentum.assign(weights.size(), 0.0);
  const BucketAudit* parent = nullptr;
  for (const BucketAudit* candidate : candidates) {
    const BucketSnapshot* written = candidate->FindNear(version, weights);
    if (written == nullptr) continue;
    const BucketSnapshot* next = candidate->Find(version + 1);
    // With rosters, the weights must have all rounds before next_round, and no others.
    if (audit_->uses_rosters() && next_round.has_value() &&
        (written->round >= *next_round || (next != nullptr && next->round < *next_round))) {
      continue;
    }
    parent = candidate;
    snapshot.round = written->round;
    snapshot.momentum = written->momentum;
  }
  if (!candidates.empty() && parent == nullptr) {
    return Fail("was restored at version ", version.value(), " for round ",
                next_round.value_or(Round(-1)).value(),
                ", which is not what was counted until its checkpoint was taken");
  }
  if (is_loaded_) {
    // Another process has loaded the same bucket.
    if (history_.empty() || !SameBits(history_.front()->weights, weights)) {
      Fail("was loaded twice with different weights");
    }
    return;
  }
  is_loaded_ = true;
  snapshot.shadow.assign(shadow.begin(), shadow.end());
  first_ = version;
  history_.push_back(std::make_shared<const BucketSnapshot>(std::move(snapshot)));
  if (parent == nullptr) return;
  for (const auto& [key, counted_at] : parent->counted_) {
    if (counted_at <= version) counted_.emplace(key, counted_at);
  }
}

void BucketAudit::OnAnswered(const shard::ContributionKey& key, shard::PushOutcome outcome) {
  const std::pair name(key.incarnation, key.round);
  const bool is_counted = counted_.contains(name);
  switch (outcome) {
    case shard::PushOutcome::kCounted: {
      if (is_counted) {
        return Fail("round ", key.round.value(), " of worker life ", key.incarnation.value(),
                    " was counted twice");
      }
      CheckReplacements(key);
      CheckWeight(key);
      counted_.emplace(name, Version(INT64_MAX));
      counted_until_ = std::max(counted_until_, key.round + 1);
      // A skipped contribution is in no version.
      if (!key.is_skipped()) answered_.push_back(key);
      return;
    }
    case shard::PushOutcome::kDuplicate:
      // If a copy arrives after a later round was counted, it is answered as a duplicate, even if
      // its own round was not counted: its worker has gone on, and does not get the answer. A
      // skipped contribution is in no version, so a new incarnation of the servers does not know
      // that it was counted.
      if (key.is_skipped()) return;
      if (const auto later = counted_.lower_bound(name);
          later == counted_.end() || later->first.first != key.incarnation) {
        Fail("round ", key.round.value(), " of worker life ", key.incarnation.value(),
             " was called a duplicate and is not counted");
      }
      return;
    case shard::PushOutcome::kLate:
      if (is_counted) {
        Fail("round ", key.round.value(), " of worker life ", key.incarnation.value(),
             " was called late and is counted");
      }
      return;
  }
}

void BucketAudit::CheckReplacements(const shard::ContributionKey& key) const {
  if (num_replacements_ == 0 || key.is_skipped()) return;
  const auto& made = audit_->Find(server_incarnation_)->made[key.round];
  const auto found = made.find({key.incarnation, bucket_.index});
  // If the contribution was not made, MeanOf() reports that.
  if (found == made.end() || found->second.replacements_before == num_replacements_) return;
  Fail("counts round ", key.round.value(), " of worker life ", key.incarnation.value(),
       ", which was computed on weights that others have taken the place of before it");
}

void BucketAudit::CheckWeight(const shard::ContributionKey& key) const {
  const auto& made = audit_->Find(server_incarnation_)->made[key.round];
  const auto found = made.find({key.incarnation, bucket_.index});
  if (key.is_skipped() || found == made.end() || found->second.weight == key.weight) return;
  const auto text = [](std::optional<int64_t> weight) {
    return weight.has_value() ? absl::StrCat("the weight ", *weight) : "no weight";
  };
  Fail("counts round ", key.round.value(), " of worker life ", key.incarnation.value(), " with ",
       text(key.weight), "; it was made with ", text(found->second.weight));
}

std::vector<shard::ContributionKey> BucketAudit::NextGroup() {
  std::vector<shard::ContributionKey> group;
  while (!answered_.empty() &&
         (group.empty() || (audit_->uses_rosters() && answered_.front().round == group[0].round))) {
    group.push_back(answered_.front());
    answered_.pop_front();
  }
  return group;
}

std::vector<int64_t> BucketAudit::WeightsOf(
    const std::vector<shard::ContributionKey>& group) const {
  std::vector<int64_t> weights;
  Audit::ServersLife& life = *audit_->Find(server_incarnation_);
  for (const shard::ContributionKey& key : group) {
    if (!audit_->uses_rosters()) {
      weights.push_back(1);
      continue;
    }
    const auto& made = life.made[key.round];
    const auto found = made.find({key.incarnation, bucket_.index});
    if (found != made.end() && found->second.weight.has_value()) {
      weights.push_back(*found->second.weight);
      continue;
    }
    const auto plan = life.plans.find(key.round);
    weights.push_back(
        plan == life.plans.end() ? 1 : WeightIn(plan->second, key.worker, key.num_samples));
  }
  return weights;
}

void BucketAudit::CheckWeightsOf(const std::vector<shard::ContributionKey>& group) const {
  for (const shard::ContributionKey& key : group) {
    if (key.weight.has_value() == group[0].weight.has_value()) continue;
    return Fail("round ", key.round.value(), " counts contributions with a weight and without");
  }
}

bool BucketAudit::SkipWeightless() {
  if (answered_.empty() || !audit_->uses_rosters()) return false;
  const Round round = answered_.front().round;
  std::vector<shard::ContributionKey> group;
  for (const shard::ContributionKey& key : answered_) {
    if (key.round == round) group.push_back(key);
  }
  for (const int64_t weight : WeightsOf(group)) {
    if (weight > 0) return false;
  }
  CheckRoster(group);
  const Version newest = first_ + (static_cast<int64_t>(history_.size()) - 1);
  for (const shard::ContributionKey& key : group) counted_[{key.incarnation, key.round}] = newest;
  weightless_.insert(round);
  answered_.erase(answered_.begin(), answered_.begin() + static_cast<int64_t>(group.size()));
  return true;
}

std::vector<double> BucketAudit::MeanOf(const std::vector<shard::ContributionKey>& group,
                                        const std::vector<float>* origin) const {
  std::vector<double> mean(bucket_.range.size(), 0.0);
  Audit::ServersLife& life = *audit_->Find(server_incarnation_);
  const Round round = group[0].round;
  const auto plan = life.plans.find(round);
  if (audit_->uses_rosters() && plan == life.plans.end()) {
    Fail("counted for round ", round.value(), ", which was never opened");
    return mean;
  }
  const std::vector<int64_t> weights = WeightsOf(group);
  const int64_t total = std::accumulate(weights.begin(), weights.end(), int64_t{0});
  std::vector<const std::vector<float>*> sent;
  for (size_t i = 0; i < group.size(); ++i) {
    const auto& made = life.made[round];
    const auto found = made.find({group[i].incarnation, bucket_.index});
    if (found == made.end()) {
      Fail("round ", round.value(), " counted what worker life ", group[i].incarnation.value(),
           " has not made");
      return mean;
    }
    // An update from one contribution (--quorum=1) is the contribution itself, whatever its number
    // of samples.
    const double share = static_cast<double>(weights[i]) / static_cast<double>(total);
    for (size_t e = 0; e < mean.size(); ++e) {
      const double element = found->second.elements[e];
      mean[e] += share * (origin == nullptr ? element : double{(*origin)[e]} - element);
    }
    sent.push_back(&found->second.elements);
  }
  if (audit_->job().outer_reduction == job::OuterReduction::kDirection) {
    for (const params::TensorSpec& tensor : life.map->layout.tensors()) {
      TakeDirection(tensor, bucket_.range, sent, weights, mean);
    }
  }
  return mean;
}

void BucketAudit::CheckRoster(const std::vector<shard::ContributionKey>& group) const {
  const Audit::ServersLife& life = *audit_->Find(server_incarnation_);
  const Round round = group[0].round;
  const auto plan = life.plans.find(round);
  if (plan == life.plans.end()) return;  // MeanOf() reports that
  std::vector<uint32_t> missing;
  for (const sync::RosterMember& member : plan->second.roster) {
    const bool is_here = HasCounted(member.incarnation, round);
    if (!is_here && !audit_->ended_.contains(member.incarnation)) {
      missing.push_back(member.worker.value());
    }
  }
  const size_t quorum = static_cast<size_t>(audit_->job().quorum);
  if (missing.empty() || (quorum > 0 && group.size() >= quorum)) return;
  Fail("round ", round.value(), " was committed with ", group.size(), " of ",
       plan->second.roster.size(), " contributions, the quorum is ", quorum, ", and workers ",
       absl::StrJoin(missing, ", "), " live");
}

BucketSnapshot BucketAudit::Apply(const BucketSnapshot& before, Version version,
                                  const std::vector<shard::ContributionKey>& group) {
  const job::JobSpec& job = audit_->job();
  const int64_t age = (version - group[0].base_version) - 1;
  if (job.max_staleness >= 0 && age > job.max_staleness) {
    Fail("round ", group[0].round.value(), " counts, and is of weights ", age, " updates old");
  }
  const bool is_anchored = job.anchor == job::Anchor::kServer;
  std::vector<double> mean = MeanOf(group, is_anchored ? &before.weights : nullptr);
  if (job.momentum_correction == job::MomentumCorrectionKind::kHeloco) {
    for (const params::TensorSpec& tensor :
         audit_->Find(server_incarnation_)->map->layout.tensors()) {
      Correct(tensor, bucket_.range, before.momentum, job.outer_momentum, mean);
    }
  }
  BucketSnapshot after = before;
  after.is_exact = false;
  after.round = group[0].round;
  const messages::ContributionKind kind = group[0].kind;
  double rate = 1.0;
  double momentum = 0.0;
  bool is_nesterov = false;
  if (job::HasLocalSteps(job)) {
    is_nesterov = job.outer_optimizer == job::OuterOptimizerKind::kNesterov;
    rate = job.outer_optimizer == job::OuterOptimizerKind::kAverage ? 1.0 : job.outer_learning_rate;
    momentum = is_nesterov ? job.outer_momentum : 0.0;
  } else {
    rate = job.schedule.peak;
    momentum = job.optimizer.kind == job::OptimizerKind::kMomentum ? job.optimizer.momentum : 0.0;
    if (!audit_->uses_rosters() && job.staleness_scaling == job::StalenessScaling::kInverse) {
      rate /= 1.0 + static_cast<double>(std::max<int64_t>(age, 0));
    }
  }
  for (size_t e = 0; e < mean.size(); ++e) {
    if (kind == messages::ContributionKind::kWeights && !is_anchored) {
      after.weights[e] = static_cast<float>(mean[e]);
      continue;
    }
    after.momentum[e] = momentum * before.momentum[e] + mean[e];
    const double step = is_nesterov ? mean[e] + momentum * after.momentum[e] : after.momentum[e];
    after.weights[e] = static_cast<float>(before.weights[e] - rate * step);
  }
  return after;
}

void BucketAudit::OnPublished(Version version, absl::Span<const float> weights,
                              absl::Span<const float> shadow) {
  if (!is_loaded_ || !audit_->violation().empty()) return;
  Version newest = first_ + (static_cast<int64_t>(history_.size()) - 1);
  if (version < newest) {
    return Fail("went back from version ", newest.value(), " to ", version.value());
  }
  while (newest < version) {
    // A round of contributions that all have weight 0 makes no version.
    if (SkipWeightless()) continue;
    const std::vector<shard::ContributionKey> group = NextGroup();
    ++newest;
    if (group.empty()) {
      return Fail("version ", newest.value(), " has no contribution that was answered as counted");
    }
    const Round last = history_.back()->round;
    if (audit_->uses_rosters() && group[0].round <= last) {
      return Fail("counts round ", group[0].round.value(), " after round ", last.value());
    }
    if (audit_->uses_rosters() && group[0].round < promised_) {
      return Fail("counts round ", group[0].round.value(), " after somebody has pulled it as over");
    }
    if (audit_->uses_rosters()) {
      CheckRoster(group);
      CheckWeightsOf(group);
    }
    for (const shard::ContributionKey& key : group) counted_[{key.incarnation, key.round}] = newest;
    audit_->num_counted_ += static_cast<int64_t>(group.size());
    history_.push_back(
        std::make_shared<const BucketSnapshot>(Apply(*history_.back(), newest, group)));
    if (newest < version || IsReplacement(weights)) continue;

    BucketSnapshot seen = *history_.back();
    const BucketSnapshot& before = *history_[history_.size() - 2];
    double clip = 1.0;
    if (audit_->job().clip_norm > 0 && !job::HasLocalSteps(audit_->job()) &&
        audit_->uses_rosters()) {
      // Finds the clip factor, which must be the same for all elements of the round.
      size_t largest = 0;
      double square_sum = 0.0;
      const std::vector<double> mean = MeanOf(group);
      for (size_t e = 0; e < mean.size(); ++e) {
        square_sum += mean[e] * mean[e];
        if (std::abs(mean[e]) > std::abs(mean[largest])) largest = e;
      }
      // Thirds that cancel leave rounding errors, from which no factor can be computed.
      const bool shows = std::abs(mean[largest]) > kTolerance;
      if (shows) clip = (before.weights[largest] - weights[largest]) / mean[largest];
      audit_->CheckClip(*audit_->Find(server_incarnation_), group[0].round, bucket_.index,
                        square_sum, shows ? clip : -1.0);
      for (size_t e = 0; e < mean.size(); ++e) {
        seen.weights[e] = static_cast<float>(before.weights[e] - clip * mean[e]);
      }
    }
    for (size_t e = 0; e < weights.size(); ++e) {
      if (std::abs(weights[e] - seen.weights[e]) <= kTolerance) continue;
      return Fail("version ", version.value(), " (round ", seen.round.value(), ", ", group.size(),
                  " contributions): element ", e, " is ", weights[e], ", must be ", seen.weights[e],
                  "; before it was ", before.weights[e]);
    }
    seen.weights.assign(weights.begin(), weights.end());
    seen.shadow.assign(shadow.begin(), shadow.end());
    seen.is_exact = true;
    history_.back() = std::make_shared<const BucketSnapshot>(std::move(seen));
  }
  if (SameBits(history_.back()->weights, weights)) return;
  if (IsReplacement(weights)) return TakeReplacement();
  Fail("version ", version.value(), " has changed after it was published");
}

bool BucketAudit::IsReplacement(absl::Span<const float> weights) const {
  return replacement_.has_value() && SameBits(*replacement_, weights);
}

void BucketAudit::TakeReplacement() {
  const Version version = first_ + (static_cast<int64_t>(history_.size()) - 1);
  BucketSnapshot after = *history_.back();
  after.weights = *std::exchange(replacement_, std::nullopt);
  after.is_exact = true;
  replaced_.emplace(version, std::move(history_.back()));
  history_.back() = std::make_shared<const BucketSnapshot>(std::move(after));
  replaced_at_ = version;
  ++num_replacements_;
}

void BucketAudit::OnReplaced() {
  if (!replacement_.has_value()) return;
  while (SkipWeightless()) continue;
  if (has_news()) return Fail("takes other weights, and has not applied what was counted before");
  TakeReplacement();
}

int64_t BucketAudit::ReplacementsBefore(Incarnation incarnation) const {
  const auto pulled = replacements_before_.find(incarnation);
  return pulled == replacements_before_.end() ? 0 : pulled->second;
}

void BucketAudit::CheckWeights(absl::Span<const float> weights, const std::set<Round>& rounds,
                               const std::function<bool(Round)>& is_lost, absl::string_view who) {
  if (!is_loaded_) return;
  while (SkipWeightless()) continue;
  if (!SameBits(weights, history_.back()->weights)) {
    return Fail(who, " hands in other weights than the newest");
  }
  std::set<Round> applied;
  std::set_intersection(rounds.begin(), rounds.end(), weightless_.begin(), weightless_.end(),
                        std::inserter(applied, applied.end()));
  for (size_t i = replaced_at_ - first_ + 1; i < history_.size(); ++i) {
    if (const Round round = history_[i]->round; rounds.contains(round) || !is_lost(round)) {
      applied.insert(round);
    }
  }
  if (applied == rounds) return;
  const auto value = [](std::string* text, Round round) { absl::StrAppend(text, round.value()); };
  Fail(who, " hands in rounds ", absl::StrJoin(applied, ", ", value), "; its orders were rounds ",
       absl::StrJoin(rounds, ", ", value));
}

void BucketAudit::OnPulled(const PulledVersion& pulled, absl::Span<const float> elements,
                           bool is_shadow) {
  const Version version = pulled.version;
  const Round min_round = pulled.min_round;
  const BucketSnapshot* published = Find(version);
  if (published == nullptr && has_news()) {
    // The worker's read has not waited for the journal, while the audit's own read may still wait.
    if (audit_->job().pull_encoding != params::Encoding::kFp32) return;
    OnPublished(version, elements, {});
    published = Find(version);
  }
  if (published == nullptr) {
    return Fail("version ", version.value(), " was pulled and never published");
  }
  promised_ = std::max(promised_, min_round);
  if (audit_->uses_rosters()) {
    const BucketSnapshot* next = Find(version + 1);
    if (next != nullptr && next->round < min_round) {
      return Fail("version ", version.value(), " was pulled for round ", min_round.value(),
                  " and lacks round ", next->round.value());
    }
  }
  if (is_shadow) {
    if (published->is_exact && !SameBits(published->shadow, elements)) {
      Fail("version ", version.value(), " was pulled, and a worker has made ", elements[0], ", ",
           elements[1], ", ... of it, which are ", published->shadow[0], ", ", published->shadow[1],
           ", ...");
    }
    return;
  }
  if (!IsNear(elements, *published) && IsReplacement(elements)) {
    OnPublished(version, elements, {});
    published = Find(version);
  }
  const BucketSnapshot* const found = FindNear(version, elements);
  if (found == nullptr) {
    return Fail("version ", version.value(), " was pulled with other weights than were published");
  }
  // -1 stands for a version that was not the newest: its round is over, so the number of
  // replacements does not matter.
  if (num_replacements_ > 0) {
    replacements_before_[pulled.incarnation] = found == published ? num_replacements_ : -1;
  }
}

void ShardAudit::OnAnswered(const shard::ContributionKey& key, uint32_t bucket,
                            shard::PushOutcome outcome) {
  Audit::ServersLife* life = audit_->Find(server_incarnation_);
  if (life == nullptr) return;
  if (outcome == shard::PushOutcome::kCounted) {
    const auto [owner, is_first] = life->owners.try_emplace(shard_, process_);
    if (!is_first && owner->second != process_) {
      audit_->Fail("shard ", shard_, " of servers' life ", server_incarnation_, " is counted by ",
                   owner->second, " and by ", process_);
    }
  }
  life->buckets[bucket]->OnAnswered(key, outcome);
}

void ShardAudit::OnReplayed(const shard::StepRecord& record) {
  const shard::BucketStep::Kind kind = record.step.kind;
  if (kind != shard::BucketStep::Kind::kAccumulate &&
      kind != shard::BucketStep::Kind::kApplyAlone && kind != shard::BucketStep::Kind::kSkip) {
    return;
  }
  Audit::ServersLife* life = audit_->Find(server_incarnation_);
  if (life == nullptr) return;
  // If the process ended before it could answer, the replay counts as the answer.
  if (life->buckets[record.bucket]->HasCounted(record.key.incarnation, record.key.round)) return;
  OnAnswered(record.key, record.bucket, shard::PushOutcome::kCounted);
}

void ShardAudit::Inspect(shard::ParameterShard& shard, bool all) {
  Audit::ServersLife* life = audit_->Find(server_incarnation_);
  if (life == nullptr) return;
  for (const params::Bucket& bucket : life->map->buckets) {
    BucketAudit& audit = *life->buckets[bucket.index];
    if (bucket.shard != shard_ || (!all && !audit.has_news())) continue;
    absl::StatusOr<shard::PublishedBucket> weights = absl::UnavailableError("");
    shard::PendingCall call = shard.ReadBucket(
        WorkerId(0), Incarnation(0), bucket.index, Round(0),
        [&](absl::StatusOr<shard::PublishedBucket> read) { weights = std::move(read); });
    // The bucket is being written just now.
    if (call.Cancel() || !weights.ok()) continue;
    absl::StatusOr<shard::PublishedBucket> shadow = shard::PublishedBucket();
    if (audit_->job().pull_encoding != params::Encoding::kFp32) {
      shard
          .ReadBucket(
              WorkerId(0), Incarnation(0), bucket.index, Round(0),
              [&](absl::StatusOr<shard::PublishedBucket> read) { shadow = std::move(read); },
              {.shadow = true})
          .Cancel();
      LODESTAR_CHECK(shadow.ok() && shadow->version == weights->version) << shadow.status();
    }
    const absl::Span<const float> shadow_elements =
        shadow->page == nullptr ? absl::Span<const float>() : shadow->data();
    audit.OnPublished(weights->version, weights->data(), shadow_elements);
  }
}

Audit::Audit(job::JobSpec job, bool is_site, bool extends_grants, Story story)
    : job_(std::move(job)),
      uses_rosters_(job::HasRosters(job_)),
      is_site_(is_site),
      story_(std::move(story)),
      work_(uses_rosters_,
            job::DefersContributions(job_) || (extends_grants && !uses_rosters_) ||
                (job_.mode == job::Mode::kAsyncLocalSgd && job_.balance == job::Balance::kSpeed),
            is_site, job::StepSamples(job_) * job_.local_steps,
            [this](const std::string& violation) { Fail(violation); }) {}

Audit::ServersLife* Audit::Find(uint64_t server_incarnation) {
  const auto found = lives_.find(server_incarnation);
  return found == lives_.end() ? nullptr : &found->second;
}

void Audit::CheckClip(ServersLife& life, Round round, uint32_t bucket, double square_sum,
                      double scale) {
  std::map<uint32_t, double>& sums = life.square_sums[round];
  sums[bucket] = square_sum;
  if (scale >= 0) {
    const auto [seen, is_first] = life.clip_scales.try_emplace(round, scale);
    if (!is_first && std::abs(seen->second - scale) > kTolerance) {
      Fail("round ", round.value(), " is clipped by ", seen->second, " and by ", scale);
    }
  }
  if (sums.size() < life.buckets.size() || !life.clip_scales.contains(round)) return;
  double total = 0.0;
  for (const auto& [index, sum] : sums) total += sum;
  const double wanted = job::GradientClipScale(total, job_.clip_norm);
  const double seen = life.clip_scales[round];
  if (std::abs(seen - wanted) > kTolerance) {
    Fail("round ", round.value(), " is clipped by ", seen, ", its norm ", std::sqrt(total),
         " asks for ", wanted);
  }
}

void Audit::OnCommand(const shards::ShardCommand& command) {
  if (const auto* assign = std::get_if<shards::AssignCommand>(&command)) {
    members_.clear();
    begun_.clear();
    index_holders_.clear();
    acknowledged_.clear();
    must_resume_ = false;
    work_.OnAssigned(assign->source);
    ServersLife& life = lives_[assign->server_incarnation];
    life.map = assign->map;
    life.source = assign->source;
    if (const auto* checkpoint = std::get_if<shards::CheckpointSource>(&assign->source)) {
      life.next_round = next_round_;
      // The servers have verified the checkpoint. It may have replaced a damaged one of its round,
      // and yet may have been reported as failed, if the disk failed after the renaming.
      damaged_.erase(PublishedAs(checkpoint->directory));
      published_ = std::max(published_, next_round_);
    }
    for (const params::Bucket& bucket : life.map->buckets) {
      life.buckets.push_back(
          std::make_unique<BucketAudit>(this, assign->server_incarnation, bucket));
    }
    ForgetOldLives();
  } else if (const auto* open = std::get_if<shards::OpenRoundCommand>(&command)) {
    auto& plans = lives_.rbegin()->second.plans;
    plans[open->plan.round] = open->plan;
    while (plans.size() > kRoundsKept) plans.erase(plans.begin());
    work_.OnOpened(open->plan);
  } else if (const auto* save = std::get_if<shards::SaveCommand>(&command)) {
    work_.OnSaveBegun(save->directory, save->round);
  } else if (std::holds_alternative<shards::StopCommand>(command)) {
    must_resume_ = false;
  } else if (const auto* drop = std::get_if<shards::DropCommand>(&command)) {
    members_.erase(drop->worker);
    dropped_.insert(drop->incarnation);
    ended_.insert(drop->incarnation);
    if (is_quiet_ && !absl::StartsWith(drop->reason, "left")) {
      Fail("nothing is broken, and the life ", drop->incarnation.value(), " of worker ",
           drop->worker.value(), " is ended: ", drop->reason);
    }
  }
}

void Audit::OnRegistered(const messages::Registration& registration, absl::string_view name) {
  const messages::WorkerLife& life = registration.life;
  names_[std::string(name)] = life.worker;
  begun_[life.worker] = life.incarnation;
  if (!registration.index.has_value()) return Fail("worker ", name, " has no index");
  Incarnation& holder = index_holders_[*registration.index];
  // Incarnations older than the servers', or than the holder's, are answered late.
  if (life.incarnation <= std::max(holder, Incarnation(lives_.rbegin()->first))) return;
  const Incarnation before = std::exchange(holder, life.incarnation);
  if (before == Incarnation() || ended_.contains(before) || ended_in_memory_.contains(before)) {
    return;
  }
  Fail("worker ", name, " is told the index ", *registration.index, " of the life ", before.value(),
       ", which has not ended");
}

int64_t Audit::SlowestBut(WorkerId except) const {
  int64_t slowest = std::numeric_limits<int64_t>::max();
  for (const auto& [worker, progress] : members_) {
    if (worker != except) slowest = std::min(slowest, progress.rounds);
  }
  return slowest == std::numeric_limits<int64_t>::max() ? 0 : slowest;
}

void Audit::OnJoined(WorkerId worker) {
  members_.try_emplace(worker, Progress{SlowestBut(worker), Round(-1)});
}

void Audit::OnAnswered(const messages::WorkerLife& life,
                       const std::optional<messages::RoundReport>& report,
                       const coordinator::GrantAnswer& answer) {
  if (report.has_value()) acknowledged_[life.incarnation] = report->round;
  if (answer.grant.has_value() && answer.grant->kind != messages::Grant::Kind::kDone) {
    OnGranted(life, *answer.grant);
  }
}

void Audit::OnExtensionJudged(const messages::WorkerLife& life, Round round,
                              const absl::StatusOr<messages::Grant>& more) {
  const bool may_extend = !job::HasLocalSteps(job_) && !is_site_;
  if (more.ok() && (!may_extend || ended_.contains(life.incarnation))) {
    return Fail("worker life ", life.incarnation.value(), " is granted more samples of round ",
                round.value(),
                may_extend ? ", and has ended" : ", in a job where no grant is extended");
  }
  if (more.ok()) return work_.OnExtending(life, round, *more);
  if (!absl::IsFailedPrecondition(more.status()) || IsJobOver(more.status())) return;
  if (may_extend && work_.HoldsTraining(life.incarnation, round)) {
    Fail("worker life ", life.incarnation.value(), " is refused more samples of round ",
         round.value(), ", whose grant it has: ", more.status().message());
  }
}

void Audit::OnResumed(const coordinator::CoordinatorMemory& memory) {
  ++num_resumes_;
  must_resume_ = false;
  if (lives_.empty() || memory.shards.server_incarnation != lives_.rbegin()->first) {
    return Fail("a coordinator goes on with servers' life ", memory.shards.server_incarnation,
                ", which is not the last one");
  }
  std::map<WorkerId, const membership::WorkerRecord*> workers;
  for (const membership::WorkerRecord& worker : memory.membership.table.workers)
    workers[worker.id] = &worker;
  for (const auto& [worker, incarnation] : begun_) {
    // Incarnations older than the servers' are answered late.
    if (incarnation <= Incarnation(memory.shards.server_incarnation)) continue;
    const auto known = workers.find(worker);
    // The next incarnation was never announced to a worker, nor was the end of this one.
    if (known != workers.end() && incarnation < known->second->incarnation) {
      ended_.insert(incarnation);
    }
    if (known == workers.end() || known->second->incarnation < incarnation) {
      return Fail("a coordinator that goes on does not know the life ", incarnation.value(),
                  " of worker ", worker.value());
    }
  }
  members_.clear();
  ended_in_memory_.clear();
  for (const auto& [id, worker] : workers) {
    if (!worker->is_alive()) {
      ended_in_memory_.insert(worker->incarnation);
      continue;
    }
    if (ended_.contains(worker->incarnation)) {
      return Fail("a coordinator that goes on takes the life ", worker->incarnation.value(),
                  " of worker ", id.value(), " for alive, which was ended");
    }
    const rounds::WorkerAssignment::Memory& work = memory.desks.at(id).assignment;
    const auto acknowledged = acknowledged_.find(worker->incarnation);
    if (acknowledged != acknowledged_.end() && work.last_reported < acknowledged->second.value()) {
      return Fail("a coordinator that goes on has forgotten the report of round ",
                  acknowledged->second.value(), " of worker life ", worker->incarnation.value());
    }
    if (worker->is_member()) members_[id] = {work.progress, Round(work.last_reported)};
  }
  for (const auto& [number, round] : memory.rounds.open) {
    if (!round.is_evaluation) lives_.rbegin()->second.plans.try_emplace(number, round.plan);
  }
  work_.OnResumed(memory);
}

void Audit::OnBegunAnew() {
  if (!std::exchange(must_resume_, false) || lives_.rbegin()->second.has_lost_memory) return;
  if (CountedUntil() > std::max(published_, Round(0))) {
    Fail("a coordinator begins anew, and round ", CountedUntil().value() - 1,
         " is in no checkpoint");
  }
}

Round Audit::CountedUntil() const {
  Round counted;
  for (const auto& bucket : lives_.rbegin()->second.buckets) {
    counted = std::max(counted, bucket->counted_until());
  }
  return counted;
}

void Audit::OnReported(const messages::WorkerLife& life, const messages::RoundReport& report) {
  work_.OnReported(life, report);
  const auto member = members_.find(life.worker);
  if (member == members_.end() || report.round <= member->second.last_reported) return;
  member->second.last_reported = report.round;
  ++member->second.rounds;
}

void Audit::OnGranted(const messages::WorkerLife& life, const messages::Grant& grant) {
  must_resume_ = true;
  work_.OnGranted(life, grant);
  if (grant.kind != messages::Grant::Kind::kTrain) return;
  const WorkerId worker = life.worker;
  if (uses_rosters_ || job_.max_rounds_ahead < 0) return;
  const auto member = members_.find(worker);
  if (member == members_.end()) {
    // The answer may leave after later events of the same step, or after the time in which it was
    // written down.
    if (dropped_.contains(life.incarnation)) return;
    return Fail("worker ", worker.value(), " is granted a round and is no member");
  }
  if (members_.size() == 1) return;
  const int64_t ahead = member->second.rounds - SlowestBut(worker);
  if (ahead > job_.max_rounds_ahead) {
    Fail("worker ", worker.value(), " is granted a round ", ahead,
         " ahead of the slowest; allowed are ", job_.max_rounds_ahead);
  }
}

void Audit::OnSnapshot(const coordinator::ClusterSnapshot& snapshot, bool is_stuck) {
  if (is_stuck && snapshot.waiting_for.empty()) {
    Fail("nothing goes on in state ", snapshot.state, ", and nobody is said to be waited for");
  }
  if (!snapshot.open_round.has_value() || !uses_rosters_) return;
  for (const coordinator::MissingSnapshot& missing : snapshot.open_round->missing) {
    const auto worker = names_.find(missing.worker);
    if (worker == names_.end()) continue;  // a worker of an earlier coordinator
    const auto member = members_.find(worker->second);
    if (member != members_.end() && member->second.last_reported == snapshot.open_round->round) {
      Fail("round ", snapshot.open_round->round.value(), " is said to wait for ", missing.worker,
           ", which has reported it");
    }
  }
}

// Forgets old incarnations of the servers. Those that have written a checkpoint are kept longer,
// because the servers may go back to it.
void Audit::ForgetOldLives() {
  std::set<uint64_t> writers;
  for (const auto& [path, lives] : writers_) writers.insert(lives.begin(), lives.end());
  size_t num_later = 0;
  for (auto life = lives_.end(); life != lives_.begin();) {
    --life;
    const bool may_return = writers.contains(life->first);
    if (++num_later > (may_return ? kWritersKept : kLivesKept)) life = lives_.erase(life);
  }
}

void Audit::OnTask(const coordinator::CheckpointTask& task) {
  if (std::holds_alternative<coordinator::ChooseRestoreTask>(task)) must_resume_ = false;
  const auto* record = std::get_if<checkpoints::CheckpointRecord>(&task);
  if (record == nullptr) return;
  writers_[record->final_directory].insert(record->state.server_incarnation);
  work_.OnRecord(*record);
}

void Audit::OnPublished(const checkpoints::PublishedCheckpoint& published) {
  published_ = std::max(published_, published.round);
  damaged_.erase(PublishedAs(published.path));
  // No server went back when that server stopped: it continued from its journal, and so did the
  // others.
  if (goes_on_from_ < published.round) goes_on_from_.reset();
}

void Audit::OnDamaged(const std::string& path, Round left, bool is_copied) {
  damaged_.insert(PublishedAs(path));
  published_ = left;
  if (is_copied) goes_on_from_.reset();
  if (goes_on_from_.has_value()) goes_on_from_ = left;
}

void Audit::OnStopped(absl::string_view who,
                      const absl::StatusOr<checkpoints::PublishedCheckpoint>& saved) {
  if (lives_.empty()) return;
  const ServersLife& life = lives_.rbegin()->second;
  const Round counted = CountedUntil();
  if (saved.ok()) {
    if (counted > saved->round) {
      Fail(who, " stops and says that all is saved before round ", saved->round.value(), "; round ",
           counted.value() - 1, " was counted, too");
    }
    goes_on_from_ = IsDamaged(saved->path) ? published_ : saved->round;
  } else if (must_save_ && !life.has_lost_memory && counted > std::max(published_, Round(0))) {
    Fail("nothing is broken, and ", who, " stops without a checkpoint of round ",
         counted.value() - 1, ": ", saved.status().ToString());
  }
}

void Audit::OnAnnouncement(const coordinator::Announcement& announcement) {
  std::visit(Overloaded{
                 [this](const coordinator::RestoredPoint& point) {
                   if (point.is_from_journal) {
                     // The process that ended these incarnations may have died before it could
                     // announce it.
                     ended_.insert(ended_in_memory_.begin(), ended_in_memory_.end());
                     return goes_on_from_.reset();
                   }
                   ++num_restores_;
                   if (rounds_since_restore_ > 0) ++times_gone_back_;
                   next_round_ = point.next_round;
                   work_.OnRestored(point);
                   rounds_since_restore_ = 0;
                   if (point.next_round < published_) {
                     Fail("goes on from round ", point.next_round.value(),
                          ", and a checkpoint of round ", published_.value(), " was published");
                   }
                   const auto promised = std::exchange(goes_on_from_, std::nullopt);
                   if (promised.has_value() && point.next_round != *promised) {
                     Fail("goes on from round ", point.next_round.value(),
                          ", and whoever stopped has said from round ", promised->value());
                   }
                 },
                 [](const coordinator::DecidedJob&) {},
                 [this](const rounds::RoundSummary& summary) {
                   work_.OnSummary(summary);
                   if (!summary.trained) return;
                   ++rounds_committed_;
                   ++rounds_since_restore_;
                 },
                 [this](const coordinator::Event& event) {
                   if (story_ != nullptr) story_(absl::StrCat("coordinator: ", event.text));
                 },
                 [this](const coordinator::Alarm& alarm) {
                   if (story_ != nullptr) story_(absl::StrCat("coordinator: ALARM ", alarm.text));
                 },
             },
             announcement);
}

bool Audit::IsDamaged(const std::string& path) const {
  return damaged_.contains(PublishedAs(path));
}

ShardAudit* Audit::OnRecovered(uint64_t server_incarnation, int shard, const std::string& process,
                               shard::ParameterShard& recovered) {
  ServersLife* life = Find(server_incarnation);
  const auto is_new = [shard, life](const params::Bucket& bucket) {
    return bucket.shard == shard && !life->buckets[bucket.index]->is_loaded();
  };
  if (life != nullptr) {
    life->owners.insert_or_assign(shard, process);
    // The process before this one has ended before it could report that it has loaded.
    if (std::any_of(life->map->buckets.begin(), life->map->buckets.end(), is_new)) {
      return OnLoaded(server_incarnation, shard, process, recovered);
    }
  }
  shards_.push_back(std::make_unique<ShardAudit>(this, server_incarnation, shard, process));
  return shards_.back().get();
}

ShardAudit* Audit::OnLoaded(uint64_t server_incarnation, int shard, std::string process,
                            shard::ParameterShard& loaded) {
  shards_.push_back(
      std::make_unique<ShardAudit>(this, server_incarnation, shard, std::move(process)));
  ServersLife* life = Find(server_incarnation);
  if (life == nullptr) return shards_.back().get();
  std::vector<ServersLife*> writers;
  if (const auto* checkpoint = std::get_if<shards::CheckpointSource>(&life->source)) {
    const std::set<uint64_t>& of_path = writers_[PublishedAs(checkpoint->directory)];
    for (uint64_t writer : of_path) {
      if (ServersLife* known = Find(writer); known != nullptr) writers.push_back(known);
    }
    // The incarnations that could have written the checkpoint were forgotten long ago.
    if (of_path.empty()) {
      Fail("starts from ", checkpoint->directory, ", which nobody has written");
    }
  }
  for (const params::Bucket& bucket : life->map->buckets) {
    if (bucket.shard != shard) continue;
    std::vector<const BucketAudit*> candidates;
    for (ServersLife* writer : writers) candidates.push_back(writer->buckets[bucket.index].get());
    loaded.ReadBucket(WorkerId(0), Incarnation(0), bucket.index, Round(0),
                      [&](const absl::StatusOr<shard::PublishedBucket>& read) {
                        LODESTAR_CHECK(read.ok()) << read.status();
                        // A worker that begins with these weights has them unencoded.
                        std::vector<float> shadow;
                        if (job_.pull_encoding != params::Encoding::kFp32) {
                          shadow.assign(read->data().begin(), read->data().end());
                        }
                        life->buckets[bucket.index]->OnLoaded(read->version, read->data(), shadow,
                                                              life->next_round, candidates);
                      });
  }
  return shards_.back().get();
}

void Audit::OnMade(uint64_t server_incarnation, Incarnation incarnation, Round round,
                   uint32_t bucket, std::vector<float> elements, int64_t num_samples,
                   std::optional<int64_t> weight) {
  ServersLife* life = Find(server_incarnation);
  if (life == nullptr) return;
  const auto [entry, is_new] = life->made[round].try_emplace(
      {incarnation, bucket}, Made{std::move(elements), num_samples, weight,
                                  life->buckets[bucket]->ReplacementsBefore(incarnation)});
  if (!is_new) {
    Fail("worker life ", incarnation.value(), " has computed round ", round.value(), " twice");
  }
  while (life->made.size() > kRoundsKept) life->made.erase(life->made.begin());
}

void Audit::OnWeightRefused(uint64_t server_incarnation, Incarnation incarnation, Round round) {
  ServersLife* life = Find(server_incarnation);
  if (life == nullptr) return;
  bool has_with = false;
  bool has_without = false;
  for (const auto& [key, made] : life->made[round]) {
    (made.weight.has_value() ? has_with : has_without) = true;
  }
  if (has_with && has_without) return;
  Fail("worker life ", incarnation.value(), " is refused for its weight in round ", round.value(),
       ", in which all workers do the same");
}

void Audit::OnDelivered(uint64_t server_incarnation, Incarnation incarnation, Round round,
                        absl::Span<const uint32_t> late) {
  ServersLife* life = Find(server_incarnation);
  if (life == nullptr) return;
  for (const uint32_t bucket : job::FragmentPlan(life->map->buckets, job_.fragments).DueIn(round)) {
    const bool is_late = std::find(late.begin(), late.end(), bucket) != late.end();
    if (life->buckets[bucket]->HasCounted(incarnation, round) == !is_late) continue;
    Fail("worker life ", incarnation.value(), " takes bucket ", bucket, " of round ", round.value(),
         is_late ? " for late, and it is counted" : " for counted, and it is not");
  }
}

void Audit::OnPulled(const PulledVersion& pulled, absl::Span<const float> elements,
                     bool is_shadow) {
  ServersLife* life = Find(pulled.server_incarnation);
  if (life != nullptr) life->buckets[pulled.bucket]->OnPulled(pulled, elements, is_shadow);
}

void Audit::OnReplacing(absl::Span<const float> weights) {
  ServersLife& life = lives_.rbegin()->second;
  for (const params::Bucket& bucket : life.map->buckets) {
    const params::ElementRange range = bucket.range;
    life.buckets[bucket.index]->OnReplacing(weights.subspan(range.begin, range.size()));
  }
}

void Audit::OnReplaced() {
  for (auto& bucket : lives_.rbegin()->second.buckets) bucket->OnReplaced();
}

bool Audit::HasCounted(Incarnation incarnation, Round round) const {
  const auto& buckets = lives_.rbegin()->second.buckets;
  return std::all_of(buckets.begin(), buckets.end(),
                     [&](const auto& bucket) { return bucket->HasCounted(incarnation, round); });
}

void Audit::CheckWeights(absl::Span<const float> weights, const std::vector<Round>& rounds,
                         absl::string_view who) const {
  const ServersLife& life = lives_.rbegin()->second;
  const std::set<Round> wanted(rounds.begin(), rounds.end());
  const auto is_lost = [this](Round round) { return work_.IsLost(round); };
  for (const params::Bucket& bucket : life.map->buckets) {
    const params::ElementRange range = bucket.range;
    life.buckets[bucket.index]->CheckWeights(weights.subspan(range.begin, range.size()), wanted,
                                             is_lost, who);
  }
}

}  // namespace lodestar::simulation
