// SPDX-License-Identifier: Apache-2.0

// Finds out whether the coordinator's journal has lost something. There are two cases:
// - The journal is older than what shards and checkpoints know, for example because its disk was
//   restored from a snapshot.
// - The journal is damaged or missing, although it has acknowledged rounds.
//
// Pure. The caller compares once per process, when all shards have attached and before it answers a
// worker.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "common/checkpoints/journal_manifest.h"
#include "common/runtime/ids.h"
#include "server/coordinator/shards/journal_state.h"

namespace lodestar::shards {

// The newest checkpoint that the cluster could be restored from.
struct KnownCheckpoint {
  std::string path;
  Round round;
  uint64_t server_incarnation = 0;
  checkpoints::JournalManifest journal;
};

// What the coordinator's process found when it began.
struct JournalFacts {
  std::string folder;  // folder of the coordinator's journal; empty means that there is no journal
  // Last record of the journal. If an earlier release wrote the journal, it has a `number` but no
  // `journal_id`.
  CoordinatorRecord end;
  // A message for operators that says why the journal cannot be read. Empty means that the journal
  // is not damaged. If it is damaged, all of `end` is 0.
  std::string damage;
  // Random ID for a new journal, if this process begins one.
  uint64_t new_journal_id = 0;
  std::optional<KnownCheckpoint> newest;
  // True means that the operator has chosen what to start from. Then nothing counts as lost.
  bool is_excused = false;
  std::optional<Round> accepted_loss;  // --accept_loss
  // True means that a replica has taken the server's place. It may lack records. Their loss is
  // accepted.
  bool is_promoted = false;
};

// What the coordinator has read from its journal, if it continues from the journal.
struct ResumedMemory {
  uint64_t server_incarnation = 0;
  Round next_round;  // rounds before it were opened or granted
};

// What a shard knows, as reported when its server attached.
struct ShardKnowledge {
  int shard = 0;
  uint64_t memory_of = 0;  // server incarnation; 0 means that the server has no memory
  JournalPlace journal;
};

// Something that a shard or a checkpoint knows beyond the end of the journal.
struct LaterKnowledge {
  enum class Kind : uint8_t {
    kShardRecord,             // `shard` has obeyed the later `record`, and knows `round`.
    kShardOtherJournal,       // `shard` has obeyed `record` of another journal, and knows `round`.
    kShardRound,              // `shard` has contributions to the later `round`.
    kCheckpointRecord,        // The newest checkpoint is of `round`, and was made after `record`.
    kCheckpointOtherJournal,  // The newest checkpoint says: another journal has `round` and later.
    kMayBeInDamaged,          // The journal is damaged, and no checkpoint is marked as complete.
  };
  Kind kind = Kind::kMayBeInDamaged;
  int shard = 0;
  uint64_t record = 0;
  int64_t round = -1;  // -1 means none
  friend bool operator==(const LaterKnowledge&, const LaterKnowledge&) = default;
};

struct JournalLoss {
  Round round;  // highest round that a shard or checkpoint knows; --accept_loss names it
  std::optional<Round> next_round =
      std::nullopt;  // See ResumedMemory. Not set means that the journal had no memory.
  std::vector<LaterKnowledge> later = {};
  friend bool operator==(const JournalLoss&, const JournalLoss&) = default;
};

// Returns what the journal has lost. Not set means that nothing is lost. `resumed` is not set if
// the coordinator does not continue from its journal.
std::optional<JournalLoss> FindJournalLoss(const JournalFacts& facts,
                                           const std::optional<ResumedMemory>& resumed,
                                           absl::Span<const ShardKnowledge> shards);

// Whether the operator accepts a loss.
enum class LossAcceptance : uint8_t {
  kNone,
  kAccepted,
  kOfAnotherRound,  // --accept_loss names a round that is not the round of the loss.
};
LossAcceptance AcceptanceOf(const JournalFacts& facts, const JournalLoss& loss);

}  // namespace lodestar::shards
