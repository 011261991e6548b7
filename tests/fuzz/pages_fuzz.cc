// SPDX-License-Identifier: Apache-2.0

// Fuzzes HTTP requests to the pages of --http, which any client that reaches them may send.

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/http/http_responder.h"
#include "common/http/request_head.h"
#include "tests/fuzz/fuzz_target.h"

namespace lodestar::fuzz {
namespace {

const http::HttpResponder& SomeResponder() {
  static const http::HttpResponder* const responder = [] {
    http::HttpResponder::Config config;
    config.routes.pages["/"] = [](const http::HttpQuery& query) {
      return http::HttpAnswer{.body = absl::StrCat(query.size(), " words\n")};
    };
    config.routes.events_path = "/events";
    config.routes.orders["/pause"] = [](const http::HttpQuery& form, const std::string&) {
      return http::HttpAnswer{.body = absl::StrCat(form.size(), " words\n")};
    };
    config.allows_addresses = true;
    return new http::HttpResponder(config);
  }();
  return *responder;
}

// Answers a complete request like HttpServer does.
void AnswerRequest(absl::string_view bytes) {
  const http::RequestProgress progress = http::JudgeRequest(bytes);
  if (progress == http::RequestProgress::kIncomplete) return;
  std::string answer;
  if (progress == http::RequestProgress::kComplete) {
    Accept();
    answer = SomeResponder().Answer(bytes, http::HttpCredentials()).bytes;
  } else {
    answer = http::RefusalOf(progress);
  }
  LODESTAR_CHECK(absl::StartsWith(answer, "HTTP/1.1 ")) << answer;
}

std::vector<std::string> RequestSeeds() {
  const auto order = [](absl::string_view fields, absl::string_view form) {
    return absl::StrCat("POST /pause HTTP/1.1\r\nHost: localhost\r\n",
                        http::HttpResponder::kOrderHeader, ": -\r\n", fields,
                        "Content-Length: ", form.size(), "\r\n\r\n", form);
  };
  return {"GET /?word=a%20b HTTP/1.1\r\nHost: localhost:8080\r\nAccept-Encoding: gzip, br\r\n\r\n",
          "HEAD / HTTP/1.0\r\nHost: [::1]:80\r\nAuthorization: Basic bWU6YTpi\r\n\r\n",
          "GET /events HTTP/1.1\r\nHost: 10.0.0.1\r\nAuthorization: Bearer abc\r\n\r\n",
          order("Content-Type: application/x-www-form-urlencoded\r\n", "reason=a+%26+b&n=1"),
          order("Content-Type: multipart/form-data; boundary=x\r\n",
                "--x\r\nContent-Disposition: form-data; name=\"reason\"\r\n\r\na\r\n--x--\r\n")};
}

}  // namespace

absl::Span<const Case> Cases() {
  static constexpr Case kCases[] = {{"request", AnswerRequest, RequestSeeds}};
  return kCases;
}

}  // namespace lodestar::fuzz
