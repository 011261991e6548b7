// SPDX-License-Identifier: Apache-2.0

#include "tests/simulation/work_audit.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/checkpoints/checkpoint_directory.h"

namespace lodestar::simulation {
namespace {

constexpr size_t kCheckpointsKept = 256;
constexpr size_t kRoundsKept = 256;

template <typename Map>
void KeepNewest(Map& map, size_t size) {
  while (map.size() > size) map.erase(map.begin());
}

void Add(const messages::RoundReport& report, messages::RoundReport& sum) {
  sum.num_samples += report.num_samples;
  sum.num_predictions += report.num_predictions;
  sum.loss_sum += report.loss_sum;
  sum.heldout_predictions += report.heldout_predictions;
  sum.heldout_loss_sum += report.heldout_loss_sum;
}

std::string MeanText(const std::optional<double>& mean) {
  return mean.has_value() ? absl::StrCat(*mean) : "none";
}

std::optional<double> Mean(double sum, int64_t count) {
  if (count == 0) return std::nullopt;
  return sum / static_cast<double>(count);
}

}  // namespace

std::string PublishedAs(const std::string& directory) {
  return std::string(absl::StripSuffix(directory, checkpoints::kReplacedSuffix));
}

template <typename MayBe>
void WorkAudit::Narrow(const MayBe& may_be, const std::string& violation) {
  std::erase_if(beginnings_, [&](const Progress& beginning) { return !may_be(beginning); });
  if (beginnings_.empty()) fail_(violation);
}

void WorkAudit::OnRestored(const coordinator::RestoredPoint& point) { restored_ = point; }

void WorkAudit::OnResumed(const coordinator::CoordinatorMemory& memory) {
  const checkpoints::LedgerState& ledger = memory.rounds.ledger.state;
  if (ledger.next_sample < told_.handed_out) {
    fail_(absl::StrCat("a coordinator that goes on hands out samples from ", ledger.next_sample,
                       " on; those before ", told_.handed_out, " were given to others"));
  }
  if (ledger.trained_samples < told_.reported) {
    fail_(absl::StrCat("a coordinator that goes on has trained on ", ledger.trained_samples,
                       " samples; before it was said to be ", told_.reported));
  }
  restored_.next_round = Round(ledger.next_round);
  beginnings_ = {{ledger.next_sample, ledger.trained_samples}};
  since_ = {};
  before_opening_.clear();
  begun_.clear();
  extending_.clear();
  taken_.clear();
  for (const membership::WorkerRecord& worker : memory.membership.table.workers) {
    const auto desk = memory.desks.find(worker.id);
    if (desk == memory.desks.end()) continue;
    taken_[worker.incarnation] = Round(desk->second.assignment.last_reported);
  }
  shares_.clear();
  for (const auto& [number, round] : memory.rounds.open) {
    for (const sync::RosterMember& member : round.plan.roster) {
      const bool has_reported =
          round.shares.at(member.worker).state == rounds::OpenRound::ShareState::kReported;
      // Reports that the journal lacks come again, or the process before was still writing them.
      auto& from = has_reported ? unrecorded_[number] : reports_[number];
      auto& to = has_reported ? reports_[number] : unrecorded_[number];
      to.insert(from.extract(member.incarnation));
      if (round.is_evaluation || !uses_rosters_) continue;
      Share& share = shares_[number][member.worker];
      share = {member.incarnation, 0, member.num_samples};
      const auto desk = memory.desks.find(member.worker);
      if (desk == memory.desks.end()) continue;
      const std::optional<messages::Grant>& grant = desk->second.assignment.grant;
      if (grant.has_value() && grant->round == number) {
        share.first = grant->first_position - ledger.next_sample;
      }
    }
  }
}

void WorkAudit::OnAssigned(const shards::WeightsSource& source) {
  beginnings_ = {{}};
  if (const auto* checkpoint = std::get_if<shards::CheckpointSource>(&source)) {
    const auto kept = kept_.find(PublishedAs(checkpoint->directory));
    beginnings_ = kept == kept_.end() ? std::vector<Progress>() : kept->second;
  }
  since_ = {};
  before_opening_.clear();
  extending_.clear();
  told_ = {};
  shares_.clear();
  abandoned_.clear();
  orders_.clear();
  order_rounds_.clear();
  last_grants_.clear();
  reports_.clear();
  unrecorded_.clear();
  handed_out_.clear();
  Narrow([&](const Progress& one) { return one.reported == restored_.trained_samples; },
         absl::StrCat("goes on from round ", restored_.next_round.value(), " as if ",
                      restored_.trained_samples, " samples had been reported before it"));
}

void WorkAudit::OnOpened(const sync::RoundPlan& plan) {
  TakeExtending();
  before_opening_[plan.round] = since_;
  KeepNewest(before_opening_, kRoundsKept);
  std::map<WorkerId, Share>& shares = shares_[plan.round];
  for (const sync::RosterMember& member : plan.roster) {
    shares[member.worker] = {member.incarnation, since_.handed_out, member.num_samples};
    if (!without_samples_.contains(member.incarnation)) since_.handed_out += member.num_samples;
  }
  KeepNewest(shares_, kRoundsKept);
  if (!is_site_) return;
  orders_[plan.round] = order_;
  order_rounds_.push_back(plan.round);
  KeepNewest(orders_, kRoundsKept);
  if (order_.kind == rounds::SiteOrder::Kind::kTrain &&
      plan.total_samples() != order_.num_samples) {
    fail_(absl::StrCat("round ", plan.round.value(), " hands out ", plan.total_samples(),
                       " samples; ordered were ", order_.num_samples));
  }
}

void WorkAudit::OnSaveBegun(const std::string& directory, std::optional<Round> round) {
  const auto before = round.has_value() ? before_opening_.find(*round) : before_opening_.end();
  TakeExtending();
  begun_[directory] = before == before_opening_.end() ? since_ : before->second;
}

void WorkAudit::OnRecord(const checkpoints::CheckpointRecord& record) {
  const auto begun = begun_.find(record.directory);
  if (begun == begun_.end()) return;
  Progress since = begun->second;
  if (!uses_rosters_) {
    since.handed_out = (record.round - restored_.next_round) * samples_per_grant_;
  }
  std::vector<Progress>& kept = kept_[record.final_directory];
  for (const Progress& beginning : beginnings_) {
    kept.push_back({beginning.handed_out + since.handed_out, beginning.reported + since.reported});
  }
  begun_.erase(begun);
  KeepNewest(kept_, kCheckpointsKept);
  KeepNewest(begun_, kCheckpointsKept);
}

void WorkAudit::OnGranted(const messages::WorkerLife& life, const messages::Grant& grant) {
  const auto [last, is_first] = last_grants_.try_emplace(life.incarnation, grant);
  const bool is_repeat = !is_first && last->second.round == grant.round;
  if (is_repeat && !(last->second == grant)) {
    return fail_(absl::StrCat("worker ", life.worker.value(), " was granted round ",
                              grant.round.value(), " again, and not the same"));
  }
  last->second = grant;
  if (grant.kind != messages::Grant::Kind::kTrain) return CheckHeldoutPart(life, grant);
  const bool has_samples = !without_samples_.contains(life.incarnation) || is_site_;
  told_.handed_out =
      std::max(told_.handed_out, grant.first_position + (has_samples ? grant.num_samples : 0));
  if (sizes_vary_) {
    if (!is_repeat && has_samples) OnHandedOut(life, grant);
    return;
  }
  Share share = {life.incarnation, (grant.round - restored_.next_round) * samples_per_grant_,
                 samples_per_grant_};
  if (uses_rosters_) {
    const auto shares = shares_.find(grant.round);
    if (shares == shares_.end()) return;
    const auto own = shares->second.find(life.worker);
    if (own == shares->second.end() || own->second.incarnation != life.incarnation) {
      return fail_(absl::StrCat("worker ", life.worker.value(), " was granted round ",
                                grant.round.value(), " and is not in its roster"));
    }
    share = own->second;
  }
  if (share.count != grant.num_samples) {
    return fail_(absl::StrCat("worker ", life.worker.value(), " was granted ", grant.num_samples,
                              " samples of round ", grant.round.value(), ", its share is ",
                              share.count));
  }
  if (is_site_) return CheckPart(life, grant, share);
  Narrow(
      [&](const Progress& beginning) {
        // The position of a grant without samples has no meaning.
        if (!has_samples) return grant.first_sample == 0;
        return grant.first_sample == beginning.handed_out + share.first &&
               grant.first_position == grant.first_sample;
      },
      absl::StrCat("worker ", life.worker.value(), " was granted sample ", grant.first_sample,
                   " as the first of round ", grant.round.value(),
                   "; those before it and those after it were given to others"));
}

bool WorkAudit::HasReported(Incarnation incarnation, Round round) const {
  const auto taken = taken_.find(incarnation);
  return taken != taken_.end() && taken->second >= round;
}

bool WorkAudit::HoldsTraining(Incarnation incarnation, Round round) const {
  const auto last = last_grants_.find(incarnation);
  return last != last_grants_.end() && last->second.round == round &&
         last->second.kind == messages::Grant::Kind::kTrain && !HasReported(incarnation, round);
}

void WorkAudit::OnExtending(const messages::WorkerLife& life, Round round,
                            const messages::Grant& more) {
  const auto last = last_grants_.find(life.incarnation);
  const bool fits = last == last_grants_.end() ||
                    (last->second.round == round && more.num_samples == last->second.num_samples);
  if (HasReported(life.incarnation, round) || !fits || more.round != round ||
      more.kind != messages::Grant::Kind::kTrain || more.first_sample != more.first_position) {
    return fail_(absl::StrCat("worker ", life.worker.value(), " is granted ", more.num_samples,
                              " more samples from ", more.first_sample, " on with round ",
                              round.value(), ", and has no such grant"));
  }
  extending_.emplace_back(more.first_position, more.num_samples);
}

void WorkAudit::TakeExtending() {
  while (!extending_.empty() && !sizes_vary_) {
    const auto [first, count] = extending_.front();
    const bool is_next =
        std::any_of(beginnings_.begin(), beginnings_.end(), [&](const Progress& beginning) {
          return first == beginning.handed_out + since_.handed_out;
        });
    if (!is_next) return;
    since_.handed_out += count;
    extending_.pop_front();
  }
}

void WorkAudit::OnExtended(const messages::WorkerLife& life, const messages::Grant& more) {
  // Without a last grant, the servers have restarted since they decided to hand out more samples.
  if (!last_grants_.contains(life.incarnation)) return;
  told_.handed_out = std::max(told_.handed_out, more.first_position + more.num_samples);
  if (sizes_vary_) return OnHandedOut(life, more);
  TakeExtending();
  const std::pair range(more.first_position, more.num_samples);
  if (std::find(extending_.begin(), extending_.end(), range) == extending_.end()) return;
  fail_(absl::StrCat("worker ", life.worker.value(), " was granted sample ", more.first_sample,
                     " as the first of more samples of round ", more.round.value(),
                     "; those before it and those after it were given to others"));
}

void WorkAudit::CheckPart(const messages::WorkerLife& life, const messages::Grant& grant,
                          const Share& share) {
  const rounds::SiteOrder& order = orders_[grant.round];
  // The share begins after the shares of the members before it.
  const int64_t offset = share.first - FirstOf(grant.round);
  if (grant.first_sample != order.first_sample + offset ||
      grant.first_position != order.first_position + offset ||
      grant.learning_rates != order.learning_rates) {
    fail_(absl::StrCat("worker ", life.worker.value(), " was granted samples from ",
                       grant.first_sample, " on with round ", grant.round.value(),
                       "; of the order they are those from ", order.first_sample + offset, " on"));
  }
}

void WorkAudit::CheckHeldoutPart(const messages::WorkerLife& life, const messages::Grant& grant) {
  const auto found = orders_.find(grant.round);
  if (!is_site_ || found == orders_.end()) return;
  const rounds::SiteOrder& order = found->second;
  const int64_t end = grant.first_heldout_sample + grant.num_heldout_samples;
  if (order.kind == rounds::SiteOrder::Kind::kEvaluate &&
      grant.first_heldout_sample >= order.first_heldout_sample &&
      end <= order.first_heldout_sample + order.num_heldout_samples) {
    return;
  }
  fail_(absl::StrCat("worker ", life.worker.value(), " is to evaluate samples ",
                     grant.first_heldout_sample, " to ", end, " with round ", grant.round.value(),
                     ", which are not of the order"));
}

int64_t WorkAudit::FirstOf(Round round) const {
  int64_t first = std::numeric_limits<int64_t>::max();
  for (const auto& [worker, share] : shares_.at(round)) first = std::min(first, share.first);
  return first;
}

void WorkAudit::OnOrdered(const rounds::SiteOrder& order) {
  order_ = order;
  order_rounds_.clear();
}

void WorkAudit::OnAbandoned() { abandoned_.insert(order_rounds_.begin(), order_rounds_.end()); }

bool WorkAudit::IsLost(Round round) const {
  if (abandoned_.contains(round)) return true;
  const auto reports = reports_.find(round);
  return reports == reports_.end() || reports->second.empty();
}

CarriedOutOrder WorkAudit::OrderCarriedOut() const {
  CarriedOutOrder done;
  for (const Round round : order_rounds_) {
    const auto reports = reports_.find(round);
    // If an evaluation is ordered again, reports of the earlier round do not count.
    if (order_.kind == rounds::SiteOrder::Kind::kEvaluate) done = CarriedOutOrder();
    done.round = round;
    if (reports == reports_.end()) continue;
    const int64_t offset =
        order_.kind == rounds::SiteOrder::Kind::kTrain ? order_.first_sample - FirstOf(round) : 0;
    for (const auto& [incarnation, report] : reports->second) {
      done.members.push_back(incarnation);
      Add(report, done.sums);
      for (const auto& [worker, share] : shares_.at(round)) {
        if (share.incarnation != incarnation) continue;
        const int64_t first = share.first + offset;
        done.samples.emplace_back(first, first + report.num_samples);
      }
    }
  }
  return done;
}

void WorkAudit::OnHandedOut(const messages::WorkerLife& life, const messages::Grant& grant) {
  if (grant.num_samples == 0) return;
  const int64_t end = grant.first_position + grant.num_samples;
  const auto next = handed_out_.lower_bound(grant.first_position);
  const bool overlaps_next = next != handed_out_.end() && next->first < end;
  const bool overlaps_last =
      next != handed_out_.begin() && std::prev(next)->second > grant.first_position;
  if (overlaps_next || overlaps_last || grant.first_position != grant.first_sample) {
    return fail_(absl::StrCat("worker ", life.worker.value(), " was granted samples ",
                              grant.first_position, " to ", end, " with round ",
                              grant.round.value(), "; some of them were given before"));
  }
  handed_out_.emplace(grant.first_position, end);
  if (handed_out_.size() > kRoundsKept) handed_out_.erase(handed_out_.begin());
}

void WorkAudit::OnReported(const messages::WorkerLife& life, const messages::RoundReport& report) {
  const auto [known, is_first] = reports_[report.round].try_emplace(life.incarnation, report);
  const messages::RoundReport& first = known->second;
  if (!is_first && (first.loss_sum != report.loss_sum || first.num_samples != report.num_samples)) {
    fail_(absl::StrCat("worker ", life.worker.value(), " reports round ", report.round.value(),
                       " again, with other numbers"));
  }
}

void WorkAudit::OnSummary(const rounds::RoundSummary& summary) {
  messages::RoundReport sum;
  const std::map<Incarnation, messages::RoundReport>& reports = reports_[summary.round];
  for (const auto& [incarnation, report] : reports) Add(report, sum);
  const auto workers = static_cast<int>(reports.size());
  const std::optional<double> loss = Mean(sum.loss_sum, sum.num_predictions);
  const std::optional<double> heldout = Mean(sum.heldout_loss_sum, sum.heldout_predictions);
  const auto shares = shares_.find(summary.round);
  // Servers have no roster of the evaluations that a site is ordered to make.
  const bool is_known = shares != shares_.end() && !(is_site_ && shares->second.empty());
  const bool is_short =
      is_known ? workers < static_cast<int>(shares->second.size()) : summary.committed_short;
  if (summary.workers != workers || summary.samples != sum.num_samples ||
      summary.train_loss != loss || summary.heldout_loss != heldout ||
      summary.committed_short != is_short) {
    fail_(absl::StrCat(
        "round ", summary.round.value(), " is said to have ", summary.workers, " workers, ",
        summary.samples, " samples, loss ", MeanText(summary.train_loss), ", held-out loss ",
        MeanText(summary.heldout_loss), summary.committed_short ? ", short" : "",
        "; reported were ", workers, " workers, ", sum.num_samples, " samples, loss ",
        MeanText(loss), ", held-out loss ", MeanText(heldout), is_short ? ", short" : ""));
  }
  if (summary.trained) since_.reported += summary.samples;
  told_.reported = std::max(told_.reported, summary.total_samples);
  Narrow(
      [&](const Progress& beginning) {
        return summary.total_samples == beginning.reported + since_.reported;
      },
      absl::StrCat("after round ", summary.round.value(), " the job is said to have trained on ",
                   summary.total_samples, " samples"));
}

}  // namespace lodestar::simulation
