// The journal of one shard as files: what it was told to begin with, what it has done since, and
// which checkpoint makes how much of that unnecessary.
//
// Every segment begins with a copy of the assignment, so that older ones can go. A save begins one:
// what comes after the checkpoint lies in it and, as far as a round was under way already, in the
// one before.
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
#include "common/clock.h"
#include "common/executor.h"
#include "common/file_system.h"
#include "common/ids.h"
#include "common/json.h"
#include "server/coordinator/journal_state.h"
#include "server/coordinator/shard_command.h"
#include "server/host/journal_base.h"
#include "server/journal/journal_writer.h"
#include "server/shard/shard_journal.h"

namespace lodestar {

// Append(), Tick(), trouble(), durable(), follows(), highest_round() and bytes_since_checkpoint()
// are thread-safe, the others are for one thread at a time.
class ShardLog final : public ShardJournal {
 public:
  // Not owned, where it is a pointer; outlives the log.
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
    std::string run_folder = {};  // --checkpoint_dir; empty: the one that the coordinator names
  };

  // What a process before this one has begun, and this one may go on with.
  struct Beginning {
    uint64_t instance_id = 0;  // of that process
    AssignCommand assignment;  // from `base`
    JournalBase base;          // the newest checkpoint that was published since
  };

  // The folder is there, on disk, and nobody else's. Errors: DataLoss if records are missing;
  // Unimplemented if another version has written them; those of the disk.
  static absl::StatusOr<std::unique_ptr<ShardLog>> Open(const std::string& folder, Deps deps);
  // Open() has found damage. Nothing is gone on from, and the first Begin() leaves the files
  // beside, as *.damaged. Errors: those of the disk.
  static absl::StatusOr<std::unique_ptr<ShardLog>> OpenBesideDamaged(const std::string& folder,
                                                                     Deps deps);

  const std::optional<Beginning>& beginning() const { return beginning_; }
  // Not empty: what was torn at the end, and left out; for people.
  const std::string& torn() const { return torn_; }
  using TakeRecord = absl::FunctionRef<absl::Status(const ShardRecord& record,
                                                    absl::Span<const std::byte> payload)>;
  // Hands over all that was done since the beginning, in order, for ParameterShard::Replay().
  // Returns the number of records. Errors: those of Open() and of `take`.
  absl::StatusOr<int64_t> Replay(TakeRecord take) const;
  // It cannot be gone on from: the next Begin() leaves its files beside, as *.damaged.
  void Refuse() { is_refused_ = true; }

  // A command that follows from this record of the coordinator is about to be obeyed: plans, and
  // the log's own records, tell of the highest one from here on. Thread-safe.
  void Follow(const CoordinatorRecord& record) ABSL_LOCKS_EXCLUDED(knowledge_mutex_);
  // A command was obeyed that writes nothing down. Writes down what it follows from, if nothing
  // else has.
  void OnFollowed() ABSL_LOCKS_EXCLUDED(knowledge_mutex_);
  // The highest record that was followed, and the highest round that a record of this life of the
  // servers is of; -1 means that there is none.
  CoordinatorRecord follows() const ABSL_LOCKS_EXCLUDED(knowledge_mutex_);
  int64_t highest_round() const ABSL_LOCKS_EXCLUDED(knowledge_mutex_);

  // A new life of the servers: forgets all that is there, as soon as this is on disk.
  void Begin(uint64_t instance_id, const AssignCommand& assignment, std::function<void()> durable);
  // Before the buckets are captured.
  void OnSave(const SaveCommand& save);
  // After it. Not before `durable` may the checkpoint count: who goes on from it needs what has
  // been written down with the captures.
  void OnCaptured(std::function<void()> durable);
  // The checkpoint is there: as much as it makes unnecessary is removed.
  void OnPublished(const PublishedCommand& published);

  void Append(ShardRecord record, absl::Span<const std::byte> payload,
              std::shared_ptr<const void> payload_owner, std::function<void()> durable) override;
  void Tick() { writer_->Tick(); }
  // See JournalWriter.
  void EndCallbacks() { writer_->EndCallbacks(); }
  // OK, or why nothing is acknowledged at present.
  absl::Status trouble() const { return writer_->trouble(); }
  uint64_t durable() const { return writer_->durable(); }
  // The number that the first segment has that this process writes.
  uint64_t first_segment() const { return first_segment_; }
  // What was written down since the newest checkpoint. A restart reads it, and what there is of the
  // round that was under way then.
  int64_t bytes_since_checkpoint() const { return num_bytes_ - checkpoint_bytes_; }

 private:
  // Where the segment that a save has begun begins.
  struct Mark {
    uint64_t sequence = 0;
    std::optional<Round> round;  // that the save is of; nullopt: contributions are applied alone
    std::string directory;       // that it is written into
    int64_t num_bytes = 0;       // written down before
  };

  ShardLog(std::string folder, Deps deps) : folder_(std::move(folder)), deps_(std::move(deps)) {}
  absl::Status ReadBeginning();
  absl::Status MakeWriter(JournalEnd end, bool replaces_damaged);
  absl::Status NoteBeginning(const JournalRecord& record);
  absl::Status NoteBase(const Json& json);
  // The members of a record that NoteBase() reads.
  void DescribeBase(Json& json) const;
  // With the mark of a save, if that is what begins it.
  uint64_t BeginSegment(const Mark* save, std::function<void()> durable);
  // A record of the log's own.
  void AppendOwn(Json json, std::function<void()> durable);
  // Adds which record of the coordinator is followed.
  void StampFollowed(Json& json) ABSL_LOCKS_EXCLUDED(knowledge_mutex_);
  // The other way round. Errors: InvalidArgument.
  absl::Status NoteFollowed(const Json& json) ABSL_LOCKS_EXCLUDED(knowledge_mutex_);
  void NoteRound(int64_t round) ABSL_LOCKS_EXCLUDED(knowledge_mutex_);
  void ForgetRounds() ABSL_LOCKS_EXCLUDED(knowledge_mutex_);

  const std::string folder_;
  const Deps deps_;
  std::optional<Beginning> beginning_;
  std::string torn_;
  bool is_refused_ = false;
  uint64_t began_at_ = 0;     // number of the record; 0: before those that are left
  uint64_t needed_from_ = 0;  // the oldest record that counts; 0: there is none
  std::string assignment_;    // formatted
  uint64_t instance_id_ = 0;
  std::string base_;  // the newest published checkpoint since the beginning; empty: none
  // What JournalBase has of `base_`, or, if that is empty, of the assignment's source.
  std::string run_folder_;
  std::optional<uint32_t> base_checksum_;
  std::vector<Mark> marks_;
  std::atomic<int64_t> num_bytes_ = 0;         // of records, since some time
  std::atomic<int64_t> checkpoint_bytes_ = 0;  // of them, when the newest checkpoint was taken
  uint64_t first_segment_ = 0;
  mutable absl::Mutex knowledge_mutex_;  // a leaf
  CoordinatorRecord follows_ ABSL_GUARDED_BY(knowledge_mutex_);
  CoordinatorRecord written_down_ ABSL_GUARDED_BY(knowledge_mutex_);
  int64_t highest_round_ ABSL_GUARDED_BY(knowledge_mutex_) = -1;
  std::unique_ptr<JournalWriter> writer_;
};

}  // namespace lodestar
