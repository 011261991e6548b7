// SPDX-License-Identifier: Apache-2.0

#include "server/durability/journal/journal_writer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/logging/logging.h"
#include "common/runtime/status_macros.h"
#include "server/durability/journal/journal_record.h"

namespace lodestar::journal {
namespace {

// Maximum size of a payload that is copied behind its head, so that one call writes the whole
// record.
constexpr size_t kCopiedBytes = 64 << 10;
// Suffix of a segment file that is incomplete.
constexpr absl::string_view kUnfinished = ".unfinished";

}  // namespace

JournalWriter::JournalWriter(Config config, Deps deps)
    : config_(std::move(config)),
      deps_(std::move(deps)),
      next_sequence_(config_.end.last_sequence + 1),
      must_set_aside_(config_.replaces_damaged),
      segments_(config_.end.segments),
      durable_(config_.end.last_sequence) {
  // A segment without a complete record gets the first_sequence of the segment after it.
  uint64_t follows = next_sequence_;
  for (auto segment = segments_.rbegin(); segment != segments_.rend(); ++segment) {
    if (segment->first_sequence == 0) segment->first_sequence = follows;
    follows = segment->first_sequence;
  }
}

absl::StatusOr<std::unique_ptr<JournalWriter>> JournalWriter::Create(Config config, Deps deps) {
  std::vector<UnprovenRecord> unproven = std::move(config.end.unproven);
  const bool defers_writing = config.defers_writing;
  config.end.unproven.clear();
  std::unique_ptr<JournalWriter> writer(new JournalWriter(std::move(config), std::move(deps)));
  for (const JournalSegment& segment : writer->segments_) {
    if (writer->held_.size() < kMaxHeld) RETURN_IF_ERROR(writer->HoldSegment(segment.number));
  }
  std::vector<Item> items;
  for (UnprovenRecord& record : unproven) {
    const auto payload = std::make_shared<const std::string>(std::move(record.payload));
    items.push_back({.sequence = record.sequence,
                     .begins_segment = false,
                     .record = {.text = std::move(record.text),
                                .payload = {reinterpret_cast<const std::byte*>(payload->data()),
                                            payload->size()},
                                .owner = payload},
                     .durable = nullptr});
  }
  if (defers_writing) {
    writer->unproven_ = std::move(items);
  } else {
    RETURN_IF_ERROR(writer->Rewrite(items));
  }
  return writer;
}

absl::Status JournalWriter::Rewrite(const std::vector<Item>& items) {
  if (items.empty()) return absl::OkStatus();
  // The new segment replaces the copied records as soon as it has its final name. So it is renamed
  // only when it is complete.
  const JournalSegment segment = {segments_.empty() ? 1 : segments_.back().number + 1,
                                  items.front().sequence};
  const uint64_t durable_before = durable_;
  durable_ -= items.size();
  const absl::Status written = WriteUnderOtherName(segment, items);
  durable_ = durable_before;
  RETURN_IF_ERROR(written);
  segments_.push_back(segment);
  return HoldSegment(segment.number);
}

absl::Status JournalWriter::WriteUnderOtherName(const JournalSegment& segment,
                                                const std::vector<Item>& items) {
  const std::string path = JournalSegmentPath(config_.folder, segment.number);
  const std::string unfinished = absl::StrCat(path, kUnfinished);
  ASSIGN_OR_RETURN(file_,
                   deps_.file_system->Create(unfinished, storage::FileSystem::IfExists::kTruncate));
  RETURN_IF_ERROR(Write(items));
  RETURN_IF_ERROR(deps_.file_system->Rename(unfinished, path));
  return deps_.file_system->SyncDirectory(config_.folder);
}

absl::Status JournalWriter::PrepareFolder() {
  if (must_set_aside_) {
    RETURN_IF_ERROR(deps_.confirm());
    RETURN_IF_ERROR(SetJournalAside(*deps_.file_system, config_.folder));
    must_set_aside_ = false;
    has_set_aside_ = true;
  }
  if (unproven_.empty()) return absl::OkStatus();
  // If another process has taken over the folder, Rewrite() could replace one of its files.
  RETURN_IF_ERROR(deps_.confirm());
  RETURN_IF_ERROR(Rewrite(unproven_));
  unproven_.clear();
  return absl::OkStatus();
}

uint64_t JournalWriter::Append(Record record, Durable durable) {
  return Enqueue(/*begins_segment=*/false, std::move(record), std::move(durable));
}

uint64_t JournalWriter::BeginSegment(Record first, Durable durable) {
  return Enqueue(/*begins_segment=*/true, std::move(first), std::move(durable));
}

uint64_t JournalWriter::Enqueue(bool begins_segment, Record record, Durable durable) {
  absl::MutexLock lock(&mutex_);
  const uint64_t sequence = next_sequence_++;
  queue_.push_back({sequence, begins_segment, std::move(record), std::move(durable)});
  unwritten_since_ = std::min(unwritten_since_, deps_.clock->Now());
  if (trouble_.ok()) Kick();
  return sequence;
}

void JournalWriter::RemoveBefore(uint64_t sequence) {
  absl::MutexLock lock(&mutex_);
  retired_.removed_before = std::max(retired_.removed_before, sequence);
  if (trouble_.ok()) Kick();
}

void JournalWriter::SetAsideBefore(uint64_t sequence) {
  absl::MutexLock lock(&mutex_);
  retired_.set_aside_before = std::max(retired_.set_aside_before, sequence);
  if (trouble_.ok()) Kick();
}

void JournalWriter::Tick() {
  absl::MutexLock lock(&mutex_);
  if (!trouble_.ok() || has_written_) Kick();
}

void JournalWriter::EndCallbacks() {
  const auto is_idle = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !is_calling_back_; };
  absl::MutexLock lock(&mutex_);
  calls_nobody_ = true;
  mutex_.Await(absl::Condition(&is_idle));
}

absl::Status JournalWriter::trouble() const {
  absl::MutexLock lock(&mutex_);
  const absl::Duration waited = deps_.clock->Now() - unwritten_since_;
  if (!trouble_.ok() || waited < kLongestWrite) return trouble_;
  return absl::UnavailableError(absl::StrCat(
      "no write has finished for ", absl::FormatDuration(absl::Trunc(waited, absl::Seconds(1))),
      "; the disk of the journal or of its replica does not answer"));
}

void JournalWriter::Kick() {
  if (std::exchange(is_scheduled_, true)) return;
  deps_.executor->Schedule([this] { Work(); });
}

void JournalWriter::Work() {
  std::vector<Item> items = std::move(refused_);
  refused_.clear();
  Retired retired;
  absl::Status written;
  bool looks = false;
  {
    absl::MutexLock lock(&mutex_);
    is_scheduled_ = false;
    std::move(queue_.begin(), queue_.end(), std::back_inserter(items));
    queue_.clear();
    retired = retired_;
    written = trouble_;
    has_written_ |= !items.empty();
    looks = has_written_;
  }
  made_.clear();
  if (!written.ok()) written = looks ? PutBack() : absl::OkStatus();
  if (written.ok() && !items.empty()) written = PrepareFolder();
  if (written.ok()) written = Write(items);
  if (written.ok()) written = deps_.confirm();
  if (written.ok() && looks) written = CheckNames();
  if (!written.ok()) RemoveMade();
  if (written.ok() && !items.empty()) WriteWatermark(items.back().sequence);
  absl::Status before;
  {
    absl::MutexLock lock(&mutex_);
    before = std::exchange(trouble_, written);
    if (written.ok()) {
      unwritten_since_ = queue_.empty() ? absl::InfiniteFuture() : deps_.clock->Now();
    }
    // Records that were appended during this write are written next.
    if (written.ok() && !queue_.empty()) Kick();
  }
  const bool has_trouble_changed = before.ok() != written.ok();
  if (!written.ok()) {
    file_.reset();
    refused_ = std::move(items);
    return CallBack({}, has_trouble_changed, written);
  }
  if (!items.empty()) durable_ = items.back().sequence;
  CallBack(absl::MakeSpan(items), has_trouble_changed, written);
  Retire(retired);
}

void JournalWriter::CallBack(absl::Span<Item> items, bool has_trouble_changed,
                             const absl::Status& trouble) {
  {
    absl::MutexLock lock(&mutex_);
    if (calls_nobody_) return;
    is_calling_back_ = true;
  }
  if (has_trouble_changed) deps_.on_trouble(trouble);
  for (Item& item : items) {
    if (item.durable) std::move(item.durable)();
  }
  absl::MutexLock lock(&mutex_);
  is_calling_back_ = false;
}

absl::Status JournalWriter::Write(const std::vector<Item>& items) {
  if (items.empty()) return absl::OkStatus();
  for (const Item& item : items) {
    if (file_ == nullptr || item.begins_segment) RETURN_IF_ERROR(OpenSegment(item.sequence));
    const Record& record = item.record;
    const JournalRecord entry = {item.sequence, durable(), record.text, record.payload};
    std::string bytes = FormatJournalHead(entry);
    if (record.payload.size() > kCopiedBytes) {
      RETURN_IF_ERROR(file_->Append(bytes));
      RETURN_IF_ERROR(file_->Append(
          {reinterpret_cast<const char*>(record.payload.data()), record.payload.size()}));
      bytes.clear();
    } else {
      bytes.append(reinterpret_cast<const char*>(record.payload.data()), record.payload.size());
    }
    absl::StrAppend(&bytes, JournalPadding(entry));
    if (!bytes.empty()) RETURN_IF_ERROR(file_->Append(bytes));
  }
  return file_->Sync();
}

absl::Status JournalWriter::OpenSegment(uint64_t first_sequence) {
  // If another server has taken over the folder, a reader would prefer this later segment to that
  // server's segments.
  RETURN_IF_ERROR(deps_.confirm());
  if (file_ != nullptr) {
    // The records in the file are not durable without Sync().
    RETURN_IF_ERROR(file_->Sync());
    RETURN_IF_ERROR(file_->Close());
    file_.reset();
  }
  // The number is used up even if Create() fails, because a file of that name may exist.
  const uint64_t number = segments_.empty() ? 1 : segments_.back().number + 1;
  segments_.push_back({number, first_sequence});
  ASSIGN_OR_RETURN(file_, deps_.file_system->Create(JournalSegmentPath(config_.folder, number),
                                                    storage::FileSystem::IfExists::kFail));
  made_.push_back(number);
  // If too many segments are open, the newest of them is closed before this one is opened.
  if (held_.size() >= kMaxHeld) held_.erase(std::prev(held_.end()));
  RETURN_IF_ERROR(HoldSegment(number));
  return deps_.file_system->SyncDirectory(config_.folder);
}

absl::Status JournalWriter::HoldSegment(uint64_t number) {
  ASSIGN_OR_RETURN(held_[number],
                   deps_.file_system->Hold(JournalSegmentPath(config_.folder, number)));
  return absl::OkStatus();
}

absl::Status JournalWriter::CheckNames() {
  for (const auto& [number, held] : held_) {
    const absl::Status named = held->CheckName();
    if (!absl::IsNotFound(named)) {
      RETURN_IF_ERROR(named);
      continue;
    }
    return absl::NotFoundError(
        absl::StrCat(named.message(),
                     ". This server still has its contents and writes the file again within "
                     "seconds. Find the program that removes files there"));
  }
  return absl::OkStatus();
}

absl::Status JournalWriter::PutBack() {
  if (!absl::IsNotFound(CheckNames())) return absl::OkStatus();
  RETURN_IF_ERROR(deps_.reclaim());
  RETURN_IF_ERROR(deps_.confirm());
  for (auto& [number, held] : held_) {
    if (held->CheckName().ok()) continue;
    RETURN_IF_ERROR(PutBack(number, *held));
    RETURN_IF_ERROR(HoldSegment(number));
  }
  return absl::OkStatus();
}

absl::Status JournalWriter::PutBack(uint64_t number, storage::HeldFile& held) {
  const std::string path = JournalSegmentPath(config_.folder, number);
  const std::string unfinished = absl::StrCat(path, kUnfinished);
  ASSIGN_OR_RETURN(const std::unique_ptr<storage::WritableFile> file,
                   deps_.file_system->Create(unfinished, storage::FileSystem::IfExists::kTruncate));
  RETURN_IF_ERROR(held.Read([&](absl::string_view block) { return file->Append(block); }));
  RETURN_IF_ERROR(file->Sync());
  RETURN_IF_ERROR(file->Close());
  RETURN_IF_ERROR(deps_.file_system->Rename(unfinished, path));
  return deps_.file_system->SyncDirectory(config_.folder);
}

void JournalWriter::RemoveMade() {
  // Only files that this writer has created are removed. A file that existed before may belong to
  // another server that has taken over the folder.
  while (!made_.empty() && segments_.back().number == made_.back() &&
         RemoveSegment(*deps_.file_system, config_.folder, made_.back()).ok()) {
    held_.erase(made_.back());
    segments_.pop_back();
    made_.pop_back();
  }
}

// Writes the watermark without a sync. So it may be old or incomplete after a crash of the machine.
void JournalWriter::WriteWatermark(uint64_t durable) {
  const absl::StatusOr<std::unique_ptr<storage::WritableFile>> file = deps_.file_system->Create(
      JournalWatermarkPath(config_.folder), storage::FileSystem::IfExists::kTruncate);
  if (!file.ok()) return;
  const JournalRecord record = {.sequence = 0, .durable = durable, .text = "", .payload = {}};
  (*file)->Append(FormatJournalHead(record)).IgnoreError();
  (*file)->Close().IgnoreError();
}

void JournalWriter::Retire(const Retired& retired) {
  const auto lies_before = [this](uint64_t end, uint64_t sequence) {
    return sequence <= durable_ && end <= sequence;
  };
  // A segment is removed only if the next segment begins at or before the first record that is
  // needed. Each removal is on disk before the next one, so that a crash cannot bring back an old
  // segment alone. If a removal fails, the next Work() tries it again.
  while (segments_.size() > 1) {
    const uint64_t number = segments_[0].number;
    const uint64_t end = segments_[1].first_sequence;
    absl::Status status;
    if (lies_before(end, retired.set_aside_before)) {
      status = SetAside(number);
    } else if (lies_before(end, retired.removed_before)) {
      status = RemoveSegment(*deps_.file_system, config_.folder, number);
    } else {
      return;
    }
    if (!status.ok()) {
      if (std::exchange(kept_segment_, number) != number) {
        logging::LogWarn(
            "the journal {} grows, because a file that it does not need any more cannot be "
            "removed: "
            "{}",
            config_.folder, status.message());
      }
      return;
    }
    held_.erase(number);
    segments_.erase(segments_.begin());
  }
}

absl::Status JournalWriter::SetAside(uint64_t segment) {
  if (!has_set_aside_) RETURN_IF_ERROR(RemoveSetAside(*deps_.file_system, config_.folder));
  has_set_aside_ = true;
  return SetSegmentAside(*deps_.file_system, config_.folder, segment);
}

}  // namespace lodestar::journal
