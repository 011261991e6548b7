// HttpServer: the pages for people and monitoring: answers to GET, a stream of server-sent events
// (HTML standard, "Server-sent events"), and orders by POST; in TLS where it is given a
// certificate. What is answered to whom is decided by HttpResponder, what there is by HttpRoutes.
//
//   accepted -> reading -> answering -> writing -> leaving -> closed
//                  |           \-> streaming events -----------^
//                  \ too slow, no TLS that counts: closed
//
// One thread has all connections, and never blocks on a peer; a request is handed to one of a few
// others once it has come whole. So a client that sends or reads slowly, or never, costs a place
// among kMaxConnections, for a time, and costs training nothing. If all places are taken, one goes
// for each connection that comes, in any state but answering: see place_keeping.h. Whether a reader
// may look is asked again each time that its stream goes on.
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

namespace lodestar {

class HttpServer {
 public:
  // Maximum number of streams of events at a time. Others are answered 503.
  static constexpr int kMaxReaders = 8;
  static constexpr size_t kMaxConnections = 128;
  // From its first byte of TLS to the last one of the request.
  static constexpr absl::Duration kRequestPatience = absl::Seconds(5);
  // With a reader that takes nothing, and until it has taken all of one answer.
  static constexpr absl::Duration kStallPatience = absl::Seconds(2);
  static constexpr absl::Duration kAnswerPatience = absl::Seconds(20);
  // Maximum of all answers that are not sent yet. An answer that would not fit is not given.
  static constexpr size_t kMaxPendingBytes = size_t{64} << 20;

  struct Config {
    ListenAddress address;
    HttpResponder::Config pages;
    std::optional<CredentialFiles> tls;                               // none: plain text
    TlsContextSource::ReadFiles read_tls_files = TlsContext::Create;  // may block for the disk
    std::string shown_host;  // in url(), where the address is a wildcard
    // Called for each peer whose handshake of TLS fails, from the server's thread.
    std::function<void()> on_failed_handshake = [] {};
    Clock* clock = &Clock::Real();
  };

  // Listens from here on, and serves when it returns. Errors: Unavailable if the address cannot be
  // listened on; those of TlsContext::Create(); Internal if the system gives no event queue.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(Config config);
  ~HttpServer();

  const std::string& url() const { return url_; }  // "http://127.0.0.1:8080/"
  // Ends all connections. When it returns, no function of the routes is called any more. Repeats
  // are harmless.
  void Stop();

 private:
  enum class State : uint8_t {
    kReading,    // its request has not come whole
    kAnswering,  // another thread has it
    kWriting,    // the answer
    kStreaming,  // events
    kLeaving,    // has been sent all: waits for the peer to close, so that it gets to read that
  };
  // The bytes of what is new; nothing: its reader may not look any more.
  using EventStream = std::function<std::optional<std::string>()>;
  struct Connection {
    FileDescriptor socket;
    std::string address;
    std::unique_ptr<TlsSession> tls;  // null: plain text
    State state = State::kReading;
    absl::Time since;
    absl::Time deadline;  // then it is closed
    // Counts in kWriting, and in kStreaming with something to send.
    absl::Time answer_deadline = absl::InfiniteFuture();
    std::string request;
    std::string output;  // as it goes through the socket
    size_t sent_bytes = 0;
    size_t ignored_bytes = 0;  // that came after the request
    EventStream events;        // of kStreaming; null: a thread asks it at the moment
    absl::Time next_events;
  };
  struct Outcome {
    uint64_t id = 0;
    std::string bytes = {};
    bool is_stream = false;  // more follows
    EventStream events = nullptr;
  };
  using Connections = std::map<uint64_t, Connection>;

  HttpServer(Config config, std::unique_ptr<TlsContextSource> tls, ListeningSockets sockets);
  absl::Status Begin();
  void Run();
  int TimeoutMs(absl::Time now) const;
  void OnTime(absl::Time now);
  // Unless one looks at them: a disk that stands still holds one thread at most.
  void LookAtFiles();
  void SetAccepting(bool is_accepting);
  void Accept(int listener, absl::Time now);
  // Whether there is one now: closes the connection that ChooseToGo() says.
  bool MakeRoom();
  void OnEvent(uint64_t id, uint32_t events, absl::Time now);
  // These may close the connection: then it is not in `connections_` any more.
  void OnReadable(Connections::iterator connection, absl::Time now);
  void OnRequestBytes(Connections::iterator connection, absl::string_view bytes, absl::Time now);
  void TakeOutcomes(absl::Time now) ABSL_LOCKS_EXCLUDED(mutex_);
  void OnOutcome(Outcome outcome, absl::Time now);
  void AskForEvents(uint64_t id, Connection& connection);
  // `bytes`: plain. Goes on in state `next` with the rest.
  void Send(Connections::iterator connection, absl::string_view bytes, State next, absl::Time now);
  void Flush(Connections::iterator connection, absl::Time now);
  void Watch(uint64_t id, const Connection& connection);
  void Close(Connections::iterator connection) ABSL_LOCKS_EXCLUDED(mutex_);

  // On a thread of `workers_`.
  Outcome Answer(uint64_t id, const std::string& request, const HttpCredentials& peer)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void Report(Outcome outcome) ABSL_LOCKS_EXCLUDED(mutex_);
  void Wake();

  const Config config_;
  const HttpResponder responder_;
  const std::unique_ptr<TlsContextSource> tls_;  // null: plain text
  std::string url_;

  // Used by the thread alone.
  ListeningSockets sockets_;
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
  FileDescriptor wake_;  // an eventfd
  std::unique_ptr<ThreadPool> workers_;
  std::thread thread_;
};

}  // namespace lodestar
