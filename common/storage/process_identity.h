// SPDX-License-Identifier: Apache-2.0

// The identity of a process. It is written into things that the process holds: the LOCK of a
// folder, or the key of a leader lease.
#pragma once

#include <cstdint>
#include <string>

#include "common/archive/forms.h"
#include "common/archive/json_archive.h"

namespace lodestar::storage {

struct ProcessIdentity {
  std::string machine;  // differs between machines, and between boots of one machine
  std::string host;     // for messages, like the two members below
  int64_t process = 0;
  std::string since;
  uint64_t id = 0;  // a random number

  // Returns text such as "the server on host h, process 12, since 2026-11-21 22:13:50 UTC".
  std::string Describe() const;
};

// Returns the identity of this process, with a new id for each call.
ProcessIdentity NewProcessIdentity();

// Describes the fields of an identity, also in records that derive from ProcessIdentity. See
// json_archive.h.
template <typename Archive>
void DescribeIdentity(Archive& archive, ProcessIdentity& identity) {
  archive("machine", identity.machine);
  archive("host", archive::As<archive::PeerTextForm>(identity.host));
  archive("process", identity.process);
  archive("since", archive::As<archive::PeerTextForm>(identity.since));
  archive("id", archive::As<archive::HexForm>(identity.id));
}

}  // namespace lodestar::storage
