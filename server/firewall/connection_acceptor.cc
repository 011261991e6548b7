// SPDX-License-Identifier: Apache-2.0

#include "server/firewall/connection_acceptor.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "common/logging/logging.h"
#include "common/runtime/status_macros.h"
#include "proto/bulk_options.h"
#include "server/firewall/client_hello.h"
#include "server/firewall/congestion_control.h"
#include "server/firewall/received_bytes.h"
#include "server/firewall/send_buffer.h"
#include "server/http2/guarded_reads.h"

namespace lodestar::firewall {
namespace {

// Maximum number of connections that are accepted in a row. Then events of other connections are
// handled.
constexpr int kMaxAccepts = 64;
// Maximum number of events that one wait returns. The next wait returns the rest.
constexpr int kMaxEvents = 512;
// How long the acceptor stops if the process has no free file descriptor at all. Even a refusal
// needs one.
constexpr absl::Duration kPauseWithoutFiles = absl::Milliseconds(100);
constexpr absl::Duration kSweepInterval = absl::Seconds(5);
constexpr absl::Duration kPathInterval = absl::Seconds(1);
constexpr absl::Duration kLogInterval = absl::Seconds(1);
// How long a peer has to close its side after it was sent the last answer.
constexpr absl::Duration kLeavingPatience = absl::Seconds(1);
// How long a connection stays open after its first refused call. The client then connects again,
// and may be accepted.
constexpr absl::Duration kRefusedLife = absl::Seconds(1);
constexpr size_t kMaxBytesIgnored = 256 << 10;

std::optional<ConnectionTable::FileIdentity> IdentityOf(int fd) {
  struct stat status {};
  if (fstat(fd, &status) != 0) return std::nullopt;
  return ConnectionTable::FileIdentity{status.st_dev, status.st_ino};
}

bool WasClosedByPeer(const ConnectionTable::FileIdentity& file) {
  return http2::WasEndedByPeer(file.inode);
}

// Returns true if neither side has closed the connection. gRPC's descriptor alone does not show
// that: during a held call, gRPC keeps it open after the peer has closed.
bool IsEstablished(int fd) {
  tcp_info info{};
  socklen_t size = sizeof(info);
  if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return true;  // not a TCP socket
  return info.tcpi_state == TCP_ESTABLISHED;
}

// Returns the limit of open files of this process.
int64_t MaxFiles() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 1024;
  return static_cast<int64_t>(std::min<rlim_t>(limit.rlim_cur, 1 << 30));
}

ConnectionLimits LimitToThisProcess(const ConnectionLimits& wanted) {
  const int64_t max_files = MaxFiles();
  const ConnectionLimits limits = LimitToFiles(wanted, max_files);
  if (limits.max_connections < wanted.max_connections) {
    logging::LogWarn(
        "this server takes at most {} connections instead of --max_connections={}, because this "
        "process may have only {} open files; raise that with ulimit -n",
        limits.max_connections, wanted.max_connections, max_files);
  }
  return limits;
}

// Returns the address of a peer. An IPv4 address that an IPv6 socket reports is returned as IPv4.
net::HostPort HostPortOf(const sockaddr_storage& storage) {
  char text[INET6_ADDRSTRLEN] = {};
  if (storage.ss_family == AF_INET) {
    const auto& address = reinterpret_cast<const sockaddr_in&>(storage);
    inet_ntop(AF_INET, &address.sin_addr, text, sizeof(text));
    return {text, ntohs(address.sin_port)};
  }
  const auto& address = reinterpret_cast<const sockaddr_in6&>(storage);
  if (IN6_IS_ADDR_V4MAPPED(&address.sin6_addr)) {
    constexpr int kPrefixBytes = 12;
    inet_ntop(AF_INET, &address.sin6_addr.s6_addr[kPrefixBytes], text, sizeof(text));
  } else {
    inet_ntop(AF_INET6, &address.sin6_addr, text, sizeof(text));
  }
  return {text, ntohs(address.sin6_port)};
}

// Parses a gRPC peer such as "ipv4:10.0.0.1:4242" or "ipv6:[2001:db8::1]:4242". gRPC may write the
// brackets as "%5B" and "%5D". Returns nothing for other texts, and for addresses with a zone.
std::optional<net::HostPort> HostPortOfGrpc(absl::string_view peer) {
  const bool is_ipv6 = absl::ConsumePrefix(&peer, "ipv6:");
  if (!is_ipv6 && !absl::ConsumePrefix(&peer, "ipv4:")) return std::nullopt;
  const std::string plain = absl::StrReplaceAll(peer, {{"%5B", "["}, {"%5D", "]"}});
  if (absl::StrContains(plain, '%')) return std::nullopt;
  absl::StatusOr<net::HostPort> parsed = net::ParseHostPort("peer", plain, /*lowest_port=*/1);
  if (!parsed.ok()) return std::nullopt;
  return *std::move(parsed);
}

int OpenSpare() { return open("/dev/null", O_RDONLY | O_CLOEXEC); }

// Sends all bytes without blocking. Returns false if the socket did not accept all of them.
bool SendAll(int fd, const std::string& bytes) {
  return bytes.empty() || send(fd, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL) ==
                              static_cast<ssize_t>(bytes.size());
}

// Returns a text such as "12 silent, 3 too many" about the refusals in `counts` that are not in
// `before`.
std::string RefusalsText(const ConnectionCounts& counts, const ConnectionCounts& before) {
  std::vector<std::string> parts;
  for (size_t i = 0; i < kNumRefusals; ++i) {
    if (counts.refused[i] == before.refused[i]) continue;
    parts.push_back(absl::StrCat(counts.refused[i] - before.refused[i], " ",
                                 RefusalName(static_cast<RefusalReason>(i))));
  }
  return absl::StrJoin(parts, ", ");
}

}  // namespace

absl::StatusOr<std::unique_ptr<ConnectionAcceptor>> ConnectionAcceptor::Listen(Config config) {
  config.limits = LimitToThisProcess(config.limits);
  ASSIGN_OR_RETURN(net::ListeningSockets sockets,
                   lodestar::net::Listen(config.listen, "--listen",
                                         absl::Milliseconds(wire::kServerPingTimeoutMs)));
  std::unique_ptr<ConnectionAcceptor> acceptor(
      new ConnectionAcceptor(std::move(config), std::move(sockets)));
  RETURN_IF_ERROR(acceptor->Start());
  return acceptor;
}

ConnectionAcceptor::ConnectionAcceptor(Config config, net::ListeningSockets sockets)
    : config_(std::move(config)),
      port_(sockets.port),
      table_(config_.limits, IdentityOf, WasClosedByPeer),
      sockets_(std::move(sockets)) {
  counts_.max_connections = config_.limits.max_connections;
}

ConnectionAcceptor::~ConnectionAcceptor() { Stop(); }

absl::Status ConnectionAcceptor::Start() {
  epoll_.Reset(epoll_create1(EPOLL_CLOEXEC));
  wake_.Reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  spare_.Reset(OpenSpare());
  const auto watch = [this](int fd) {
    epoll_event event{.events = EPOLLIN, .data = {.fd = fd}};
    return epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0;
  };
  bool is_ready = epoll_.is_open() && wake_.is_open() && spare_.is_open() && watch(wake_.get());
  for (const FileDescriptor& socket : sockets_.sockets) is_ready = is_ready && watch(socket.get());
  if (!is_ready) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot accept connections on port ", port_, ": ", std::strerror(errno)));
  }
  thread_ = std::thread([this] { Run(); });
  return absl::OkStatus();
}

void ConnectionAcceptor::Serve(
    std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> grpc) {
  grpc_ = std::move(grpc);
  is_serving_ = true;
  eventfd_write(wake_.get(), 1);
}

ConnectionCounts ConnectionAcceptor::counts() {
  absl::MutexLock lock(&mutex_);
  table_.Sweep(config_.clock->Now());
  counts_.connections = static_cast<int64_t>(table_.num_let_in());
  return counts_;
}

bool ConnectionAcceptor::IsOpen(absl::string_view peer) {
  const std::optional<net::HostPort> address = HostPortOfGrpc(peer);
  if (!address.has_value()) return true;
  absl::MutexLock lock(&mutex_);
  const std::optional<int> fd = table_.Find(*address);
  if (!fd.has_value() || !IsEstablished(*fd)) return false;
  return table_.Find(*address) == fd;  // gRPC may have closed the file meanwhile
}

ConnectionState ConnectionAcceptor::StateOf(absl::string_view peer) {
  const std::optional<net::HostPort> address = HostPortOfGrpc(peer);
  if (!address.has_value()) return ConnectionState::kUnknown;
  absl::MutexLock lock(&mutex_);
  return table_.StateOf(*address);
}

std::optional<uint64_t> ConnectionAcceptor::BytesReceived(absl::string_view peer) {
  const std::optional<net::HostPort> address = HostPortOfGrpc(peer);
  if (!address.has_value()) return std::nullopt;
  absl::MutexLock lock(&mutex_);
  const std::optional<int> fd = table_.Find(*address);
  if (!fd.has_value()) return std::nullopt;
  const std::optional<uint64_t> bytes = ReceivedBytesOf(*fd);
  // gRPC may have closed the descriptor meanwhile. The bytes are then those of another connection.
  return table_.Find(*address) == fd ? bytes : std::nullopt;
}

void ConnectionAcceptor::Stop() {
  if (!thread_.joinable()) return;
  is_stopping_ = true;
  eventfd_write(wake_.get(), 1);
  thread_.join();
  thread_ = std::thread();
}

void ConnectionAcceptor::Run() {
  std::vector<epoll_event> events(kMaxEvents);
  while (!is_stopping_) {
    const int num_events = epoll_wait(epoll_.get(), events.data(), kMaxEvents, Timeout());
    std::vector<int> ready_listeners;
    for (int i = 0; i < num_events; ++i) {
      const int fd = events[i].data.fd;
      if (fd == wake_.get()) {
        eventfd_t unused;
        eventfd_read(wake_.get(), &unused);
      } else if (waiting_.count(fd) > 0) {
        OnEvent(fd, events[i].events);
      } else {
        ready_listeners.push_back(fd);
      }
    }
    // Events are handled before new connections are accepted. Otherwise an event of a closed
    // connection could reach a new one that has got the same descriptor.
    for (const FileDescriptor& socket : sockets_.sockets) {
      if (std::count(ready_listeners.begin(), ready_listeners.end(), socket.get()) > 0) {
        Accept(socket.get());
      }
    }
    OnTime();
  }
  for (const auto& [fd, waiting] : waiting_) close(fd);
  waiting_.clear();
  sockets_.sockets.clear();
}

int ConnectionAcceptor::Timeout() {
  absl::Time next = is_accepting_ ? absl::InfiniteFuture() : accepts_again_;
  {
    absl::MutexLock lock(&mutex_);
    next = std::min(next, table_.next_deadline());
    if (table_.num_let_in() > 0) {
      next = std::min({next, table_.last_sweep() + kSweepInterval, next_look_at_paths_});
    }
    if (counts_.refused != logged_.refused) next = std::min(next, next_log_);
  }
  if (next == absl::InfiniteFuture()) return -1;
  const absl::Duration left = std::max(next - config_.clock->Now(), absl::ZeroDuration());
  return static_cast<int>(absl::ToInt64Milliseconds(absl::Ceil(left, absl::Milliseconds(1))));
}

void ConnectionAcceptor::OnTime() {
  if (is_serving_ && !std::exchange(is_serving_seen_, true)) {
    std::vector<int> held;
    for (const auto& [fd, waiting] : waiting_) {
      if (waiting.state == State::kHeld) held.push_back(fd);
    }
    for (const int fd : held) LetInToGrpc(fd, waiting_[fd]);
  }
  const absl::Time now = config_.clock->Now();
  std::vector<int> overdue;
  {
    absl::MutexLock lock(&mutex_);
    overdue = table_.Overdue(now);
    if (now - table_.last_sweep() >= kSweepInterval) table_.Sweep(now);
  }
  for (const int fd : overdue) OnDeadline(fd, waiting_[fd]);
  if (!is_accepting_ && now >= accepts_again_) SetAccepting(true);
  if (now >= next_log_) LogRefusals(now);
  if (now >= next_look_at_paths_) LookAtPaths(now);
}

void ConnectionAcceptor::LookAtPaths(absl::Time now) {
  next_look_at_paths_ = now + kPathInterval;
  absl::MutexLock lock(&mutex_);
  table_.Sweep(now);
  table_.ForEachLetIn([](int connection, const std::string& address) {
    const std::string mended = MendCongestionControl(connection);
    if (!mended.empty()) logging::LogInfo("a connection of {}: {}", address, mended);
  });
}

void ConnectionAcceptor::SetAccepting(bool is_accepting) {
  is_accepting_ = is_accepting;
  if (!is_accepting) accepts_again_ = config_.clock->Now() + kPauseWithoutFiles;
  for (const FileDescriptor& socket : sockets_.sockets) {
    epoll_event event{.events = is_accepting ? EPOLLIN : 0u, .data = {.fd = socket.get()}};
    epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, socket.get(), &event);
  }
}

void ConnectionAcceptor::Accept(int listener) {
  // If max_waiting connections wait, each new one displaces one of them. So only one is accepted at
  // a time. Between two of them, waiting connections that have sent something are let in, and are
  // not displaced.
  for (int i = 0; i < kMaxAccepts && (i == 0 || waiting_.size() < config_.limits.max_waiting);
       ++i) {
    sockaddr_storage storage{};
    socklen_t length = sizeof(storage);
    const int fd = accept4(listener, reinterpret_cast<sockaddr*>(&storage), &length,
                           SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0) {
      Add(fd, listener, HostPortOf(storage));
    } else if (errno == EAGAIN) {
      return;
    } else if (errno == ENOBUFS || errno == ENOMEM) {
      return SetAccepting(false);
    } else if ((errno == EMFILE || errno == ENFILE) && !MakeRoom(listener)) {
      return SetAccepting(false);
    }
    // After any other error, this connection has already ended, and the next one is tried.
  }
}

bool ConnectionAcceptor::MakeRoom(int listener) {
  std::optional<int> leaving;
  {
    absl::MutexLock lock(&mutex_);
    leaving = table_.MakeRoom();
  }
  if (leaving.has_value()) {
    CloseForAnother(*leaving);
    return true;
  }
  spare_.Reset();
  sockaddr_storage storage{};
  socklen_t length = sizeof(storage);
  FileDescriptor refused(
      accept4(listener, reinterpret_cast<sockaddr*>(&storage), &length, SOCK_CLOEXEC));
  if (refused.is_open()) Count(RefusalReason::kNoFile, HostPortOf(storage).ToString());
  refused.Reset();
  spare_.Reset(OpenSpare());
  return spare_.is_open();
}

void ConnectionAcceptor::Add(int fd, int listener, const net::HostPort& peer) {
  std::optional<int> leaving;
  size_t num_let_in = 0;
  {
    absl::MutexLock lock(&mutex_);
    ++counts_.accepted;
    leaving = table_.OnAccepted(fd, peer, config_.clock->Now());
    num_let_in = table_.num_let_in();
  }
  if (leaving.has_value()) CloseForAnother(*leaving);
  Waiting& waiting = waiting_[fd];
  waiting.listener = listener;
  waiting.peer = peer.ToString();
  waiting.is_of_this_machine = peer.IsLoopback();
  LimitSendBufferWithinMachine(fd, waiting.is_of_this_machine, num_let_in + 1);
  epoll_event event{.events = EPOLLIN | EPOLLRDHUP | EPOLLET, .data = {.fd = fd}};
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) return Close(fd);
  OnFirstBytes(fd, waiting);
}

void ConnectionAcceptor::CloseForAnother(int fd) {
  const Waiting& waiting = waiting_[fd];
  if (waiting.state == State::kSilent) Count(RefusalReason::kSilent, waiting.peer);
  if (waiting.state == State::kHeld) Count(RefusalReason::kNotServing, waiting.peer);
  Close(fd);
}

void ConnectionAcceptor::OnEvent(int fd, uint32_t events) {
  Waiting& waiting = waiting_[fd];
  switch (waiting.state) {
    case State::kSilent:
      return OnFirstBytes(fd, waiting);
    case State::kHeld:
      if ((events & (EPOLLERR | EPOLLHUP | EPOLLRDHUP)) != 0) Close(fd);
      return;
    case State::kRefused:
      return OnRefused(fd, waiting);
    case State::kLeaving:
      return OnLeaving(fd, waiting);
  }
}

void ConnectionAcceptor::OnFirstBytes(int fd, Waiting& waiting) {
  char bytes[kMaxFirstBytes];
  const ssize_t num_bytes = recv(fd, bytes, sizeof(bytes), MSG_PEEK | MSG_DONTWAIT);
  if (num_bytes < 0 && (errno == EAGAIN || errno == EINTR)) return;
  // The peer has closed the connection, like a program that only tests whether the port is open.
  if (num_bytes <= 0) return Close(fd);
  const bool wants_tls = config_.transport == Transport::kTls;
  switch (ClassifyFirstBytes({bytes, static_cast<size_t>(num_bytes)})) {
    case FirstBytes::kIncomplete:
      return;
    case FirstBytes::kTls:
      if (wants_tls) return OnClientHello(fd, waiting);
      // psctl on this machine tries TLS first to find out what the port accepts. That is not
      // counted.
      if (!waiting.is_of_this_machine) Count(RefusalReason::kWrongSecurity, waiting.peer);
      return Leave(fd, waiting, TlsRefusal(TlsAlert::kProtocolVersion));
    case FirstBytes::kHttp2:
      if (!wants_tls) return LetInToGrpc(fd, waiting);
      return RefuseHttp2(fd, waiting, RefusalReason::kWrongSecurity);
    case FirstBytes::kEnrollment:
      return LetInToEnrollment(fd, waiting);
    case FirstBytes::kHttp1:
      Count(RefusalReason::kNoGrpc, waiting.peer);
      return Leave(fd, waiting, Http1Refusal());
    case FirstBytes::kOther:
      Count(RefusalReason::kNoGrpc, waiting.peer);
      return Close(fd);
  }
}

void ConnectionAcceptor::OnClientHello(int fd, Waiting& waiting) {
  hello_.resize(kMaxClientHelloBytes);
  const ssize_t num_bytes = recv(fd, hello_.data(), hello_.size(), MSG_PEEK | MSG_DONTWAIT);
  // Some bytes of the ClientHello have come and are still unread. If they cannot be read, the
  // connection has ended.
  if (num_bytes <= 0) return Close(fd);
  switch (ClassifyClientHello({hello_.data(), static_cast<size_t>(num_bytes)})) {
    case ClientHello::kIncomplete:
      return;
    case ClientHello::kOffersTls13:
      return LetInToGrpc(fd, waiting);
    case ClientHello::kOlder:
      Count(RefusalReason::kOldTls, waiting.peer);
      return Leave(fd, waiting, TlsRefusal(TlsAlert::kProtocolVersion));
    case ClientHello::kMalformed:
      Count(RefusalReason::kNoGrpc, waiting.peer);
      return Close(fd);
  }
}

void ConnectionAcceptor::LetInToGrpc(int fd, Waiting& waiting) {
  if (!is_serving_seen_) {
    waiting.state = State::kHeld;
    absl::MutexLock lock(&mutex_);
    return table_.OnHeld(fd, config_.clock->Now() + config_.start_patience);
  }
  if (const std::optional<RefusalReason> refusal = LetIn(fd); refusal.has_value()) {
    if (config_.transport == Transport::kPlain) return RefuseHttp2(fd, waiting, *refusal);
    Count(*refusal, waiting.peer);
    return Leave(fd, waiting, TlsRefusal(TlsAlert::kInternalError));
  }
  grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
  connection.listener_fd = waiting.listener;
  connection.fd = fd;
  waiting_.erase(fd);
  if (config_.transport == Transport::kPlain) http2::GuardSocket(fd);
  grpc_->HandleNewConnection(&connection);
}

void ConnectionAcceptor::LetInToEnrollment(int fd, Waiting& waiting) {
  const std::optional<RefusalReason> refusal =
      config_.enroll == nullptr ? RefusalReason::kNoGrpc : LetIn(fd);
  if (refusal.has_value()) {
    Count(*refusal, waiting.peer);
    return Close(fd);
  }
  std::string peer = std::move(waiting.peer);
  waiting_.erase(fd);
  config_.enroll(fd, std::move(peer));
}

std::optional<RefusalReason> ConnectionAcceptor::LetIn(int fd) {
  {
    absl::MutexLock lock(&mutex_);
    const std::optional<RefusalReason> refusal = table_.LetIn(fd, config_.clock->Now());
    if (refusal.has_value()) return refusal;
  }
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  return std::nullopt;
}

void ConnectionAcceptor::RefuseHttp2(int fd, Waiting& waiting, RefusalReason refusal) {
  using GoAwayCode = Http2Refusal::GoAwayCode;
  Count(refusal, waiting.peer);
  const absl::Status status = StatusOf(refusal);
  GoAwayCode code = GoAwayCode::kEnhanceYourCalm;
  if (refusal == RefusalReason::kNotServing) code = GoAwayCode::kNoError;
  if (refusal == RefusalReason::kWrongSecurity) code = GoAwayCode::kInadequateSecurity;
  waiting.refusal = std::make_unique<Http2Refusal>(status, code);
  waiting.state = State::kRefused;
  RefuseFor(fd, config_.limits.patience);
  OnRefused(fd, waiting);
}

void ConnectionAcceptor::OnRefused(int fd, Waiting& waiting) {
  const int num_calls = waiting.refusal->num_calls();
  char bytes[4096];
  ssize_t num_bytes;
  while ((num_bytes = recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT)) > 0) {
    const std::string answer = waiting.refusal->OnBytes({bytes, static_cast<size_t>(num_bytes)});
    if (waiting.refusal->is_broken() || !SendAll(fd, answer)) return Close(fd);
  }
  if (num_bytes == 0 || errno != EAGAIN) return Close(fd);
  if (num_calls == 0 && waiting.refusal->num_calls() > 0) RefuseFor(fd, kRefusedLife);
}

void ConnectionAcceptor::Leave(int fd, Waiting& waiting, const std::string& answer) {
  SendAll(fd, answer);
  shutdown(fd, SHUT_WR);
  waiting.state = State::kLeaving;
  RefuseFor(fd, kLeavingPatience);
  OnLeaving(fd, waiting);
}

void ConnectionAcceptor::OnLeaving(int fd, Waiting& waiting) {
  // The peer's bytes are read and dropped. If unread bytes are left at close(), the connection is
  // reset, and the peer may lose the answer.
  char bytes[4096];
  ssize_t num_bytes;
  while ((num_bytes = recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT)) > 0) {
    waiting.bytes_ignored += static_cast<size_t>(num_bytes);
    if (waiting.bytes_ignored > kMaxBytesIgnored) return Close(fd);
  }
  if (num_bytes == 0 || errno != EAGAIN) Close(fd);
}

void ConnectionAcceptor::OnDeadline(int fd, Waiting& waiting) {
  switch (waiting.state) {
    case State::kSilent:
      Count(RefusalReason::kSilent, waiting.peer);
      return Close(fd);
    case State::kHeld:
      if (config_.transport == Transport::kPlain) {
        return RefuseHttp2(fd, waiting, RefusalReason::kNotServing);
      }
      Count(RefusalReason::kNotServing, waiting.peer);
      return Leave(fd, waiting, TlsRefusal(TlsAlert::kInternalError));
    case State::kRefused:
      return Leave(fd, waiting, waiting.refusal->GoAway());
    case State::kLeaving:
      return Close(fd);
  }
}

absl::Status ConnectionAcceptor::StatusOf(RefusalReason refusal) {
  if (refusal == RefusalReason::kWrongSecurity) {
    return absl::FailedPreconditionError("this server speaks only TLS; give --join");
  }
  if (refusal == RefusalReason::kNotServing)
    return absl::UnavailableError("the server is starting; try again");
  const ConnectionLimits& limits = config_.limits;
  if (refusal == RefusalReason::kTooManyOfAddress) {
    return absl::UnavailableError(
        absl::StrCat("the server has ", limits.per_address(),
                     " connections from this address, the maximum for one address "
                     "(--max_connections_per_address). The maximum for all addresses is ",
                     limits.max_connections, " (--max_connections). Try again later"));
  }
  if (refusal == RefusalReason::kTooFast) {
    return absl::UnavailableError(
        absl::StrCat("too many new connections come from this address. The server takes ",
                     limits.max_new_per_address, " at once and then ", limits.new_per_minute,
                     " per minute (--connections_per_minute); try again later"));
  }
  absl::MutexLock lock(&mutex_);
  return absl::UnavailableError(
      absl::StrCat("the server has ", table_.num_let_in(), " connections, and takes at most ",
                   limits.max_connections, " (--max_connections). It keeps ",
                   limits.kept_for_this_machine, " of these for its own machine. Try again later"));
}

void ConnectionAcceptor::Close(int fd) {
  {
    absl::MutexLock lock(&mutex_);
    table_.Forget(fd);
  }
  waiting_.erase(fd);
  close(fd);
}

void ConnectionAcceptor::RefuseFor(int fd, absl::Duration at_most) {
  absl::MutexLock lock(&mutex_);
  table_.OnRefused(fd, config_.clock->Now() + at_most);
}

void ConnectionAcceptor::Count(RefusalReason refusal, const std::string& peer) {
  last_refused_ = peer;
  absl::MutexLock lock(&mutex_);
  ++counts_.refused[static_cast<size_t>(refusal)];
}

void ConnectionAcceptor::LogRefusals(absl::Time now) {
  {
    absl::MutexLock lock(&mutex_);
    if (counts_.refused == logged_.refused) return;
  }
  const ConnectionCounts current = counts();
  logging::LogWarn(
      "port {}: refused connections: {}; the last one came from {}; {} of at most {} connections "
      "are open now",
      port_, RefusalsText(current, logged_), last_refused_, current.connections,
      current.max_connections);
  logged_ = current;
  next_log_ = now + kLogInterval;
}

}  // namespace lodestar::firewall
