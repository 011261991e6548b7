// SPDX-License-Identifier: Apache-2.0

#include "server/http2/guarded_reads.h"

#include <dlfcn.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509_vfy.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <deque>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "server/http2/http2_guard.h"

namespace lodestar::http2 {
namespace {

std::atomic<uint64_t> num_floods_ended = 0;

// GuardedSockets has the guards of plain connections, by file descriptor.
class GuardedSockets {
 public:
  static GuardedSockets& Instance() {
    static auto* const sockets = new GuardedSockets();
    return *sockets;
  }

  void Add(int fd) ABSL_LOCKS_EXCLUDED(mutex_) {
    auto socket = std::make_shared<Socket>();
    if (fstat(fd, &socket->identity) != 0) return;
    absl::MutexLock lock(&mutex_);
    sockets_[fd] = std::move(socket);
    is_empty_ = false;
  }

  // Checks the bytes that were read from `fd`. Returns false if the connection must end.
  bool Allows(int fd, const msghdr& message, size_t num_bytes) ABSL_LOCKS_EXCLUDED(mutex_) {
    const std::shared_ptr<Socket> socket = Find(fd);
    if (socket == nullptr) return true;
    // The guard needs no lock, because only one thread at a time reads a connection.
    const absl::Time now = absl::Now();
    for (size_t i = 0; i < message.msg_iovlen && num_bytes > 0; ++i) {
      const size_t size = std::min(num_bytes, message.msg_iov[i].iov_len);
      num_bytes -= size;
      if (!socket->guard.Allows({static_cast<const char*>(message.msg_iov[i].iov_base), size},
                                now)) {
        Forget(fd);
        return !IsSame(fd, *socket);
      }
    }
    return true;
  }

  void Forget(int fd) ABSL_LOCKS_EXCLUDED(mutex_) {
    if (is_empty_) return;
    std::shared_ptr<Socket> forgotten;
    absl::MutexLock lock(&mutex_);
    const auto found = sockets_.find(fd);
    if (found == sockets_.end()) return;
    forgotten = std::move(found->second);
    sockets_.erase(found);
  }

 private:
  struct Socket {
    struct stat identity = {};
    Http2Guard guard;
  };

  std::shared_ptr<Socket> Find(int fd) ABSL_LOCKS_EXCLUDED(mutex_) {
    if (is_empty_) return nullptr;
    absl::ReaderMutexLock lock(&mutex_);
    const auto found = sockets_.find(fd);
    return found == sockets_.end() ? nullptr : found->second;
  }

  // Returns false if the guarded file has been closed, and `fd` is now the number of another file.
  static bool IsSame(int fd, const Socket& socket) {
    struct stat now = {};
    return fstat(fd, &now) == 0 && now.st_dev == socket.identity.st_dev &&
           now.st_ino == socket.identity.st_ino;
  }

  absl::Mutex mutex_;
  absl::flat_hash_map<int, std::shared_ptr<Socket>> sockets_ ABSL_GUARDED_BY(mutex_);
  std::atomic<bool> is_empty_ = true;  // true: no socket was ever added
};

// EndedConnections records, by the inode of its socket, whether this process or the other end has
// ended a connection. Its size is bounded: the oldest connections are forgotten.
class EndedConnections {
 public:
  static EndedConnections& Instance() {
    static auto* const ended = new EndedConnections();
    return *ended;
  }

  // Records the state of `fd`, which this process is about to shut down. If the inode is known
  // already, nothing changes.
  void OnShutdown(int fd) ABSL_LOCKS_EXCLUDED(mutex_) {
    struct stat status = {};
    tcp_info info = {};
    socklen_t size = sizeof(info);
    if (fstat(fd, &status) != 0 || getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) {
      return;
    }
    // TCP_CLOSE means that the peer has reset the connection, or that retransmissions or probes
    // have failed. If they have failed, their counter is not 0.
    const bool was_reset =
        info.tcpi_state == TCP_CLOSE && info.tcpi_retransmits == 0 && info.tcpi_probes == 0;
    absl::MutexLock lock(&mutex_);
    const bool by_peer = info.tcpi_state == TCP_CLOSE_WAIT || was_reset;
    if (!by_peer_.emplace(status.st_ino, by_peer).second) return;
    order_.push_back(status.st_ino);
    if (order_.size() <= kMaxConnections) return;
    by_peer_.erase(order_.front());
    order_.pop_front();
  }
  bool WasByPeer(uint64_t inode) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    const auto found = by_peer_.find(inode);
    return found != by_peer_.end() && found->second;
  }

 private:
  static constexpr size_t kMaxConnections = 1 << 14;

  absl::Mutex mutex_;
  absl::flat_hash_map<uint64_t, bool> by_peer_ ABSL_GUARDED_BY(mutex_);
  std::deque<uint64_t> order_ ABSL_GUARDED_BY(mutex_);
};

void FreeGuard(void*, void* guard, CRYPTO_EX_DATA*, int, long, void*) {
  delete static_cast<Http2Guard*>(guard);
}

// Returns the guard of a server's HTTP/2 connection, or null for any other connection. This
// function and HandshakeError() are unused if a sanitizer replaces the functions below by its own.
[[maybe_unused]] Http2Guard* GuardOf(SSL* ssl) {
  static const int index = SSL_get_ex_new_index(0, nullptr, nullptr, nullptr, &FreeGuard);
  if (SSL_is_server(ssl) != 1) return nullptr;
  auto* guard = static_cast<Http2Guard*>(SSL_get_ex_data(ssl, index));
  if (guard != nullptr) return guard;
  const unsigned char* protocol = nullptr;
  unsigned int length = 0;
  SSL_get0_alpn_selected(ssl, &protocol, &length);
  if (absl::string_view(reinterpret_cast<const char*>(protocol), length) != "h2") return nullptr;
  guard = new Http2Guard();
  if (SSL_set_ex_data(ssl, index, guard) == 1) return guard;
  delete guard;
  return nullptr;
}

class HandshakeCounter {
 public:
  static HandshakeCounter& Instance() {
    static auto* const counter = new HandshakeCounter();
    return *counter;
  }

  void Add(absl::string_view reason) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    ++failed_.count;
    failed_.last_reason = std::string(reason);
  }
  FailedHandshakes Read() ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    return failed_;
  }

 private:
  absl::Mutex mutex_;
  FailedHandshakes failed_ ABSL_GUARDED_BY(mutex_);
};

// Returns the reason for a failed handshake. If the peer's certificate is bad, returns OpenSSL's
// result for the certificate. OpenSSL's last error would only say that it could not be verified.
[[maybe_unused]] absl::string_view HandshakeError(const SSL* ssl) {
  const int64_t verified = SSL_get_verify_result(ssl);
  if (verified != X509_V_OK) return X509_verify_cert_error_string(verified);
  const char* const reason = ERR_reason_error_string(ERR_peek_last_error());
  return reason == nullptr ? "unknown" : reason;
}

template <typename Function>
Function* OfTheSystem(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

}  // namespace

void GuardSocket(int fd) { GuardedSockets::Instance().Add(fd); }

bool WasEndedByPeer(uint64_t inode) { return EndedConnections::Instance().WasByPeer(inode); }

uint64_t NumFloodsEnded() { return num_floods_ended; }

FailedHandshakes ReadFailedHandshakes() { return HandshakeCounter::Instance().Read(); }

}  // namespace lodestar::http2

#ifndef LODESTAR_SANITIZER

extern "C" {

__attribute__((visibility("default"))) ssize_t recvmsg(int fd, msghdr* message, int flags) {
  static auto* const real = lodestar::http2::OfTheSystem<ssize_t(int, msghdr*, int)>("recvmsg");
  const ssize_t num_bytes = real(fd, message, flags);
  const int error = errno;
  auto& sockets = lodestar::http2::GuardedSockets::Instance();
  if (num_bytes > 0) {
    if (sockets.Allows(fd, *message, static_cast<size_t>(num_bytes))) return num_bytes;
    ++lodestar::http2::num_floods_ended;
    shutdown(fd, SHUT_RDWR);
    errno = ECONNRESET;
    return -1;
  }
  if (num_bytes == 0 || (error != EAGAIN && error != EINTR)) sockets.Forget(fd);
  errno = error;
  return num_bytes;
}

// gRPC calls shutdown() as soon as it knows that a connection is over, and ends the calls of the
// connection only afterwards. So WasEndedByPeer() knows the connection when its calls end.
__attribute__((visibility("default"))) int shutdown(int fd, int how) {
  static auto* const real = lodestar::http2::OfTheSystem<int(int, int)>("shutdown");
  lodestar::http2::EndedConnections::Instance().OnShutdown(fd);
  return real(fd, how);
}

__attribute__((visibility("default"))) int SSL_read(SSL* ssl, void* bytes, int most) {
  static auto* const real = lodestar::http2::OfTheSystem<int(SSL*, void*, int)>("SSL_read");
  ERR_clear_error();  // see SSL_do_handshake()
  const int num_bytes = real(ssl, bytes, most);
  if (num_bytes <= 0) return num_bytes;
  lodestar::http2::Http2Guard* const guard = lodestar::http2::GuardOf(ssl);
  if (guard == nullptr ||
      guard->Allows({static_cast<const char*>(bytes), static_cast<size_t>(num_bytes)},
                    absl::Now())) {
    return num_bytes;
  }
  ++lodestar::http2::num_floods_ended;
  ERR_raise(ERR_LIB_USER, ERR_R_DISABLED);
  return -1;
}

__attribute__((visibility("default"))) int SSL_do_handshake(SSL* ssl) {
  static auto* const real = lodestar::http2::OfTheSystem<int(SSL*)>("SSL_do_handshake");
  // An earlier connection may have left errors in this thread's queue. SSL_get_error() would report
  // them as errors of this connection. gRPC 1.51 removes only one error from the queue, and there
  // may be more.
  ERR_clear_error();
  const int result = real(ssl);
  if (result <= 0 && SSL_is_server(ssl) == 1 && SSL_get_error(ssl, result) == SSL_ERROR_SSL) {
    lodestar::http2::HandshakeCounter::Instance().Add(lodestar::http2::HandshakeError(ssl));
  }
  return result;
}

}  // extern "C"

#endif
