#include "common/http/http_server.h"

#include <gtest/gtest.h>
#include <httplib.h>

#include <atomic>
#include <memory>
#include <string>
#include <utility>

#include "absl/synchronization/notification.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"

namespace lodestar {
namespace {

using ::testing::HasSubstr;

const HostPort kAnyPort{"127.0.0.1", 0};

class HttpServerTest : public ::testing::Test {
 protected:
  void Start(HttpRoutes routes) {
    routes.events_path = "/events";
    if (routes.begin_events == nullptr) {
      routes.begin_events = [] { return [] { return std::vector<HttpEvent>(); }; };
    }
    auto server = HttpServer::Start(kAnyPort, std::move(routes));
    ASSERT_OK(server);
    server_ = *std::move(server);
  }
  httplib::Client MakeClient() const {
    return httplib::Client(server_->url().substr(0, server_->url().size() - 1));
  }

  std::unique_ptr<HttpServer> server_;
};

TEST_F(HttpServerTest, AnswersByPathWithTheQuery) {
  HttpRoutes routes;
  routes.pages["/echo"] = [](const HttpQuery& query) {
    return HttpAnswer{.status = 202, .type = "text/x", .body = query.at("word")};
  };
  Start(std::move(routes));
  const auto answer = MakeClient().Get("/echo?word=a%20b");
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->status, 202);
  EXPECT_EQ(answer->body, "a b");
  EXPECT_EQ(answer->get_header_value("Content-Type"), "text/x");
  EXPECT_EQ(answer->get_header_value("Cache-Control"), "no-store");
  const auto missing = MakeClient().Get("/other");
  ASSERT_TRUE(missing);
  EXPECT_EQ(missing->status, 404);
  EXPECT_THAT(missing->body, HasSubstr("there are /echo and /events"));
}

TEST_F(HttpServerTest, OnlyNamesOfThisMachineAreAnswered) {
  HttpRoutes routes;
  routes.pages["/"] = [](const HttpQuery&) { return HttpAnswer{.body = "secret"}; };
  Start(std::move(routes));
  const auto status_for = [this](const std::string& host) {
    const auto answer = MakeClient().Get("/", httplib::Headers{{"Host", host}});
    return answer ? answer->status : 0;
  };
  for (const char* host : {"localhost", "localhost:9000", "127.0.0.1:1", "[::1]:80", "[::1]"}) {
    EXPECT_EQ(status_for(host), 200) << host;
  }
  for (const char* host :
       {"evil.example", "evil.example:8080", "127.0.0.1.evil.example", "x:y:z"}) {
    EXPECT_EQ(status_for(host), 403) << host;
  }
}

TEST_F(HttpServerTest, AnOrderComesFromAPageOfThisServerWithTheKey) {
  int num_taken = 0;
  HttpRoutes routes;
  routes.orders["/pause"] = [&num_taken](const HttpQuery& form) {
    ++num_taken;
    return HttpAnswer{.status = 409, .body = form.at("reason")};
  };
  routes.order_key = "secret";
  Start(std::move(routes));
  const httplib::Params form = {{"reason", "a & b"}};
  const auto status_with = [&](const httplib::Headers& headers) {
    const auto answer = MakeClient().Post("/pause", headers, form);
    return answer ? answer->status : 0;
  };
  const std::string header = HttpServer::kOrderHeader;
  EXPECT_EQ(status_with({}), 403) << "what a form of a foreign site sends";
  for (const char* key : {"-", "secres", "secret2", "secre"}) {
    EXPECT_EQ(status_with({{header, key}}), 401) << key;
  }
  EXPECT_EQ(status_with({{header, "secret"}, {"Host", "evil.example"}}), 403);
  EXPECT_EQ(num_taken, 0);
  const auto taken = MakeClient().Post("/pause", {{header, "secret"}}, form);
  ASSERT_TRUE(taken);
  EXPECT_EQ(taken->status, 409);
  EXPECT_EQ(taken->body, "a & b");
  EXPECT_EQ(num_taken, 1);
  const auto by_get = MakeClient().Get("/pause?reason=x", {{header, "secret"}});
  ASSERT_TRUE(by_get);
  EXPECT_EQ(by_get->status, 404) << "a link is no order";
  const auto unknown = MakeClient().Post("/other", {{header, "secret"}}, form);
  ASSERT_TRUE(unknown);
  EXPECT_EQ(unknown->status, 404);
}

TEST_F(HttpServerTest, WithoutAKeyTheHeaderIsEnough) {
  HttpRoutes routes;
  routes.orders["/resume"] = [](const HttpQuery&) { return HttpAnswer(); };
  Start(std::move(routes));
  const auto answer =
      MakeClient().Post("/resume", {{HttpServer::kOrderHeader, "-"}}, httplib::Params());
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->status, 200);
  const auto without = MakeClient().Post("/resume", httplib::Headers(), httplib::Params());
  ASSERT_TRUE(without);
  EXPECT_EQ(without->status, 403);
}

TEST_F(HttpServerTest, EachReaderGetsItsOwnEvents) {
  HttpRoutes routes;
  routes.event_interval = absl::Milliseconds(1);
  routes.begin_events = [] {
    return [n = 0]() mutable { return std::vector<HttpEvent>{{"count", std::to_string(++n)}}; };
  };
  Start(std::move(routes));
  for (int reader = 0; reader < 2; ++reader) {
    std::string seen;
    MakeClient().Get("/events", [&seen](const char* data, size_t size) {
      seen.append(data, size);
      return seen.find("data: 3") == std::string::npos;
    });
    EXPECT_THAT(seen, HasSubstr("event: count\ndata: 1\n\n"));
  }
}

TEST_F(HttpServerTest, ReadersAreBoundedAndAStopEndsThem) {
  HttpRoutes routes;
  routes.event_interval = absl::InfiniteDuration();
  routes.begin_events = [] { return [] { return std::vector<HttpEvent>{{"hello", "1"}}; }; };
  Start(std::move(routes));
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

TEST_F(HttpServerTest, APortThatIsTakenIsAnError) {
  HttpRoutes routes;
  Start(std::move(routes));
  HostPort taken = kAnyPort;
  taken.port = std::stoi(server_->url().substr(server_->url().rfind(':') + 1));
  EXPECT_THAT(HttpServer::Start(taken, HttpRoutes()).status(),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("cannot be listened on")));
}

}  // namespace
}  // namespace lodestar
