// SPDX-License-Identifier: Apache-2.0

// ShardLog is the journal of one shard as files. It records the assignment that the shard began
// with, and what the shard has done since. Once a checkpoint is published, the records that it
// includes are removed.
//
// Every segment begins with a copy of the assignment, so that older segments can be removed. A save
// begins a segment, so all later records are in this segment or later ones. If a round was under
// way during the save, the records of its earlier part are in older segments.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "common/runtime/clock.h"
#include "common/runtime/executor.h"
#include "common/runtime/ids.h"
#include "common/runtime/json.h"
#include "common/storage/file_system.h"
#include "server/coordinator/shards/journal_state.h"
#include "server/coordinator/shards/shard_command.h"
#include "server/durability/journal/journal_writer.h"
#include "server/host/journal_base.h"
#include "server/shard/shard_journal.h"

namespace lodestar::host {

// Append(), Tick(), trouble(), durable(), follows(), highest_round() and bytes_since_checkpoint()
// are thread-safe. The other methods are for one thread at a time.
class ShardLog final : public shard::ShardJournal {
 public:
  // The pointers are not owned, and their objects must outlive the log.
  struct Deps {
    storage::FileSystem* file_system = nullptr;
    Clock* clock = &Clock::Real();
    Executor* executor = nullptr;  // see JournalWriter
    std::function<std::string(const shards::AssignCommand&)> format_assignment;
    std::function<absl::StatusOr<shards::AssignCommand>(absl::string_view)> parse_assignment;
    // For these functions see JournalWriter.
    std::function<absl::Status()> confirm = [] { return absl::OkStatus(); };
    std::function<absl::Status()> reclaim = [] { return absl::OkStatus(); };
    std::function<void(const absl::Status&)> on_trouble = [](const absl::Status&) {};
    // Folder of --checkpoint_dir. Empty means the folder that the coordinator names.
    std::string run_folder = {};
  };

  // A Beginning is the state that an earlier process began with, and from which this process can go
  // on.
  struct Beginning {
    uint64_t instance_id = 0;          // number of that process
    shards::AssignCommand assignment;  // its source is that of `base`
    // Newest checkpoint that was published after the assignment. If there is none, the source of
    // the assignment.
    JournalBase base;
  };

  // Opens the journal in `folder`, which must exist on disk and be used by no other process.
  // Errors: DataLoss (records are missing); Unimplemented (another release of the program has
  // written records); those of the disk.
  static absl::StatusOr<std::unique_ptr<ShardLog>> Open(const std::string& folder, Deps deps);
  // Opens a log in a folder whose files Open() has found to be damaged. No process goes on from
  // these files. The first Begin() renames them to *.damaged. Errors: those of the disk.
  static absl::StatusOr<std::unique_ptr<ShardLog>> OpenBesideDamaged(const std::string& folder,
                                                                     Deps deps);

  const std::optional<Beginning>& beginning() const { return beginning_; }
  // Returns a message for operators if the last record of the journal was incomplete and was left
  // out. Empty means that it was complete.
  const std::string& torn() const { return torn_; }
  using TakeRecord = absl::FunctionRef<absl::Status(const shard::ShardRecord& record,
                                                    absl::Span<const std::byte> payload)>;
  // Passes all records of the shard since the last Begin() to `take`, in order, for
  // ParameterShard::Replay(). Returns the number of records. Errors: those of Open() and of `take`.
  absl::StatusOr<int64_t> Replay(TakeRecord take) const;
  // Must be called if no shard can go on from the journal. The next Begin() then renames the
  // journal's files to *.damaged.
  void Refuse() { is_refused_ = true; }

  // Must be called before each command is obeyed. `record` is the record in the coordinator's
  // journal that led to the command. The next records here name the newest `record`, so that a
  // later process knows which commands this process was given. Thread-safe.
  void Follow(const shards::CoordinatorRecord& record) ABSL_LOCKS_EXCLUDED(knowledge_mutex_);
  // Must be called after a command for which the shard writes no record. Writes a record that names
  // the newest `record` of Follow(), unless a record here names it already.
  void OnFollowed() ABSL_LOCKS_EXCLUDED(knowledge_mutex_);
  // follows() returns the newest record of the coordinator that was passed to Follow(), in this or
  // an earlier process. highest_round() returns the highest round in the records of this
  // incarnation of the servers; -1 means that there is none.
  shards::CoordinatorRecord follows() const ABSL_LOCKS_EXCLUDED(knowledge_mutex_);
  int64_t highest_round() const ABSL_LOCKS_EXCLUDED(knowledge_mutex_);

  // Begins a new incarnation of the servers. Once its beginning is on disk, everything older is
  // removed.
  void Begin(uint64_t instance_id, const shards::AssignCommand& assignment,
             std::function<void()> durable);
  // Begins a segment for a save. Must be called before the buckets are captured.
  void OnSave(const shards::SaveCommand& save);
  // Must be called once the buckets are captured. The checkpoint must not count before `durable` is
  // called. `durable` is called once all records up to now are on disk. A process that goes on from
  // the checkpoint also needs those that were written during the captures.
  void OnCaptured(std::function<void()> durable);
  // Must be called when a checkpoint is published. Removes the records that are no longer needed.
  void OnPublished(const shards::PublishedCommand& published);

  void Append(shard::ShardRecord record, absl::Span<const std::byte> payload,
              std::shared_ptr<const void> payload_owner, std::function<void()> durable) override;
  void Tick() { writer_->Tick(); }
  // Ends the calls of `durable`: see JournalWriter::EndCallbacks().
  void EndCallbacks() { writer_->EndCallbacks(); }
  // Returns OK, or why nothing is acknowledged at present.
  absl::Status trouble() const { return writer_->trouble(); }
  uint64_t durable() const { return writer_->durable(); }
  // Returns the number of the first segment that this process writes.
  uint64_t first_segment() const { return first_segment_; }
  // Returns the number of bytes that were written since the save of the newest checkpoint. A
  // restart reads these bytes, and also the earlier part of a round that was under way during that
  // save.
  int64_t bytes_since_checkpoint() const { return num_bytes_ - checkpoint_bytes_; }

 private:
  // A Mark says at which record a save has begun a segment.
  struct Mark {
    uint64_t sequence = 0;
    // Round of the save. Not set means that contributions are applied one by one, without rounds.
    std::optional<Round> round;
    std::string directory;  // the save is written into it
    int64_t num_bytes = 0;  // bytes that were written before the save
  };

  ShardLog(std::string folder, Deps deps) : folder_(std::move(folder)), deps_(std::move(deps)) {}
  absl::Status ReadBeginning();
  absl::Status MakeWriter(journal::JournalEnd end, bool replaces_damaged);
  absl::Status NoteBeginning(const journal::JournalRecord& record);
  absl::Status NoteBase(const Json& json);
  // Adds to `json` the values that NoteBase() reads.
  void DescribeBase(Json& json) const;
  // Begins a segment. If `save` is not null, the first record of the segment names that save.
  uint64_t BeginSegment(const Mark* save, std::function<void()> durable);
  // Writes a record that ShardLog itself needs, and that is no record of the shard.
  void AppendOwn(Json json, std::function<void()> durable);
  // Adds to `json` the newest record of the coordinator that Follow() was given.
  void StampFollowed(Json& json) ABSL_LOCKS_EXCLUDED(knowledge_mutex_);
  // Reads what StampFollowed() has added. Errors: InvalidArgument.
  absl::Status NoteFollowed(const Json& json) ABSL_LOCKS_EXCLUDED(knowledge_mutex_);
  void NoteRound(int64_t round) ABSL_LOCKS_EXCLUDED(knowledge_mutex_);
  void ForgetRounds() ABSL_LOCKS_EXCLUDED(knowledge_mutex_);

  const std::string folder_;
  const Deps deps_;
  std::optional<Beginning> beginning_;
  std::string torn_;
  bool is_refused_ = false;
  // Number of the record with which the incarnation of the servers begins. 0 means that this record
  // has been removed.
  uint64_t began_at_ = 0;
  // Number of the oldest record that a later process needs. 0 means that there is none.
  uint64_t needed_from_ = 0;
  std::string assignment_;  // the assignment as text
  uint64_t instance_id_ = 0;
  // Newest checkpoint that was published since the last Begin(). Empty means that there is none.
  std::string base_;
  // JournalBase::run_folder and JournalBase::checksum of the checkpoint `base_`. If `base_` is
  // empty, they are those of the assignment's source.
  std::string run_folder_;
  std::optional<uint32_t> base_checksum_;
  std::vector<Mark> marks_;
  std::atomic<int64_t> num_bytes_ = 0;  // bytes of the records that were read and written here
  // Value of num_bytes_ when the save of the newest checkpoint began, or at the last Begin().
  std::atomic<int64_t> checkpoint_bytes_ = 0;
  uint64_t first_segment_ = 0;
  mutable absl::Mutex knowledge_mutex_;  // a leaf: no other lock is taken under it
  shards::CoordinatorRecord follows_ ABSL_GUARDED_BY(knowledge_mutex_);
  shards::CoordinatorRecord written_down_ ABSL_GUARDED_BY(knowledge_mutex_);
  int64_t highest_round_ ABSL_GUARDED_BY(knowledge_mutex_) = -1;
  std::unique_ptr<journal::JournalWriter> writer_;
};

}  // namespace lodestar::host
