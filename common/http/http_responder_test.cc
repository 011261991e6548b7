// SPDX-License-Identifier: Apache-2.0

#include "common/http/http_responder.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/http/request_head.h"
#include "gmock/gmock.h"

namespace lodestar::http {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class HttpResponderTest : public ::testing::Test {
 protected:
  HttpResponderTest() {
    config_.routes.pages["/echo"] = [](const HttpQuery& query) {
      const auto word = query.find("word");
      return HttpAnswer{
          .status = 202, .type = "text/x", .body = word == query.end() ? "" : word->second};
    };
    config_.routes.pages["/healthz"] = [](const HttpQuery&) { return HttpAnswer{.body = "fine"}; };
    config_.routes.open_pages["/healthz"] = [] { return HttpAnswer{.body = "ok"}; };
    config_.routes.orders["/pause"] = [this](const HttpQuery& form, const std::string& caller) {
      ++num_orders_;
      return HttpAnswer{.status = 409, .body = absl::StrCat(form.at("reason"), " by ", caller)};
    };
    config_.routes.events_path = "/events";
  }

  // Returns what HttpServer would send as the answer. `fields` are the header lines of the request.
  std::string Answer(absl::string_view line, absl::string_view fields = "Host: localhost\r\n",
                     absl::string_view body = "") const {
    const std::string request = absl::StrCat(line, " HTTP/1.1\r\n", fields, "\r\n", body);
    const RequestProgress progress = JudgeRequest(request);
    if (progress != RequestProgress::kComplete) return RefusalOf(progress);
    return HttpResponder(config_).Answer(request, peer_).bytes;
  }
  static int StatusOf(const std::string& answer) {
    const std::vector<std::string> words = absl::StrSplit(answer, absl::MaxSplits(' ', 2));
    int status = 0;
    return words.size() == 3 && absl::SimpleAtoi(words[1], &status) ? status : 0;
  }
  int Order(absl::string_view fields) const {
    constexpr absl::string_view kForm = "reason=a+%26+b";
    return StatusOf(Answer("POST /pause",
                           absl::StrCat("Content-Type: application/x-www-form-urlencoded\r\n"
                                        "Content-Length: ",
                                        kForm.size(), "\r\n", fields),
                           kForm));
  }
  // Lets in only the tokens "viewer" and "operator".
  void AskForTokens() {
    config_.access = [](const HttpCredentials& shown, HttpDeed deed) -> absl::StatusOr<HttpCaller> {
      if (shown.token == "operator" || (shown.token == "viewer" && deed == HttpDeed::kLook)) {
        return HttpCaller{shown.token, shown.token == "operator"};
      }
      if (shown.token == "viewer") return absl::PermissionDeniedError("may not order");
      return absl::UnauthenticatedError("who is it?");
    };
  }

  HttpResponder::Config config_;
  HttpCredentials peer_;
  int num_orders_ = 0;
};

TEST_F(HttpResponderTest, AnswersByPathWithTheQuery) {
  const std::string answer = Answer("GET /echo?word=a%20b");
  EXPECT_THAT(answer,
              AllOf(StartsWith("HTTP/1.1 202 "), HasSubstr("\r\n\r\na b"),
                    HasSubstr("Content-Type: text/x\r\n"), HasSubstr("Cache-Control: no-store\r\n"),
                    HasSubstr("Connection: close\r\n")));
  const std::string missing = Answer("GET /other");
  EXPECT_EQ(StatusOf(missing), 404);
  EXPECT_THAT(missing, HasSubstr("the pages are /echo, /healthz and /events"));
}

TEST_F(HttpResponderTest, OnlyNamesOfThisMachineAreAnswered) {
  const auto status_for = [this](const std::string& host) {
    return StatusOf(Answer("GET /echo", absl::StrCat("Host: ", host, "\r\n")));
  };
  for (const char* host :
       {"localhost", "localhost:9000", "127.0.0.1:1", "[::1]:80", "[::1]", "LocalHost:80"}) {
    EXPECT_EQ(status_for(host), 202) << host;
  }
  const auto refused = {"evil.example", "evil.example:8080", "127.0.0.1.evil.example", "x:y:z"};
  for (const char* host : refused) EXPECT_EQ(status_for(host), 403) << host;
  EXPECT_EQ(status_for("10.0.0.1:8080"), 403);
  EXPECT_EQ(StatusOf(Answer("GET /echo", "")), 202) << "no browser leaves Host out";
  EXPECT_EQ(status_for(""), 202) << "an empty name is one that was left out";

  config_.names = {"box.example.org"};
  EXPECT_THAT(Answer("GET /echo", "Host: evil.example\r\n"), Not(HasSubstr("other names")));
  config_.names_flag = "--names";
  EXPECT_THAT(Answer("GET /echo", "Host: evil.example\r\n"),
              HasSubstr("localhost, box.example.org; to allow other names, give --names\n"));
  config_.allows_addresses = true;
  for (const char* host : {"box.example.org", "BOX.example.org:8080", "10.0.0.1:8080",
                           "[fd00::1]:8080", "localhost"}) {
    EXPECT_EQ(status_for(host), 202) << host;
  }
  for (const char* host : refused) EXPECT_EQ(status_for(host), 403) << host;
}

TEST_F(HttpResponderTest, AnOrderComesFromAPageOfThisServerWithTheKey) {
  config_.routes.order_key = "secret";
  const std::string header = absl::StrCat("Host: localhost\r\n", HttpResponder::kOrderHeader, ": ");
  EXPECT_EQ(Order("Host: localhost\r\n"), 403) << "what a form of a foreign site sends";
  for (const char* key : {"-", "secres", "secret2", "secre"}) {
    EXPECT_EQ(Order(absl::StrCat(header, key, "\r\n")), 401) << key;
  }
  EXPECT_EQ(
      Order(absl::StrCat("Host: evil.example\r\n", HttpResponder::kOrderHeader, ": secret\r\n")),
      403);
  EXPECT_EQ(num_orders_, 0);
  EXPECT_EQ(Order(absl::StrCat(header, "secret\r\n")), 409);
  EXPECT_EQ(num_orders_, 1);
  EXPECT_EQ(StatusOf(Answer("GET /pause?reason=x", absl::StrCat(header, "secret\r\n"))), 404)
      << "a link is no order";
  config_.routes.order_key = "";
  EXPECT_EQ(Order(absl::StrCat(header, "-\r\n")), 409);
  EXPECT_EQ(Order("Host: localhost\r\n"), 403);
}

TEST_F(HttpResponderTest, RefusesAnOrderWithABodyThatIsNoForm) {
  const auto order = [this](absl::string_view path, absl::string_view type,
                            absl::string_view body) {
    const std::string field = type.empty() ? "" : absl::StrCat("Content-Type: ", type, "\r\n");
    return StatusOf(Answer(absl::StrCat("POST ", path),
                           absl::StrCat("Host: localhost\r\n", HttpResponder::kOrderHeader,
                                        ": -\r\n", field, "Content-Length: ", body.size(), "\r\n"),
                           body));
  };
  for (const char* type :
       {"", "application/json", "text/plain", "Application/X-WWW-Form-Urlencoded"}) {
    for (const char* body : {R"({"confirm":false)", "reason=x", " "}) {
      EXPECT_EQ(order("/pause?reason=x", type, body), 415) << type << ": " << body;
    }
  }
  EXPECT_EQ(order("/pause?reason=x", "multipart/form-data; boundary=b",
                  "--b\r\nContent-Disposition: form-data; name=\"reason\"\r\n\r\nx\r\n--b--\r\n"),
            415);
  EXPECT_EQ(num_orders_, 0);
  EXPECT_EQ(order("/pause", "application/x-www-form-urlencoded; charset=UTF-8", "reason=x"), 409);
  EXPECT_EQ(order("/pause?reason=x", "", ""), 409);
  EXPECT_EQ(num_orders_, 2);
}

TEST_F(HttpResponderTest, TellsWhichOrdersTheCallerMayGive) {
  config_.routes.orders.clear();
  EXPECT_EQ(StatusOf(Answer("GET /api/orders")), 404);
  config_.routes.orders_path = "/api/orders";
  const auto answer = [this](const std::string& fields) {
    const std::string whole =
        Answer("GET /api/orders", absl::StrCat("Host: localhost\r\n", fields));
    return whole.substr(whole.find("\r\n\r\n") + 4);
  };
  const auto is_none = StartsWith(R"({"orders":[],"why_none":")");
  EXPECT_THAT(answer(""), is_none) << "there are none";
  for (const char* path : {"/api/orders/pause", "/api/orders/stop"}) {
    config_.routes.orders[path] = [](const HttpQuery&, const std::string&) { return HttpAnswer(); };
  }
  const std::string all = "{\"orders\":[\"pause\",\"stop\"],\"why_none\":\"\"}\n";
  EXPECT_EQ(answer(""), all);
  config_.routes.order_key = "secret";
  EXPECT_THAT(answer(""), is_none);
  const std::string header = absl::StrCat(HttpResponder::kOrderHeader, ": ");
  EXPECT_THAT(answer(header + "secres\r\n"), is_none);
  EXPECT_EQ(answer(header + "secret\r\n"), all);
  config_.routes.order_key = "";
  AskForTokens();
  EXPECT_EQ(StatusOf(Answer("GET /api/orders")), 401);
  EXPECT_THAT(answer("Authorization: Bearer viewer\r\n"), is_none);
  EXPECT_EQ(answer("Authorization: Bearer operator\r\n"), all);
}

TEST_F(HttpResponderTest, AForeignNameIsToldOf) {
  std::vector<std::string> told;
  config_.on_foreign_name = [&told](const std::string& address, const std::string& why) {
    told.push_back(absl::StrCat(address, ": ", why));
  };
  peer_.address = "192.0.2.7";
  EXPECT_EQ(StatusOf(Answer("GET /", "Host: localhost\r\n")), 404) << "it is told of nothing";
  EXPECT_TRUE(told.empty());
  EXPECT_EQ(StatusOf(Answer("GET /", "Host: evil.example\r\n")), 403);
  ASSERT_EQ(told.size(), 1);
  EXPECT_THAT(told[0], AllOf(HasSubstr("192.0.2.7"), HasSubstr("evil.example")));
}

TEST_F(HttpResponderTest, AnOrderComesFromNoForeignPageWhateverHeadersItHas) {
  std::vector<std::string> told;
  peer_.address = "192.0.2.7";
  config_.names = {"box.example.org"};
  config_.on_foreign_order = [&told](const std::string& address, const std::string& why) {
    told.push_back(absl::StrCat(address, ": ", why));
  };
  const std::string own =
      absl::StrCat("Host: localhost:8080\r\n", HttpResponder::kOrderHeader, ": -\r\n");
  for (const char* fields :
       {"Origin: http://evil.example\r\n", "Origin: http://localhost\r\n",
        "Origin: http://localhost:3000\r\n", "Origin: http://localhost:8080.evil.example\r\n",
        "Origin: localhost:8080\r\n", "Origin: file://localhost:8080\r\n", "Origin: null\r\n",
        "Sec-Fetch-Site: cross-site\r\n", "Sec-Fetch-Site: same-site\r\n",
        "Sec-Fetch-Site: none\r\n",
        "Origin: http://localhost:8080\r\nSec-Fetch-Site: cross-site\r\n",
        "Origin: http://evil.example\r\nSec-Fetch-Site: same-origin\r\n"}) {
    EXPECT_EQ(Order(absl::StrCat(own, fields)), 403) << fields;
  }
  EXPECT_EQ(num_orders_, 0);
  EXPECT_EQ(told.size(), 12);
  EXPECT_EQ(told[0],
            "192.0.2.7: an order from a page of another web server (Origin: http://evil.example)");
  EXPECT_THAT(Answer("POST /pause", own + "Origin: http://evil.example\r\n"),
              HasSubstr("a page of another web server (Origin: http://evil.example)"));
  for (const char* fields :
       {"", "Origin: http://localhost:8080\r\n", "Origin: https://LOCALHOST:8080\r\n",
        "Origin: http://localhost:8080\r\nSec-Fetch-Site: same-origin\r\n",
        "Sec-Fetch-Site: same-origin\r\n",
        "Origin: https://box.example.org\r\nSec-Fetch-Site: same-origin\r\n"}) {
    EXPECT_EQ(Order(absl::StrCat(own, fields)), 409) << fields;
  }
  EXPECT_EQ(num_orders_, 6);
  EXPECT_EQ(StatusOf(Answer("GET /echo", own + "Origin: http://evil.example\r\n")), 202)
      << "who looks gets no leave to read it, and browsers give none";
}

TEST_F(HttpResponderTest, WhoIsNotKnownIsAskedAndMayOnlyBeAProbe) {
  AskForTokens();
  const std::string nobody = Answer("GET /echo");
  EXPECT_EQ(StatusOf(nobody), 401);
  EXPECT_THAT(nobody, HasSubstr("WWW-Authenticate: Basic realm=\"lodestar\"\r\n"));
  EXPECT_EQ(StatusOf(Answer("GET /events")), 401);
  EXPECT_EQ(StatusOf(Answer("GET /nothing")), 401) << "nobody learns what there is";
  EXPECT_EQ(Order(absl::StrCat("Host: localhost\r\n", HttpResponder::kOrderHeader, ": -\r\n")),
            401);
  EXPECT_EQ(num_orders_, 0);
  EXPECT_THAT(Answer("GET /healthz"), HasSubstr("\r\n\r\nok"));
  const std::string host = "Host: localhost\r\nAuthorization: ";
  EXPECT_THAT(Answer("GET /healthz", host + "Bearer viewer\r\n"), HasSubstr("\r\n\r\nfine"));
  EXPECT_EQ(StatusOf(Answer("GET /healthz", host + "Bearer wrong\r\n")), 401);
}

TEST_F(HttpResponderTest, WhoMayLookGivesNoOrders) {
  AskForTokens();
  const std::string with = absl::StrCat("Host: localhost\r\n", HttpResponder::kOrderHeader,
                                        ": -\r\nAuthorization: Bearer ");
  EXPECT_EQ(StatusOf(Answer("GET /echo", with + "viewer\r\n")), 202);
  EXPECT_EQ(Order(with + "viewer\r\n"), 403);
  EXPECT_EQ(num_orders_, 0);
  EXPECT_EQ(Order(with + "operator\r\n"), 409);
  EXPECT_EQ(num_orders_, 1);
  EXPECT_EQ(Order("Host: localhost\r\nAuthorization: Bearer operator\r\n"), 403)
      << "a browser adds the token to what a form of a foreign site sends";
  EXPECT_EQ(num_orders_, 1);
}

TEST_F(HttpResponderTest, EventsBeginWithAHeadOnly) {
  const HttpResponder::Reply reply =
      HttpResponder(config_).Answer("GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n", peer_);
  EXPECT_TRUE(reply.begins_events);
  EXPECT_THAT(reply.bytes, AllOf(StartsWith("HTTP/1.1 200 "), HasSubstr("text/event-stream"),
                                 HasSubstr("Connection: close\r\n\r\n")));
  EXPECT_FALSE(HttpResponder(config_)
                   .Answer("HEAD /events HTTP/1.1\r\nHost: localhost\r\n\r\n", peer_)
                   .begins_events);
}

TEST_F(HttpResponderTest, WhatIsMadeToCostMuchCostsLittle) {
  std::string ranges = "Range: bytes=0-";
  while (ranges.size() < 8000) ranges += ",0-";
  EXPECT_EQ(StatusOf(Answer("GET /echo", absl::StrCat("Host: localhost\r\n", ranges, "\r\n"))),
            416);
  EXPECT_EQ(StatusOf(Answer("GARBAGE")), 405);
  for (const char* method : {"PUT", "PATCH", "DELETE", "PRI", "OPTIONS", "\tPUT", " PUT", "post"}) {
    const std::string answer = Answer(absl::StrCat(method, " /echo"));
    EXPECT_EQ(StatusOf(answer), 405) << method;
    EXPECT_THAT(answer, HasSubstr("\r\nAllow: GET, HEAD, POST\r\n"));
  }
  for (const char* packed : {"Content-Encoding: br", "content-encoding: gzip",
                             "Content-Encoding : deflate", "Content-Encoding: identity"}) {
    EXPECT_EQ(Order(absl::StrCat("Host: localhost\r\n", HttpResponder::kOrderHeader, ": -\r\n",
                                 packed, "\r\n")),
              415)
        << packed;
  }
  EXPECT_EQ(num_orders_, 0);
  EXPECT_EQ(StatusOf(Answer(absl::StrCat("GET /", std::string(1000, 'x')))), 404);
}

TEST(TokenInTest, IsThatOfBearerAndThePasswordOfBasic) {
  EXPECT_EQ(TokenIn("Bearer abc"), "abc");
  EXPECT_EQ(TokenIn("bearer  abc "), "abc");
  EXPECT_EQ(TokenIn(absl::StrCat("Basic ", absl::Base64Escape("me:a:b"))), "a:b");
  for (const char* none : {"", "abc", "Bearer", "Basic", "Basic ???", "Digest x", "Basic bWU="}) {
    EXPECT_EQ(TokenIn(none), "") << none;
  }
}

}  // namespace
}  // namespace lodestar::http
