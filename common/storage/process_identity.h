// The identity of a process, as it stands in what the process holds: the LOCK of a folder, the key
// of a leader lease.
#pragma once

#include <cstdint>
#include <string>

#include "common/archive/forms.h"
#include "common/archive/json_archive.h"

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

// The fields of a stored identity, and of the records that derive from it: see json_archive.h.
template <typename Archive>
void DescribeIdentity(Archive& archive, ProcessIdentity& identity) {
  archive("machine", identity.machine);
  archive("host", As<PeerTextForm>(identity.host));
  archive("process", identity.process);
  archive("since", As<PeerTextForm>(identity.since));
  archive("id", As<HexForm>(identity.id));
}

}  // namespace lodestar
