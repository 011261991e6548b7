// SPDX-License-Identifier: Apache-2.0

#include "common/storage/git_lfs_pointer.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "common/runtime/peer_text.h"

namespace lodestar::storage {

absl::Status CheckNotGitLfsPointer(const std::string& path, absl::Span<const uint8_t> start) {
  const absl::string_view text(reinterpret_cast<const char*>(start.data()),
                               std::min<size_t>(start.size(), kMaxGitLfsPointerBytes));
  if (!absl::StartsWith(text, "version https://git-lfs.github.com/spec/")) return absl::OkStatus();
  std::string size = "the file";
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    if (absl::StartsWith(line, "size "))
      size = absl::StrCat("a file of ", PeerText(line.substr(5)), " bytes");
  }
  return absl::FailedPreconditionError(
      absl::StrCat(path, " is only a Git LFS pointer to ", size,
                   "; fetch that file with git lfs pull in the folder of the repository"));
}

}  // namespace lodestar::storage
