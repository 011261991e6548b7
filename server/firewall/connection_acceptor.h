// SPDX-License-Identifier: Apache-2.0

// ConnectionAcceptor is the port of a server. It accepts connections, sees by their first bytes
// what they are, and hands them to gRPC or, for an enrolment, to `enroll`. gRPC's own listener is
// not used: it stops for good when the process runs out of file descriptors (CVE-2023-4785), and it
// keeps clients that connect and send nothing.
//
//   accepted -> silent -> let in: gRPC's, or the enrollment's
//                 |  \--> held: gRPC's, but Serve() was not called yet --> let in
//                 |         |
//                 v         v
//               closed    being told that it is refused, in its own protocol --> closed
//
// The acceptor has one thread of its own, which never blocks on a peer.
#pragma once

#include <grpcpp/server_builder.h>

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/net/host_port.h"
#include "common/net/listening_sockets.h"
#include "common/runtime/clock.h"
#include "common/runtime/file_descriptor.h"
#include "server/firewall/connection_table.h"
#include "server/firewall/first_bytes.h"
#include "server/firewall/http2_refusal.h"

namespace lodestar::firewall {

class ConnectionAcceptor {
 public:
  enum class Transport : uint8_t { kPlain, kTls };
  struct Config {
    net::HostPort listen;  // port 0 means that the system chooses a port
    Transport transport = Transport::kPlain;
    // Limits, lowered to what the process's limit of open files allows.
    ConnectionLimits limits;
    // How long a gRPC client waits for Serve() to be called, before it is told that the server is
    // starting.
    absl::Duration start_patience = absl::Seconds(1);
    // Called with each connection that begins with kEnrollmentWord. The function owns the
    // connection, which is non-blocking and of which nothing has been read. `peer` is HOST:PORT.
    // Called by the acceptor's thread, from Listen() on, and must not block. Null means that
    // enrolments are refused.
    std::function<void(int fd, std::string peer)> enroll;
    Clock* clock = &Clock::Real();
  };

  // Opens the port and takes connections. Those for gRPC wait for Serve(). Errors: those of
  // Listen() in listening_sockets.h; ResourceExhausted (no free file).
  static absl::StatusOr<std::unique_ptr<ConnectionAcceptor>> Listen(Config config);
  ~ConnectionAcceptor();  // calls Stop()

  int port() const { return port_; }
  // See ListeningSockets.
  const std::vector<std::string>& loopback_only() const { return sockets_.loopback_only; }
  // Hands connections over to gRPC from now on. `grpc` is the result of
  // ServerBuilder::experimental().AddExternalConnectionAcceptor() for a server that is running now.
  // Must be called at most once, before Stop().
  void Serve(std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> grpc);
  // Thread-safe.
  ConnectionCounts counts() ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns true if gRPC's connection from `peer` is open, or if `peer` is no TCP address. `peer`
  // has the form of grpc::ServerContext::peer(). Thread-safe.
  bool IsOpen(absl::string_view peer) ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns the state of gRPC's newest connection from `peer`. Thread-safe.
  ConnectionState StateOf(absl::string_view peer) ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns how many bytes have come on gRPC's newest connection from `peer`. The result is not set
  // if that connection is not known or not open. Thread-safe.
  std::optional<uint64_t> BytesReceived(absl::string_view peer) ABSL_LOCKS_EXCLUDED(mutex_);
  // Closes the port and all connections that were not let in. Connections that were let in stay
  // open. Must be called before grpc::Server::Shutdown(). Blocks until the acceptor's thread has
  // ended, which never waits for a peer. May be called repeatedly.
  void Stop();

 private:
  enum class State : uint8_t {
    kSilent,
    kHeld,     // for gRPC, which does not serve yet
    kRefused,  // HTTP/2: every call is answered with the refusal
    kLeaving,  // has its answer; waits until the peer has read it and closes
  };
  // A Waiting connection has not been let in.
  struct Waiting {
    int listener = -1;
    std::string peer;
    bool is_of_this_machine = false;
    State state = State::kSilent;
    std::unique_ptr<Http2Refusal> refusal;  // for kRefused
    size_t bytes_ignored = 0;               // for kLeaving
  };

  ConnectionAcceptor(Config config, net::ListeningSockets sockets);
  absl::Status Start();
  void Run();
  // Returns how long to wait for events until something is due.
  int Timeout();
  void OnTime();
  // Checks the paths of gRPC's connections: see MendCongestionControl().
  void LookAtPaths(absl::Time now) ABSL_LOCKS_EXCLUDED(mutex_);
  // Starts or stops accepting. The acceptor stops while the process has no free file descriptor,
  // not even one to accept a connection and refuse it.
  void SetAccepting(bool is_accepting);
  void Accept(int listener);
  // Closes one connection, because the process may not open another file. Returns true if another
  // connection may be accepted now.
  bool MakeRoom(int listener);
  void Add(int fd, int listener, const net::HostPort& peer);
  void OnEvent(int fd, uint32_t events);
  // Each of these functions may close `fd`, which destroys `waiting`.
  void OnFirstBytes(int fd, Waiting& waiting);
  void OnClientHello(int fd, Waiting& waiting);
  void OnRefused(int fd, Waiting& waiting);
  void OnLeaving(int fd, Waiting& waiting);
  void OnDeadline(int fd, Waiting& waiting);
  void LetInToGrpc(int fd, Waiting& waiting);
  void LetInToEnrollment(int fd, Waiting& waiting);
  void RefuseHttp2(int fd, Waiting& waiting, RefusalReason refusal);
  // Sends the last `answer`, and closes the connection when the peer has received it.
  void Leave(int fd, Waiting& waiting, const std::string& answer);
  void CloseForAnother(int fd);
  void Close(int fd) ABSL_LOCKS_EXCLUDED(mutex_);

  std::optional<RefusalReason> LetIn(int fd) ABSL_LOCKS_EXCLUDED(mutex_);
  // Marks the connection as refused. Its peer has `at_most` to read the refusal.
  void RefuseFor(int fd, absl::Duration at_most) ABSL_LOCKS_EXCLUDED(mutex_);
  void Count(RefusalReason refusal, const std::string& peer) ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns the status that a gRPC client gets for this refusal.
  absl::Status StatusOf(RefusalReason refusal) ABSL_LOCKS_EXCLUDED(mutex_);
  void LogRefusals(absl::Time now) ABSL_LOCKS_EXCLUDED(mutex_);

  const Config config_;
  const int port_;
  std::atomic<bool> is_stopping_ = false;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> grpc_;
  std::atomic<bool> is_serving_ = false;  // true: grpc_ is set, and does not change any more

  absl::Mutex mutex_;
  ConnectionTable table_ ABSL_GUARDED_BY(mutex_);
  ConnectionCounts counts_ ABSL_GUARDED_BY(mutex_);  // without the counts that table_ has

  // Only the acceptor's thread uses the members below.
  net::ListeningSockets sockets_;
  FileDescriptor epoll_;
  // A spare descriptor. If no other is free, it is closed, so that one connection can be accepted
  // and refused.
  FileDescriptor spare_;
  std::map<int, Waiting> waiting_;
  std::vector<char> hello_;  // buffer for a connection's ClientHello
  bool is_serving_seen_ = false;
  bool is_accepting_ = true;
  absl::Time accepts_again_ = absl::InfinitePast();  // when to accept again if not is_accepting_
  ConnectionCounts logged_;
  std::string last_refused_;  // peer that was refused last
  absl::Time next_log_ = absl::InfinitePast();
  absl::Time next_look_at_paths_ = absl::InfinitePast();

  FileDescriptor wake_;  // an eventfd
  std::thread thread_;
};

}  // namespace lodestar::firewall
