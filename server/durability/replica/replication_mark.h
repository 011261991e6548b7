// SPDX-License-Identifier: Apache-2.0

// The mark in the journal folder of a replicated shard says whether the folder is the server's or
// the replica's, and in which term. A term is the time during which one process writes to the
// replica. The replica accepts changes of one term only. A new term begins only if its server goes
// on from all that the term before has written. So if another server has gone on from the replica,
// the earlier server can no longer acknowledge anything.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/storage/file_system.h"

namespace lodestar::replica {

// Name of the file in the journal folder of the shard.
inline constexpr char kReplicationMarkName[] = "REPLICATION";

enum class ReplicationSide { kServer, kReplica };

struct ReplicationMark {
  ReplicationSide side = ReplicationSide::kServer;
  uint64_t term = 0;  // 0 means that there was no term yet
  // Terms later than `term` that a server has asked for. The replica may have granted them.
  std::vector<uint64_t> asked_for;
  bool is_whole = true;  // false: the first copy into this folder is under way
  std::string peer;      // name of the server or replica on the other side, for operators
  std::string since;     // when the term began, for operators
};

// Reads the mark in `folder`. Returns nothing if there is no mark. Errors: DataLoss, naming the
// file; those of the disk.
absl::StatusOr<std::optional<ReplicationMark>> ReadReplicationMark(storage::FileSystem& disk,
                                                                   const std::string& folder);
// Writes the mark. The mark is on disk when it returns.
absl::Status WriteReplicationMark(storage::FileSystem& disk, const std::string& folder,
                                  const ReplicationMark& mark);
absl::Status RemoveReplicationMark(storage::FileSystem& disk, const std::string& folder);

// A ReplicationStart has what a server finds when it starts, and what its flags say.
struct ReplicationStart {
  std::string folder;                   // named in errors
  std::optional<ReplicationMark> mark;  // the mark in the folder
  // True: the folder has a journal, or the coordinator's folder beside it has one.
  bool has_journal = false;
  bool wants_replica = false;  // true: --journal_replica is given
  bool may_promote = false;    // true: --promote is given
  bool is_leader = false;      // true: a lease says that no other server runs at present
};

// A ReplicationPlan says how the server begins.
struct ReplicationPlan {
  // True: the mark is removed, because the folder is neither a replica nor replicated from now on.
  bool drops_mark = false;
  std::vector<uint64_t> previous;  // terms that the server goes on from, the last known one first
  bool has_nothing = false;        // true: the server goes on from what the replica has
  bool may_begin_copy = true;      // true: an empty replica may be filled
};

// Decides how a server begins. Errors: FailedPrecondition, saying what to do (another server may
// have gone on since, or the copy is incomplete).
absl::StatusOr<ReplicationPlan> JudgeStart(const ReplicationStart& start);

// A TermRequest is the request of a server that its replica begins a term.
struct TermRequest {
  uint64_t term = 0;
  // A term may have several connections, one after the other. Messages of an earlier connection are
  // ignored.
  uint64_t connection = 0;  // a random number
  std::vector<uint64_t> previous;
  bool has_nothing = false;
  bool may_begin_copy = true;
  int shard = 0;
  int num_shards = 1;
  std::string checkpoint_dir;  // named by records of the server's journal
  std::string server;          // name of the server, for operators
};

enum class TermVerdict {
  kUpdate,  // the server sends what the replica lacks
  kFetch,   // the server takes what the replica has
};

// Decides whether the requested term may begin. `mark` is the replica's mark for the shard of
// `request`. Errors: Aborted (another server has written records of the shard since the last term
// of this server); FailedPrecondition (another server may have written such records, or the server
// has no journal and the replica has no complete copy).
absl::StatusOr<TermVerdict> JudgeTerm(const std::optional<ReplicationMark>& mark,
                                      const TermRequest& request);

}  // namespace lodestar::replica
