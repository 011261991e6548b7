// SPDX-License-Identifier: Apache-2.0

#include "worker/notice/http_fetch.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <functional>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lodestar::notice {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

// A timeout that is never reached in the tests.
constexpr absl::Duration kPatience = absl::Minutes(3);
constexpr absl::Duration kShort = absl::Milliseconds(50);

// A server that accepts one connection and passes it to `handle`.
class OneConnection {
 public:
  explicit OneConnection(std::function<void(int connection)> handle) {
    listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    EXPECT_EQ(bind(listener_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(listen(listener_, 1), 0);
    EXPECT_EQ(getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size), 0);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this, handle = std::move(handle)] {
      const int connection = accept(listener_, nullptr, nullptr);
      if (connection < 0) return;
      handle(connection);
      close(connection);
    });
  }
  ~OneConnection() {
    shutdown(listener_, SHUT_RDWR);
    thread_.join();
    close(listener_);
  }
  HttpRequest request() const { return {.host = "127.0.0.1", .port = port_, .path = "/a/b"}; }

 private:
  int listener_ = -1;
  int port_ = 0;
  std::thread thread_;
};

std::string ReadRequest(int connection) {
  std::string text;
  char byte = 0;
  while (!text.ends_with("\r\n\r\n") && read(connection, &byte, 1) == 1) text += byte;
  return text;
}

bool Write(int connection, const std::string& text) {
  return send(connection, text.data(), text.size(), MSG_NOSIGNAL) ==
         static_cast<ssize_t>(text.size());
}

TEST(HttpFetchTest, AsksForThePathWithTheHeadersAndReturnsTheAnswer) {
  std::string asked;
  {
    const OneConnection server([&](int connection) {
      asked = ReadRequest(connection);
      Write(connection, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nTRUE");
      // ReadRequest() returns when the client closes the connection.
      ReadRequest(connection);
    });
    HttpRequest request = server.request();
    request.method = "PUT";
    request.host_name = "metadata.google.internal";
    request.headers = {{"Metadata-Flavor", "Google"}};
    const absl::StatusOr<FetchedAnswer> answer = FetchHttp(request, kPatience);
    ASSERT_OK(answer);
    EXPECT_EQ(answer->status, 200);
    EXPECT_EQ(answer->body, "TRUE");
  }
  EXPECT_THAT(asked, StartsWith("PUT /a/b HTTP/1.1\r\nHost: metadata.google.internal:"));
  EXPECT_THAT(asked, HasSubstr("\r\nMetadata-Flavor: Google\r\n"));
  EXPECT_THAT(asked, HasSubstr("\r\nContent-Length: 0\r\n"));
}

TEST(HttpFetchTest, ARedirectIsAnAnswerAndIsNotFollowed) {
  const OneConnection server([](int connection) {
    ReadRequest(connection);
    Write(connection, "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\n\r\n");
  });
  const absl::StatusOr<FetchedAnswer> answer = FetchHttp(server.request(), kPatience);
  ASSERT_OK(answer);
  EXPECT_EQ(answer->status, 302);
}

TEST(HttpFetchTest, AServerThatSaysNothingIsLeftInTime) {
  const OneConnection server([](int connection) {
    ReadRequest(connection);
    // ReadRequest() returns when the client closes the connection.
    ReadRequest(connection);
  });
  EXPECT_THAT(FetchHttp(server.request(), kShort), StatusIs(absl::StatusCode::kDeadlineExceeded));
}

TEST(HttpFetchTest, AServerThatGoesOnAndOnIsLeftInTime) {
  const OneConnection server([](int connection) {
    ReadRequest(connection);
    Write(connection, "HTTP/1.1 200 OK\r\nContent-Length: 60000\r\n\r\n");
    while (Write(connection, "")) {
      char byte = 0;
      // recv() returns 0 once the client has closed the connection.
      if (recv(connection, &byte, 1, MSG_DONTWAIT) == 0) return;
      std::this_thread::yield();
    }
  });
  EXPECT_THAT(FetchHttp(server.request(), kShort), StatusIs(absl::StatusCode::kDeadlineExceeded));
}

TEST(HttpFetchTest, AnAnswerWithoutEndIsRefused) {
  const OneConnection server([](int connection) {
    ReadRequest(connection);
    Write(connection, "HTTP/1.1 200 OK\r\n\r\n");
    while (Write(connection, std::string(1000, 'x'))) {
    }
  });
  EXPECT_THAT(FetchHttp(server.request(), kPatience),
              StatusIs(absl::StatusCode::kResourceExhausted));
}

TEST(HttpFetchTest, WhoeverHangsUpOrIsNotThereIsUnavailable) {
  HttpRequest request;
  {
    const OneConnection server([](int connection) { ReadRequest(connection); });
    request = server.request();
    EXPECT_THAT(FetchHttp(request, kPatience), StatusIs(absl::StatusCode::kUnavailable));
  }
  EXPECT_THAT(FetchHttp(request, kPatience), StatusIs(absl::StatusCode::kUnavailable));
  request.host = "no.such.host.invalid";
  EXPECT_THAT(FetchHttp(request, kPatience),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("name")));
}

TEST(HttpUrlTest, HasHostPortAndPath) {
  const auto text = [](const char* url) {
    const absl::StatusOr<HttpRequest> request = ParseHttpUrl("notice", url);
    return request.ok() ? absl::StrCat(request->host, " ", request->port, " ", request->path)
                        : std::string(request.status().message());
  };
  EXPECT_EQ(text("http://example.com/a?b=c"), "example.com 80 /a?b=c");
  EXPECT_EQ(text("http://10.0.0.1:8080"), "10.0.0.1 8080 /");
  EXPECT_EQ(text("http://[::1]:8080/x"), "::1 8080 /x");
  EXPECT_EQ(text("http://[::1]/x"), "::1 80 /x");
  for (const char* bad : {"https://a/", "http://", "http:///x", "http://a:0/", "http://a:x/",
                          "http://a/b c", "http://a/\r\nx", "http://me@a/", "a"}) {
    EXPECT_THAT(text(bad), StartsWith("--notice='")) << bad;
  }
}

}  // namespace
}  // namespace lodestar::notice
