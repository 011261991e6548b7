#include "server/host/coordinator_journal.h"

#include <utility>

#include "common/status_macros.h"

namespace lodestar {

absl::StatusOr<CoordinatorJournal::Contents> CoordinatorJournal::Read(FileSystem& file_system,
                                                                      const std::string& folder) {
  Contents contents;
  ASSIGN_OR_RETURN(contents.end, ReadJournal(file_system, folder, [&](const JournalRecord& record) {
                     contents.newest = std::string(record.text);
                     return absl::OkStatus();
                   }));
  return contents;
}

absl::StatusOr<std::unique_ptr<CoordinatorJournal>> CoordinatorJournal::Create(
    JournalWriter::Config config, JournalWriter::Deps deps, int64_t segment_bytes) {
  const std::string folder = config.folder;
  ASSIGN_OR_RETURN(std::unique_ptr<JournalWriter> writer,
                   JournalWriter::Create(std::move(config), std::move(deps)));
  return std::unique_ptr<CoordinatorJournal>(
      new CoordinatorJournal(folder, std::move(writer), segment_bytes));
}

uint64_t CoordinatorJournal::Keep(std::string memory, JournalWriter::Durable durable) {
  const auto bytes = static_cast<int64_t>(memory.size());
  if (segment_bytes_ + bytes <= max_segment_bytes_) {
    segment_bytes_ += bytes;
    return writer_->Append({.text = std::move(memory)}, std::move(durable));
  }
  segment_bytes_ = bytes;
  const uint64_t number = writer_->BeginSegment({.text = std::move(memory)}, std::move(durable));
  writer_->RemoveBefore(number);
  return number;
}

}  // namespace lodestar
