// SPDX-License-Identifier: Apache-2.0

#include "server/durability/journal/journal_segments.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "common/runtime/status_macros.h"
#include "common/storage/journal_name.h"

namespace lodestar::journal {
namespace {

constexpr absl::string_view kAside = ".damaged";

}  // namespace

std::string JournalSegmentPath(absl::string_view folder, uint64_t number) {
  return absl::StrFormat("%s/%08d%s", folder, number, storage::kJournalSuffix);
}

std::string JournalWatermarkPath(absl::string_view folder) {
  return absl::StrCat(folder, "/watermark");
}

bool IsJournalSegment(absl::string_view path) {
  return absl::EndsWith(path, storage::kJournalSuffix);
}

absl::StatusOr<std::vector<uint64_t>> ListJournalSegments(storage::FileSystem& file_system,
                                                          const std::string& folder) {
  ASSIGN_OR_RETURN(const std::vector<std::string> names, file_system.List(folder));
  std::vector<uint64_t> numbers;
  for (const std::string& name : names) {
    absl::string_view digits = name;
    uint64_t number = 0;
    if (absl::ConsumeSuffix(&digits, storage::kJournalSuffix) &&
        absl::SimpleAtoi(digits, &number)) {
      numbers.push_back(number);
    }
  }
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

absl::Status RemoveSegment(storage::FileSystem& file_system, const std::string& folder,
                           uint64_t number) {
  RETURN_IF_ERROR(file_system.RemoveAll(JournalSegmentPath(folder, number)));
  return file_system.SyncDirectory(folder);
}

absl::Status SetSegmentAside(storage::FileSystem& file_system, const std::string& folder,
                             uint64_t number) {
  const std::string path = JournalSegmentPath(folder, number);
  if (file_system.Exists(path)) {
    RETURN_IF_ERROR(file_system.Rename(path, absl::StrCat(path, kAside)));
  }
  return file_system.SyncDirectory(folder);
}

absl::Status RemoveSetAside(storage::FileSystem& file_system, const std::string& folder) {
  ASSIGN_OR_RETURN(const std::vector<std::string> names, file_system.List(folder));
  for (const std::string& name : names) {
    if (!absl::EndsWith(name, kAside)) continue;
    RETURN_IF_ERROR(file_system.RemoveAll(absl::StrCat(folder, "/", name)));
  }
  return absl::OkStatus();
}

absl::Status SetJournalAside(storage::FileSystem& file_system, const std::string& folder) {
  RETURN_IF_ERROR(RemoveSetAside(file_system, folder));
  // The watermark is removed first. It must not be read together with the next journal in this
  // folder.
  RETURN_IF_ERROR(file_system.RemoveAll(JournalWatermarkPath(folder)));
  RETURN_IF_ERROR(file_system.SyncDirectory(folder));
  ASSIGN_OR_RETURN(const std::vector<uint64_t> numbers, ListJournalSegments(file_system, folder));
  for (const uint64_t number : numbers) {
    RETURN_IF_ERROR(SetSegmentAside(file_system, folder, number));
  }
  return absl::OkStatus();
}

}  // namespace lodestar::journal
