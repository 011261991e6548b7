// SPDX-License-Identifier: Apache-2.0

#include "common/http/http_server.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <httplib.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "common/security/testing/test_authority.h"
#include "common/testing/simulated_clock.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"

namespace lodestar::http {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

const net::ListenAddress kAnyPort{{"127.0.0.1", 0}};

// A client that sends and receives raw bytes.
class RawClient {
 public:
  // `takes_little` makes the socket's buffers small, so that the system holds few unread bytes.
  explicit RawClient(int port, bool takes_little = false)
      : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    if (takes_little) {
      constexpr int kBytes = 4096;
      constexpr int kSegmentBytes = 536;
      setsockopt(socket_.get(), SOL_SOCKET, SO_RCVBUF, &kBytes, sizeof(kBytes));
      setsockopt(socket_.get(), IPPROTO_TCP, TCP_MAXSEG, &kSegmentBytes, sizeof(kSegmentBytes));
    }
    constexpr timeval kPatience{.tv_sec = 20, .tv_usec = 0};
    setsockopt(socket_.get(), SOL_SOCKET, SO_RCVTIMEO, &kPatience, sizeof(kPatience));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<uint16_t>(port));
    EXPECT_EQ(connect(socket_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  }

  void Send(absl::string_view bytes) {
    EXPECT_EQ(send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), bytes.size());
  }
  char ReadOne() {
    char byte = 0;
    EXPECT_EQ(recv(socket_.get(), &byte, 1, 0), 1);
    return byte;
  }
  // Reads until the server closes the connection, or has sent `last`.
  std::string ReadAll(absl::string_view last = "") {
    std::string all;
    char bytes[4096];
    ssize_t num_bytes;
    while ((num_bytes = recv(socket_.get(), bytes, sizeof(bytes), 0)) > 0) {
      all.append(bytes, static_cast<size_t>(num_bytes));
      if (!last.empty() && absl::StrContains(all, last)) return all;
    }
    EXPECT_TRUE(num_bytes == 0 || errno == ECONNRESET) << errno;
    return all;
  }

 private:
  FileDescriptor socket_;
};

class HttpServerTest : public ::testing::Test {
 protected:
  HttpServerTest() {
    config_.address = kAnyPort;
    config_.clock = &clock_;
    routes_.pages["/hello"] = [](const HttpQuery&) { return HttpAnswer{.body = "hello"}; };
    routes_.events_path = "/events";
    routes_.begin_events = [] { return [] { return std::vector<HttpEvent>(); }; };
  }

  void Start() {
    config_.pages.routes = routes_;
    auto server = HttpServer::Start(config_);
    ASSERT_OK(server);
    server_ = *std::move(server);
  }
  int port() const { return std::stoi(server_->url().substr(server_->url().rfind(':') + 1)); }
  httplib::Client MakeClient() const {
    return httplib::Client(server_->url().substr(0, server_->url().size() - 1));
  }
  // Asks for a page. The request also wakes the server after a change of the clock.
  int StatusOfHello() const {
    const auto answer = MakeClient().Get("/hello");
    return answer ? answer->status : 0;
  }

  SimulatedClock clock_;
  HttpServer::Config config_;
  HttpRoutes routes_;
  std::unique_ptr<HttpServer> server_;
};

TEST_F(HttpServerTest, AnswersRequests) {
  routes_.orders["/pause"] = [](const HttpQuery& form, const std::string&) {
    return HttpAnswer{.status = 409, .body = form.at("reason")};
  };
  Start();
  EXPECT_THAT(server_->url(), StartsWith("http://127.0.0.1:"));
  const auto page = MakeClient().Get("/hello");
  ASSERT_TRUE(page);
  EXPECT_EQ(page->body, "hello");
  const auto order = MakeClient().Post("/pause", {{HttpResponder::kOrderHeader, "-"}},
                                       httplib::Params{{"reason", "a & b"}});
  ASSERT_TRUE(order);
  EXPECT_EQ(order->status, 409);
  EXPECT_EQ(order->body, "a & b");
}

TEST_F(HttpServerTest, PlainTextEndsHandshakeOfTlsAtOnce) {
  Start();
  RawClient client(port());
  client.Send("\x16\x03\x01");  // the beginning of a TLS record, whose rest is never sent
  const std::string answer = client.ReadAll();
  constexpr absl::string_view kAlert = "\x15\x03";
  EXPECT_THAT(answer, StartsWith(kAlert));
  EXPECT_EQ(StatusOfHello(), 200);
}

TEST_F(HttpServerTest, EachReaderGetsItsOwnEvents) {
  config_.clock = &Clock::Real();
  routes_.event_interval = absl::Milliseconds(1);
  routes_.begin_events = [] {
    return [n = 0]() mutable { return std::vector<HttpEvent>{{"count", std::to_string(++n)}}; };
  };
  Start();
  for (int reader = 0; reader < 2; ++reader) {
    std::string seen;
    MakeClient().Get("/events", [&seen](const char* data, size_t size) {
      seen.append(data, size);
      return seen.find("data: 3") == std::string::npos;
    });
    EXPECT_THAT(seen, HasSubstr("event: count\ndata: 1\n\n"));
    EXPECT_THAT(seen, HasSubstr("event: count\ndata: 3\n\n"));
  }
}

TEST_F(HttpServerTest, ReadersAreBoundedAndAStopEndsThem) {
  routes_.event_interval = absl::InfiniteDuration();
  routes_.begin_events = [] { return [] { return std::vector<HttpEvent>{{"hello", "1"}}; }; };
  Start();
  std::vector<std::thread> readers;
  std::atomic<int> num_ended = 0;
  for (int i = 0; i < HttpServer::kMaxReaders; ++i) {
    absl::Notification is_reading;
    readers.emplace_back([this, &is_reading, &num_ended] {
      bool is_first = true;
      httplib::Client client = MakeClient();
      client.set_read_timeout(3600);
      client.Get("/events", [&](const char*, size_t) {
        if (std::exchange(is_first, false)) is_reading.Notify();
        return true;
      });
      ++num_ended;
    });
    is_reading.WaitForNotification();
  }
  const auto refused = MakeClient().Get("/events");
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->status, 503);
  server_->Stop();
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(num_ended, HttpServer::kMaxReaders);
}

TEST_F(HttpServerTest, EventsEndOnceTheReaderMayNotLook) {
  std::atomic<bool> is_revoked = false;
  config_.pages.access = [&](const HttpCredentials& shown, HttpDeed) -> absl::StatusOr<HttpCaller> {
    if (shown.token == "alice" && !is_revoked) return HttpCaller{shown.token};
    return absl::UnauthenticatedError("who is it?");
  };
  config_.clock = &Clock::Real();
  routes_.event_interval = absl::Milliseconds(1);
  routes_.begin_events = [&is_revoked] {
    return [&is_revoked, n = 0]() mutable {
      if (++n == 3) is_revoked = true;
      return std::vector<HttpEvent>{{"count", std::to_string(n)}};
    };
  };
  Start();
  RawClient reader(port());
  reader.Send("GET /events HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer alice\r\n\r\n");
  const std::string seen = reader.ReadAll("data: 4\n");
  EXPECT_THAT(seen, HasSubstr("data: 3\n"));
  EXPECT_THAT(seen, Not(HasSubstr("data: 4\n")));
}

TEST_F(HttpServerTest, APlaceOfAReaderIsFreeWhenItHasGone) {
  routes_.event_interval = absl::InfiniteDuration();
  Start();
  for (int i = 0; i < 3 * HttpServer::kMaxReaders; ++i) {
    std::string seen;
    int status = 0;
    // The server notices only after some time that the last reader has gone.
    while (status != 200) {
      const auto answer = MakeClient().Get(
          "/events",
          [&status](const httplib::Response& response) {
            status = response.status;
            return true;
          },
          [](const char*, size_t) { return false; });
    }
  }
}

TEST_F(HttpServerTest, WhoSaysNothingOrTooLittleIsLetGo) {
  Start();
  RawClient silent(port());
  RawClient half_way(port());
  half_way.Send("GET /hello HTTP/1.1\r\nHost: localhost\r\n");
  EXPECT_EQ(StatusOfHello(), 200);
  clock_.AdvanceTime(HttpServer::kRequestPatience);
  EXPECT_EQ(StatusOfHello(), 200);
  EXPECT_EQ(silent.ReadAll(), "");
  EXPECT_EQ(half_way.ReadAll(), "");
}

TEST_F(HttpServerTest, ManyThatSayNothingKeepNobodyOut) {
  Start();
  std::vector<std::unique_ptr<RawClient>> silent;
  for (size_t i = 0; i < HttpServer::kMaxConnections + 20; ++i) {
    silent.push_back(std::make_unique<RawClient>(port()));
  }
  EXPECT_EQ(StatusOfHello(), 200);
  EXPECT_EQ(silent.front()->ReadAll(), "") << "the oldest had to go";
}

TEST_F(HttpServerTest, WhoDoesNotReadIsLetGoAndKeepsNobodyWaiting) {
  // More bytes than the system buffers for one connection.
  constexpr size_t kLargeBytes = size_t{32} << 20;
  routes_.pages["/large"] = [](const HttpQuery&) {
    return HttpAnswer{.type = "x/y", .body = std::string(kLargeBytes, 'x')};
  };
  Start();
  RawClient slow(port());
  slow.Send("GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n");
  RawClient other(port());
  other.Send("GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_GT(other.ReadAll().size(), kLargeBytes);
  EXPECT_EQ(StatusOfHello(), 200);
  // When the system moves the last buffered bytes, that counts as reading by `slow`. So its
  // connection may stay open for some of these turns. All turns together take less than
  // kAnswerPatience.
  for (int i = 0; i < 5; ++i) {
    clock_.AdvanceTime(HttpServer::kStallPatience);
    EXPECT_EQ(StatusOfHello(), 200);
  }
  EXPECT_LT(slow.ReadAll().size(), kLargeBytes);
}

TEST_F(HttpServerTest, ManyThatDoNotReadKeepNobodyOut) {
  // All answers together are less than kMaxPendingBytes, but each is more than the system buffers
  // for a peer that reads nothing.
  constexpr size_t kBytes = HttpServer::kMaxPendingBytes / HttpServer::kMaxConnections / 5 * 4;
  routes_.pages["/large"] = [](const HttpQuery&) {
    return HttpAnswer{.type = "x/y", .body = std::string(kBytes, 'x')};
  };
  Start();
  std::vector<std::unique_ptr<RawClient>> deaf;
  for (size_t i = 0; i < HttpServer::kMaxConnections; ++i) {
    deaf.push_back(std::make_unique<RawClient>(port(), /*takes_little=*/true));
    deaf.back()->Send("GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n");
    EXPECT_EQ(deaf.back()->ReadOne(), 'H');
  }
  EXPECT_EQ(StatusOfHello(), 200);
  EXPECT_LT(deaf.front()->ReadAll().size(), kBytes) << "the oldest had to go";
  EXPECT_GT(deaf.back()->ReadAll().size(), kBytes);
}

TEST_F(HttpServerTest, WhatIsTooLongIsToldSo) {
  Start();
  RawClient long_line(port());
  long_line.Send(absl::StrCat("GET /", std::string(5000, 'x'), " HTTP/1.1\r\n\r\n"));
  EXPECT_THAT(long_line.ReadAll(), StartsWith("HTTP/1.1 414 "));
  RawClient long_head(port());
  long_head.Send(absl::StrCat("GET / HTTP/1.1\r\nX: ", std::string(30'000, 'x'), "\r\n\r\n"));
  EXPECT_THAT(long_head.ReadAll(), StartsWith("HTTP/1.1 431 "));
}

TEST_F(HttpServerTest, AStopWaitsForWhatIsBeingAnswered) {
  absl::Notification has_begun;
  absl::Notification may_end;
  routes_.pages["/slow"] = [&](const HttpQuery&) {
    has_begun.Notify();
    may_end.WaitForNotification();
    return HttpAnswer{.body = "done"};
  };
  Start();
  RawClient idle(port());
  RawClient client(port());
  client.Send("GET /slow HTTP/1.1\r\nHost: localhost\r\n\r\n");
  has_begun.WaitForNotification();
  std::thread stop([this] { server_->Stop(); });
  EXPECT_EQ(idle.ReadAll(), "") << "the stop has begun";
  may_end.Notify();
  stop.join();
  EXPECT_THAT(client.ReadAll(), HasSubstr("done"));
}

TEST_F(HttpServerTest, APortThatIsTakenIsAnError) {
  Start();
  HttpServer::Config taken;
  taken.address = kAnyPort;
  taken.address.port = port();
  EXPECT_THAT(HttpServer::Start(taken).status(),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("give another --http")));
}

class HttpServerTlsTest : public HttpServerTest {
 protected:
  HttpServerTlsTest() {
    config_.tls = authority_.FilesFor({security::Role::kServer, "s", "1"});
    config_.on_failed_handshake = [this] { ++failed_handshakes_; };
    config_.pages.access = [this](const HttpCredentials& shown,
                                  HttpDeed) -> absl::StatusOr<HttpCaller> {
      seen_ = shown;
      if (shown.certificate.has_value()) return HttpCaller{security::TextOf(*shown.certificate)};
      return absl::UnauthenticatedError("who is it?");
    };
  }

  int StatusWith(const security::CredentialFiles& files) const {
    httplib::SSLClient client("127.0.0.1", port(), files.certificate, files.key);
    client.set_ca_cert_path(files.authority.c_str());
    client.enable_server_certificate_verification(false);
    const auto answer = client.Get("/hello");
    return answer ? answer->status : 0;
  }

  security::TestAuthority authority_;
  HttpCredentials seen_;
  std::atomic<int> failed_handshakes_ = 0;
};

TEST_F(HttpServerTlsTest, KnowsWhoHasACertificateOfItsAuthorityAlone) {
  Start();
  EXPECT_THAT(server_->url(), StartsWith("https://"));
  EXPECT_EQ(StatusWith(authority_.FilesFor({security::Role::kViewer, "alice", "2"})), 200);
  EXPECT_EQ(seen_.certificate, (security::Identity{security::Role::kViewer, "alice", "2"}));
  EXPECT_EQ(seen_.address, "127.0.0.1");
  httplib::SSLClient nobody("127.0.0.1", port());
  nobody.enable_server_certificate_verification(false);
  const auto answer = nobody.Get("/hello");
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->status, 401);
  EXPECT_THAT(answer->get_header_value("WWW-Authenticate"), StartsWith("Basic"));
  EXPECT_EQ(StatusWith(security::TestAuthority().FilesFor({security::Role::kViewer, "alice", "2"})),
            0);
  EXPECT_EQ(
      StatusWith(authority_.FilesFor({security::Role::kViewer, "old", "3"}, -absl::Minutes(1))), 0);
  EXPECT_EQ(failed_handshakes_, 2);
}

TEST_F(HttpServerTlsTest, PlainTextIsToldWhereThePageIs) {
  Start();
  RawClient plain(port());
  plain.Send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_THAT(plain.ReadAll(), HasSubstr(absl::StrCat("open ", server_->url())));
}

TEST_F(HttpServerTlsTest, AHandshakeThatStallsIsLetGo) {
  Start();
  RawClient stalled(port());
  stalled.Send("\x16\x03\x01\x02");
  const security::CredentialFiles files =
      authority_.FilesFor({security::Role::kViewer, "alice", "2"});
  EXPECT_EQ(StatusWith(files), 200);
  clock_.AdvanceTime(HttpServer::kRequestPatience);
  EXPECT_EQ(StatusWith(files), 200);
  EXPECT_EQ(stalled.ReadAll(), "");
}

TEST_F(HttpServerTlsTest, RenewedFilesAreTakenWhileItRuns) {
  Start();
  const security::TestAuthority other;
  const security::CredentialFiles theirs = other.FilesFor({security::Role::kViewer, "bob", "2"});
  EXPECT_EQ(StatusWith(theirs), 0);
  other.Renew(*config_.tls, {security::Role::kServer, "s", "1"});
  clock_.AdvanceTime(absl::Seconds(6));
  // The server reads the files on another thread, so the test waits for the change.
  const absl::Time patience = absl::Now() + absl::Seconds(30);
  while (StatusWith(theirs) != 200) ASSERT_LT(absl::Now(), patience);
}

TEST_F(HttpServerTlsTest, ADiskThatStandsStillHoldsOneThread) {
  std::atomic<int> reads = 0;
  absl::Notification stands_still;
  absl::Notification moves_again;
  config_.read_tls_files = [&](const security::CredentialFiles& files) {
    if (++reads > 1) {
      if (reads == 2) stands_still.Notify();
      moves_again.WaitForNotification();
    }
    return TlsContext::Create(files);
  };
  Start();
  const security::CredentialFiles files =
      authority_.FilesFor({security::Role::kViewer, "alice", "2"});
  authority_.Renew(*config_.tls, {security::Role::kServer, "s", "1"});
  for (int i = 0; i < 10 && !HasFailure(); ++i) {
    clock_.AdvanceTime(absl::Seconds(6));
    EXPECT_EQ(StatusWith(files), 200) << i;
  }
  stands_still.WaitForNotification();
  EXPECT_EQ(reads, 2);
  moves_again.Notify();
  server_->Stop();
}

TEST_F(HttpServerTlsTest, FilesThatAreNoneAreAnErrorOfTheStart) {
  config_.tls->certificate = "/nowhere/certificate.pem";
  EXPECT_THAT(HttpServer::Start(config_).status(),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("/nowhere/certificate.pem")));
}

}  // namespace
}  // namespace lodestar::http
