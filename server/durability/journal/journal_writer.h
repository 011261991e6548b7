// SPDX-License-Identifier: Apache-2.0

// JournalWriter appends records to a journal, and reports when they are on disk. If something must
// survive the process or the machine, it may be acknowledged only after that report.
//
// Records that come while others are written are written together and synced once (group commit).
// After a disk error, all records that are not durable yet must be written into a new segment.
// Until then no further record becomes durable. Every Tick() tries to write such a segment. A file
// whose sync has failed once cannot be trusted, because the system may have dropped its unwritten
// data.
//
// Segments stay open for reading. If another program removes or replaces a segment, no record
// becomes durable, as after an error, until the next Tick() has written that segment again from the
// open file.
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

// The class is thread-safe. Callbacks are called without a lock, in the order of the appends.
class JournalWriter {
 public:
  struct Config {
    std::string folder;  // must exist, and no other process may use it
    // End of the existing records. The writer goes on after them.
    JournalEnd end;
    // True: Create() writes nothing. Records that are not proven to be on disk are written again
    // before the first new record. Until then nothing that was read may be relied on.
    bool defers_writing = false;
    // True: the folder has a damaged journal, about which `end` says nothing. Its files are set
    // aside before the first record is written, and are not changed until then.
    bool replaces_damaged = false;
  };
  // The pointers are not owned, and their objects must outlive the writer.
  struct Deps {
    storage::FileSystem* file_system = nullptr;
    Clock* clock = &Clock::Real();
    // Executor that writes the files. It must run one task at a time, first in, first out. It must
    // finish the writer's tasks before the writer is destroyed.
    Executor* executor = nullptr;
    // Checks that the folder still belongs to this writer. Called before each segment and after
    // each write. An error counts as an error of the disk.
    std::function<absl::Status()> confirm = [] { return absl::OkStatus(); };
    // Makes the folder again, and locks it, if it was removed with its segments. Called before
    // removed segments are written again. An error counts as an error of the disk.
    std::function<absl::Status()> reclaim = [] { return absl::OkStatus(); };
    // Called with the error when the journal can no longer be written to the disk, and with OK when
    // it can be written again.
    std::function<void(const absl::Status&)> on_trouble = [](const absl::Status&) {};
  };
  struct Record {
    std::string text;
    absl::Span<const std::byte> payload = {};
    std::shared_ptr<const void> owner = nullptr;  // keeps the payload alive; it must not change
  };
  using Durable = absl::AnyInvocable<void() &&>;

  static constexpr absl::Duration kLongestWrite = absl::Seconds(3);
  // Maximum number of segments that are kept open. Further segments are not written again if they
  // are removed. A journal has more segments only if no checkpoint has succeeded for a long time.
  static constexpr size_t kMaxHeld = 64;

  // Creates a writer. Writes the records again that may not be on disk, because readers have relied
  // on them. Blocks for the disk. After an error the journal is as it was before. Errors: those of
  // the disk.
  static absl::StatusOr<std::unique_ptr<JournalWriter>> Create(Config config, Deps deps);

  // Appends a record. Returns the record's number at once. `durable` is called when the record is
  // on disk.
  uint64_t Append(Record record, Durable durable) ABSL_LOCKS_EXCLUDED(mutex_);
  // Does the same as Append(), but the record is the first of a new segment.
  uint64_t BeginSegment(Record first, Durable durable) ABSL_LOCKS_EXCLUDED(mutex_);
  // Removes, once record `sequence` is durable, the segments that hold only records before it.
  void RemoveBefore(uint64_t sequence) ABSL_LOCKS_EXCLUDED(mutex_);
  // Does the same as RemoveBefore(), but keeps the segments in the folder for operators. Segments
  // that were set aside before are removed.
  void SetAsideBefore(uint64_t sequence) ABSL_LOCKS_EXCLUDED(mutex_);
  // Tries the writes again that the disk has refused. If this process has written a record, checks
  // that the segments still exist. Must be called about once a second.
  void Tick() ABSL_LOCKS_EXCLUDED(mutex_);
  // Ends the callbacks. Blocks until a callback that is running has returned. Must not be called
  // from a callback. Tasks that are left on the executor may block on the disk for long.
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
  // Says which records are no longer needed. They are removed, or set aside, when the records after
  // them are durable.
  struct Retired {
    uint64_t removed_before = 0;
    uint64_t set_aside_before = 0;
  };

  void Kick() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Work() ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Write(const std::vector<Item>& items);
  // Must be called if the last Write() has failed. Removes the segments that it made. So a full
  // disk does not fill up with empty segments, and another server that has taken the folder over
  // finds only its own segments.
  void RemoveMade();
  // Writes `items` into a new segment, as its first records.
  absl::Status Rewrite(const std::vector<Item>& items);
  // Prepares the folder before this process writes its first record.
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
  // True once this process has a record to write. Before that, operators may still bring a journal
  // back.
  bool has_written_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status trouble_ ABSL_GUARDED_BY(mutex_);
  // Time since which data waits to be written. InfiniteFuture means that no data waits.
  absl::Time unwritten_since_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();

  // The members below are used by Work() only.
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
  std::atomic<uint64_t> durable_;  // written by Work() only
};

}  // namespace lodestar::journal
