// SPDX-License-Identifier: Apache-2.0

// The files of a journal: its segments, named by their numbers, and the watermark. The watermark is
// a record without text. Its `durable` says up to which record the journal was on disk. So a
// missing end is found even if no later record shows it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/storage/file_system.h"

namespace lodestar::journal {

struct JournalSegment {
  uint64_t number = 0;
  uint64_t first_sequence = 0;  // number of its first record; 0 means that no record is complete
  friend bool operator==(const JournalSegment&, const JournalSegment&) = default;
};

std::string JournalSegmentPath(absl::string_view folder, uint64_t number);
std::string JournalWatermarkPath(absl::string_view folder);
// Returns true if the name of the file is that of a segment.
bool IsJournalSegment(absl::string_view path);
// Returns the numbers of the segments in the folder, ascending. Ignores other files. If the folder
// does not exist, returns an empty list. Errors: those of the disk.
absl::StatusOr<std::vector<uint64_t>> ListJournalSegments(storage::FileSystem& file_system,
                                                          const std::string& folder);

// Removes one segment, if it exists. The change is on disk when the function returns. Errors: those
// of the disk.
absl::Status RemoveSegment(storage::FileSystem& file_system, const std::string& folder,
                           uint64_t number);
// Renames one segment, if it exists, so that it no longer belongs to the journal. The change is on
// disk when the function returns. Errors: those of the disk.
absl::Status SetSegmentAside(storage::FileSystem& file_system, const std::string& folder,
                             uint64_t number);

// Removes all segments that SetSegmentAside() has renamed. Errors: those of the disk.
absl::Status RemoveSetAside(storage::FileSystem& file_system, const std::string& folder);
// Renames all segments, oldest first, so that the folder holds an empty journal. Removes segments
// that were renamed earlier. Errors: those of the disk.
absl::Status SetJournalAside(storage::FileSystem& file_system, const std::string& folder);

}  // namespace lodestar::journal
