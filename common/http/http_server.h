// SPDX-License-Identifier: Apache-2.0

// HttpServer serves pages for users and monitoring: answers to GET, a stream of server-sent events
// (HTML standard, "Server-sent events"), and orders by POST. It uses TLS if it has a certificate.
// HttpResponder decides what a client may get, and HttpRoutes has the content.
//
//   accepted -> reading -> answering -> writing -> leaving -> closed
//                  |           \-> streaming events -----------^
//                  \ too slow, or without the TLS that is needed: closed
//
// One thread handles all connections and never blocks on a peer. A whole request is handed to one
// of a few other threads. So a client that sends or reads slowly, or not at all, only uses one of
// kMaxConnections places for a time, and training is not affected. If all places are taken, a new
// connection replaces an old one that is not being answered: see place_keeping.h. Before each new
// part of a stream of events, the server checks again that the reader is allowed to read it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/http/http_responder.h"
#include "common/http/http_routes.h"
#include "common/http/tls_context_source.h"
#include "common/http/tls_session.h"
#include "common/net/listen_address.h"
#include "common/net/listening_sockets.h"
#include "common/runtime/clock.h"
#include "common/runtime/executor.h"
#include "common/runtime/file_descriptor.h"
#include "common/security/credentials.h"

namespace lodestar::http {

class HttpServer {
 public:
  // Maximum number of event streams at a time. Further readers get 503.
  static constexpr int kMaxReaders = 8;
  static constexpr size_t kMaxConnections = 128;
  // Maximum time from the connection to the end of the request, including the TLS handshake.
  static constexpr absl::Duration kRequestPatience = absl::Seconds(5);
  // kStallPatience: maximum time in which a reader of a stream must take some bytes.
  // kAnswerPatience: maximum time in which a client must take a whole answer.
  static constexpr absl::Duration kStallPatience = absl::Seconds(2);
  static constexpr absl::Duration kAnswerPatience = absl::Seconds(20);
  // Maximum size of all unsent answers together. If an answer would exceed it, the connection is
  // closed instead.
  static constexpr size_t kMaxPendingBytes = size_t{64} << 20;

  struct Config {
    net::ListenAddress address;
    HttpResponder::Config pages;
    std::optional<security::CredentialFiles> tls;                     // nullopt means plain text
    TlsContextSource::ReadFiles read_tls_files = TlsContext::Create;  // may block on the disk
    std::string shown_host;  // host in url() if the server listens on all addresses
    // Called on the server's thread for each peer whose TLS handshake fails.
    std::function<void()> on_failed_handshake = [] {};
    Clock* clock = &Clock::Real();
  };

  // Starts to listen and to serve. Errors: Unavailable (cannot listen on the address); those of
  // TlsContext::Create(); Internal (the system gives no event queue).
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(Config config);
  ~HttpServer();

  const std::string& url() const { return url_; }  // such as "http://127.0.0.1:8080/"
  // Ends all connections. After it returns, no function of the routes is called. May be called
  // again.
  void Stop();

 private:
  enum class State : uint8_t {
    kReading,    // the request is not complete yet
    kAnswering,  // another thread makes the answer
    kWriting,    // the answer is being sent
    kStreaming,  // events are being sent
    // Everything was sent. The server waits until the peer has closed the connection, so that the
    // peer can read everything.
    kLeaving,
  };
  // A function that returns the bytes of new events. nullopt means that the reader is not allowed
  // to read any more.
  using EventStream = std::function<std::optional<std::string>()>;
  struct Connection {
    FileDescriptor socket;
    std::string address;
    std::unique_ptr<TlsSession> tls;  // null means plain text
    State state = State::kReading;
    absl::Time since;
    absl::Time deadline;  // time at which the connection is closed
    // Time by which all output must be sent. Used in kWriting, and in kStreaming if there is
    // output.
    absl::Time answer_deadline = absl::InfiniteFuture();
    std::string request;
    std::string output;  // bytes for the socket, encrypted if TLS is used
    size_t sent_bytes = 0;
    size_t ignored_bytes = 0;  // bytes that came after the request
    EventStream events;        // used in kStreaming; null while a worker thread uses it
    absl::Time next_events;
  };
  struct Outcome {
    uint64_t id = 0;
    std::string bytes = {};
    bool is_stream = false;  // true: more output will follow
    EventStream events = nullptr;
  };
  using Connections = std::map<uint64_t, Connection>;

  HttpServer(Config config, std::unique_ptr<TlsContextSource> tls, net::ListeningSockets sockets);
  absl::Status Begin();
  void Run();
  int TimeoutMs(absl::Time now) const;
  void OnTime(absl::Time now);
  // Starts a check of the TLS files, unless a check is still running. So a disk that hangs blocks
  // at most one thread.
  void LookAtFiles();
  void SetAccepting(bool is_accepting);
  void Accept(int listener, absl::Time now);
  // Closes the connection that ChooseToGo() returns. Returns true if there is room now.
  bool MakeRoom();
  void OnEvent(uint64_t id, uint32_t events, absl::Time now);
  // The functions below may close and remove the connection. After that the iterator must not be
  // used.
  void OnReadable(Connections::iterator connection, absl::Time now);
  void OnRequestBytes(Connections::iterator connection, absl::string_view bytes, absl::Time now);
  void TakeOutcomes(absl::Time now) ABSL_LOCKS_EXCLUDED(mutex_);
  void OnOutcome(Outcome outcome, absl::Time now);
  void AskForEvents(uint64_t id, Connection& connection);
  // Encrypts `bytes` if TLS is used, and sends them. The new state of the connection is `next`.
  void Send(Connections::iterator connection, absl::string_view bytes, State next, absl::Time now);
  void Flush(Connections::iterator connection, absl::Time now);
  void Watch(uint64_t id, const Connection& connection);
  void Close(Connections::iterator connection) ABSL_LOCKS_EXCLUDED(mutex_);

  // Returns the outcome of a request. Runs on a thread of `workers_`.
  Outcome Answer(uint64_t id, const std::string& request, const HttpCredentials& peer)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void Report(Outcome outcome) ABSL_LOCKS_EXCLUDED(mutex_);
  void Wake();

  const Config config_;
  const HttpResponder responder_;
  const std::unique_ptr<TlsContextSource> tls_;  // null means plain text
  std::string url_;

  // The members below are used only by the server's thread.
  net::ListeningSockets sockets_;
  FileDescriptor epoll_;
  Connections connections_;
  uint64_t last_id_ = 0;
  size_t pending_bytes_ = 0;
  bool is_accepting_ = true;
  absl::Time accepts_again_ = absl::InfiniteFuture();
  absl::Time next_look_at_files_ = absl::InfinitePast();

  absl::Mutex mutex_;
  bool is_stopping_ ABSL_GUARDED_BY(mutex_) = false;
  int num_readers_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<Outcome> outcomes_ ABSL_GUARDED_BY(mutex_);

  std::atomic<bool> is_looking_at_files_ = false;
  FileDescriptor wake_;  // an eventfd; writing to it wakes the server's thread
  std::unique_ptr<ThreadPool> workers_;
  std::thread thread_;
};

}  // namespace lodestar::http
