// SPDX-License-Identifier: Apache-2.0

#include "server/coordinator/verdict_words.h"

#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/job/robust_mean.h"
#include "common/plan/exchange_choice.h"
#include "common/runtime/peer_text.h"

namespace lodestar::coordinator {
namespace {

// Advice for two data sets that differ although they have the same numbers of samples.
constexpr absl::string_view kHowToCompareData =
    ". Both have the same number of samples, so compare `sha256sum *` of both folders. Files are "
    "read in the byte order of their names";

// Says where the coordinator's journal ends, such as "the coordinator's journal
// run/journal/coordinator ends with record 812 (the next round is 302)".
std::string JournalEndText(const shards::JournalFacts& facts, std::optional<Round> next_round) {
  if (facts.folder.empty()) return "this server keeps no journal (--durability=checkpoint)";
  if (!facts.damage.empty()) return facts.damage;
  const std::string journal = absl::StrCat("the coordinator's journal ", facts.folder);
  if (facts.end.number == 0) return absl::StrCat(journal, " is empty");
  return absl::StrCat(
      journal, " ends with record ", facts.end.number,
      next_round.has_value() ? absl::StrCat(" (the next round is ", next_round->value(), ")") : "");
}

std::string LaterText(const shards::JournalFacts& facts, const shards::LaterKnowledge& later) {
  const bool is_damaged = !facts.damage.empty();
  const std::string round = later.round < 0 ? "" : absl::StrCat(" (round ", later.round, ")");
  const std::string shard = absl::StrCat("shard ", later.shard);
  const std::string checkpoint =
      facts.newest.has_value() ? absl::StrCat("checkpoint ", facts.newest->path) : "";
  switch (later.kind) {
    case shards::LaterKnowledge::Kind::kShardRecord:
      return absl::StrCat(shard, " has data of the later record ", later.record, round);
    case shards::LaterKnowledge::Kind::kShardOtherJournal:
      return absl::StrCat(shard, " has data of record ", later.record,
                          is_damaged ? "" : " of another journal", round);
    case shards::LaterKnowledge::Kind::kShardRound:
      return absl::StrCat(shard, " has received contributions to round ", later.round);
    case shards::LaterKnowledge::Kind::kCheckpointRecord:
      return absl::StrCat(checkpoint, " was made after record ", later.record, round);
    case shards::LaterKnowledge::Kind::kCheckpointOtherJournal:
      return absl::StrCat(checkpoint, " says that round ", later.round, " and later rounds are in ",
                          is_damaged ? "the" : "another", " journal");
    case shards::LaterKnowledge::Kind::kMayBeInDamaged:
      return "no checkpoint is known to have all rounds of that journal";
  }
  return "";
}

// Returns text about the forecast loss of a choice. The text says by how many percentage points the
// loss exceeds kMostLossPercent, or that no forecast is known. Otherwise returns only a separator.
std::string MissText(const plan::LossEstimate& loss) {
  if (!loss.percent.has_value()) return "; its effect on the loss is not known; ";
  if (*loss.percent <= plan::kMostLossPercent) return "; ";
  return absl::StrFormat(
      "; its loss is estimated %.1f %% higher than with sync, which is %.1f percentage points "
      "above the limit of %.1f %%; ",
      *loss.percent, *loss.percent - plan::kMostLossPercent, plan::kMostLossPercent);
}

std::string RateText(double bytes_per_second) {
  return bytes_per_second == plan::NetworkPath::kNoLimit
             ? "as fast as memory"
             : absl::StrFormat("%.3g Mbit/s", bytes_per_second * 8e-6);
}

std::string FactsText(const plan::ExchangeFacts& facts) {
  const bool shares_link = facts.path.server_down != plan::NetworkPath::kNoLimit;
  return absl::StrFormat(
      "a step takes %.3g ms, workers send %s and receive %s%s, the round trip is %.3g ms",
      absl::ToDoubleMilliseconds(facts.step), RateText(facts.path.worker_up),
      RateText(facts.path.worker_down), shares_link ? " (all workers together, not each)" : "",
      absl::ToDoubleMilliseconds(facts.path.round_trip));
}

// Returns the fingerprint and the sizes of a data set.
std::string DataText(const messages::DatasetInfo& data) {
  return absl::StrCat(data.fingerprint.empty() ? "" : "fingerprint ", data.fingerprint,
                      data.fingerprint.empty() ? "" : ", ", data.num_train_samples,
                      " training and ", data.num_heldout_samples, " held-out samples of ",
                      data.tokens_per_sample, " tokens");
}

bool HaveEqualCounts(const messages::DatasetInfo& a, const messages::DatasetInfo& b) {
  return a.num_train_samples == b.num_train_samples &&
         a.num_heldout_samples == b.num_heldout_samples &&
         a.tokens_per_sample == b.tokens_per_sample;
}

}  // namespace

std::string ExchangeChoiceText(const model::ExchangeTuning::Choice& choice) {
  const plan::ExchangeOption& option = choice.option;
  return absl::StrCat(option.name, " (", absl::StrJoin(plan::ExchangeFlags(option.job), " "),
                      "): ", FactsText(choice.facts), "; by the estimate, workers compute for ",
                      absl::StrFormat("%.1f", 100.0 * option.forecast.utilisation()),
                      " % of the time", MissText(option.loss), choice.reason);
}

std::string ShutOutText(const faults::Quarantine::Entry& entry) {
  return absl::StrCat("worker '", entry.name, "' is shut out",
                      entry.is_identity ? " with all names of its certificate: " : ": ",
                      entry.reason,
                      entry.is_by_operator ? "" : "; check its device, its memory and its data",
                      "; psctl readmit ", entry.name, " lets it join again");
}

std::string LearningRateHistoryText(const faults::FaultPolicy::Memory& faults) {
  // `scale_by_operators` is the product of several changes. If they cancel out, a rounding error
  // may remain.
  const bool has_order = std::abs(faults.scale_by_operators - 1.0) > 1e-9;
  std::vector<std::string> parts;
  if (faults.rollbacks > 0) {
    parts.push_back(absl::StrCat("after ", faults.rollbacks,
                                 faults.rollbacks == 1 ? " rollback" : " rollbacks"));
  }
  if (has_order) {
    parts.push_back(absl::StrFormat("after operators multiplied the learning rate by %.4g",
                                    faults.scale_by_operators));
  }
  if (parts.empty()) return "";
  return absl::StrCat(" (", absl::StrJoin(parts, ", "), ")");
}

std::string NotFiniteReason(const ClusterState& state, WorkerId worker, absl::string_view text) {
  const int times = state.faults.times_not_finite(worker);
  const int limit = state.faults.limits().nonfinite_limit;
  return absl::StrCat(
      text, "; this worker has sent NaN or Inf ", times, times == 1 ? " time" : " times",
      " in a row (--nonfinite_limit=", limit, ")",
      times < limit ? "" : ". The worker is refused until its process is started again");
}

std::string SentBackText(const faults::Setback::Order& order, std::optional<int64_t> reached) {
  std::string to;
  if (!reached.has_value()) {
    to = absl::StrCat("its beginning, because there was no checkpoint of at most ",
                      order.most_rounds, " rounds");
  } else if (*reached < order.most_rounds) {
    to = absl::StrCat("round ", *reached, ", the newest checkpoint of at most ", order.most_rounds,
                      " rounds");
  } else if (*reached > order.most_rounds) {
    to = absl::StrCat("round ", *reached, ", although the order was for at most ",
                      order.most_rounds, " rounds");
  } else {
    to = absl::StrCat("round ", *reached);
  }
  return absl::StrCat("an operator sent the job back to ", to, " (", order.reason, ")");
}

std::string ShardLossText(const ClusterState& state, const shards::ShardLoss& loss) {
  switch (loss.kind) {
    case shards::ShardLoss::Kind::kCutOff:
      return "lost its connection before it was told which weights to load";
    case shards::ShardLoss::Kind::kMissedAssignment:
      return "did not receive the coordinator's order to load weights";
    case shards::ShardLoss::Kind::kLacksRecords: {
      const std::string round =
          loss.highest_round < 0 ? "" : absl::StrCat(" (of round ", loss.highest_round, ")");
      return absl::StrCat("has a journal that ends with record ", loss.end, round,
                          ", although record ", loss.end_before,
                          " was already on disk; the job was at round ",
                          state.rounds.ledger().next_round().value());
    }
    case shards::ShardLoss::Kind::kStartedAnew:
      return "was started again";
    case shards::ShardLoss::Kind::kLeftJournal:
      return "was started again, and does not continue from the journal that it had";
    case shards::ShardLoss::Kind::kLostMemory:
      return "was started again and has lost its weights";
    case shards::ShardLoss::Kind::kCannotLoad:
      return "could not load its weights";
  }
  return "";
}

absl::Status AttachRefusal(const ClusterState& state, const shards::Attachment& attachment,
                           shards::AttachVerdict::Kind kind) {
  const std::vector<shards::ShardFleet::Server>& servers = state.shards.servers();
  switch (kind) {
    case shards::AttachVerdict::Kind::kDoesNotFit:
      return absl::InvalidArgumentError(absl::StrCat(
          "--shard=", attachment.shard, "/", attachment.num_shards,
          " does not fit this cluster of ", servers.size(),
          servers.size() == 1 ? " shard" : " shards", "; give every server the same number"));
    case shards::AttachVerdict::Kind::kFollowed:
      return FollowedStatus();
    case shards::AttachVerdict::Kind::kLate:
      return absl::AbortedError(
          "this call is from before the server loaded its present weights, and is ignored");
    case shards::AttachVerdict::Kind::kHeld:
      return absl::AlreadyExistsError(absl::StrCat(
          "shard ", attachment.shard, " is held by the server at ",
          servers[attachment.shard].address, " (",
          shards::ServerStateName(servers[attachment.shard]), "); stop one of the two"));
    case shards::AttachVerdict::Kind::kGoesOn:
    case shards::AttachVerdict::Kind::kTakes:
    case shards::AttachVerdict::Kind::kLoses:
    case shards::AttachVerdict::Kind::kLosesUntold:
      break;
  }
  return absl::OkStatus();
}

absl::Status FollowedStatus() {
  return absl::AbortedError(
      "another process has continued with the journal of this server; end this server");
}

std::string JournalLossReason(const shards::JournalFacts& facts, const shards::JournalLoss& loss) {
  return absl::StrCat(JournalEndText(facts, loss.next_round), ", and ",
                      absl::StrJoin(loss.later, " and ", [&](std::string* out, const auto& later) {
                        out->append(LaterText(facts, later));
                      }));
}

std::string JournalLossText(const shards::JournalFacts& facts, const shards::JournalLoss& loss) {
  const std::string target = facts.newest.has_value()
                                 ? absl::StrCat("the newest checkpoint, ", facts.newest->path)
                                 : "the first weights, because there is no checkpoint";
  const absl::string_view remedy =
      facts.folder.empty()
          ? "Start this server with --durability=journal, and the --journal_dir that it had"
      : facts.damage.empty() ? "Bring the newer journal back (mount its disk, or restore the whole "
                               "folder), and start this server again"
                             : "End this server, replace the whole folder of the journal by an "
                               "undamaged copy, and start this server again";
  return absl::StrCat("THE COORDINATOR'S JOURNAL ",
                      facts.damage.empty() ? "IS OLDER than before, or missing" : "IS DAMAGED",
                      ": ", JournalLossReason(facts, loss),
                      ". The cluster waits, and nothing on disk is changed. ", remedy,
                      ". To accept the loss and go back to ", target,
                      ", start this server with --accept_loss=", loss.round.value());
}

absl::Status AcceptedOtherLoss(const shards::JournalFacts& facts, const shards::JournalLoss& loss) {
  return absl::FailedPreconditionError(absl::StrCat(
      "--accept_loss=", facts.accepted_loss->value(), " was given, but the round of this loss is ",
      loss.round.value(), ": ", JournalLossReason(facts, loss), ". Nothing was changed. Bring the ",
      facts.damage.empty() ? "newer journal" : "undamaged journal",
      " back, or give --accept_loss=", loss.round.value()));
}

std::string ReasonOfStop(int shard) {
  return shard == 0 ? "the coordinator was told to stop"
                    : absl::StrCat("the server of shard ", shard, " was told to stop");
}

absl::Status MemberRefusalStatus(const ClusterState& state,
                                 const std::optional<membership::MemberRefusal>& refusal) {
  if (!refusal.has_value()) return absl::OkStatus();
  switch (refusal->kind) {
    case membership::MemberRefusal::Kind::kNoRoom:
      return absl::UnavailableError(absl::StrCat(
          "the job has ", refusal->present,
          " workers, and --robust_mean=", job::RobustMeanText(state.model.job().robust_mean),
          " allows at most ", refusal->allowed, "; this worker joins when another has left"));
    case membership::MemberRefusal::Kind::kTooManyNames:
      return absl::UnavailableError(
          absl::StrCat("certificate '", refusal->subject, "' has ", refusal->present,
                       " workers here, and may have only ", refusal->allowed,
                       ". They have completed ", refusal->rounds_completed,
                       " rounds, and each completed round admits one more worker. The call is "
                       "retried automatically; give each machine a separate certificate"));
    case membership::MemberRefusal::Kind::kOtherFrozen:
      return absl::FailedPreconditionError(absl::StrCat(
          "frozen weights of this worker differ from those of worker '", refusal->subject,
          "'. Load the same frozen weights in all programs, for example from one checkpoint or "
          "with one seed, or train them. If they must differ, leave their hash out (Python: "
          "join(..., check_frozen=False))"));
  }
  return absl::OkStatus();
}

absl::Status ModelRefusalStatus(const ClusterState& state,
                                const std::optional<model::ModelRefusal>& refusal) {
  using Kind = model::ModelRefusal::Kind;
  if (!refusal.has_value()) return absl::OkStatus();
  const auto refuse_layout = [](const auto&... reason) {
    return absl::InvalidArgumentError(
        absl::StrCat("the layout that this program gives is refused: ", reason...));
  };
  switch (refusal->kind) {
    case Kind::kEncoding: {
      const job::JobSpec& job = state.model.job();
      const absl::string_view flag = refusal->subject;
      const params::Encoding encoding =
          flag == "push_encoding" ? job.push_encoding : job.pull_encoding;
      return absl::FailedPreconditionError(
          absl::StrCat("this job has --", flag, "=", params::EncodingText(encoding),
                       ", but this program can only use ",
                       absl::StrJoin(refusal->known, ", ",
                                     [](std::string* out, params::Encoding::Kind one) {
                                       absl::StrAppend(out, params::EncodingKindName(one));
                                     }),
                       "; use a newer program, or start the job with --", flag, "=",
                       params::EncodingKindName(refusal->known.front())));
    }
    case Kind::kOtherLayout:
      return absl::InvalidArgumentError(refusal->cause.message());
    case Kind::kOtherTensors:
    case Kind::kShards:
      return refusal->cause;
    case Kind::kLayoutHash:
      return absl::FailedPreconditionError(absl::StrCat(
          "this worker's model has layout hash ", refusal->subject, ", but the job's is ",
          state.model.layout()->hash(), "; build the model from the job's settings"));
    case Kind::kLacksLayout:
      return absl::UnavailableError(
          "not ready: the job waits for the first program to give the layout of the model; the "
          "call is "
          "retried automatically");
    case Kind::kAwaitsOther:
      return absl::UnavailableError(
          absl::StrCat("not ready: the job waits for ",
                       PeerText(refusal->subject, membership::MembershipTable::kMaxNameBytes),
                       ", which gave the job's settings, to supply the first weights; the call is "
                       "retried automatically"));
    case Kind::kSettings:
      return absl::InvalidArgumentError(absl::StrCat(
          "the settings that this program proposes are refused: ", refusal->cause.message()));
    case Kind::kTensors:
      return refuse_layout("it has ", refusal->present, " tensors, allowed are ", refusal->allowed);
    case Kind::kNames:
      return refuse_layout("the names and shapes of its tensors have ", refusal->present,
                           " bytes, allowed are ", refusal->allowed);
    case Kind::kMemory:
      return refuse_layout("it has ", refusal->present,
                           " elements, of which one server would hold ", refusal->largest_shard,
                           ": ", refusal->cause.message());
    case Kind::kCut:
      return refuse_layout(refusal->cause.message());
    case Kind::kBuckets:
      return refuse_layout("it would have ", refusal->present, " buckets, allowed are ",
                           refusal->allowed, "; give the server a larger --bucket_bytes");
  }
  return absl::OkStatus();
}

absl::Status DataRefusalStatus(absl::string_view name, const messages::DatasetInfo& data,
                               const std::optional<rounds::DataRefusal>& refusal) {
  using Kind = rounds::DataRefusal::Kind;
  if (!refusal.has_value()) return absl::OkStatus();
  switch (refusal->kind) {
    case Kind::kTooLarge:
      return absl::InvalidArgumentError(absl::StrCat(
          "the worker's data set has more than ", refusal->allowed, " samples: ", DataText(data),
          ". Check the numbers of samples that the training program gives"));
    case Kind::kNotSound:
      return absl::InvalidArgumentError(absl::StrCat(
          "the worker's data set has no training samples, or a negative size: ", DataText(data),
          "; check --data"));
    case Kind::kTooManySets:
      return absl::ResourceExhaustedError(absl::StrCat(
          "this job has already used ", refusal->allowed,
          " different data sets, which is the maximum. Give this worker one of those data sets"));
    case Kind::kOtherData:
      break;
  }
  // This worker may have brought the job's data itself, and then have changed its data. In that
  // case, the message names no other worker.
  const std::string& claimant = refusal->job.claimant;
  const bool is_other = !claimant.empty() && claimant != name;
  const std::string holder = absl::StrCat("worker '", claimant, "'");
  return absl::FailedPreconditionError(
      absl::StrCat("data set differs from the job's, ",
                   is_other           ? absl::StrCat("which ", holder, " has")
                   : claimant.empty() ? "which its checkpoint names"
                                      : "which this worker had before, so its data have changed",
                   ": this worker has ", DataText(data), "; the job has ",
                   DataText(refusal->job.info), ". Give ",
                   is_other ? absl::StrCat("--data with the same data as ", holder)
                            : "--data with the data that the job began with",
                   ", or give --data_partition=own",
                   HaveEqualCounts(data, refusal->job.info) ? kHowToCompareData : ""));
}

std::string MemberAlarmText(const ClusterState& state, const membership::MemberAlarm& alarm) {
  switch (alarm.kind) {
    case membership::MemberAlarm::Kind::kFormerStart:
      return absl::StrCat(
          "the job began at round 0, because --checkpoint_dir=", alarm.folder,
          " has no checkpoint. But worker '", alarm.worker, "' has contributed to round ",
          alarm.round.value(),
          " of an earlier job of servers at this address. To continue that job, "
          "stop this server and start it with the folder of that job. If this is a "
          "new job, end that worker, and start this server again with "
          "--resume=never, because the data of that worker are now part of this job");
    case membership::MemberAlarm::Kind::kOtherServers:
      if (alarm.is_one_of_many) {
        return "more workers have contributed to an earlier run that this run does not continue";
      }
      return absl::StrCat(
          "worker '", alarm.worker, "' has contributed to round ", alarm.round.value(),
          " of a run that this run does not continue. The worker may belong to another job that "
          "had this address. It now trains with this job; to end that, run `psctl evict ",
          alarm.worker, "`");
    case membership::MemberAlarm::Kind::kLacksReport:
      if (alarm.is_one_of_many) {
        return "more workers report acknowledged rounds that these servers do not know";
      }
      return absl::StrCat("worker '", alarm.worker, "' reports that its round ",
                          alarm.round.value(),
                          " was acknowledged, but these servers are only at round ",
                          state.rounds.ledger().next_round().value(),
                          ". Unless the worker is wrong, the servers' disks were set back to an "
                          "older state, and later rounds are lost. The worker joins again");
  }
  return "";
}

absl::Status LacksReportStatus(const ClusterState& state, Round round) {
  return absl::AbortedError(
      absl::StrCat("the servers are at round ", state.rounds.ledger().next_round().value(),
                   " and do not know round ", round.value(),
                   ", which was acknowledged to this worker; the worker joins again"));
}

absl::Status ReportRefusal(const messages::RoundReport& report,
                           const rounds::ReportVerdict& verdict) {
  const std::string subject = absl::StrCat("report of round ", report.round.value());
  switch (verdict.kind) {
    case rounds::ReportVerdict::Kind::kCurrent:
    case rounds::ReportVerdict::Kind::kRepeat:
      return absl::OkStatus();
    case rounds::ReportVerdict::Kind::kTooManyPredictions:
      return absl::InvalidArgumentError(
          absl::StrCat(subject, " has ", report.num_predictions, " predictions, ",
                       report.heldout_predictions, " held-out predictions, ",
                       report.heldout_correct, " of them correct; at most ", verdict.allowed,
                       " predictions are allowed, and correct predictions cannot be more than "
                       "held-out predictions"));
    case rounds::ReportVerdict::Kind::kTooManySamples:
      return absl::InvalidArgumentError(
          absl::StrCat(subject, " has ", report.num_samples, " samples, ", report.num_predictions,
                       " predictions, ", report.heldout_predictions,
                       " held-out predictions; numbers must not be negative, and the worker was "
                       "granted at most ",
                       verdict.allowed, " samples"));
    case rounds::ReportVerdict::Kind::kNotGranted:
      return absl::InvalidArgumentError(absl::StrCat(
          subject, ", but the worker ",
          verdict.granted.has_value() ? absl::StrCat("was granted round ", verdict.granted->value())
                                      : "has no grant",
          "; a worker may report only rounds that were granted to its present incarnation"));
  }
  return absl::OkStatus();
}

}  // namespace lodestar::coordinator
