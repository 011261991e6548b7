// The journal of one shard as files. It says what the shard was told to begin with and what it has
// done since. It also says how much of that a checkpoint makes unnecessary.
//
// Every segment begins with a copy of the assignment, so that older segments can go. A save begins
// a segment. What comes after the checkpoint lies in that segment. If a round was under way
// already, its earlier part lies in the segment before.
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
// are thread-safe, the others are for one thread at a time.
class ShardLog final : public shard::ShardJournal {
 public:
  // The pointers are not owned, and what they point to outlives the log.
  struct Deps {
    FileSystem* file_system = nullptr;
    Clock* clock = &Clock::Real();
    Executor* executor = nullptr;  // see JournalWriter
    std::function<std::string(const AssignCommand&)> format_assignment;
    std::function<absl::StatusOr<AssignCommand>(absl::string_view)> parse_assignment;
    // See JournalWriter.
    std::function<absl::Status()> confirm = [] { return absl::OkStatus(); };
    std::function<absl::Status()> reclaim = [] { return absl::OkStatus(); };
    std::function<void(const absl::Status&)> on_trouble = [](const absl::Status&) {};
    // The folder of --checkpoint_dir. Empty means the one that the coordinator names.
    std::string run_folder = {};
  };

  // What an earlier process has begun, and this one may go on with.
  struct Beginning {
    uint64_t instance_id = 0;  // The number of that process.
    AssignCommand assignment;  // Its source is that of `base`.
    // The newest checkpoint that was published since, or what the assignment began from.
    JournalBase base;
  };

  // Opens the journal in `folder`, which is there, on disk, and used by no other process. Errors:
  // DataLoss if records are missing; Unimplemented if another version has written them; those of
  // the disk.
  static absl::StatusOr<std::unique_ptr<ShardLog>> Open(const std::string& folder, Deps deps);
  // Opens a log after Open() has found damage. No process goes on from the old files, and the first
  // Begin() leaves them beside, as *.damaged. Errors: those of the disk.
  static absl::StatusOr<std::unique_ptr<ShardLog>> OpenBesideDamaged(const std::string& folder,
                                                                     Deps deps);

  const std::optional<Beginning>& beginning() const { return beginning_; }
  // What was torn at the end, and left out, as a text for people. Empty means that nothing was.
  const std::string& torn() const { return torn_; }
  using TakeRecord = absl::FunctionRef<absl::Status(const shard::ShardRecord& record,
                                                    absl::Span<const std::byte> payload)>;
  // Hands over all that was done since the beginning, in order, for ParameterShard::Replay().
  // Returns the number of records. Errors: those of Open() and of `take`.
  absl::StatusOr<int64_t> Replay(TakeRecord take) const;
  // The journal cannot be gone on from: the next Begin() leaves its files beside, as *.damaged.
  void Refuse() { is_refused_ = true; }

  // Call it when a command that follows from this record of the coordinator is about to be obeyed.
  // From then on plans, and the log's own records, tell of the highest such record. Thread-safe.
  void Follow(const CoordinatorRecord& record) ABSL_LOCKS_EXCLUDED(knowledge_mutex_);
  // Call it after a command was obeyed that writes nothing down. Writes down the record that the
  // command follows from, unless another record has done so.
  void OnFollowed() ABSL_LOCKS_EXCLUDED(knowledge_mutex_);
  // Return the highest record that was followed, and the highest round that the records of this
  // life of the servers have. -1 means that there is none.
  CoordinatorRecord follows() const ABSL_LOCKS_EXCLUDED(knowledge_mutex_);
  int64_t highest_round() const ABSL_LOCKS_EXCLUDED(knowledge_mutex_);

  // Begins a new life of the servers. It forgets everything older as soon as its beginning is on
  // disk.
  void Begin(uint64_t instance_id, const AssignCommand& assignment, std::function<void()> durable);
  // Call it before the buckets are captured.
  void OnSave(const SaveCommand& save);
  // Call it after the buckets are captured. The checkpoint may not count before `durable` is
  // called: a process that goes on from it needs what has been written down with the captures.
  void OnCaptured(std::function<void()> durable);
  // The checkpoint is published: what it makes unnecessary is removed.
  void OnPublished(const PublishedCommand& published);

  void Append(shard::ShardRecord record, absl::Span<const std::byte> payload,
              std::shared_ptr<const void> payload_owner, std::function<void()> durable) override;
  void Tick() { writer_->Tick(); }
  // See JournalWriter.
  void EndCallbacks() { writer_->EndCallbacks(); }
  // OK, or why nothing is acknowledged at present.
  absl::Status trouble() const { return writer_->trouble(); }
  uint64_t durable() const { return writer_->durable(); }
  // The number of the first segment that this process writes.
  uint64_t first_segment() const { return first_segment_; }
  // The bytes that were written down since the newest checkpoint. A restart reads them, and what
  // there is of the round that was under way then.
  int64_t bytes_since_checkpoint() const { return num_bytes_ - checkpoint_bytes_; }

 private:
  // Says where a segment begins that a save has begun.
  struct Mark {
    uint64_t sequence = 0;
    // The round that the save is of. nullopt means that contributions are applied alone.
    std::optional<Round> round;
    std::string directory;  // The save is written into it.
    int64_t num_bytes = 0;  // The bytes that were written down before the save.
  };

  ShardLog(std::string folder, Deps deps) : folder_(std::move(folder)), deps_(std::move(deps)) {}
  absl::Status ReadBeginning();
  absl::Status MakeWriter(journal::JournalEnd end, bool replaces_damaged);
  absl::Status NoteBeginning(const journal::JournalRecord& record);
  absl::Status NoteBase(const Json& json);
  // The members of a record that NoteBase() reads.
  void DescribeBase(Json& json) const;
  // Begins a segment. Its first record has the mark `save`, unless that is null.
  uint64_t BeginSegment(const Mark* save, std::function<void()> durable);
  // Writes a record of the log's own.
  void AppendOwn(Json json, std::function<void()> durable);
  // Adds which record of the coordinator is followed.
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
  // The number of the record that begins the life. 0 means that it is before those that are left.
  uint64_t began_at_ = 0;
  // The number of the oldest record that counts. 0 means that there is none.
  uint64_t needed_from_ = 0;
  std::string assignment_;  // The assignment as a text.
  uint64_t instance_id_ = 0;
  // The newest checkpoint that was published since the beginning. Empty means that there is none.
  std::string base_;
  // What JournalBase has for `base_`, or, if that is empty, for the assignment's source.
  std::string run_folder_;
  std::optional<uint32_t> base_checksum_;
  std::vector<Mark> marks_;
  std::atomic<int64_t> num_bytes_ = 0;  // The bytes of records, counted from some time on.
  // What num_bytes_ was when the newest checkpoint was taken.
  std::atomic<int64_t> checkpoint_bytes_ = 0;
  uint64_t first_segment_ = 0;
  mutable absl::Mutex knowledge_mutex_;  // No other lock is taken while this one is held.
  CoordinatorRecord follows_ ABSL_GUARDED_BY(knowledge_mutex_);
  CoordinatorRecord written_down_ ABSL_GUARDED_BY(knowledge_mutex_);
  int64_t highest_round_ ABSL_GUARDED_BY(knowledge_mutex_) = -1;
  std::unique_ptr<journal::JournalWriter> writer_;
};

}  // namespace lodestar::host
