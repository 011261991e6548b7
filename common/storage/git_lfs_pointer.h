// SPDX-License-Identifier: Apache-2.0

// Recognises pointers of Git LFS, which keeps large files outside of a repository. Until a large
// file is fetched, there is a text of three lines in its place, the pointer. A program would read
// the pointer as data.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace lodestar::storage {

// Maximum size of a pointer, from the specification of Git LFS.
inline constexpr int64_t kMaxGitLfsPointerBytes = 1024;

// Checks that a file that begins with `start` is not a pointer. Errors: FailedPrecondition that
// names the path, the size of the real file, and the command that fetches it.
absl::Status CheckNotGitLfsPointer(const std::string& path, absl::Span<const uint8_t> start);

}  // namespace lodestar::storage
