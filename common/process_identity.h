// Who a process is, as it stands in what it holds: the LOCK of a folder, the key of a leader lease.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "common/json.h"

namespace lodestar {

struct ProcessIdentity {
  std::string machine;  // differs between machines and between boots of one
  std::string host;     // for people, as are the next two
  int64_t process = 0;
  std::string since;
  uint64_t id = 0;  // random

  // "the server on host h, process 12, since 2026-11-21 22:13:50 UTC".
  std::string Describe() const;
};

// This process's own, with another id each time.
ProcessIdentity NewProcessIdentity();

// An object with a key per field.
Json ToJson(const ProcessIdentity& identity);
// Errors: InvalidArgument naming what is missing or of another type.
absl::StatusOr<ProcessIdentity> ProcessIdentityFromJson(const Json& json);

}  // namespace lodestar
