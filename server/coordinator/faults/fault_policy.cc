// SPDX-License-Identifier: Apache-2.0

#include "server/coordinator/faults/fault_policy.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace lodestar::faults {
namespace {

// Returns all workers that count as the same sender as `worker`. These are the workers with its
// certificate. Without a certificate, it is only `worker`.
std::vector<Sender> SameSender(WorkerId worker, absl::Span<const Sender> senders) {
  const auto self = std::find_if(senders.begin(), senders.end(),
                                 [&](const Sender& other) { return other.worker == worker; });
  if (self == senders.end()) return {Sender{.worker = worker}};
  if (self->identity.empty()) return {*self};
  std::vector<Sender> same;
  std::copy_if(senders.begin(), senders.end(), std::back_inserter(same),
               [&](const Sender& other) { return other.identity == self->identity; });
  return same;
}

bool Has(const std::vector<Sender>& senders, WorkerId worker) {
  return std::any_of(senders.begin(), senders.end(),
                     [&](const Sender& sender) { return sender.worker == worker; });
}

// Returns the certificate that at least half of the other members use, if at least two do. What
// counts as a usual contribution then depends on the workers of that certificate. Empty means that
// there is no such certificate.
std::string LeadingIdentity(const std::vector<Sender>& accused, absl::Span<const Sender> senders) {
  std::map<absl::string_view, int> workers_of;
  int others = 0;
  for (const Sender& sender : senders) {
    if (!sender.is_member || Has(accused, sender.worker)) continue;
    ++others;
    if (!sender.identity.empty()) ++workers_of[sender.identity];
  }
  for (const auto& [identity, workers] : workers_of) {
    if (workers > 1 && 2 * workers >= others) return std::string(identity);
  }
  return "";
}

}  // namespace

void FaultPolicy::CountFinite(WorkerId worker) {
  workers_[worker].CountFinite();
  ++memory_.finite_reports;
}

NotFiniteVerdict FaultPolicy::CountNotFinite(WorkerId worker, Incarnation incarnation, Round round,
                                             absl::Span<const Sender> senders) {
  WorkerFaults& faults = workers_[worker];
  const int times_before = faults.times_not_finite();
  if (!faults.CountNotFinite(incarnation, memory_.finite_reports)) return {};
  const bool others_are_finite =
      std::any_of(senders.begin(), senders.end(), [this](const Sender& sender) {
        return sender.is_member && times_not_finite(sender.worker) == 0;
      });
  if (!others_are_finite) return {.kind = NotFiniteVerdict::Kind::kDiverged};
  NotFiniteVerdict verdict = {.kind = NotFiniteVerdict::Kind::kDrop};
  // Also counts the round as poisoned. A new process of the worker resets times_not_finite(), but
  // not the number of poisoned rounds.
  if (faults.times_not_finite() > times_before) {
    verdict.sender = CountPoisoned(worker, round, senders);
  }
  return verdict;
}

SenderVerdict FaultPolicy::CountPoisoned(WorkerId worker, Round round,
                                         absl::Span<const Sender> senders) {
  if (!workers_[worker].CountPoisoned(round)) return {};
  return Judge(worker, senders);
}

SenderVerdict FaultPolicy::Judge(WorkerId worker, absl::Span<const Sender> senders) {
  const std::vector<Sender> accused = SameSender(worker, senders);
  // A round counts once, even if several workers of the sender sent wrong contributions in it.
  std::set<Round> rounds;
  for (const Sender& sender : accused) {
    const std::vector<Round> of_worker = MemoryOf(sender.worker).poisoned_rounds;
    rounds.insert(of_worker.begin(), of_worker.end());
  }
  const Round newest = *rounds.rbegin();
  SenderVerdict verdict = {.kind = SenderVerdict::Kind::kCounted};
  verdict.times =
      static_cast<int>(std::count_if(rounds.begin(), rounds.end(), [newest](Round round) {
        return newest - round < DivergencePolicy::kPoisonWindow;
      }));
  if (limits_.poison_limit == 0 || verdict.times <= limits_.poison_limit) return verdict;
  verdict.leading_identity = LeadingIdentity(accused, senders);
  if (!verdict.leading_identity.empty()) {
    verdict.kind = SenderVerdict::Kind::kUndecided;
    return verdict;
  }
  verdict.kind = SenderVerdict::Kind::kShutOut;
  for (const Sender& sender : accused) workers_[sender.worker].ForgetPoisoned();
  return verdict;
}

WorkerFaults::Memory FaultPolicy::MemoryOf(WorkerId worker) const {
  const auto found = workers_.find(worker);
  return found == workers_.end() ? WorkerFaults::Memory() : found->second.memory();
}

bool FaultPolicy::OnDiverged(Divergence divergence, bool may_go) {
  last_divergence_ = std::move(divergence);
  if (!may_go || limits_.action != DivergenceAction::kRollback ||
      memory_.rollbacks >= limits_.max_rollbacks) {
    return false;
  }
  ++memory_.rollbacks;
  memory_.learning_rate_scale *= limits_.learning_rate_factor;
  // Rounds are now repeated because of this divergence, and no longer because of the earlier
  // setback.
  setback_.reset();
  return true;
}

void FaultPolicy::MultiplyLearningRateScale(double factor) {
  memory_.learning_rate_scale *= factor;
  memory_.scale_by_operators *= factor;
}

}  // namespace lodestar::faults
