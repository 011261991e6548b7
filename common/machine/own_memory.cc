// SPDX-License-Identifier: Apache-2.0

#include "common/machine/own_memory.h"

#include <fstream>
#include <limits>

#include "absl/strings/str_cat.h"

namespace lodestar::machine {

int64_t ReadOwnMemory(const std::string& root) {
  std::ifstream status(absl::StrCat(root, "/proc/self/status"));
  std::string word;
  while (status >> word) {
    int64_t kib = 0;
    if (word == "RssAnon:") return status >> kib ? kib << 10 : 0;
    status.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return 0;
}

}  // namespace lodestar::machine
