// SPDX-License-Identifier: Apache-2.0

#include "worker/data/heldout_copies.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/runtime/status_macros.h"

namespace lodestar::data {

// Returns the first bytes of the file. Nearly all files already differ in these bytes.
absl::StatusOr<std::string> HeldoutCopies::StartOf(const Part& part) {
  constexpr int64_t kStartBytes = 4096;
  std::string start(std::min(kStartBytes, part.num_bytes()), '\0');
  RETURN_IF_ERROR(part.file->Read(
      part.begin, absl::MakeSpan(reinterpret_cast<uint8_t*>(start.data()), start.size())));
  return absl::StrCat(part.num_bytes(), " ", start);
}

absl::StatusOr<bool> HeldoutCopies::HasSameBytes(const Part& a, const Part& b) {
  bool is_same = a.num_bytes() == b.num_bytes();
  if (!is_same || (a.file->IsSameAs(*b.file) && a.begin == b.begin)) return is_same;
  std::vector<uint8_t> other;
  const absl::Status status = ScanDataFile(
      *a.file, a.begin, NeverStopped,
      [&](int64_t offset, absl::Span<const uint8_t> piece) -> absl::Status {
        other.resize(piece.size());
        RETURN_IF_ERROR(b.file->Read(b.begin + offset - a.begin, absl::MakeSpan(other)));
        is_same = std::equal(piece.begin(), piece.end(), other.begin());
        return is_same ? absl::OkStatus() : absl::CancelledError("");
      });
  if (!status.ok() && is_same) return status;
  return is_same;
}

absl::Status HeldoutCopies::Add(const DataFile& file, int64_t begin) {
  const Part part = {&file, begin};
  sizes_.insert(part.num_bytes());
  ASSIGN_OR_RETURN(const std::string start, StartOf(part));
  by_start_.emplace(start, part);
  return absl::OkStatus();
}

absl::StatusOr<const DataFile*> HeldoutCopies::Find(const DataFile& file, int64_t begin) const {
  const Part part = {&file, begin};
  if (sizes_.count(part.num_bytes()) == 0) return nullptr;
  ASSIGN_OR_RETURN(const std::string start, StartOf(part));
  for (auto [twin, end] = by_start_.equal_range(start); twin != end; ++twin) {
    ASSIGN_OR_RETURN(const bool is_same, HasSameBytes(twin->second, part));
    if (is_same) return twin->second.file;
  }
  return nullptr;
}

}  // namespace lodestar::data
