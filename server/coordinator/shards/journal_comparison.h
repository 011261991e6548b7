// Whether the coordinator's journal is older than what shards and checkpoints know of it, as after
// its disk was restored from a snapshot, or is damaged or not there although rounds were
// acknowledged by it.
// Pure. Compared once per process, when all shards have attached, before a worker is answered.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "common/checkpoints/journal_manifest.h"
#include "common/runtime/ids.h"
#include "server/coordinator/shards/journal_state.h"

namespace lodestar {

// The newest checkpoint in the folders that the cluster would be restored from.
struct KnownCheckpoint {
  std::string path;
  Round round;
  uint64_t server_incarnation = 0;
  JournalManifest journal;
};

// What the coordinator's process has found when it began.
struct JournalFacts {
  std::string folder;  // The folder of the coordinator's journal. Empty means that none is kept.
  // The last record there. `number` without `journal_id` means that an earlier release wrote it.
  CoordinatorRecord end;
  // Why what is there cannot be read, for people. Empty means that the journal is not damaged. Of a
  // damaged one nothing is known: `end` has zeros.
  std::string damage;
  uint64_t new_journal_id = 0;  // Random: of the journal that this process begins, if it does.
  std::optional<KnownCheckpoint> newest;
  // The operator says from where to start.
  bool is_excused = false;
  std::optional<Round> accepted_loss;  // --accept_loss
  // A replica takes the server's place, and may lack records: what is lost is accepted.
  bool is_promoted = false;
};

// What a coordinator goes on with that has found its memory in the journal.
struct ResumedMemory {
  uint64_t server_incarnation = 0;
  Round next_round;  // Rounds before it were opened, or granted.
};

// One shard, as its server has attached.
struct ShardKnowledge {
  int shard = 0;
  uint64_t memory_of = 0;  // Server incarnation. 0 means that the server has no memory.
  JournalPlace journal;
};

// What is later than the end of the journal.
struct LaterKnowledge {
  enum class Kind : uint8_t {
    kShardRecord,             // `shard` follows the later `record`, of `round`.
    kShardOtherJournal,       // `shard` follows `record` of another journal, of `round`.
    kShardRound,              // `shard` has taken contributions to rounds up to the later `round`.
    kCheckpointRecord,        // The newest checkpoint, of `round`, follows the later `record`.
    kCheckpointOtherJournal,  // It says that another journal has the rounds from `round` on.
    kMayBeInDamaged,  // The journal is damaged, and no checkpoint says that it has all of it.
  };
  Kind kind = Kind::kMayBeInDamaged;
  int shard = 0;
  uint64_t record = 0;
  int64_t round = -1;  // -1 means none.
  friend bool operator==(const LaterKnowledge&, const LaterKnowledge&) = default;
};

struct JournalLoss {
  Round round;  // The highest that a shard or a checkpoint knows of. --accept_loss names it.
  std::optional<Round> next_round =
      std::nullopt;  // See ResumedMemory. Not set means that there was no memory.
  std::vector<LaterKnowledge> later = {};
  friend bool operator==(const JournalLoss&, const JournalLoss&) = default;
};

// Returns what the journal has lost. Not set means that nothing is lost. `resumed` is not set if
// the journal has no memory.
std::optional<JournalLoss> FindJournalLoss(const JournalFacts& facts,
                                           const std::optional<ResumedMemory>& resumed,
                                           absl::Span<const ShardKnowledge> shards);

// Whether the operator accepts that something is lost.
enum class LossAcceptance : uint8_t {
  kNone,
  kAccepted,
  kOfAnotherRound,  // --accept_loss names another round than that of the loss.
};
LossAcceptance AcceptanceOf(const JournalFacts& facts, const JournalLoss& loss);

}  // namespace lodestar
