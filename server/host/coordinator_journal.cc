// SPDX-License-Identifier: Apache-2.0

#include "server/host/coordinator_journal.h"

#include <algorithm>
#include <utility>

#include "common/runtime/check.h"
#include "common/runtime/status_macros.h"

namespace lodestar::host {

absl::StatusOr<CoordinatorJournal::Contents> CoordinatorJournal::Read(
    storage::FileSystem& file_system, const std::string& folder) {
  Contents contents;
  ASSIGN_OR_RETURN(contents.end, journal::ReadJournal(file_system, folder,
                                                      [&](const journal::JournalRecord& record) {
                                                        contents.records.emplace_back(record.text);
                                                        return absl::OkStatus();
                                                      }));
  return contents;
}

absl::StatusOr<std::unique_ptr<CoordinatorJournal>> CoordinatorJournal::Create(
    journal::JournalWriter::Config config, journal::JournalWriter::Deps deps,
    int64_t segment_bytes) {
  const std::string folder = config.folder;
  ASSIGN_OR_RETURN(std::unique_ptr<journal::JournalWriter> writer,
                   journal::JournalWriter::Create(std::move(config), std::move(deps)));
  return std::unique_ptr<CoordinatorJournal>(
      new CoordinatorJournal(folder, std::move(writer), segment_bytes));
}

bool CoordinatorJournal::wants_whole() const {
  return segment_bytes_ == 0 ||
         segment_bytes_ > std::max(max_segment_bytes_, kWholesPerSegment * whole_bytes_);
}

uint64_t CoordinatorJournal::Keep(std::string record, bool is_whole,
                                  journal::JournalWriter::Durable durable) {
  LODESTAR_CHECK(is_whole || !wants_whole());
  const bool begins_segment = wants_whole() && segment_bytes_ != 0;
  const auto bytes = static_cast<int64_t>(record.size());
  if (is_whole) whole_bytes_ = bytes;
  segment_bytes_ = bytes + (begins_segment ? 0 : segment_bytes_);
  journal::JournalWriter::Record entry = {.text = std::move(record)};
  const uint64_t number = begins_segment
                              ? writer_->BeginSegment(std::move(entry), std::move(durable))
                              : writer_->Append(std::move(entry), std::move(durable));
  // Also removes the segments of earlier processes.
  if (is_whole) writer_->RemoveBefore(number);
  return number;
}

}  // namespace lodestar::host
