// SPDX-License-Identifier: Apache-2.0

#include "worker/client/connection_socket.h"

#include <fcntl.h>
#include <grpc/grpc.h>
#include <grpc/support/sync.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstddef>
#include <functional>
#include <utility>

// ChannelArguments::SetSocketMutator takes an object of this type. gRPC declares the type but does
// not install the header that defines it. The definition is the same in all versions since 1.38.
struct grpc_socket_mutator_vtable {
  bool (*mutate_fd)(int descriptor, grpc_socket_mutator* mutator);
  int (*compare)(grpc_socket_mutator* a, grpc_socket_mutator* b);
  void (*destroy)(grpc_socket_mutator* mutator);
  // Null means that gRPC calls mutate_fd.
  bool (*mutate_fd_2)(const void* info, grpc_socket_mutator* mutator);
};
struct grpc_socket_mutator {
  const grpc_socket_mutator_vtable* vtable;
  gpr_refcount refcount;
};

namespace lodestar::client {

// gRPC calls Take() with each socket that it is about to connect.
struct SocketTaker : grpc_socket_mutator {
  static bool Take(int descriptor, grpc_socket_mutator* self) {
    static_cast<SocketTaker*>(self)->socket->Replace(fcntl(descriptor, F_DUPFD_CLOEXEC, 0));
    return true;
  }
  static int Compare(grpc_socket_mutator* a, grpc_socket_mutator* b) {
    if (a == b) return 0;
    return std::less<>()(a, b) ? -1 : 1;
  }
  static void Destroy(grpc_socket_mutator* self) { delete static_cast<SocketTaker*>(self); }

  explicit SocketTaker(std::shared_ptr<ConnectionSocket> socket) : socket(std::move(socket)) {
    static constexpr grpc_socket_mutator_vtable kTable = {&Take, &Compare, &Destroy, nullptr};
    vtable = &kTable;
    gpr_ref_init(&refcount, 1);
  }

  const std::shared_ptr<ConnectionSocket> socket;
};

std::shared_ptr<ConnectionSocket> ConnectionSocket::Of(grpc::ChannelArguments& arguments) {
  auto socket = std::make_shared<ConnectionSocket>();
  // `arguments` owns the SocketTaker.
  arguments.SetSocketMutator(new SocketTaker(socket));
  return socket;
}

void ConnectionSocket::Abort() {
  absl::MutexLock lock(&mutex_);
  if (descriptor_ < 0) return;
  // connect() with AF_UNSPEC resets the connection of a connected socket.
  const sockaddr nobody = {.sa_family = AF_UNSPEC, .sa_data = {}};
  connect(descriptor_, &nobody, sizeof(nobody));
}

std::optional<SocketCounts> ConnectionSocket::Counts() {
  absl::MutexLock lock(&mutex_);
  tcp_info info = {};
  socklen_t size = sizeof(info);
  if (descriptor_ < 0 || getsockopt(descriptor_, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) {
    return std::nullopt;
  }
  // Older kernels fill in fewer fields. If no round trip was measured, the socket was never
  // connected.
  const size_t needed = offsetof(tcp_info, tcpi_busy_time) + sizeof(info.tcpi_busy_time);
  if (size < needed || info.tcpi_min_rtt == 0 || info.tcpi_min_rtt == UINT32_MAX) {
    return std::nullopt;
  }
  return SocketCounts{.bytes_sent = info.tcpi_bytes_acked,
                      .sending = absl::Microseconds(info.tcpi_busy_time),
                      .round_trip = absl::Microseconds(info.tcpi_min_rtt)};
}

void ConnectionSocket::Replace(int descriptor) {
  absl::MutexLock lock(&mutex_);
  if (descriptor_ >= 0) close(descriptor_);
  descriptor_ = descriptor;
}

}  // namespace lodestar::client
