// SPDX-License-Identifier: Apache-2.0

#include "common/http/http_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/http/place_keeping.h"
#include "common/http/request_head.h"
#include "common/http/text_answer.h"
#include "common/logging/logging.h"
#include "common/net/host_port.h"
#include "common/runtime/status_macros.h"

namespace lodestar::http {
namespace {

constexpr int kNumWorkers = 4;
constexpr int kMaxEvents = 64;  // maximum number of events per epoll_wait()
constexpr size_t kReadBytes = 16384;
// Maximum number of bytes that are read and ignored after a request.
constexpr size_t kMaxIgnoredBytes = 65536;
// Maximum time that a peer may take to close the connection after it was sent everything.
constexpr absl::Duration kLeavePatience = absl::Seconds(1);
// Delay before accept() is tried again after the process could not open another file.
constexpr absl::Duration kFilePause = absl::Milliseconds(100);
constexpr absl::Duration kLookAtFiles = absl::Seconds(5);
// A connection breaks if sent data is not acknowledged for this long.
constexpr absl::Duration kUnacknowledgedTimeout = absl::Seconds(20);
// First id of a connection. Listening sockets and wake_ use their descriptor as id, which is
// smaller.
constexpr uint64_t kFirstId = uint64_t{1} << 32;
// Comment line of server-sent events. It is sent if there are no events, so that a lost reader is
// noticed.
constexpr absl::string_view kComment = ":\n\n";

// Returns true if the bytes begin a TLS handshake record. RFC 8446, section 5.1.
bool BeginsTls(absl::string_view bytes) { return absl::StartsWith(bytes, "\x16\x03"); }
// The fatal alert handshake_failure (40), after which a client gives up at once. RFC 8446, section
// 6.
constexpr absl::string_view kNoTlsHere("\x15\x03\x03\x00\x02\x02\x28", 7);

std::string AddressText(const sockaddr_storage& address) {
  char text[INET6_ADDRSTRLEN] = {};
  if (address.ss_family == AF_INET) {
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in&>(address).sin_addr, text, sizeof(text));
  } else if (address.ss_family == AF_INET6) {
    inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6&>(address).sin6_addr, text,
              sizeof(text));
  }
  return std::string(absl::StripPrefix(text, "::ffff:"));
}

std::string EventsText(const HttpEventSource& source) {
  std::string text(kComment);
  for (const HttpEvent& event : source()) absl::StrAppend(&text, HttpResponder::EventText(event));
  return text;
}

}  // namespace

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(Config config) {
  std::unique_ptr<TlsContextSource> tls;
  if (config.tls.has_value()) {
    ASSIGN_OR_RETURN(tls, TlsContextSource::Open(*config.tls, config.read_tls_files));
  }
  absl::StatusOr<net::ListeningSockets> sockets =
      net::Listen(config.address, "--http", kUnacknowledgedTimeout);
  if (!sockets.ok()) {
    return absl::Status(sockets.status().code(),
                        absl::StrCat("--http: ", sockets.status().message()));
  }
  std::unique_ptr<HttpServer> server(
      new HttpServer(std::move(config), std::move(tls), *std::move(sockets)));
  RETURN_IF_ERROR(server->Begin());
  return server;
}

HttpServer::HttpServer(Config config, std::unique_ptr<TlsContextSource> tls,
                       net::ListeningSockets sockets)
    : config_(std::move(config)),
      responder_(config_.pages),
      tls_(std::move(tls)),
      sockets_(std::move(sockets)),
      last_id_(kFirstId) {
  net::HostPort real = config_.address;
  real.port = sockets_.port;
  if (config_.address.IsWildcard() && !config_.shown_host.empty()) real.host = config_.shown_host;
  url_ = absl::StrCat(tls_ == nullptr ? "http://" : "https://", real.ToString(), "/");
}

absl::Status HttpServer::Begin() {
  epoll_.Reset(epoll_create1(EPOLL_CLOEXEC));
  wake_.Reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  const auto watch = [this](int fd) {
    epoll_event event{.events = EPOLLIN, .data = {.u64 = static_cast<uint64_t>(fd)}};
    return epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0;
  };
  bool is_ready = epoll_.is_open() && wake_.is_open() && watch(wake_.get());
  for (const FileDescriptor& socket : sockets_.sockets) is_ready = is_ready && watch(socket.get());
  if (!is_ready) {
    return absl::InternalError(absl::StrCat(
        "--http=", config_.address.ToString(), ": cannot wait for connections to this page: ",
        std::strerror(errno), "; raise this process's limit of open files (ulimit -n)"));
  }
  workers_ = std::make_unique<ThreadPool>(kNumWorkers, "pages");
  thread_ = std::thread([this] { Run(); });
  return absl::OkStatus();
}

HttpServer::~HttpServer() { Stop(); }

void HttpServer::Stop() {
  {
    absl::MutexLock lock(&mutex_);
    is_stopping_ = true;
  }
  Wake();
  if (thread_.joinable()) thread_.join();
  workers_.reset();
}

void HttpServer::Run() {
  std::vector<epoll_event> events(kMaxEvents);
  std::optional<absl::Time> give_up;  // set once the server is to stop
  while (true) {
    absl::Time now = config_.clock->Now();
    OnTime(now);
    if (!give_up.has_value()) {
      absl::MutexLock lock(&mutex_);
      if (is_stopping_) give_up = now + kStallPatience;
    }
    if (give_up.has_value()) {
      // The server waits until every pending answer is sent. In particular, the client that ordered
      // the stop gets its answer.
      sockets_.sockets.clear();
      bool is_any_left = false;
      for (auto it = connections_.begin(); it != connections_.end();) {
        const auto connection = it++;
        const State state = connection->second.state;
        if (state == State::kAnswering || state == State::kWriting) {
          is_any_left = true;
        } else {
          Close(connection);
        }
      }
      if (!is_any_left || now >= *give_up) break;
    }
    const int num_events = epoll_wait(epoll_.get(), events.data(), kMaxEvents, TimeoutMs(now));
    now = config_.clock->Now();
    for (int i = 0; i < num_events; ++i) {
      const uint64_t id = events[static_cast<size_t>(i)].data.u64;
      if (id >= kFirstId) {
        OnEvent(id, events[static_cast<size_t>(i)].events, now);
      } else if (id != static_cast<uint64_t>(wake_.get())) {
        Accept(static_cast<int>(id), now);
      }
    }
    TakeOutcomes(now);
  }
  while (!connections_.empty()) Close(connections_.begin());
}

int HttpServer::TimeoutMs(absl::Time now) const {
  // Maximum time of one wait. It is needed in tests that move the clock: a wait in real time does
  // not notice that.
  constexpr absl::Duration kLongest = absl::Seconds(1);
  absl::Time next = std::min(accepts_again_, now + kLongest);
  for (const auto& [id, connection] : connections_) {
    next = std::min(next, connection.deadline);
    if (connection.events != nullptr && connection.output.empty()) {
      next = std::min(next, connection.next_events);
    }
  }
  const absl::Duration left = std::max(next - now, absl::ZeroDuration());
  return static_cast<int>(absl::ToInt64Milliseconds(absl::Ceil(left, absl::Milliseconds(1))));
}

void HttpServer::OnTime(absl::Time now) {
  if (now >= accepts_again_) SetAccepting(true);
  if (tls_ != nullptr && now >= next_look_at_files_) {
    next_look_at_files_ = now + kLookAtFiles;
    LookAtFiles();
  }
  for (auto it = connections_.begin(); it != connections_.end();) {
    const auto connection = it++;
    Connection& state = connection->second;
    if (now >= state.deadline) {
      Close(connection);
    } else if (state.events != nullptr && state.output.empty() && now >= state.next_events) {
      AskForEvents(connection->first, state);
    }
  }
}

void HttpServer::LookAtFiles() {
  if (is_looking_at_files_.exchange(true)) return;
  workers_->Schedule([this] {
    tls_->Refresh();
    is_looking_at_files_ = false;
  });
}

void HttpServer::SetAccepting(bool is_accepting) {
  accepts_again_ = is_accepting ? absl::InfiniteFuture() : config_.clock->Now() + kFilePause;
  if (std::exchange(is_accepting_, is_accepting) == is_accepting) return;
  for (const FileDescriptor& socket : sockets_.sockets) {
    epoll_event event{.events = is_accepting ? EPOLLIN : 0u,
                      .data = {.u64 = static_cast<uint64_t>(socket.get())}};
    epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, socket.get(), &event);
  }
}

void HttpServer::Accept(int listener, absl::Time now) {
  for (int i = 0; i < kMaxEvents; ++i) {
    sockaddr_storage address{};
    socklen_t length = sizeof(address);
    FileDescriptor socket(accept4(listener, reinterpret_cast<sockaddr*>(&address), &length,
                                  SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!socket.is_open()) {
      // After a failed accept() the connection still waits, so the listener would be ready again at
      // once. So the server stops accepting for a time, or closes another connection.
      if (errno == ENOMEM || errno == ENOBUFS) return SetAccepting(false);
      if (errno != EMFILE && errno != ENFILE) return;
      if (!MakeRoom()) return SetAccepting(false);
      continue;
    }
    if (connections_.size() >= kMaxConnections && !MakeRoom()) continue;
    const uint64_t id = ++last_id_;
    Connection& connection = connections_[id];
    connection.socket = std::move(socket);
    connection.address = AddressText(address);
    connection.since = now;
    connection.deadline = now + kRequestPatience;
    if (tls_ != nullptr) connection.tls = std::make_unique<TlsSession>(*tls_->Current());
    epoll_event event{.events = EPOLLIN, .data = {.u64 = id}};
    epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, connection.socket.get(), &event);
  }
}

bool HttpServer::MakeRoom() {
  std::vector<PlaceHolder> holders;
  for (const auto& [id, connection] : connections_) {
    holders.push_back(
        {.id = id,
         .address = connection.address,
         .since = connection.since,
         .stays = connection.state == State::kAnswering,
         .is_told = connection.state == State::kWriting || connection.state == State::kStreaming});
  }
  const std::optional<uint64_t> chosen = ChooseToGo(holders);
  if (!chosen.has_value()) return false;
  Close(connections_.find(*chosen));
  return true;
}

void HttpServer::OnEvent(uint64_t id, uint32_t events, absl::Time now) {
  auto connection = connections_.find(id);
  if (connection == connections_.end()) return;
  if ((events & EPOLLIN) != 0) {
    OnReadable(connection, now);
    connection = connections_.find(id);
    if (connection == connections_.end()) return;
  } else if ((events & (EPOLLERR | EPOLLHUP)) != 0) {
    return Close(connection);
  }
  if ((events & EPOLLOUT) != 0) Flush(connection, now);
}

void HttpServer::OnReadable(Connections::iterator connection, absl::Time now) {
  Connection& peer = connection->second;
  char bytes[kReadBytes];
  const ssize_t num_bytes = recv(peer.socket.get(), bytes, sizeof(bytes), 0);
  if (num_bytes < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (num_bytes <= 0) return Close(connection);
  if (peer.state == State::kReading) {
    return OnRequestBytes(connection, {bytes, static_cast<size_t>(num_bytes)}, now);
  }
  peer.ignored_bytes += static_cast<size_t>(num_bytes);
  if (peer.ignored_bytes > kMaxIgnoredBytes) Close(connection);
}

void HttpServer::OnRequestBytes(Connections::iterator connection, absl::string_view bytes,
                                absl::Time now) {
  Connection& peer = connection->second;
  if (peer.tls == nullptr) {
    peer.request.append(bytes.data(), bytes.size());
    if (BeginsTls(peer.request)) {
      logging::LogWarn(
          "--http={} serves plain text, but a client at {} used TLS; open the page at {}",
          config_.address.ToString(), peer.address, url_);
      return Send(connection, kNoTlsHere, State::kWriting, now);
    }
  } else if (const absl::Status read = peer.tls->Receive(bytes, peer.request); !read.ok()) {
    config_.on_failed_handshake();
    const std::string answer =
        absl::IsInvalidArgument(read)
            ? TextAnswer("400 Bad Request", absl::StrCat("this port speaks TLS; open ", url_, "\n"))
            : peer.tls->TakeOutput();
    peer.tls = nullptr;
    return Send(connection, answer, State::kWriting, now);
  } else {
    const uint64_t id = connection->first;
    Send(connection, "", State::kReading, now);
    if (connections_.find(id) == connections_.end()) return;
  }
  const RequestProgress progress = JudgeRequest(peer.request);
  if (progress == RequestProgress::kIncomplete) return;
  if (progress != RequestProgress::kComplete) {
    return Send(connection, RefusalOf(progress), State::kWriting, now);
  }
  HttpCredentials shown;
  shown.address = peer.address;
  if (peer.tls != nullptr) {
    absl::StatusOr<std::optional<security::Identity>> identity = peer.tls->PeerIdentity();
    if (!identity.ok()) {
      return Send(connection,
                  TextAnswer("403 Forbidden", absl::StrCat(identity.status().message(), "\n")),
                  State::kWriting, now);
    }
    shown.certificate = *std::move(identity);
  }
  peer.state = State::kAnswering;
  peer.deadline = absl::InfiniteFuture();
  Watch(connection->first, peer);
  workers_->Schedule([this, id = connection->first, request = std::move(peer.request),
                      shown = std::move(shown)] { Report(Answer(id, request, shown)); });
}

HttpServer::Outcome HttpServer::Answer(uint64_t id, const std::string& request,
                                       const HttpCredentials& peer) {
  HttpResponder::Reply reply = responder_.Answer(request, peer);
  Outcome outcome{.id = id, .bytes = std::move(reply.bytes)};
  if (!reply.begins_events) return outcome;
  {
    absl::MutexLock lock(&mutex_);
    if (num_readers_ == kMaxReaders) {
      outcome.bytes = HttpResponder::TooManyReaders(kMaxReaders);
      return outcome;
    }
    ++num_readers_;
  }
  // Frees the reader's place when the stream is destroyed, for whatever reason.
  std::shared_ptr<void> place(nullptr, [this](void*) {
    absl::MutexLock lock(&mutex_);
    --num_readers_;
  });
  HttpEventSource source = responder_.routes().begin_events();
  outcome.is_stream = true;
  outcome.bytes += EventsText(source);
  outcome.events = [this, place = std::move(place), source = std::move(source),
                    reader = std::move(reply.reader)]() -> std::optional<std::string> {
    if (!responder_.MayStillLook(reader)) return std::nullopt;
    return EventsText(source);
  };
  return outcome;
}

void HttpServer::AskForEvents(uint64_t id, Connection& connection) {
  workers_->Schedule([this, id, events = std::exchange(connection.events, nullptr)]() mutable {
    Outcome outcome{.id = id};
    if (std::optional<std::string> text = events(); text.has_value()) {
      outcome.bytes = *std::move(text);
      outcome.is_stream = true;
      outcome.events = std::move(events);
    }
    Report(std::move(outcome));
  });
}

void HttpServer::Report(Outcome outcome) {
  {
    absl::MutexLock lock(&mutex_);
    outcomes_.push_back(std::move(outcome));
  }
  Wake();
}

void HttpServer::Wake() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(wake_.get(), &one, sizeof(one));
}

void HttpServer::TakeOutcomes(absl::Time now) {
  uint64_t count;
  [[maybe_unused]] const ssize_t num_read = read(wake_.get(), &count, sizeof(count));
  std::vector<Outcome> outcomes;
  {
    absl::MutexLock lock(&mutex_);
    outcomes.swap(outcomes_);
  }
  for (Outcome& outcome : outcomes) OnOutcome(std::move(outcome), now);
}

void HttpServer::OnOutcome(Outcome outcome, absl::Time now) {
  const auto connection = connections_.find(outcome.id);
  if (connection == connections_.end()) return;
  if (!outcome.is_stream) return Send(connection, outcome.bytes, State::kWriting, now);
  connection->second.events = std::move(outcome.events);
  connection->second.next_events = now + responder_.routes().event_interval;
  Send(connection, outcome.bytes, State::kStreaming, now);
}

void HttpServer::Send(Connections::iterator connection, absl::string_view bytes, State next,
                      absl::Time now) {
  Connection& peer = connection->second;
  const bool begins = peer.output.empty() || peer.state != next;
  const size_t before = peer.output.size();
  if (peer.tls == nullptr) {
    peer.output.append(bytes.data(), bytes.size());
  } else {
    peer.tls->Send(bytes);
    if (next == State::kWriting) peer.tls->Close();
    peer.output += peer.tls->TakeOutput();
  }
  pending_bytes_ += peer.output.size() - before;
  if (pending_bytes_ > kMaxPendingBytes) return Close(connection);
  peer.state = next;
  if (next != State::kReading && begins) {
    peer.answer_deadline = now + kAnswerPatience;
    peer.deadline = now + kStallPatience;
  }
  Flush(connection, now);
}

void HttpServer::Flush(Connections::iterator connection, absl::Time now) {
  Connection& peer = connection->second;
  while (peer.sent_bytes < peer.output.size()) {
    const ssize_t num_bytes = send(peer.socket.get(), peer.output.data() + peer.sent_bytes,
                                   peer.output.size() - peer.sent_bytes, MSG_NOSIGNAL);
    if (num_bytes < 0 && errno == EINTR) continue;
    if (num_bytes < 0 && errno == EAGAIN) return Watch(connection->first, peer);
    if (num_bytes <= 0) return Close(connection);
    peer.sent_bytes += static_cast<size_t>(num_bytes);
    pending_bytes_ -= static_cast<size_t>(num_bytes);
    if (peer.state == State::kWriting || peer.state == State::kStreaming) {
      peer.deadline = std::min(now + kStallPatience, peer.answer_deadline);
    }
  }
  peer.output.clear();
  peer.sent_bytes = 0;
  if (peer.state == State::kStreaming) peer.deadline = absl::InfiniteFuture();
  if (peer.state == State::kWriting) {
    shutdown(peer.socket.get(), SHUT_WR);
    peer.state = State::kLeaving;
    peer.deadline = now + kLeavePatience;
  }
  Watch(connection->first, peer);
}

void HttpServer::Watch(uint64_t id, const Connection& connection) {
  epoll_event event{.events = 0u, .data = {.u64 = id}};
  // While an answer is pending nothing is read, so that the peer's bytes do not use memory here.
  if (connection.state != State::kAnswering && connection.state != State::kWriting) {
    event.events |= EPOLLIN;
  }
  if (!connection.output.empty()) event.events |= EPOLLOUT;
  epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, connection.socket.get(), &event);
}

void HttpServer::Close(Connections::iterator connection) {
  Connection& peer = connection->second;
  if (peer.state == State::kStreaming && peer.tls != nullptr && peer.output.empty()) {
    // Sends TLS's close message if the socket has room, so that the reader can tell the end of the
    // answer from a broken connection.
    peer.tls->Close();
    const std::string end = peer.tls->TakeOutput();
    [[maybe_unused]] const ssize_t sent =
        send(peer.socket.get(), end.data(), end.size(), MSG_NOSIGNAL);
  }
  pending_bytes_ -= peer.output.size() - peer.sent_bytes;
  connections_.erase(connection);
}

}  // namespace lodestar::http
