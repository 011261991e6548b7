// SPDX-License-Identifier: Apache-2.0

// The calls that a server makes to its replica. In tests they need no network.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/durability/replica/file_change.h"
#include "server/durability/replica/mirrored_folders.h"
#include "server/durability/replica/replication_mark.h"

namespace lodestar::replica {

struct TermGrant {
  TermVerdict verdict = TermVerdict::kUpdate;
  bool keeps_checkpoints = false;  // false: the replica keeps only journals
};

// A ReplicaLane carries changes to the replica in the order of sending. Two lanes have no common
// order. After an error, the lane carries no further change. Thread-safe.
class ReplicaLane {
 public:
  virtual ~ReplicaLane() = default;
  // Sends a change. May return before the replica has made the change. Blocks while the replica is
  // too busy to accept it.
  virtual absl::Status Send(FileChange change) = 0;
  // Asks the replica to report when all changes sent before Ask() are done. Returns a number for
  // Await().
  virtual absl::StatusOr<uint64_t> Ask() = 0;
  // Blocks until all changes are done that were sent before Ask() returned `question`.
  virtual absl::Status Await(uint64_t question) = 0;
};

// Errors of all calls: Unavailable (the replica does not answer); Aborted (another server writes to
// the replica); those of the replica's disk.
class ReplicaConnection {
 public:
  virtual ~ReplicaConnection() = default;
  // Begins a term, and ends all earlier terms and connections. Must be called first. Errors also:
  // those of JudgeTerm(); InvalidArgument (the two sides have different settings); AlreadyExists
  // (another process uses the replica's folders).
  virtual absl::StatusOr<TermGrant> BeginTerm(const TermRequest& request) = 0;
  // Checks that the term of this connection has not ended. Returns soon, even if the disk hangs.
  virtual absl::Status CheckTerm() = 0;
  // Lists the files of the term's shard. See MirroredFolders::List().
  virtual absl::StatusOr<std::vector<FileEntry>> ListFiles() = 0;
  virtual absl::Status ReadFile(const MirroredPath& path,
                                absl::FunctionRef<absl::Status(absl::string_view block)> take) = 0;
  virtual absl::StatusOr<std::unique_ptr<ReplicaLane>> OpenLane() = 0;
  // Makes all running and later calls return Unavailable. Thread-safe.
  virtual void Cancel() = 0;
};

}  // namespace lodestar::replica
