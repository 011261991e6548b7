// Git LFS keeps large files apart from a repository. Where they were not fetched, a text of three
// lines lies in their place, which is read as data if nothing looks.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace lodestar {

// Largest pointer, by the specification of Git LFS.
inline constexpr int64_t kMaxGitLfsPointerBytes = 1024;

// Returns OK unless a file that starts with `start` is a pointer. Errors: FailedPrecondition that
// names the path, the size of the file that it stands for, and the command that fetches that.
absl::Status CheckNotGitLfsPointer(const std::string& path, absl::Span<const uint8_t> start);

}  // namespace lodestar
