// The ids of calls between programs of a cluster, by which one call is found in the logs of both
// sides. The caller makes the id and sends it in the call's metadata (kRequestIdKey of
// proto/bulk_options.h); it proves nothing, and nothing is decided by it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace lodestar {

inline constexpr size_t kMaxRequestIdBytes = 64;

// "3fa9c1d2-17": the 17th call of the process that 3fa9c1d2 stands for. Thread-safe.
class RequestIds {
 public:
  // `process`: random, so that no two processes have the same.
  explicit RequestIds(uint32_t process) : process_(process) {}

  std::string Next();

 private:
  const uint32_t process_;
  std::atomic<uint64_t> num_made_ = 0;
};

// Makes an id, or a name, that a peer has sent fit for one word of a log line: letters, digits,
// '.', '_' and '-' stay as they are, anything else becomes '?', and it has no more than
// kMaxRequestIdBytes.
std::string PeerWord(absl::string_view word);

}  // namespace lodestar
