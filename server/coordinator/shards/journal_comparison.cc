// SPDX-License-Identifier: Apache-2.0

#include "server/coordinator/shards/journal_comparison.h"

#include <algorithm>

namespace lodestar::shards {
namespace {

// Returns true if the newest checkpoint has all rounds of this shard. Used for a shard that has
// carried out commands of another journal.
bool HasRoundsOf(const std::optional<KnownCheckpoint>& checkpoint, const JournalPlace& shard) {
  if (!checkpoint.has_value()) return shard.highest_round < 0;
  const bool is_complete =
      checkpoint->journal.is_complete && checkpoint->journal.journal_id == shard.follows.journal_id;
  return is_complete || shard.highest_round < checkpoint->round.value();
}

// Returns what the shard knows beyond the end of the journal. Not set means that it knows nothing
// more.
std::optional<LaterKnowledge> LaterIn(const ShardKnowledge& shard, const JournalFacts& facts,
                                      const std::optional<ResumedMemory>& resumed) {
  using Kind = LaterKnowledge::Kind;
  const CoordinatorRecord& follows = shard.journal.follows;
  if (follows.journal_id == 0) return std::nullopt;
  LaterKnowledge later = {
      .shard = shard.shard, .record = follows.number, .round = shard.journal.highest_round};
  if (follows.journal_id == facts.end.journal_id) {
    if (follows.number > facts.end.number) {
      later.kind = Kind::kShardRecord;
      return later;
    }
    // In an asynchronous mode, no command tells a shard of a granted round. So the rounds are
    // compared, too.
    const bool has_later_round = resumed.has_value() &&
                                 shard.memory_of == resumed->server_incarnation &&
                                 shard.journal.highest_round >= resumed->next_round.value();
    if (!has_later_round) return std::nullopt;
    later.kind = Kind::kShardRound;
    return later;
  }
  const bool is_known = resumed.has_value() ? shard.memory_of <= resumed->server_incarnation
                                            : HasRoundsOf(facts.newest, shard.journal);
  if (is_known) return std::nullopt;
  later.kind = Kind::kShardOtherJournal;
  return later;
}

// Returns what the newest checkpoint has beyond the end of the journal. Not set means that it has
// nothing more.
std::optional<LaterKnowledge> LaterIn(const KnownCheckpoint& checkpoint, const JournalFacts& facts,
                                      const std::optional<ResumedMemory>& resumed) {
  using Kind = LaterKnowledge::Kind;
  const checkpoints::JournalManifest& journal = checkpoint.journal;
  if (journal.journal_id == 0) return std::nullopt;
  LaterKnowledge later = {.record = journal.record, .round = checkpoint.round.value()};
  if (journal.journal_id == facts.end.journal_id) {
    if (journal.record <= facts.end.number) return std::nullopt;
    later.kind = Kind::kCheckpointRecord;
    return later;
  }
  const bool is_before =
      resumed.has_value() && resumed->server_incarnation > checkpoint.server_incarnation;
  if (is_before || journal.is_complete) return std::nullopt;
  later.kind = Kind::kCheckpointOtherJournal;
  return later;
}

}  // namespace

std::optional<JournalLoss> FindJournalLoss(const JournalFacts& facts,
                                           const std::optional<ResumedMemory>& resumed,
                                           absl::Span<const ShardKnowledge> shards) {
  const bool is_of_earlier_release = facts.end.number != 0 && facts.end.journal_id == 0;
  if (facts.is_excused || is_of_earlier_release) return std::nullopt;
  JournalLoss loss;
  if (resumed.has_value()) loss.next_round = resumed->next_round;
  int64_t round = 0;
  const auto add = [&loss](const std::optional<LaterKnowledge>& later) {
    if (later.has_value()) loss.later.push_back(*later);
  };
  for (const ShardKnowledge& shard : shards) {
    round = std::max(round, shard.journal.highest_round);
    add(LaterIn(shard, facts, resumed));
  }
  if (facts.newest.has_value()) {
    round = std::max(round, facts.newest->round.value());
    add(LaterIn(*facts.newest, facts, resumed));
  }
  const bool is_all_in_checkpoint = facts.newest.has_value() && facts.newest->journal.is_complete;
  if (loss.later.empty() && !facts.damage.empty() && !is_all_in_checkpoint) {
    add(LaterKnowledge{.kind = LaterKnowledge::Kind::kMayBeInDamaged});
  }
  if (loss.later.empty()) return std::nullopt;
  loss.round = Round(round);
  return loss;
}

LossAcceptance AcceptanceOf(const JournalFacts& facts, const JournalLoss& loss) {
  if (facts.is_promoted) return LossAcceptance::kAccepted;
  if (!facts.accepted_loss.has_value()) return LossAcceptance::kNone;
  return *facts.accepted_loss == loss.round ? LossAcceptance::kAccepted
                                            : LossAcceptance::kOfAnotherRound;
}

}  // namespace lodestar::shards
