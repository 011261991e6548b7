// SPDX-License-Identifier: Apache-2.0

#include "server/firewall/connection_acceptor.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "common/testing/simulated_clock.h"
#include "common/testing/status_matchers.h"
#include "proto/bulk_options.h"
#include "server/http2/guarded_reads.h"

namespace lodestar::firewall {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr absl::Duration kLongEnough = absl::Seconds(20);
constexpr char kTlsHello[] = "\x16\x03\x01\x02\x00\x01";

sockaddr_in LoopbackAddress(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  return address;
}

// RawClient is a client that sends and receives any bytes.
class RawClient {
 public:
  RawClient() : socket_(socket(AF_INET, SOCK_STREAM, 0)) {
    const timeval patience{.tv_sec = absl::ToInt64Seconds(kLongEnough), .tv_usec = 0};
    setsockopt(socket_.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  }
  explicit RawClient(int port) : RawClient() { EXPECT_TRUE(Connect(port)); }

  bool Connect(int port) {
    const sockaddr_in address = LoopbackAddress(port);
    return connect(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) ==
           0;
  }
  void Send(absl::string_view bytes) {
    EXPECT_EQ(send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), bytes.size());
  }
  // Sends bytes. The server may close the connection meanwhile.
  void SendUnlessClosed(absl::string_view bytes) {
    send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  // Returns all bytes that come until the server closes the connection.
  std::string ReadAll() {
    std::string all;
    char bytes[4096];
    ssize_t num_bytes;
    while ((num_bytes = recv(socket_.get(), bytes, sizeof(bytes), 0)) > 0) {
      all.append(bytes, static_cast<size_t>(num_bytes));
    }
    EXPECT_TRUE(num_bytes == 0 || errno == ECONNRESET) << errno;
    return all;
  }
  int fd() const { return socket_.get(); }

 private:
  FileDescriptor socket_;
};

// GrpcClient is a channel with a connection of its own.
class GrpcClient {
 public:
  explicit GrpcClient(int port, bool has_tls = false, absl::string_view host = "127.0.0.1")
      : stub_(grpc::CreateCustomChannel(
            absl::StrCat(host, ":", port),
            has_tls ? grpc::SslCredentials({}) : grpc::InsecureChannelCredentials(),
            wire::ControlChannelArguments())) {}

  grpc::Status Call() {
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + kLongEnough));
    const grpc::Slice bytes("request");
    const grpc::ByteBuffer request(&bytes, 1);
    grpc::ByteBuffer reply;
    grpc::Status status;
    grpc::CompletionQueue queue;
    const auto call = stub_.PrepareUnaryCall(&context, "/any.Service/Call", request, &queue);
    call->StartCall();
    call->Finish(&reply, &status, nullptr);
    void* tag;
    bool is_ok;
    queue.Next(&tag, &is_ok);
    return status;
  }

 private:
  grpc::GenericStub stub_;
};

// Matches the status of any call to a gRPC server without services.
MATCHER(IsAnsweredByGrpc, "") {
  *result_listener << arg.error_code() << " " << arg.error_message();
  return arg.error_code() == grpc::StatusCode::UNIMPLEMENTED;
}

MATCHER_P2(Fails, code, text, "") {
  *result_listener << arg.error_code() << " " << arg.error_message();
  return arg.error_code() == code &&
         ::testing::ExplainMatchResult(HasSubstr(text), arg.error_message(), result_listener);
}

class PeerRecorder final : public grpc::CallbackGenericService {
 public:
  std::string last_peer() {
    absl::MutexLock lock(&mutex_);
    return peer_;
  }

 private:
  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override {
    {
      absl::MutexLock lock(&mutex_);
      peer_ = context->peer();
    }
    return grpc::CallbackGenericService::CreateReactor(context);
  }

  absl::Mutex mutex_;
  std::string peer_ ABSL_GUARDED_BY(mutex_);
};

class ConnectionAcceptorTest : public ::testing::Test {
 protected:
  ConnectionAcceptorTest() {
    getrlimit(RLIMIT_NOFILE, &file_limit_);
    config_.listen = {"127.0.0.1", 0};
  }
  ~ConnectionAcceptorTest() override {
    setrlimit(RLIMIT_NOFILE, &file_limit_);
    if (acceptor_ != nullptr) acceptor_->Stop();
    if (server_ != nullptr) {
      server_->Shutdown(std::chrono::system_clock::now());
      server_->Wait();
    }
  }

  void Listen() {
    auto acceptor = ConnectionAcceptor::Listen(config_);
    ASSERT_OK(acceptor);
    acceptor_ = *std::move(acceptor);
  }
  void Serve() {
    grpc::ServerBuilder builder;
    wire::ApplyServerOptions(builder);
    builder.RegisterCallbackGenericService(&service_);
    auto grpc = builder.experimental().AddExternalConnectionAcceptor(
        grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
        grpc::InsecureServerCredentials());
    server_ = builder.BuildAndStart();
    ASSERT_NE(server_, nullptr);
    acceptor_->Serve(std::move(grpc));
  }
  void ListenAndServe() {
    ASSERT_NO_FATAL_FAILURE(Listen());
    Serve();
  }
  void LimitFiles(rlim_t max_files) {
    rlimit limit = file_limit_;
    limit.rlim_cur = max_files;
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  }
  // Makes a call, closes the connection, and waits until IsOpen() returns false for it.
  void CallAndClose(absl::string_view host) {
    ASSERT_NO_FATAL_FAILURE(ListenAndServe());
    auto client = std::make_unique<GrpcClient>(port(), /*has_tls=*/false, host);
    EXPECT_THAT(client->Call(), IsAnsweredByGrpc());
    const std::string peer = service_.last_peer();
    EXPECT_TRUE(acceptor_->IsOpen(peer)) << peer;
    client.reset();
    while (acceptor_->IsOpen(peer)) std::this_thread::yield();
  }
  int port() const { return acceptor_->port(); }
  uint64_t Refused(RefusalReason refusal) { return acceptor_->counts().refused_for(refusal); }

  rlimit file_limit_{};
  SimulatedClock clock_;
  ConnectionAcceptor::Config config_;
  PeerRecorder service_;
  std::unique_ptr<ConnectionAcceptor> acceptor_;
  std::unique_ptr<grpc::Server> server_;
};

TEST_F(ConnectionAcceptorTest, CallsReachGrpc) {
  ListenAndServe();
  GrpcClient client(port());
  EXPECT_THAT(client.Call(), IsAnsweredByGrpc());
  EXPECT_EQ(acceptor_->counts().connections, 1);
  EXPECT_EQ(acceptor_->counts().accepted, 1);
}

TEST_F(ConnectionAcceptorTest, KnowsWhetherTheConnectionOfACallerIsOpen) {
  CallAndClose("127.0.0.1");
  EXPECT_TRUE(acceptor_->IsOpen("unix:/tmp/socket"));
  EXPECT_FALSE(acceptor_->IsOpen("ipv4:127.0.0.1:1"));
}

TEST_F(ConnectionAcceptorTest, KnowsThatOfIpv6Too) {
  config_.listen.host = "::1";
  CallAndClose("[::1]");
  EXPECT_FALSE(acceptor_->IsOpen("ipv6:[::1]:1"));
  EXPECT_FALSE(acceptor_->IsOpen("ipv6:%5B::1%5D:1"));
  EXPECT_TRUE(acceptor_->IsOpen("ipv6:%5Bfe80::1%252%5D:4242")) << "cannot be told";
}

TEST_F(ConnectionAcceptorTest, KnowsThatOfBothFamiliesWhereItListensForBoth) {
  config_.listen.host = "0.0.0.0";
  CallAndClose("127.0.0.1");
}

TEST_F(ConnectionAcceptorTest, FirstBytesMayComeOneByOne) {
  ListenAndServe();
  RawClient client(port());
  const std::string request = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
  for (const char byte : request.substr(0, 4)) client.Send({&byte, 1});
  client.Send(request.substr(4));
  EXPECT_THAT(client.ReadAll(), StartsWith("HTTP/1.1 400 "));
  EXPECT_EQ(Refused(RefusalReason::kNoGrpc), 1);
}

TEST_F(ConnectionAcceptorTest, StrangersAreAnsweredAndClosed) {
  ListenAndServe();
  RawClient browser(port());
  browser.Send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_THAT(browser.ReadAll(), HasSubstr("psctl status"));
  RawClient noise(port());
  noise.Send("\x01\x02\x03 no protocol");
  EXPECT_EQ(noise.ReadAll(), "");
  RawClient tls(port());
  tls.Send(kTlsHello);
  EXPECT_EQ(tls.ReadAll(), TlsRefusal(TlsAlert::kProtocolVersion));
  RawClient enrollment(port());
  enrollment.Send(kEnrollmentWord);
  EXPECT_EQ(enrollment.ReadAll(), "");
  EXPECT_EQ(Refused(RefusalReason::kNoGrpc), 3);
  EXPECT_EQ(Refused(RefusalReason::kWrongSecurity), 0) << "psctl of this machine asks so";
  EXPECT_EQ(acceptor_->counts().connections, 0);
}

TEST_F(ConnectionAcceptorTest, ClientWithTlsLearnsThatTheServerHasNone) {
  ListenAndServe();
  EXPECT_THAT(GrpcClient(port(), /*has_tls=*/true).Call(),
              Fails(grpc::StatusCode::UNAVAILABLE, "alert protocol version"));
}

TEST_F(ConnectionAcceptorTest, ClientWithoutTlsLearnsThatTheServerWantsIt) {
  config_.transport = ConnectionAcceptor::Transport::kTls;
  ListenAndServe();
  GrpcClient client(port());
  EXPECT_THAT(client.Call(), Fails(grpc::StatusCode::FAILED_PRECONDITION, "speaks only TLS"));
  EXPECT_THAT(client.Call(), Fails(grpc::StatusCode::FAILED_PRECONDITION, "speaks only TLS"));
  EXPECT_EQ(acceptor_->counts().connections, 0);
  EXPECT_LE(acceptor_->counts().accepted, 2);  // the client does not connect again and again
}

TEST_F(ConnectionAcceptorTest, TlsGoesToGrpcWhereItIsWanted) {
  config_.transport = ConnectionAcceptor::Transport::kTls;
  ListenAndServe();
  // The acceptor lets the connection in. gRPC's server in this test has no TLS, so the call fails.
  EXPECT_THAT(GrpcClient(port(), /*has_tls=*/true).Call(),
              Fails(grpc::StatusCode::UNAVAILABLE, ""));
  EXPECT_GT(acceptor_->counts().accepted, 0);
  for (size_t i = 0; i < kNumRefusals; ++i) {
    EXPECT_EQ(Refused(static_cast<RefusalReason>(i)), 0) << i;
  }
}

TEST_F(ConnectionAcceptorTest, OldTlsIsToldWhatIsWanted) {
  config_.transport = ConnectionAcceptor::Transport::kTls;
  ListenAndServe();
  RawClient client(port());
  // Sends a ClientHello without extensions, byte by byte.
  const std::string body =
      std::string("\x03\x03", 2) + std::string(32, 'r') + std::string("\0\0\2\x13\1\1\0", 7);
  const std::string message = std::string("\1\0\0", 3) + static_cast<char>(body.size()) + body;
  const std::string record =
      std::string("\x16\3\1\0", 4) + static_cast<char>(message.size()) + message;
  for (const char byte : record) client.Send({&byte, 1});
  EXPECT_EQ(client.ReadAll(), TlsRefusal(TlsAlert::kProtocolVersion));
  EXPECT_EQ(Refused(RefusalReason::kOldTls), 1);
  RawClient noise(port());
  noise.Send(std::string("\x16\x03\x01\0\4\2\0\0\0", 9));
  EXPECT_EQ(noise.ReadAll(), "");
  EXPECT_EQ(Refused(RefusalReason::kNoGrpc), 1);
  EXPECT_EQ(acceptor_->counts().connections, 0);
}

TEST_F(ConnectionAcceptorTest, SilentOnesGiveWay) {
  config_.limits.max_waiting = 2;
  ListenAndServe();
  RawClient first(port());
  RawClient second(port());
  RawClient third(port());
  EXPECT_EQ(first.ReadAll(), "");
  EXPECT_EQ(Refused(RefusalReason::kSilent), 1);
  EXPECT_THAT(GrpcClient(port()).Call(), IsAnsweredByGrpc());
}

TEST_F(ConnectionAcceptorTest, WhoHasJustComeIsNotClosedForThoseWhoAreRefused) {
  config_.limits.max_waiting = 2;
  ListenAndServe();
  RawClient honest(port());
  std::vector<std::unique_ptr<RawClient>> refused;
  for (int i = 0; i < 5; ++i) {
    refused.push_back(std::make_unique<RawClient>(port()));
    refused.back()->Send("GET / HTTP/1.1\r\n\r\n");
    EXPECT_THAT(refused.back()->ReadAll(), StartsWith("HTTP/1.1 400 "));
  }
  honest.Send("GET / HTTP/1.1\r\n\r\n");
  EXPECT_THAT(honest.ReadAll(), StartsWith("HTTP/1.1 400 "));
  EXPECT_EQ(Refused(RefusalReason::kSilent), 0);
}

TEST_F(ConnectionAcceptorTest, WhoHasSpokenIsNotTakenForSilentWhenManyComeAtOnce) {
  config_.limits.max_waiting = 2;
  ListenAndServe();
  std::vector<RawClient> clients(20);
  LimitFiles(0);  // no connection is accepted
  for (RawClient& client : clients) {
    ASSERT_TRUE(client.Connect(port()));
    client.Send("GET / HTTP/1.1\r\n\r\n");
  }
  LimitFiles(file_limit_.rlim_cur);
  for (RawClient& client : clients) EXPECT_THAT(client.ReadAll(), StartsWith("HTTP/1.1 400 "));
  EXPECT_EQ(Refused(RefusalReason::kSilent), 0);
}

TEST_F(ConnectionAcceptorTest, SilentOnesAreClosedInTheEnd) {
  config_.clock = &clock_;
  ListenAndServe();
  RawClient silent(port());
  // When this call is answered, the server has accepted the silent connection too.
  EXPECT_THAT(GrpcClient(port()).Call(), IsAnsweredByGrpc());
  clock_.AdvanceTime(config_.limits.patience);
  // The new connection wakes the server, which then closes connections that have waited for too
  // long.
  EXPECT_THAT(GrpcClient(port()).Call(), IsAnsweredByGrpc());
  EXPECT_EQ(silent.ReadAll(), "");
  EXPECT_EQ(Refused(RefusalReason::kSilent), 1);
}

TEST_F(ConnectionAcceptorTest, OneTooManyIsToldSo) {
  config_.limits.max_connections = 1;
  ListenAndServe();
  auto first = std::make_unique<GrpcClient>(port());
  ASSERT_THAT(first->Call(), IsAnsweredByGrpc());
  GrpcClient second(port());
  EXPECT_THAT(second.Call(), Fails(grpc::StatusCode::UNAVAILABLE,
                                   "has 1 connections, and takes at most 1 (--max_connections)"));
  EXPECT_EQ(Refused(RefusalReason::kTooMany), 1);
  first.reset();
  const absl::Time until = absl::Now() + kLongEnough;
  while (second.Call().error_code() == grpc::StatusCode::UNAVAILABLE && absl::Now() < until) {
  }
  EXPECT_THAT(second.Call(), IsAnsweredByGrpc());
}

TEST_F(ConnectionAcceptorTest, ClientsOfGrpcWaitForIt) {
  config_.start_patience = kLongEnough;
  Listen();
  grpc::Status status;
  std::thread caller([&] { status = GrpcClient(port()).Call(); });
  Serve();
  caller.join();
  EXPECT_THAT(status, IsAnsweredByGrpc());
}

TEST_F(ConnectionAcceptorTest, ClientsOfGrpcDoNotWaitForLong) {
  config_.start_patience = absl::Milliseconds(1);
  Listen();
  EXPECT_THAT(GrpcClient(port()).Call(), Fails(grpc::StatusCode::UNAVAILABLE, "is starting"));
  EXPECT_EQ(Refused(RefusalReason::kNotServing), 1);
}

TEST_F(ConnectionAcceptorTest, EnrollmentsAreHandedOverBeforeServiceBegins) {
  absl::Notification has_come;
  FileDescriptor enrolled;
  std::string enrolled_peer;
  config_.enroll = [&](int fd, std::string peer) {
    enrolled.Reset(fd);
    enrolled_peer = std::move(peer);
    has_come.Notify();
  };
  Listen();
  RawClient client(port());
  client.Send("LODESTAR and more");
  ASSERT_TRUE(has_come.WaitForNotificationWithTimeout(kLongEnough));
  char bytes[64];
  const ssize_t num_bytes = recv(enrolled.get(), bytes, sizeof(bytes), 0);
  EXPECT_EQ(std::string(bytes, static_cast<size_t>(num_bytes)), "LODESTAR and more");
  sockaddr_in address{};
  socklen_t length = sizeof(address);
  ASSERT_EQ(getsockname(client.fd(), reinterpret_cast<sockaddr*>(&address), &length), 0);
  EXPECT_EQ(enrolled_peer, absl::StrCat("127.0.0.1:", ntohs(address.sin_port)));
  EXPECT_EQ(acceptor_->counts().connections, 1);
  enrolled.Reset();
  EXPECT_EQ(acceptor_->counts().connections, 0);
}

TEST_F(ConnectionAcceptorTest, ConnectionsHaveTheOptionsOfThoseOfGrpc) {
  absl::Notification has_come;
  FileDescriptor accepted;
  config_.enroll = [&](int fd, const std::string&) {
    accepted.Reset(fd);
    has_come.Notify();
  };
  Listen();
  RawClient client(port());
  client.Send(kEnrollmentWord);
  ASSERT_TRUE(has_come.WaitForNotificationWithTimeout(kLongEnough));
  const auto option = [&](int name) {
    int value = 0;
    socklen_t length = sizeof(value);
    EXPECT_EQ(getsockopt(accepted.get(), IPPROTO_TCP, name, &value, &length), 0);
    return value;
  };
  EXPECT_EQ(option(TCP_NODELAY), 1);
  EXPECT_EQ(option(TCP_USER_TIMEOUT), wire::kServerPingTimeoutMs);
  EXPECT_NE(fcntl(accepted.get(), F_GETFL) & O_NONBLOCK, 0);
  EXPECT_NE(fcntl(accepted.get(), F_GETFD) & FD_CLOEXEC, 0);
}

TEST_F(ConnectionAcceptorTest, TwoThousandIdleOnesDoNotKeepACallOut) {
  constexpr int kNumIdle = 2000;
  LimitFiles(200);
  ListenAndServe();
  const int server_port = port();
  int ready[2], release[2];
  ASSERT_EQ(pipe(ready), 0);
  ASSERT_EQ(pipe(release), 0);
  // The child process opens the idle connections, because this process may not open so many files.
  // After fork() it makes only system calls, because this process has threads.
  const pid_t child = fork();
  if (child == 0) {
    close(release[1]);
    setrlimit(RLIMIT_NOFILE, &file_limit_);
    const sockaddr_in address = LoopbackAddress(server_port);
    for (int i = 0; i < kNumIdle; ++i) {
      const int fd = socket(AF_INET, SOCK_STREAM, 0);
      if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) _exit(1);
    }
    char byte = 0;
    if (write(ready[1], &byte, 1) != 1) _exit(1);
    _exit(read(release[0], &byte, 1) == 0 ? 0 : 1);
  }
  close(ready[1]);
  char byte;
  EXPECT_EQ(read(ready[0], &byte, 1), 1);
  EXPECT_THAT(GrpcClient(server_port).Call(), IsAnsweredByGrpc());
  EXPECT_EQ(acceptor_->counts().accepted, kNumIdle + 1);
  EXPECT_GE(Refused(RefusalReason::kSilent), kNumIdle - 200);
  close(release[1]);
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  close(ready[0]);
  close(release[0]);
}

TEST_F(ConnectionAcceptorTest, RefusesWhoComesWhileThereIsNoFile) {
  ListenAndServe();
  RawClient early;
  RawClient late;
  LimitFiles(200);
  std::vector<FileDescriptor> all;
  while (true) {
    FileDescriptor file(open("/dev/null", O_RDONLY | O_CLOEXEC));
    if (!file.is_open()) break;
    all.push_back(std::move(file));
  }
  ASSERT_TRUE(early.Connect(port()));
  EXPECT_EQ(early.ReadAll(), "");
  EXPECT_EQ(Refused(RefusalReason::kNoFile), 1);
  all.clear();
  ASSERT_TRUE(late.Connect(port()));
  late.Send("GET / HTTP/1.1\r\n\r\n");
  EXPECT_THAT(late.ReadAll(), StartsWith("HTTP/1.1 400 "));
}

TEST_F(ConnectionAcceptorTest, GoesOnWhenThereAreFilesAgain) {
  ListenAndServe();
  RawClient client;
  LimitFiles(0);  // not even a file to refuse the connection with
  ASSERT_TRUE(client.Connect(port()));
  client.Send("GET / HTTP/1.1\r\n\r\n");
  char byte;
  EXPECT_EQ(recv(client.fd(), &byte, 1, MSG_DONTWAIT), -1);
  LimitFiles(file_limit_.rlim_cur);
  // The server answers if it finds a free descriptor by now. Otherwise it closes the connection
  // without an answer.
  const std::string answer = client.ReadAll();
  if (answer.empty()) {
    EXPECT_EQ(Refused(RefusalReason::kNoFile), 1);
  } else {
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 400 "));
  }
  RawClient next(port());
  next.Send("GET / HTTP/1.1\r\n\r\n");
  EXPECT_THAT(next.ReadAll(), StartsWith("HTTP/1.1 400 "));
}

#ifndef LODESTAR_SANITIZER  // see guarded_reads.h
TEST_F(ConnectionAcceptorTest, TellsThatTheOtherEndHasClosedAConnection) {
  ASSERT_NO_FATAL_FAILURE(ListenAndServe());
  auto client = std::make_unique<GrpcClient>(port());
  EXPECT_THAT(client->Call(), IsAnsweredByGrpc());
  const std::string peer = service_.last_peer();
  EXPECT_EQ(acceptor_->StateOf(peer), ConnectionState::kOpen);
  EXPECT_EQ(acceptor_->StateOf("ipv4:127.0.0.1:1"), ConnectionState::kUnknown);
  client.reset();
  while (acceptor_->StateOf(peer) == ConnectionState::kOpen) std::this_thread::yield();
  EXPECT_EQ(acceptor_->StateOf(peer), ConnectionState::kClosed);
}

TEST_F(ConnectionAcceptorTest, FloodsOfHttp2AreEndedBeforeGrpcReadsThem) {
  ListenAndServe();
  const uint64_t ended = http2::NumFloodsEnded();
  RawClient client(port());
  client.Send(
      absl::StrCat("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", std::string("\0\0\0\4\0\0\0\0\0", 9)));
  // This header block has no end, because no frame has the flag END_HEADERS. gRPC would keep all of
  // it in memory.
  client.Send(std::string("\0\0\1\1\0\0\0\0\1\0", 10));
  for (int i = 0; i < 3; ++i) {
    client.SendUnlessClosed(std::string("\0\x40\0\x09\0\0\0\0\1", 9) + std::string(16 << 10, 'x'));
  }
  client.ReadAll();
  EXPECT_EQ(http2::NumFloodsEnded(), ended + 1);
  EXPECT_THAT(GrpcClient(port()).Call(), IsAnsweredByGrpc());
}
#endif

TEST_F(ConnectionAcceptorTest, StopClosesThePort) {
  ListenAndServe();
  GrpcClient client(port());
  ASSERT_THAT(client.Call(), IsAnsweredByGrpc());
  RawClient silent(port());
  acceptor_->Stop();
  EXPECT_EQ(silent.ReadAll(), "");
  EXPECT_FALSE(RawClient().Connect(port()));
  EXPECT_THAT(client.Call(), IsAnsweredByGrpc());  // it had been let in
  acceptor_->Stop();
}

TEST_F(ConnectionAcceptorTest, TakenPortIsAnError) {
  Listen();
  ConnectionAcceptor::Config second;
  second.listen = {"127.0.0.1", port()};
  EXPECT_THAT(ConnectionAcceptor::Listen(second),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("in use")));
}

}  // namespace
}  // namespace lodestar::firewall
