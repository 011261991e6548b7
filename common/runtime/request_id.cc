// SPDX-License-Identifier: Apache-2.0

#include "common/runtime/request_id.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_format.h"

namespace lodestar {

std::string RequestIds::Next() { return absl::StrFormat("%08x-%d", process_, ++num_made_); }

std::string PeerWord(absl::string_view word) {
  std::string clean(word.substr(0, kMaxRequestIdBytes));
  for (char& c : clean) {
    if (!absl::ascii_isalnum(c) && c != '.' && c != '_' && c != '-') c = '?';
  }
  return clean;
}

}  // namespace lodestar
