// SPDX-License-Identifier: Apache-2.0

// The ids of calls between programs of a cluster. With an id, a call can be found in the logs of
// both sides. The caller makes the id and sends it in the call's metadata (kRequestIdKey in
// proto/bulk_options.h). The id proves nothing, and no decision depends on it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace lodestar {

inline constexpr size_t kMaxRequestIdBytes = 64;

// Makes ids such as "3fa9c1d2-17": call 17 of the process with the number 3fa9c1d2. Thread-safe.
class RequestIds {
 public:
  // `process` must be random, so that no two processes have the same number.
  explicit RequestIds(uint32_t process) : process_(process) {}

  std::string Next();

 private:
  const uint32_t process_;
  std::atomic<uint64_t> num_made_ = 0;
};

// Returns `word`, an id or a name that a peer has sent, as one word for a log line. Letters,
// digits, '.', '_' and '-' stay. Any other character becomes '?'. The result is cut to
// kMaxRequestIdBytes.
std::string PeerWord(absl::string_view word);

}  // namespace lodestar
