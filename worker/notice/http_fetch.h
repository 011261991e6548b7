// One request to an HTTP server and its answer, for the metadata service of a cloud: plain text, no
// proxy, no redirect, a connection of its own. gRPC's client of this kind is none of its interface.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "worker/notice/http_answer.h"

namespace lodestar::notice {

struct HttpRequest {
  std::string method = "GET";
  std::string host;  // a name or an address
  int port = 80;
  std::string path = "/";
  std::string host_name = {};  // that the server is told; empty: `host`
  std::vector<std::pair<std::string, std::string>> headers = {};
};

using HttpFetch = std::function<absl::StatusOr<FetchedAnswer>(const HttpRequest&)>;

// All of connecting, asking and being answered; not the look-up of a host's name, which the system
// does in its own time.
inline constexpr absl::Duration kHttpTimeout = absl::Seconds(2);

// Blocks for at most `timeout`. Errors: Unavailable (nothing listens there, or it has hung up),
// DeadlineExceeded, and those of HttpAnswerReader.
absl::StatusOr<FetchedAnswer> FetchHttp(const HttpRequest& request,
                                        absl::Duration timeout = kHttpTimeout);

// http://HOST[:PORT][/PATH], an IPv6 address in brackets. Errors: InvalidArgument naming `flag`,
// the value and the form wanted.
absl::StatusOr<HttpRequest> ParseHttpUrl(absl::string_view flag, absl::string_view url);

}  // namespace lodestar::notice
