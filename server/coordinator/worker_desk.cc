#include "server/coordinator/worker_desk.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"

namespace lodestar {
namespace {

// Weight of what came before when a round's times are added: about ten rounds count.
constexpr double kTimeMemory = 0.9;
// The same of its speed: about two rounds count.
constexpr double kSpeedMemory = 0.5;

// Of one report: so many of every worker that there may be still add up.
constexpr int64_t kMaxPredictions = int64_t{1} << 40;

uint64_t Increase(uint64_t before, uint64_t after) { return after > before ? after - before : 0; }

double NonNegativeSeconds(absl::Duration duration) {
  const double seconds = absl::ToDoubleSeconds(duration);
  return std::isfinite(seconds) ? std::max(seconds, 0.0) : 0.0;
}

}  // namespace

void WorkerDesk::BeginLife(const RegisterCall& call, absl::Time now) {
  const WorkerDesk before = *this;
  *this = WorkerDesk();
  memory_.rounds_completed = before.memory_.rounds_completed;
  memory_.residuals_lost = before.memory_.residuals_lost;
  memory_.poisoned_rounds = before.memory_.poisoned_rounds;
  was_waited_for_ = before.was_waited_for_;
  if (call.instance_id == before.memory_.instance_id || before.memory_.kept_space) {
    memory_.rests_until = before.memory_.rests_until;
  }
  if (call.instance_id == before.memory_.instance_id) {
    memory_.times_not_finite = before.memory_.times_not_finite;
    memory_.not_finite_life = before.memory_.not_finite_life;
    memory_.finite_reports_then = before.memory_.finite_reports_then;
    memory_.times_dropped = before.memory_.times_dropped;
    memory_.process_began_at = before.memory_.process_began_at;
    memory_.process_registered_at = before.memory_.process_registered_at;
    memory_.start_to_contribution = before.memory_.start_to_contribution;
    memory_.registration_to_contribution = before.memory_.registration_to_contribution;
    pace_ = before.pace_;
    last_num_samples_ = before.last_num_samples_;
    computed_samples_ = before.computed_samples_;
    computed_seconds_ = before.computed_seconds_;
  }
  // By this server's clock: what its registration took to travel is left out.
  if (call.process.age.has_value() && !memory_.process_began_at.has_value() &&
      !memory_.start_to_contribution.has_value()) {
    memory_.process_began_at = now - *call.process.age;
    memory_.process_registered_at = now;
  }
  memory_.instance_id = call.instance_id;
  memory_.device = call.device;
  memory_.identity = call.identity;
  peer_ = call.peer;
}

void WorkerDesk::EndLife() {
  memory_.is_waiting = false;
  memory_.is_leaving = false;
  memory_.grant.reset();
  memory_.samples_in_hand.clear();
  pushes_ = MemberPushes();
  activity_.clear();
  still_.reset();
}

bool WorkerDesk::CountNotFinite(Incarnation incarnation, uint64_t finite_reports) {
  if (incarnation == memory_.not_finite_life) return false;
  memory_.not_finite_life = incarnation;
  if (memory_.times_not_finite == 0 || finite_reports > memory_.finite_reports_then)
    ++memory_.times_not_finite;
  memory_.finite_reports_then = finite_reports;
  return true;
}

bool WorkerDesk::CountPoisoned(Round round) {
  std::vector<Round>& rounds = memory_.poisoned_rounds;
  const auto position = std::lower_bound(rounds.begin(), rounds.end(), round);
  if (position != rounds.end() && *position == round) return false;
  rounds.insert(position, round);
  const Round newest = rounds.back();
  std::erase_if(
      rounds, [newest](Round other) { return newest - other >= DivergencePolicy::kPoisonWindow; });
  return true;
}

void WorkerDesk::OnHeldUp(absl::Duration waited, bool lacks_time, absl::Time now) {
  if (lacks_time) ++memory_.times_dropped;
  memory_.kept_space = !lacks_time;
  memory_.rests_until = now + waited;
}

void WorkerDesk::OnHeartbeat(const HeartbeatCall& call, absl::Time now) {
  const bool is_same = activity_ == call.activity && bytes_pushed_ == call.bytes_pushed &&
                       bytes_pulled_ == call.bytes_pulled;
  if (!is_same) same_since_ = now;
  if (call.bytes_pushed > bytes_pushed_ || call.bytes_pulled > bytes_pulled_) moved_at_ = now;
  if (activity_ != call.activity) active_since_ = now;
  activity_ = call.activity;
  still_.reset();
  // While it computes, nobody can say whether the path is still as it was.
  if (call.standstill.has_value() && (is_delivering() || is_pulling())) {
    still_ = {call.standstill->shard, std::max(now - call.standstill->age, active_since_)};
  }
  push_bytes_.Add(static_cast<double>(Increase(bytes_pushed_, call.bytes_pushed)), now);
  pull_bytes_.Add(static_cast<double>(Increase(bytes_pulled_, call.bytes_pulled)), now);
  bytes_pushed_ = call.bytes_pushed;
  bytes_pulled_ = call.bytes_pulled;
  path_ = call.path;
}

void WorkerDesk::BeginMembership(int64_t progress, absl::Time now) {
  memory_.progress = progress;
  idle_since_ = now;
}

void WorkerDesk::Give(const Grant& grant, absl::Time now) {
  memory_.is_waiting = false;
  memory_.grant = grant;
  contributed_to_.clear();
  attached_since_grant_.clear();
  pushes_.OnGrant();
  given_at_ = now;
  memory_.last_granted = grant.round.value();
}

bool WorkerDesk::AwaitsContribution(Round round, int num_shards) const {
  return memory_.grant.has_value() && memory_.grant->round == round &&
         static_cast<int>(contributed_to_.size()) < num_shards;
}

bool WorkerDesk::AwaitsJournal(Round round, int shard) const {
  return memory_.grant.has_value() && memory_.grant->round == round &&
         memory_.grant->kind == Grant::Kind::kTrain && !contributed_to_.contains(shard) &&
         !attached_since_grant_.contains(shard);
}

bool WorkerDesk::AwaitsJournals(Round round, int num_shards) const {
  for (int shard = 0; shard < num_shards; ++shard) {
    if (AwaitsJournal(round, shard)) return true;
  }
  return false;
}

absl::StatusOr<WorkerDesk::Match> WorkerDesk::Classify(const RoundReport& report,
                                                       const JobSpec& job) const {
  const int64_t round = report.round.value();
  if (memory_.grant.has_value() && memory_.grant->round == report.round) {
    const bool has_negative = report.num_predictions < 0 || report.num_samples < 0 ||
                              report.heldout_correct < 0 || report.heldout_predictions < 0;
    if (report.num_predictions > kMaxPredictions || report.heldout_predictions > kMaxPredictions ||
        report.heldout_correct > report.heldout_predictions) {
      return absl::InvalidArgumentError(
          absl::StrCat("report of round ", round, " has ", report.num_predictions, " predictions, ",
                       report.heldout_predictions, " held-out predictions, ",
                       report.heldout_correct, " of them right; allowed are ", kMaxPredictions,
                       ", and no more right ones than there "
                       "are"));
    }
    int64_t most_samples = memory_.grant->num_samples;
    if (DefersContributions(job)) {
      most_samples = memory_.samples_in_hand.empty() ? 0 : memory_.samples_in_hand.back();
    }
    if (has_negative || report.num_samples > most_samples) {
      return absl::InvalidArgumentError(
          absl::StrCat("report of round ", round, " has ", report.num_samples, " samples, ",
                       report.num_predictions, " predictions, ", report.heldout_predictions,
                       " held-out predictions; granted were ", most_samples,
                       " samples, and counts are not negative"));
    }
    return Match::kCurrent;
  }
  if (round <= memory_.last_reported) return Match::kRepeat;
  return absl::InvalidArgumentError(absl::StrCat(
      "report of round ", round, ", but the worker ",
      memory_.grant.has_value() ? absl::StrCat("was granted round ", memory_.grant->round.value())
                                : "holds no grant",
      "; report only rounds that were granted to this incarnation"));
}

int64_t WorkerDesk::SamplesInHand() const {
  return std::accumulate(memory_.samples_in_hand.begin(), memory_.samples_in_hand.end(),
                         int64_t{0});
}

int64_t WorkerDesk::UnreportedSamples(const JobSpec& job) const {
  const int64_t granted = memory_.grant.has_value() ? memory_.grant->num_samples : 0;
  const bool has_window = DefersContributions(job) && !memory_.samples_in_hand.empty();
  return granted + (has_window ? memory_.samples_in_hand.back() : 0);
}

void WorkerDesk::CountStart(absl::Time now) {
  if (!memory_.process_began_at.has_value()) return;
  memory_.start_to_contribution = now - *std::exchange(memory_.process_began_at, std::nullopt);
  memory_.registration_to_contribution =
      now - *std::exchange(memory_.process_registered_at, std::nullopt);
}

void WorkerDesk::Complete(const RoundReport& report, const JobSpec& job, absl::Time now) {
  memory_.last_reported = report.round.value();
  memory_.times_dropped = 0;
  if (report.lost_residual_rounds > 0) ++memory_.residuals_lost;
  idle_since_ = now;
  if (memory_.grant.has_value()) {
    pace_.OnRound(*memory_.grant, now - given_at_);
    last_num_samples_ = memory_.grant->num_samples;
    CountSpeed(*memory_.grant, report);
  }
  if (memory_.grant.has_value() && memory_.grant->kind == Grant::Kind::kTrain) {
    ++memory_.progress;
    ++memory_.rounds_completed;
    if (report.num_samples > 0) CountStart(now);
    if (DefersContributions(job)) {
      std::vector<int64_t>& in_hand = memory_.samples_in_hand;
      in_hand.push_back(report.leaves_nothing_in_hand ? 0 : memory_.grant->num_samples);
      // What is older is in all fragments.
      if (static_cast<int>(in_hand.size()) > job.fragments) in_hand.erase(in_hand.begin());
    }
  }
  memory_.grant.reset();
  samples_.Add(static_cast<double>(report.num_samples), now);
  CountTimes(report);
}

void WorkerDesk::CountSpeed(const Grant& grant, const RoundReport& report) {
  const double seconds = NonNegativeSeconds(report.compute);
  if (grant.num_heldout_samples > 0 || report.num_samples <= 0 || seconds <= 0.0) return;
  computed_samples_ = computed_samples_ * kSpeedMemory + static_cast<double>(report.num_samples);
  computed_seconds_ = computed_seconds_ * kSpeedMemory + seconds;
}

void WorkerDesk::CountTimes(const RoundReport& report) {
  compute_seconds_ = compute_seconds_ * kTimeMemory + NonNegativeSeconds(report.compute);
  communication_seconds_ =
      communication_seconds_ * kTimeMemory + NonNegativeSeconds(report.communication);
  wait_seconds_ = wait_seconds_ * kTimeMemory + NonNegativeSeconds(report.wait);
  timed_rounds_ = timed_rounds_ * kTimeMemory + 1.0;
}

MemberProgress WorkerDesk::Progress(WorkerId worker, const std::string& name,
                                    absl::Time now) const {
  const bool is_working = memory_.grant.has_value();
  const bool evaluates = is_working && memory_.grant->num_heldout_samples > 0;
  return {.worker = worker,
          .name = name,
          .rounds_completed = memory_.progress,
          .waiting = memory_.is_waiting,
          .working = is_working,
          .usual_round = evaluates ? std::nullopt
                                   : pace_.LatelyFor(is_working ? memory_.grant->num_samples
                                                                : last_num_samples_),
          .since = now - (is_working ? given_at_ : idle_since_)};
}

WorkerSnapshot WorkerDesk::Snapshot(const WorkerRecord& record, int64_t newest,
                                    absl::Time now) const {
  WorkerSnapshot snapshot;
  snapshot.name = record.name;
  snapshot.worker = record.id;
  snapshot.incarnation = record.incarnation;
  snapshot.state = std::string(WorkerStateName(record.state));
  snapshot.round = memory_.last_granted;
  snapshot.device = memory_.device;
  snapshot.peer = peer_;
  snapshot.rounds_completed = memory_.rounds_completed;
  snapshot.residuals_lost = memory_.residuals_lost;
  snapshot.start_to_contribution = memory_.start_to_contribution;
  snapshot.registration_to_contribution = memory_.registration_to_contribution;
  snapshot.path = path_;
  if (!record.is_alive()) {
    snapshot.reason = record.end_reason;
    snapshot.ended_age = now - record.ended_at;
    return snapshot;
  }
  snapshot.activity = memory_.is_waiting ? "wait" : activity_;
  snapshot.staleness = memory_.grant.has_value() ? newest - memory_.last_granted : 0;
  snapshot.lease_age = now - record.renewed_at;
  snapshot.samples_per_second = samples_.PerSecond(now);
  snapshot.push_bytes_per_second = push_bytes_.PerSecond(now);
  snapshot.pull_bytes_per_second = pull_bytes_.PerSecond(now);
  const double total = compute_seconds_ + communication_seconds_ + wait_seconds_;
  if (total > 0.0) {
    snapshot.compute_share = compute_seconds_ / total;
    snapshot.communication_share = communication_seconds_ / total;
    snapshot.wait_share = wait_seconds_ / total;
    snapshot.exposed_per_round = absl::Seconds(communication_seconds_ / timed_rounds_);
  }
  return snapshot;
}

}  // namespace lodestar
