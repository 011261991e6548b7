// SPDX-License-Identifier: Apache-2.0

#include "common/storage/process_identity.h"

#include <unistd.h>

#include <random>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/runtime/file_io.h"
#include "common/runtime/time_text.h"

namespace lodestar::storage {
namespace {

constexpr int64_t kMaxBootIdBytes = 4096;

std::string HostName() {
  char name[256] = {};
  return gethostname(name, sizeof(name) - 1) == 0 ? name : "unknown";
}

// Returns the id of the machine's current boot. If the system has no such id, returns the host
// name. Containers of one machine have the same id, because they also share file locks.
std::string BootId() {
  const auto id = ReadWholeFile("/proc/sys/kernel/random/boot_id", kMaxBootIdBytes);
  return id.ok() ? std::string(absl::StripAsciiWhitespace(*id)) : HostName();
}

}  // namespace

std::string ProcessIdentity::Describe() const {
  return absl::StrCat("the server on host ", host, ", process ", process, ", since ", since);
}

ProcessIdentity NewProcessIdentity() {
  std::random_device random;
  ProcessIdentity identity;
  identity.machine = BootId();
  identity.host = HostName();
  identity.process = getpid();
  identity.since = UtcText(absl::Now());
  identity.id = (static_cast<uint64_t>(random()) << 32) | random();
  return identity;
}

}  // namespace lodestar::storage
