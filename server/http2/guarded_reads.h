// This file puts an Http2Guard before what gRPC reads from its clients, notices clients that fail
// to open a connection of TLS, and remembers which connections the other end has closed. gRPC 1.51
// has no place for that, and neither its own limits nor anything behind it sees what the guard
// looks for. So it defines recvmsg(), shutdown(), SSL_read() and SSL_do_handshake(), which the
// library of gRPC calls, over those of the system, and calls those. Nothing changes for connections
// that are not guarded: plain ones that GuardSocket() was not told of, and TLS of clients, or
// without HTTP/2. In builds with sanitizers, which do the same, nothing is guarded.
//
// The state is the process's: the library does not say which server it calls for.
#pragma once

#include <cstdint>
#include <string>

namespace lodestar::http2 {

// A connection of plain HTTP/2 that this process has accepted, and has read nothing of. Takes the
// place of an earlier one with that number. Those with TLS are found without.
void GuardSocket(int fd);

// Whether the other end had closed or reset the connection whose socket had this inode when this
// process shut it down. Known of those that were shut down last. Not if a timeout has ended it. In
// builds with sanitizers never.
bool WasEndedByPeer(uint64_t inode);

// Connections that were ended, since the process began.
uint64_t NumFloodsEnded();

// FailedHandshakes are those of TLS with clients of this process' servers that one of both has
// refused.
struct FailedHandshakes {
  uint64_t count = 0;       // since the process began
  std::string last_reason;  // "certificate has expired"
};
FailedHandshakes ReadFailedHandshakes();

}  // namespace lodestar::http2
