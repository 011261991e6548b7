#include "server/coordinator/journal_comparison.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace lodestar {
namespace {

// "the coordinator's journal run/journal/coordinator ends with record 812, before round 302".
std::string EndText(const JournalFacts& facts, const std::optional<ResumedMemory>& resumed) {
  if (facts.folder.empty()) return "this server keeps no journal (--durability=checkpoint)";
  if (!facts.damage.empty()) return facts.damage;
  const std::string journal = absl::StrCat("the coordinator's journal ", facts.folder);
  if (facts.end.number == 0) return absl::StrCat(journal, " is empty");
  return absl::StrCat(
      journal, " ends with record ", facts.end.number,
      resumed.has_value() ? absl::StrCat(", before round ", resumed->next_round.value()) : "");
}

// Whether the rounds that a shard knows of are in the checkpoint, if its journal is not ours.
bool HasRoundsOf(const std::optional<KnownCheckpoint>& checkpoint, const JournalPlace& shard) {
  if (!checkpoint.has_value()) return shard.highest_round < 0;
  const bool is_complete =
      checkpoint->journal.is_complete && checkpoint->journal.journal_id == shard.follows.journal_id;
  return is_complete || shard.highest_round < checkpoint->round.value();
}

// What the shard knows and the journal does not have; empty if there is nothing.
std::string LaterIn(const ShardKnowledge& shard, const JournalFacts& facts,
                    const std::optional<ResumedMemory>& resumed) {
  const CoordinatorRecord& follows = shard.journal.follows;
  if (follows.journal_id == 0) return "";
  const std::string round = shard.journal.highest_round < 0
                                ? ""
                                : absl::StrCat(", of round ", shard.journal.highest_round);
  if (follows.journal_id == facts.end.journal_id) {
    if (follows.number > facts.end.number) {
      return absl::StrCat("shard ", shard.shard, " follows record ", follows.number, round);
    }
    // Grants of asynchronous modes lead to no command.
    const bool has_later_round = resumed.has_value() &&
                                 shard.memory_of == resumed->server_incarnation &&
                                 shard.journal.highest_round >= resumed->next_round.value();
    return has_later_round
               ? absl::StrCat("shard ", shard.shard, " has taken contributions to round ",
                              shard.journal.highest_round)
               : "";
  }
  const bool is_known = resumed.has_value() ? shard.memory_of <= resumed->server_incarnation
                                            : HasRoundsOf(facts.newest, shard.journal);
  return is_known ? ""
                  : absl::StrCat("shard ", shard.shard, " follows record ", follows.number,
                                 facts.damage.empty() ? " of another journal" : "", round);
}

// The same of the newest checkpoint.
std::string LaterIn(const KnownCheckpoint& checkpoint, const JournalFacts& facts,
                    const std::optional<ResumedMemory>& resumed) {
  const JournalManifest& journal = checkpoint.journal;
  if (journal.journal_id == 0) return "";
  if (journal.journal_id == facts.end.journal_id) {
    if (journal.record <= facts.end.number) return "";
    return absl::StrCat("checkpoint ", checkpoint.path, " follows record ", journal.record,
                        ", of round ", checkpoint.round.value());
  }
  const bool is_before =
      resumed.has_value() && resumed->server_incarnation > checkpoint.server_incarnation;
  if (is_before || journal.is_complete) return "";
  return absl::StrCat("checkpoint ", checkpoint.path, " says that rounds from ",
                      checkpoint.round.value(), " on are in ",
                      facts.damage.empty() ? "another" : "the", " journal");
}

}  // namespace

std::optional<JournalLoss> FindJournalLoss(const JournalFacts& facts,
                                           const std::optional<ResumedMemory>& resumed,
                                           absl::Span<const ShardKnowledge> shards) {
  const bool is_of_earlier_release = facts.end.number != 0 && facts.end.journal_id == 0;
  if (facts.is_excused || is_of_earlier_release) return std::nullopt;
  std::vector<std::string> later;
  int64_t round = 0;
  for (const ShardKnowledge& shard : shards) {
    round = std::max(round, shard.journal.highest_round);
    if (std::string text = LaterIn(shard, facts, resumed); !text.empty()) {
      later.push_back(std::move(text));
    }
  }
  if (facts.newest.has_value()) {
    round = std::max(round, facts.newest->round.value());
    if (std::string text = LaterIn(*facts.newest, facts, resumed); !text.empty()) {
      later.push_back(std::move(text));
    }
  }
  const bool is_all_in_checkpoint = facts.newest.has_value() && facts.newest->journal.is_complete;
  if (later.empty() && !facts.damage.empty() && !is_all_in_checkpoint) {
    later.emplace_back("no checkpoint says that it has all of it");
  }
  if (later.empty()) return std::nullopt;
  return JournalLoss{
      Round(round), absl::StrCat(EndText(facts, resumed), ", and ", absl::StrJoin(later, " and "))};
}

std::string JournalLossText(const JournalFacts& facts, const JournalLoss& loss) {
  const std::string target = facts.newest.has_value()
                                 ? absl::StrCat("the newest checkpoint, ", facts.newest->path)
                                 : "the first weights, because there is no checkpoint";
  const absl::string_view remedy =
      facts.folder.empty()
          ? "Start this server with --durability=journal, and the --journal_dir that it had"
      : facts.damage.empty()
          ? "Bring the newer journal back (mount its disk, or restore its folder as a whole), and "
            "start this server again"
          : "End this server, replace the journal's folder with a sound copy of it as a whole, and "
            "start this server again";
  return absl::StrCat("THE COORDINATOR'S JOURNAL ",
                      facts.damage.empty() ? "HAS GONE BACK, or is missing" : "IS DAMAGED", ": ",
                      loss.what, ". The cluster waits, and nothing on disk is changed. ", remedy,
                      ". To lose the rounds since then and go back to ", target,
                      ", start it with --accept_loss=", loss.round.value());
}

absl::StatusOr<bool> IsLossAccepted(const JournalFacts& facts, const JournalLoss& loss) {
  if (facts.is_promoted) return true;
  if (!facts.accepted_loss.has_value()) return false;
  if (*facts.accepted_loss == loss.round) return true;
  return absl::FailedPreconditionError(absl::StrCat(
      "--accept_loss=", facts.accepted_loss->value(), " is not the round of this loss, which is ",
      loss.round.value(), ": ", loss.what, ". Nothing was changed. Bring the ",
      facts.damage.empty() ? "newer journal" : "sound journal",
      " back, or give --accept_loss=", loss.round.value()));
}

}  // namespace lodestar
