// SPDX-License-Identifier: Apache-2.0

// JournalWriter appends records to a journal, and reports when they are on disk (durable). Before
// that report, no program may rely on them.
//
// - Group commit: records that are appended during a write are written together next, with one
//   sync.
// - Disk error: no record becomes durable until all records that are not durable are written into a
//   new segment. Every Tick() tries that. The old file is not used any more, because the system may
//   have dropped its data after a failed sync.
// - Missing segment: segments stay open for reading. If another program removes or replaces one, no
//   record becomes durable until a Tick() has written the segment again from the open file.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/runtime/clock.h"
#include "common/runtime/executor.h"
#include "common/storage/file_system.h"
#include "server/durability/journal/journal_reader.h"
#include "server/durability/journal/journal_segments.h"

namespace lodestar::journal {

// JournalWriter is thread-safe. Callbacks are called without a lock, in the order of the appends.
class JournalWriter {
 public:
  struct Config {
    std::string folder;  // must exist, and no other process may use it
    // End of the existing records. New records follow it.
    JournalEnd end;
    // True means that Create() writes nothing. Records that may not be on disk are then written
    // again before the first new record. Until then, no program may rely on the records that were
    // read.
    bool defers_writing = false;
    // True means that the folder has a damaged journal, and that `end` is empty. The files of the
    // damaged journal are renamed before the first record is written.
    bool replaces_damaged = false;
  };
  // The pointers are not owned, and their objects must outlive the writer.
  struct Deps {
    storage::FileSystem* file_system = nullptr;
    Clock* clock = &Clock::Real();
    // Executor that writes the files. It must run one task at a time, in order. All tasks of the
    // writer must be done before the writer is destroyed.
    Executor* executor = nullptr;
    // Checks that no other server has taken over the folder. Called before each new segment and
    // after each write. An error is handled like an error of the disk.
    std::function<absl::Status()> confirm = [] { return absl::OkStatus(); };
    // Creates the folder again and locks it, if another program has removed it. Called before
    // missing segments are written again. An error is handled like an error of the disk.
    std::function<absl::Status()> reclaim = [] { return absl::OkStatus(); };
    // Called with the error when the disk no longer accepts the journal, and with OK when it does
    // again.
    std::function<void(const absl::Status&)> on_trouble = [](const absl::Status&) {};
  };
  struct Record {
    std::string text;
    absl::Span<const std::byte> payload = {};
    std::shared_ptr<const void> owner = nullptr;  // keeps the payload alive; it must not change
  };
  using Durable = absl::AnyInvocable<void() &&>;

  static constexpr absl::Duration kLongestWrite = absl::Seconds(3);
  // Maximum number of segments that stay open. Other segments cannot be written again if another
  // program removes them. More segments exist only if no checkpoint has succeeded for long.
  static constexpr size_t kMaxHeld = 64;

  // Creates a writer. Unless `defers_writing` is true, writes the records again that may not be on
  // disk, because readers already rely on them. Blocks for the disk. If Create() fails, the journal
  // is unchanged. Errors: those of the disk.
  static absl::StatusOr<std::unique_ptr<JournalWriter>> Create(Config config, Deps deps);

  // Appends a record. Returns the record's number at once. `durable` is called when the record is
  // on disk.
  uint64_t Append(Record record, Durable durable) ABSL_LOCKS_EXCLUDED(mutex_);
  // Does the same as Append(), but the record is the first of a new segment.
  uint64_t BeginSegment(Record first, Durable durable) ABSL_LOCKS_EXCLUDED(mutex_);
  // Removes the segments that have only records before `sequence`, as soon as record `sequence` is
  // durable.
  void RemoveBefore(uint64_t sequence) ABSL_LOCKS_EXCLUDED(mutex_);
  // Does the same as RemoveBefore(), but renames the segments instead, so that operators can keep
  // them. Segments that were renamed earlier are removed.
  void SetAsideBefore(uint64_t sequence) ABSL_LOCKS_EXCLUDED(mutex_);
  // Tries failed writes again. If this process has written a record, also checks that the segments
  // still exist. Must be called about once a second.
  void Tick() ABSL_LOCKS_EXCLUDED(mutex_);
  // Makes no more callbacks. Blocks until a running callback has returned, so it must not be called
  // from a callback. Tasks of the writer may still wait for the disk afterwards.
  void EndCallbacks() ABSL_LOCKS_EXCLUDED(mutex_);

  // Returns OK, or why no record becomes durable at present: a disk error, or a disk that has not
  // answered for kLongestWrite.
  absl::Status trouble() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns the number of the last record that is durable. 0 means that there is none.
  uint64_t durable() const { return durable_; }

 private:
  JournalWriter(Config config, Deps deps);

  struct Item {
    uint64_t sequence = 0;
    bool begins_segment = false;
    Record record;
    Durable durable;
  };

  uint64_t Enqueue(bool begins_segment, Record record, Durable durable) ABSL_LOCKS_EXCLUDED(mutex_);
  // Segments that have only records below these numbers may be removed, or renamed. This is done
  // once the record of that number is durable.
  struct Retired {
    uint64_t removed_before = 0;
    uint64_t set_aside_before = 0;
  };

  void Kick() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Work() ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Write(const std::vector<Item>& items);
  // Removes the segments that a failed Write() has created. A full disk then does not collect empty
  // segments. Also, another server that has taken over the folder finds no segments of this writer.
  void RemoveMade();
  // Writes `items` into a new segment.
  absl::Status Rewrite(const std::vector<Item>& items);
  // Renames a damaged journal, and writes the records in unproven_ again. Must be called before new
  // records are written.
  absl::Status PrepareFolder();
  absl::Status WriteUnderOtherName(const JournalSegment& segment, const std::vector<Item>& items);
  absl::Status OpenSegment(uint64_t first_sequence);
  // Opens a segment for reading and keeps it open. Errors: those of the disk.
  absl::Status HoldSegment(uint64_t number);
  // Checks that all open segments still exist in the folder. Errors: NotFound (names a missing
  // segment).
  absl::Status CheckNames();
  // Writes the missing segments again. Errors: those of the disk.
  absl::Status PutBack();
  absl::Status PutBack(uint64_t number, storage::HeldFile& held);
  void CallBack(absl::Span<Item> items, bool has_trouble_changed, const absl::Status& trouble)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void WriteWatermark(uint64_t durable);
  void Retire(const Retired& retired);
  absl::Status SetAside(uint64_t segment);

  const Config config_;
  const Deps deps_;

  mutable absl::Mutex mutex_;
  std::vector<Item> queue_ ABSL_GUARDED_BY(mutex_);
  uint64_t next_sequence_ ABSL_GUARDED_BY(mutex_);
  Retired retired_ ABSL_GUARDED_BY(mutex_);
  bool is_scheduled_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_calling_back_ ABSL_GUARDED_BY(mutex_) = false;
  bool calls_nobody_ ABSL_GUARDED_BY(mutex_) = false;
  // True once this process had a record to write. Until then, a missing segment is not written
  // again, so that an operator may still replace the journal.
  bool has_written_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status trouble_ ABSL_GUARDED_BY(mutex_);
  // Time since which records wait to be written. Infinite future means that no record waits.
  absl::Time unwritten_since_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();

  // Only Work() uses the members below.
  bool must_set_aside_;         // see Config::replaces_damaged
  std::vector<Item> unproven_;  // records that must be written again
  std::vector<Item> refused_;   // records that the disk refused and that are not durable yet
  std::unique_ptr<storage::WritableFile> file_;
  std::string path_;
  std::vector<JournalSegment> segments_;
  std::map<uint64_t, std::unique_ptr<storage::HeldFile>> held_;  // open segments by their numbers
  // Numbers of the segments that the last Write() created.
  std::vector<uint64_t> made_;
  bool has_set_aside_ = false;
  // Number of the segment that is not needed, but could not be removed. The log has this failure.
  uint64_t kept_segment_ = 0;
  std::atomic<uint64_t> durable_;  // written by Work() only
};

}  // namespace lodestar::journal
