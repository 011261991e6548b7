#include "server/coordinator/admission.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/checkpoints/same_tensors.h"
#include "common/job/robust_mean.h"
#include "common/runtime/time_text.h"
#include "server/membership/membership_table.h"

namespace lodestar {
namespace {

// So many workers have alarms of their own about one kind of trouble.
constexpr int kMostNamed = 3;

std::string SecondsText(absl::Duration duration) {
  return DurationText(absl::Ceil(duration, absl::Seconds(1)));
}

}  // namespace

absl::Status CheckEncodings(const JobSpec& job, const std::vector<Encoding::Kind>& known) {
  for (const auto& [encoding, flag] : {std::pair(job.push_encoding, "push_encoding"),
                                       std::pair(job.pull_encoding, "pull_encoding")}) {
    if (std::find(known.begin(), known.end(), encoding.kind()) != known.end()) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("this job has --", flag, "=", EncodingText(encoding), ", this client knows ",
                     absl::StrJoin(known, ", ",
                                   [](std::string* out, Encoding::Kind one) {
                                     absl::StrAppend(out, EncodingKindName(one));
                                   }),
                     "; use another client, or start the job with --", flag, "=",
                     EncodingKindName(known.front())));
  }
  return absl::OkStatus();
}

absl::Status CheckOffered(const ClusterState& state, const RegisterCall& call) {
  if (call.adopts_order) {
    return CheckSameTensors(*state.layout, "the job", *call.layout, "this client");
  }
  const absl::Status same = CheckSameLayout(*state.layout, "the job", *call.layout, "this client");
  return same.ok() ? same : absl::InvalidArgumentError(same.message());
}

absl::Status CheckRoom(const ClusterState& state, absl::string_view name) {
  const RobustMean& mean = state.config.job.robust_mean;
  if (!mean.is_robust()) return absl::OkStatus();
  const std::vector<const WorkerRecord*> members = state.membership.Members();
  const auto others =
      std::count_if(members.begin(), members.end(),
                    [name](const WorkerRecord* member) { return member->name != name; });
  if (others < kMaxRobustContributions) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(
      "the job has ", others, " workers, and --robust_mean=", RobustMeanText(mean), " is for ",
      kMaxRobustContributions, ": this one is let in when another has left"));
}

absl::Status CheckMoreNames(const ClusterState& state, const RegisterCall& call) {
  if (call.identity.empty()) return absl::OkStatus();
  int64_t names = 0;
  int64_t rounds = 0;
  for (const auto& [id, desk] : state.desks) {
    if (desk.connection.identity() != call.identity) continue;
    const WorkerRecord* record = state.membership.Find(id);
    if (record == nullptr) continue;
    rounds += static_cast<int64_t>(desk.assignment.memory().rounds_completed);
    const bool is_caller = record->name == call.name;
    if (is_caller && (record->is_alive() || desk.assignment.has_completed_round()))
      return absl::OkStatus();
    if (!is_caller && record->is_alive()) ++names;
  }
  const int64_t needed = std::max(state.config.job.min_workers, state.config.job.keep_workers);
  const int64_t allowed = std::max(kNamesPerCertificate, needed) + rounds;
  if (names < allowed) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(
      "certificate '", call.identity, "' has ", names, " workers here, and ", allowed,
      " may be: they have completed ", rounds,
      " rounds, and each completed round admits one more worker. "
      "The call is retried automatically; give each machine a certificate of its own"));
}

absl::Status CheckRest(const ClusterState& state, WorkerId worker, absl::Time now) {
  if (!state.CanGoOnWith(state.membership.Members().size(), now)) return absl::OkStatus();
  const WorkerFacts facts = state.FactsOf(worker);
  const Rest rest = state.stragglers.RestOf(facts, now);
  if (rest.kind == Rest::Kind::kNone) return absl::OkStatus();
  if (rest.kind == Rest::Kind::kOwn) {
    return absl::UnavailableError(absl::StrCat(
        "this worker held up a round, and the others waited for it: they go on without it for as "
        "long, and it may join in ",
        SecondsText(rest.left), "; see to its path to the servers, and to what it computes with"));
  }
  return absl::UnavailableError(absl::StrCat(
      "another worker of certificate '", facts.certificate,
      "' held up a round, and new names of the certificate rest for as long: this worker may join "
      "in ",
      SecondsText(rest.left), "; give each machine a certificate of its own"));
}

absl::Status CheckLayoutHash(const ClusterState& state, absl::string_view layout_hash) {
  if (layout_hash == state.layout->hash()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("layout hash of this worker is ", layout_hash,
                                                    ", the job's is ", state.layout->hash(),
                                                    "; build the model from the job's settings"));
}

absl::Status CheckMayClaimSupply(const ClusterState& state, const RegisterCall& call,
                                 absl::Time now) {
  const WorkerRecord* record = state.membership.FindByName(call.name);
  if (record == nullptr || now >= state.stragglers.Of(record->id).rests_until()) {
    return absl::OkStatus();
  }
  return absl::UnavailableError(
      "not ready: this client was to supply the initial weights, and held up the others: one of "
      "them may; the same call again");
}

bool LacksAcknowledged(const ClusterState& state, const RegisterCall& call) {
  if (!call.process.acknowledged.has_value()) return false;
  const AcknowledgedReport& report = *call.process.acknowledged;
  const WorkerRecord* const record = state.membership.FindByName(call.name);
  const bool is_held = record != nullptr && record->is_alive();
  if (is_held && record->instance_id != call.instance_id) return false;
  if (report.server_incarnation != state.shards.server_incarnation()) {
    return report.server_incarnation > state.shards.server_incarnation();
  }
  // The last evaluation has the number of the round that would come next.
  if (report.round > state.ledger.next_round()) return true;
  if (report.life > state.membership.last_incarnation()) return true;
  return is_held && record->incarnation == report.life &&
         state.desks.at(record->id).assignment.memory().last_reported < report.round.value();
}

bool KnowsFormerStart(const ClusterState& state, const RegisterCall& call) {
  return !state.empty_folder.empty() && call.process.acknowledged.has_value() &&
         call.process.acknowledged->server_incarnation < state.shards.server_incarnation();
}

std::string EmptyFolderAlarm(const ClusterState& state, const RegisterCall& call) {
  return absl::StrCat(
      "the job began at round 0, as --checkpoint_dir=", state.empty_folder,
      " has no checkpoint, but worker '", call.name, "' has contributed to round ",
      call.process.acknowledged->round.value(),
      " of an earlier start of the servers at this address. If that job is to go on, stop this "
      "server and start it with the folder of that job. If this is another job, end that worker, "
      "and start this server again with --resume=never, as the worker's data are the job's now");
}

bool IsOfOtherServers(const ClusterState& state, const RegisterCall& call) {
  if (!call.process.acknowledged.has_value() || !state.beginning.has_value()) return false;
  const AcknowledgedReport& report = *call.process.acknowledged;
  const ClusterState::Beginning& beginning = *state.beginning;
  if (report.server_incarnation >= beginning.server_incarnation ||
      report.server_incarnation == beginning.saved_by) {
    return false;
  }
  // A checkpoint names the workers whose contributions it has, except those that ended long ago.
  if (state.membership.FindByName(call.name) == nullptr) return true;
  // Servers that went on from the checkpoint, or from an older one, gave this round no more.
  return report.server_incarnation > beginning.saved_by &&
         report.round.value() < beginning.next_round;
}

std::string OtherServersAlarm(const ClusterState& state, const RegisterCall& call) {
  if (state.num_of_other_servers > kMostNamed) {
    return "more workers have contributed to servers that this run does not go on from";
  }
  return absl::StrCat("worker '", call.name, "' has contributed to round ",
                      call.process.acknowledged->round.value(),
                      " of servers that this run does not go on from: it may belong to another job "
                      "that had this address. It trains with this job now; `psctl evict ",
                      call.name, "` ends that");
}

std::string OtherServersSubject(absl::string_view name) {
  return absl::StrCat("worker of other servers ", name);
}

std::string LacksReportAlarm(const ClusterState& state, absl::string_view name, Round round) {
  if (state.num_lacking_reports > kMostNamed) {
    return "more workers say that rounds were acknowledged which these servers do not know of";
  }
  return absl::StrCat(
      "worker '", name, "' says that its round ", round.value(),
      " was acknowledged, and these servers do not know of that: they are at round ",
      state.ledger.next_round().value(),
      ". Unless the worker errs, all their disks have gone back to an older state, "
      "and what came after that is lost; the worker begins anew");
}

absl::Status LacksReportStatus(const ClusterState& state, Round round) {
  return absl::AbortedError(absl::StrCat(
      "the servers are at round ", state.ledger.next_round().value(), " and do not know of round ",
      round.value(), ", which was acknowledged to this worker"));
}

}  // namespace lodestar
