// SPDX-License-Identifier: Apache-2.0

// ConnectionAcceptor is the port of a server. It accepts connections and finds out by their first
// bytes what they are. It hands them to gRPC or, if they ask for enrollment, to `enroll`. gRPC's
// own listener is not used for two reasons:
// - It stops for good if the process has no free file descriptor (CVE-2023-4785).
// - It keeps clients that connect and send nothing.
//
// A connection goes through these states:
//
//   accepted -> silent -> let in: gRPC's, or the enrollment's
//                 |  \--> held: gRPC's, but Serve() was not called yet --> let in
//                 |         |
//                 v         v
//               closed    refused: gets the reason in its own protocol --> closed
//
// The acceptor has one thread, which never waits for a peer.
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
    // Limits for connections. Listen() lowers them if this process may not open so many files.
    ConnectionLimits limits;
    // How long a gRPC client waits for Serve(). After that, the client is told that the server is
    // starting.
    absl::Duration start_patience = absl::Seconds(1);
    // Called by the acceptor's thread with each connection that begins with kEnrollmentWord. Calls
    // begin during Listen(). The function must not block, and owns `fd`. The socket is
    // non-blocking, and none of its bytes has been read. `peer` is HOST:PORT. Null means that
    // enrollments are refused.
    std::function<void(int fd, std::string peer)> enroll;
    Clock* clock = &Clock::Real();
  };

  // Opens the port and accepts connections. gRPC connections wait until Serve() is called. Errors:
  // those of Listen() in listening_sockets.h; ResourceExhausted (no free file descriptor).
  static absl::StatusOr<std::unique_ptr<ConnectionAcceptor>> Listen(Config config);
  ~ConnectionAcceptor();  // calls Stop()

  int port() const { return port_; }
  // See ListeningSockets.
  const std::vector<std::string>& loopback_only() const { return sockets_.loopback_only; }
  // From now on, hands connections to gRPC. `grpc` is the result of
  // ServerBuilder::experimental().AddExternalConnectionAcceptor() for a server that is running.
  // Must be called at most once, before Stop().
  void Serve(std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> grpc);
  // Thread-safe.
  ConnectionCounts counts() ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns true if gRPC's connection from `peer` is open. Also returns true if `peer` is not a TCP
  // address. `peer` has the form of grpc::ServerContext::peer(). Thread-safe.
  bool IsOpen(absl::string_view peer) ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns the state of gRPC's newest connection from `peer`. Thread-safe.
  ConnectionState StateOf(absl::string_view peer) ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns the number of bytes received on gRPC's connection from `peer`. Not set means that there
  // is no such open connection, or that the system does not count the bytes. Thread-safe.
  std::optional<uint64_t> BytesReceived(absl::string_view peer) ABSL_LOCKS_EXCLUDED(mutex_);
  // Closes the port and all connections that were not let in. Must be called before
  // grpc::Server::Shutdown(). Blocks until the acceptor's thread, which never waits for a peer, has
  // ended. May be called repeatedly.
  void Stop();

 private:
  enum class State : uint8_t {
    kSilent,
    kHeld,     // for gRPC, which does not serve yet
    kRefused,  // HTTP/2: every call is answered with the refusal
    kLeaving,  // has its answer; waits until the peer has read it and closes
  };
  // A connection that has not been let in.
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
  // Returns how long to wait for events, in milliseconds. -1 means without limit.
  int Timeout();
  void OnTime();
  // Calls MendCongestionControl() for each of gRPC's connections.
  void LookAtPaths(absl::Time now) ABSL_LOCKS_EXCLUDED(mutex_);
  // Starts accepting, or stops it for kPauseWithoutFiles. It is stopped if the process has no free
  // file descriptor, not even for a refusal.
  void SetAccepting(bool is_accepting);
  void Accept(int listener);
  // Must be called if the process has no free file descriptor. Closes a waiting connection. If none
  // may be closed, accepts a new connection and closes it. Returns true if another connection may
  // be accepted now.
  bool MakeRoom(int listener);
  void Add(int fd, int listener, const net::HostPort& peer);
  void OnEvent(int fd, uint32_t events);
  // Each of these functions may close `fd`. `waiting` is then destroyed.
  void OnFirstBytes(int fd, Waiting& waiting);
  void OnClientHello(int fd, Waiting& waiting);
  void OnRefused(int fd, Waiting& waiting);
  void OnLeaving(int fd, Waiting& waiting);
  void OnDeadline(int fd, Waiting& waiting);
  void LetInToGrpc(int fd, Waiting& waiting);
  void LetInToEnrollment(int fd, Waiting& waiting);
  void RefuseHttp2(int fd, Waiting& waiting, RefusalReason refusal);
  // Sends `answer` as the last bytes. Closes the connection when the peer has closed it too.
  void Leave(int fd, Waiting& waiting, const std::string& answer);
  void CloseForAnother(int fd);
  void Close(int fd) ABSL_LOCKS_EXCLUDED(mutex_);

  std::optional<RefusalReason> LetIn(int fd) ABSL_LOCKS_EXCLUDED(mutex_);
  // Marks the connection as refused. It is closed after `at_most`.
  void RefuseFor(int fd, absl::Duration at_most) ABSL_LOCKS_EXCLUDED(mutex_);
  void Count(RefusalReason refusal, const std::string& peer) ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns the status that a gRPC client gets if it is refused for this reason.
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
  // A descriptor in reserve. If no other is free, it is closed, so that one connection can be
  // accepted and refused.
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
