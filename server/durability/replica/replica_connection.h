// What a server asks of its replica: over a network, or in tests without one.
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
  bool keeps_checkpoints = false;  // Otherwise the replica keeps only journals.
};

// Carries changes in order. Changes of two lanes have no order among each other. Thread-safe. After
// an error no change reaches the replica by this lane any more.
class ReplicaLane {
 public:
  virtual ~ReplicaLane() = default;
  // May return before the replica has made the change. Blocks while the replica takes no more.
  virtual absl::Status Send(FileChange change) = 0;
  // Asks to be told when all that was sent before is done. Returns the number of the question.
  virtual absl::StatusOr<uint64_t> Ask() = 0;
  // Returns once the changes that `question` is about are done.
  virtual absl::Status Await(uint64_t question) = 0;
};

// All calls may return Unavailable if the replica does not answer, Aborted if another server writes
// to it meanwhile, and the errors of its disk.
class ReplicaConnection {
 public:
  virtual ~ReplicaConnection() = default;
  // Must be called first. It ends what other terms have open. Errors also: those of JudgeTerm();
  // InvalidArgument if the two have other settings; AlreadyExists if another process has the
  // replica's folders.
  virtual absl::StatusOr<TermGrant> BeginTerm(const TermRequest& request) = 0;
  // Returns soon, whatever the disk does. OK means that the term goes on.
  virtual absl::Status CheckTerm() = 0;
  // Lists the files of the term's shard. See MirroredFolders::List().
  virtual absl::StatusOr<std::vector<FileEntry>> ListFiles() = 0;
  virtual absl::Status ReadFile(const MirroredPath& path,
                                absl::FunctionRef<absl::Status(absl::string_view block)> take) = 0;
  virtual absl::StatusOr<std::unique_ptr<ReplicaLane>> OpenLane() = 0;
  // Makes the calls under way and all later ones return Unavailable. Thread-safe.
  virtual void Cancel() = 0;
};

}  // namespace lodestar::replica
