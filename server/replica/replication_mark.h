// The mark in the journal folder of a shard that is replicated: which side of the pair the folder
// is of, and by which term. A term is the time during which one process writes to the replica; the
// replica takes changes of one term only, and a new one begins only where the last has ended, so
// that a server that others have gone on without can acknowledge nothing any more.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/file_system.h"

namespace lodestar {

// Of the file, below the journal folder of the shard.
inline constexpr char kReplicationMarkName[] = "REPLICATION";

enum class ReplicationSide { kServer, kReplica };

struct ReplicationMark {
  ReplicationSide side = ReplicationSide::kServer;
  uint64_t term = 0;  // 0: there was none yet
  // Those that a server has asked for since, and may have got.
  std::vector<uint64_t> asked_for;
  bool is_whole = true;  // false: the first copy is under way, in this folder
  std::string peer;      // who has the other side; for people
  std::string since;     // when the term began; for people
};

// Nothing if there is none. Errors: DataLoss naming the file; those of the disk.
absl::StatusOr<std::optional<ReplicationMark>> ReadReplicationMark(FileSystem& disk,
                                                                   const std::string& folder);
// On disk when it returns.
absl::Status WriteReplicationMark(FileSystem& disk, const std::string& folder,
                                  const ReplicationMark& mark);
absl::Status RemoveReplicationMark(FileSystem& disk, const std::string& folder);

// What a server that starts finds and is told.
struct ReplicationStart {
  std::string folder;                   // for errors
  std::optional<ReplicationMark> mark;  // in it
  bool has_journal = false;             // in it, or of the coordinator beside it
  bool wants_replica = false;           // --journal_replica
  bool may_promote = false;             // --promote
  bool is_leader = false;               // a lease says that no other server goes on at present
};

// How it begins.
struct ReplicationPlan {
  bool drops_mark = false;         // what the folder is from here on is another thing
  std::vector<uint64_t> previous;  // terms that it goes on from, the last known one first
  bool has_nothing = false;        // it goes on from what the replica has
  bool may_begin_copy = true;      // of an empty replica
};

// Errors: FailedPrecondition, where another server may have gone on since, or the copy is not
// whole; the text says what to do.
absl::StatusOr<ReplicationPlan> JudgeStart(const ReplicationStart& start);

// What a server asks of its replica.
struct TermRequest {
  uint64_t term = 0;
  // Of the term several may follow one another; what an earlier one has sent counts no more.
  uint64_t connection = 0;  // random
  std::vector<uint64_t> previous;
  bool has_nothing = false;
  bool may_begin_copy = true;
  int shard = 0;
  int num_shards = 1;
  std::string checkpoint_dir;  // records of its journal name it
  std::string server;          // for people
};

enum class TermVerdict {
  kUpdate,  // the server sends what the replica lacks
  kFetch,   // the server takes what the replica has
};

// `mark`: the replica's, of that shard. Errors: Aborted if another server has gone on since;
// FailedPrecondition if one may have, or if the replica has nothing whole for a server that has
// nothing.
absl::StatusOr<TermVerdict> JudgeTerm(const std::optional<ReplicationMark>& mark,
                                      const TermRequest& request);

}  // namespace lodestar
