// SPDX-License-Identifier: Apache-2.0

// The mark in the journal folder of a replicated shard. It says whether the folder is a server's or
// a replica's, and names the term.
//
// A term is the time during which one process writes to the replica. The replica accepts the
// changes of one term only. It begins a new term only for a server that resumes from everything of
// the last term. So if another server has resumed from the replica, the earlier server can
// acknowledge nothing more.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/storage/file_system.h"

namespace lodestar::replica {

// Name of the mark's file in the shard's journal folder.
inline constexpr char kReplicationMarkName[] = "REPLICATION";

enum class ReplicationSide { kServer, kReplica };

struct ReplicationMark {
  ReplicationSide side = ReplicationSide::kServer;
  uint64_t term = 0;  // 0 means that there was no term yet
  // Terms after `term` that a server has asked for without getting an answer. The replica may have
  // begun one of them.
  std::vector<uint64_t> asked_for;
  bool is_whole = true;  // false: the first copy into this folder is under way
  std::string peer;      // name of the server or replica on the other side, for operators
  std::string since;     // when the term began, for operators
};

// Reads the mark in `folder`. Returns nothing if there is no mark. Errors: DataLoss (names the
// damaged file); Unimplemented (a newer release has written it); those of the disk.
absl::StatusOr<std::optional<ReplicationMark>> ReadReplicationMark(storage::FileSystem& disk,
                                                                   const std::string& folder);
// Writes the mark. It is on disk when the function returns.
absl::Status WriteReplicationMark(storage::FileSystem& disk, const std::string& folder,
                                  const ReplicationMark& mark);
absl::Status RemoveReplicationMark(storage::FileSystem& disk, const std::string& folder);

// A ReplicationStart has what a starting server finds in its folder, and its flags.
struct ReplicationStart {
  std::string folder;                   // named in errors
  std::optional<ReplicationMark> mark;  // the mark in the folder
  // True means that this folder or the coordinator's folder next to it has a journal.
  bool has_journal = false;
  bool wants_replica = false;  // true: --journal_replica is given
  bool may_promote = false;    // true: --promote is given
  bool is_leader = false;      // true: a lease says that no other server runs at present
};

// A ReplicationPlan says how a server must begin its replication.
struct ReplicationPlan {
  // True means that the mark must be removed: from now on, the folder is neither a replica nor
  // replicated.
  bool drops_mark = false;
  std::vector<uint64_t> previous;  // terms that the server goes on from, the last known one first
  bool has_nothing = false;        // true: the server goes on from what the replica has
  bool may_begin_copy = true;      // true: an empty replica may be filled
};

// Decides how a server begins. Errors: FailedPrecondition (another server may have resumed from a
// copy, or this copy is incomplete; the text says what to do).
absl::StatusOr<ReplicationPlan> JudgeStart(const ReplicationStart& start);

// A TermRequest is a server's request to begin a term on its replica.
struct TermRequest {
  uint64_t term = 0;
  // A term may have several connections, one after another. Only messages of the newest one are
  // accepted.
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

// Decides whether the requested term may begin. `mark` is the replica's mark for the shard. Errors:
// Aborted (another server has written to the replica since this server's last term);
// FailedPrecondition (another server may have done so, or the server has no journal and the replica
// has no complete copy).
absl::StatusOr<TermVerdict> JudgeTerm(const std::optional<ReplicationMark>& mark,
                                      const TermRequest& request);

}  // namespace lodestar::replica
