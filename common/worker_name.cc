#include "common/worker_name.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace lodestar {

absl::Status CheckWorkerName(absl::string_view what, absl::string_view name) {
  const bool is_legal = std::all_of(name.begin(), name.end(), [](char c) {
    return absl::ascii_isalnum(c) || c == '.' || c == '_' || c == '-';
  });
  if (is_legal && !name.empty() && name.size() <= kMaxWorkerNameBytes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(what, ": name of ", name.size(), " bytes",
                   is_legal ? "" : " with a character that is not allowed", "; allowed are 1 to ",
                   kMaxWorkerNameBytes, " letters, digits, '.', '_', '-'"));
}

}  // namespace lodestar
