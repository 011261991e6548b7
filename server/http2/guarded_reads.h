// SPDX-License-Identifier: Apache-2.0

// Watches what gRPC reads from its clients, because gRPC 1.51 has no hook for that:
// - Checks the bytes with an Http2Guard before gRPC reads them.
// - Counts failed TLS handshakes of clients.
// - Records which connections the other end has closed.
//
// For this, defines recvmsg(), shutdown(), SSL_read() and SSL_do_handshake(), which the gRPC
// library calls, and calls the system's functions from them. Some connections are not guarded:
// plain ones without GuardSocket(), TLS connections that this process has opened, and those without
// HTTP/2. Sanitizers replace the same functions, so builds with sanitizers guard nothing.
//
// The state belongs to the process, because the library does not say for which server it calls.
#pragma once

#include <cstdint>
#include <string>

namespace lodestar::http2 {

// Makes sure that an Http2Guard checks what gRPC reads from the plain HTTP/2 connection `fd`. This
// process must have accepted the connection, and have read nothing of it. An earlier connection
// with the same descriptor is forgotten. TLS connections are guarded without this call.
void GuardSocket(int fd);

// Returns true if the other end had closed or reset the connection when this process shut it down.
// Returns false if a timeout has ended the connection. `inode` is the inode of its socket. Only the
// most recent connections are remembered. Always returns false in builds with sanitizers.
bool WasEndedByPeer(uint64_t inode);

// Returns the number of connections that Http2Guard has ended since the process began.
uint64_t NumFloodsEnded();

// FailedHandshakes counts TLS handshakes with clients of this process's servers that either side
// has refused.
struct FailedHandshakes {
  uint64_t count = 0;       // since the process began
  std::string last_reason;  // such as "certificate has expired"
};
FailedHandshakes ReadFailedHandshakes();

}  // namespace lodestar::http2
