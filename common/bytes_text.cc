#include "common/bytes_text.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace lodestar {

std::string BytesText(int64_t bytes) {
  if (bytes < 1'000) return absl::StrCat(bytes, " B");
  if (bytes < 1'000'000) return absl::StrFormat("%.1f kB", bytes / 1e3);
  if (bytes < 1'000'000'000) return absl::StrFormat("%.1f MB", bytes / 1e6);
  return absl::StrFormat("%.2f GB", bytes / 1e9);
}

}  // namespace lodestar
