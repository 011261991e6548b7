// The files of a journal: its segments, oldest first, named by their numbers; and the watermark, a
// record of no text that says how much of them was durable when it was written. It shows that an
// end is missing that no later record tells of.
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
  uint64_t first_sequence = 0;  // of its first record; 0 means that not one is whole
  friend bool operator==(const JournalSegment&, const JournalSegment&) = default;
};

std::string JournalSegmentPath(absl::string_view folder, uint64_t number);
std::string JournalWatermarkPath(absl::string_view folder);
// By its name.
bool IsJournalSegment(absl::string_view path);
// The numbers of the segments in the folder, ascending; none if there is no such folder. Other
// files are none of it. Errors: of the disk.
absl::StatusOr<std::vector<uint64_t>> ListJournalSegments(FileSystem& file_system,
                                                          const std::string& folder);

// These change one name, which is on disk when they return. A segment that is not there any more is
// no error. Errors: of the disk.
absl::Status RemoveSegment(FileSystem& file_system, const std::string& folder, uint64_t number);
// Renames it, so that it is none of the journal.
absl::Status SetSegmentAside(FileSystem& file_system, const std::string& folder, uint64_t number);

// What was set aside. Errors: of the disk.
absl::Status RemoveSetAside(FileSystem& file_system, const std::string& folder);
// All segments, oldest first, so that the folder holds an empty journal; those set aside before go.
// Errors: of the disk.
absl::Status SetJournalAside(FileSystem& file_system, const std::string& folder);

}  // namespace lodestar::journal
