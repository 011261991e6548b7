// The mark in the journal folder of a shard that is replicated. It says which side of the pair the
// folder is, and by which term. A term is the time during which one process writes to the replica.
// The replica takes changes of one term only, and a new term begins only where the last has ended.
// If other servers have gone on without a server, that server can therefore acknowledge nothing any
// more.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/storage/file_system.h"

namespace lodestar::replica {

// The name of the file, below the journal folder of the shard.
inline constexpr char kReplicationMarkName[] = "REPLICATION";

enum class ReplicationSide { kServer, kReplica };

struct ReplicationMark {
  ReplicationSide side = ReplicationSide::kServer;
  uint64_t term = 0;  // 0 means that there was no term yet.
  // The terms that a server has asked for since, and may have got.
  std::vector<uint64_t> asked_for;
  bool is_whole = true;  // False means that the first copy is under way, in this folder.
  std::string peer;      // Names the server or replica that has the other side, for people.
  std::string since;     // When the term began, for people.
};

// Returns nothing if there is no mark. Errors: DataLoss naming the file; those of the disk.
absl::StatusOr<std::optional<ReplicationMark>> ReadReplicationMark(FileSystem& disk,
                                                                   const std::string& folder);
// The mark is on disk when it returns.
absl::Status WriteReplicationMark(FileSystem& disk, const std::string& folder,
                                  const ReplicationMark& mark);
absl::Status RemoveReplicationMark(FileSystem& disk, const std::string& folder);

// What a server finds when it starts, and what its flags say.
struct ReplicationStart {
  std::string folder;                   // It is named in errors.
  std::optional<ReplicationMark> mark;  // The mark in the folder.
  // Whether the folder has a journal, or the coordinator's folder beside it has one.
  bool has_journal = false;
  bool wants_replica = false;  // Whether --journal_replica is given.
  bool may_promote = false;    // Whether --promote is given.
  bool is_leader = false;      // Whether a lease says that no other server goes on at present.
};

// How the server begins.
struct ReplicationPlan {
  // Whether the mark goes, because the folder has another role from here on.
  bool drops_mark = false;
  std::vector<uint64_t> previous;  // The terms that it goes on from, the last known one first.
  bool has_nothing = false;        // It goes on from what the replica has.
  bool may_begin_copy = true;      // Whether an empty replica may be filled.
};

// Errors: FailedPrecondition if another server may have gone on since, or if the copy is not whole.
// The text says what to do.
absl::StatusOr<ReplicationPlan> JudgeStart(const ReplicationStart& start);

// What a server asks of its replica.
struct TermRequest {
  uint64_t term = 0;
  // A term may have several connections, one after the other. What an earlier one has sent counts
  // no more.
  uint64_t connection = 0;  // A random number.
  std::vector<uint64_t> previous;
  bool has_nothing = false;
  bool may_begin_copy = true;
  int shard = 0;
  int num_shards = 1;
  std::string checkpoint_dir;  // Records of the server's journal name it.
  std::string server;          // for people
};

enum class TermVerdict {
  kUpdate,  // the server sends what the replica lacks
  kFetch,   // the server takes what the replica has
};

// `mark` is the replica's mark for that shard. Errors: Aborted if another server has gone on since;
// FailedPrecondition if one may have, or if the replica has nothing whole for a server that has
// nothing.
absl::StatusOr<TermVerdict> JudgeTerm(const std::optional<ReplicationMark>& mark,
                                      const TermRequest& request);

}  // namespace lodestar::replica
