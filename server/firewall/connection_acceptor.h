// ConnectionAcceptor is the port of a server. It accepts connections, sees by their first bytes
// what they are, and hands them to gRPC or, for an enrollment, to `enroll`. gRPC's own listener is
// not used. It stops for good when the process runs out of file descriptors (CVE-2023-4785), and
// keeps clients that connect and say nothing.
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
    HostPort listen;  // port 0: the system chooses
    Transport transport = Transport::kPlain;
    // Lowered to what the process's limit of open files allows.
    ConnectionLimits limits;
    // A gRPC client is kept so long for Serve() to be called, before it is told that the server is
    // starting.
    absl::Duration start_patience = absl::Seconds(1);
    // Is given each connection that begins with kEnrollmentWord, and owns it from then on. The
    // connection is non-blocking, with nothing of it read; `peer` is HOST:PORT. It is called by the
    // thread of the acceptor, from Listen() on, and must not block. Null means that there is no
    // enrollment.
    std::function<void(int fd, std::string peer)> enroll;
    Clock* clock = &Clock::Real();
  };

  // Listens from here on, and takes connections; those of gRPC wait for Serve(). Errors: those of
  // Listen() in listening_sockets.h; ResourceExhausted (no files for it).
  static absl::StatusOr<std::unique_ptr<ConnectionAcceptor>> Listen(Config config);
  ~ConnectionAcceptor();  // stops

  int port() const { return port_; }
  // See ListeningSockets.
  const std::vector<std::string>& loopback_only() const { return sockets_.loopback_only; }
  // Hands over connections to gRPC from here on: `grpc` is what
  // ServerBuilder::experimental().AddExternalConnectionAcceptor() has given for a server that was
  // started since then. Called once, before Stop().
  void Serve(std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> grpc);
  // Thread-safe.
  ConnectionCounts counts() ABSL_LOCKS_EXCLUDED(mutex_);
  // Whether gRPC's connection from `peer`, as grpc::ServerContext::peer() names it, is open; also
  // where that is no address of TCP. Thread-safe.
  bool IsOpen(absl::string_view peer) ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns what has become of gRPC's newest connection from `peer`. Thread-safe.
  ConnectionState StateOf(absl::string_view peer) ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns how many bytes have come on that connection, or none where IsOpen() could not be told
  // or is false. Thread-safe.
  std::optional<uint64_t> BytesReceived(absl::string_view peer) ABSL_LOCKS_EXCLUDED(mutex_);
  // Closes the port and what has not been let in; the rest lives on. Call it before
  // grpc::Server::Shutdown(). Blocks for no longer than what runs at the moment. Repeats are
  // harmless.
  void Stop();

 private:
  enum class State : uint8_t {
    kSilent,
    kHeld,     // gRPC's, which is not there yet
    kRefused,  // HTTP/2: told so, call by call
    kLeaving,  // was told all: waits for the peer to close, so that it gets to read that
  };
  // A Waiting connection has not been let in.
  struct Waiting {
    int listener = -1;
    std::string peer;
    bool is_of_this_machine = false;
    State state = State::kSilent;
    std::unique_ptr<Http2Refusal> refusal;  // of kRefused
    size_t bytes_ignored = 0;               // of kLeaving
  };

  ConnectionAcceptor(Config config, ListeningSockets sockets);
  absl::Status Start();
  void Run();
  // Returns for how long to wait for something to come before it is time for something.
  int Timeout();
  void OnTime();
  // Looks at the paths of the connections that are gRPC's: see MendCongestionControl().
  void LookAtPaths(absl::Time now) ABSL_LOCKS_EXCLUDED(mutex_);
  // The acceptor does not accept while there is neither a file for a connection nor one to refuse
  // it with.
  void SetAccepting(bool is_accepting);
  void Accept(int listener);
  // The process may not have another file: one connection is closed. Whether there may be room now.
  bool MakeRoom(int listener);
  void Add(int fd, int listener, const HostPort& peer);
  void OnEvent(int fd, uint32_t events);
  // All of these may close `fd`, and `waiting` is gone then.
  void OnFirstBytes(int fd, Waiting& waiting);
  void OnClientHello(int fd, Waiting& waiting);
  void OnRefused(int fd, Waiting& waiting);
  void OnLeaving(int fd, Waiting& waiting);
  void OnDeadline(int fd, Waiting& waiting);
  void LetInToGrpc(int fd, Waiting& waiting);
  void LetInToEnrollment(int fd, Waiting& waiting);
  void RefuseHttp2(int fd, Waiting& waiting, RefusalReason refusal);
  // Tells it `answer`, the last, and closes it when it has got that.
  void Leave(int fd, Waiting& waiting, const std::string& answer);
  void CloseForAnother(int fd);
  void Close(int fd) ABSL_LOCKS_EXCLUDED(mutex_);

  std::optional<RefusalReason> LetIn(int fd) ABSL_LOCKS_EXCLUDED(mutex_);
  // It is being told that it is refused.
  void RefuseFor(int fd, absl::Duration at_most) ABSL_LOCKS_EXCLUDED(mutex_);
  void Count(RefusalReason refusal, const std::string& peer) ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns what a gRPC client is told.
  absl::Status StatusOf(RefusalReason refusal) ABSL_LOCKS_EXCLUDED(mutex_);
  void LogRefusals(absl::Time now) ABSL_LOCKS_EXCLUDED(mutex_);

  const Config config_;
  const int port_;
  std::atomic<bool> is_stopping_ = false;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> grpc_;
  std::atomic<bool> is_serving_ = false;  // grpc_ is there, and does not change any more

  absl::Mutex mutex_;
  ConnectionTable table_ ABSL_GUARDED_BY(mutex_);
  ConnectionCounts counts_ ABSL_GUARDED_BY(mutex_);  // but for those that table_ knows

  // Only the thread touches these.
  ListeningSockets sockets_;
  FileDescriptor epoll_;
  FileDescriptor spare_;  // closed to accept, and refuse, where there is no other
  std::map<int, Waiting> waiting_;
  std::vector<char> hello_;  // of the one that is looked at
  bool is_serving_seen_ = false;
  bool is_accepting_ = true;
  absl::Time accepts_again_ = absl::InfinitePast();  // unless is_accepting_
  ConnectionCounts logged_;
  std::string last_refused_;  // peer
  absl::Time next_log_ = absl::InfinitePast();
  absl::Time next_look_at_paths_ = absl::InfinitePast();

  FileDescriptor wake_;  // an eventfd
  std::thread thread_;
};

}  // namespace lodestar::firewall
