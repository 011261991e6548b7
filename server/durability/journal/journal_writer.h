// Appends records to a journal, and tells once the disk has them: what is to survive the process,
// or the machine, waits for that before anybody is told of it.
//
// Records that come while others are written are written together and synced once (group commit).
// After an error of the disk nothing is durable any more until a new segment, begun at every
// Tick(), has taken all that is not durable yet: a file whose sync has failed once cannot be
// trusted, since the system may have dropped what it had of it.
//
// Segments stay open for reading. If one is removed or replaced by another program, nothing is
// durable any more, as after an error, until the next Tick() has written it again from what is
// open.
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

// Thread-safe. Callbacks are called without a lock, in the order of the appends.
class JournalWriter {
 public:
  struct Config {
    std::string folder;  // exists, and is this process's alone
    // The end of the records that are there. The writer goes on behind them.
    JournalEnd end;
    // Create() writes nothing: what is not proven is written again before the first record, until
    // when nothing that was read may be relied on.
    bool defers_writing = false;
    // The folder has a damaged journal, of which `end` tells nothing: its files are set aside
    // before the first record is written, and stay as they are until then.
    bool replaces_damaged = false;
  };
  // Not owned; outlive the writer.
  struct Deps {
    FileSystem* file_system = nullptr;
    Clock* clock = &Clock::Real();
    // Where files are written: runs one task at a time, first in, first out, and is done with those
    // of the writer before that is destroyed.
    Executor* executor = nullptr;
    // Asked before each segment and after each write: whether the folder is still this writer's. An
    // error is one of the disk.
    std::function<absl::Status()> confirm = [] { return absl::OkStatus(); };
    // Called before segments that were removed are written again. Makes the folder this writer's
    // again if it was removed with them. An error is one of the disk.
    std::function<absl::Status()> reclaim = [] { return absl::OkStatus(); };
    // The disk does not take the journal (once, with its error), and takes it again (OK).
    std::function<void(const absl::Status&)> on_trouble = [](const absl::Status&) {};
  };
  struct Record {
    std::string text;
    absl::Span<const std::byte> payload = {};
    std::shared_ptr<const void> owner = nullptr;  // of the payload, which stays as it is
  };
  using Durable = absl::AnyInvocable<void() &&>;

  static constexpr absl::Duration kLongestWrite = absl::Seconds(3);
  // Segments beyond these are not written again if they are removed. As many are left only where
  // no checkpoint has succeeded for long.
  static constexpr size_t kMaxHeld = 64;

  // Writes again what is not proven to be on disk, since its readers have built on it. Blocks
  // for the disk. Errors: those of the disk; the journal is as it was.
  static absl::StatusOr<std::unique_ptr<JournalWriter>> Create(Config config, Deps deps);

  // Returns at once, with the record's number.
  uint64_t Append(Record record, Durable durable) ABSL_LOCKS_EXCLUDED(mutex_);
  // The same, and it is the first of a new segment.
  uint64_t BeginSegment(Record first, Durable durable) ABSL_LOCKS_EXCLUDED(mutex_);
  // Removes the segments that hold only records before this one, which are not needed any more,
  // once this one is durable.
  void RemoveBefore(uint64_t sequence) ABSL_LOCKS_EXCLUDED(mutex_);
  // The same, but they stay beside, for people; those set aside before go.
  void SetAsideBefore(uint64_t sequence) ABSL_LOCKS_EXCLUDED(mutex_);
  // Every second or so: tries again what the disk has refused, and looks whether the segments are
  // still there once this process has written into one.
  void Tick() ABSL_LOCKS_EXCLUDED(mutex_);
  // Makes no more calls, and waits for the call that runs; not from within one. What the
  // executor still has to do may hang on the disk for long.
  void EndCallbacks() ABSL_LOCKS_EXCLUDED(mutex_);

  // OK, or why nothing is durable at present: an error of the disk, or that it has not answered for
  // kLongestWrite.
  absl::Status trouble() const ABSL_LOCKS_EXCLUDED(mutex_);
  // The number of the last record that is durable. 0 means that none is.
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
  // What is not needed once the records behind it are durable.
  struct Retired {
    uint64_t removed_before = 0;
    uint64_t set_aside_before = 0;
  };

  void Kick() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Work() ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Write(const std::vector<Item>& items);
  // Those that the last Write() has made, and that are of no use: a full disk does not fill up with
  // empty ones, and who has taken the folder over finds none that is not its own.
  void RemoveMade();
  // In a new segment, once and first.
  absl::Status Rewrite(const std::vector<Item>& items);
  // Before the first record of this process is written.
  absl::Status PrepareFolder();
  absl::Status WriteUnderOtherName(const JournalSegment& segment, const std::vector<Item>& items);
  absl::Status OpenSegment(uint64_t first_sequence);
  // Keeps a segment open for reading. Errors: those of the disk.
  absl::Status HoldSegment(uint64_t number);
  // Whether all segments that are held are in the folder. Errors: NotFound naming one that is not.
  absl::Status CheckNames();
  // Writes those again that are not. Errors: those of the disk.
  absl::Status PutBack();
  absl::Status PutBack(uint64_t number, HeldFile& held);
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
  // This process has records to write. Before that, people may still bring a journal back.
  bool has_written_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status trouble_ ABSL_GUARDED_BY(mutex_);
  // Since when something is to be written and was not; the future: there is nothing.
  absl::Time unwritten_since_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();

  // Used by Work() only.
  bool must_set_aside_;         // See Config::replaces_damaged.
  std::vector<Item> unproven_;  // That are still to be written again.
  std::vector<Item> refused_;   // by the disk, and not durable
  std::unique_ptr<WritableFile> file_;
  std::string path_;
  std::vector<JournalSegment> segments_;
  std::map<uint64_t, std::unique_ptr<HeldFile>> held_;  // By the numbers of segments.
  std::vector<uint64_t> made_;                          // numbers of segments, by the last Write()
  bool has_set_aside_ = false;
  std::atomic<uint64_t> durable_;  // others only read it
};

}  // namespace lodestar::journal
