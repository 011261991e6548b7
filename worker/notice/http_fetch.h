// SPDX-License-Identifier: Apache-2.0

// Sends one request to the HTTP server of a cloud's metadata service, and reads the answer. Uses
// plain text and a new connection, without proxies or redirects. gRPC has an HTTP client too, but
// not in its public interface.
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
  std::string host;  // A name or an address.
  int port = 80;
  std::string path = "/";
  // Host name in the request's header. Empty means `host`.
  std::string host_name = {};
  std::vector<std::pair<std::string, std::string>> headers = {};
};

using HttpFetch = std::function<absl::StatusOr<FetchedAnswer>(const HttpRequest&)>;

// Maximum time for connecting, the request and the answer. It does not include the look-up of the
// host name, for which the system has a limit.
inline constexpr absl::Duration kHttpTimeout = absl::Seconds(2);

// Sends the request and returns the answer. Blocks for at most `timeout`. Errors: Unavailable if
// nothing listens at the address or the server closes the connection too early; DeadlineExceeded;
// those of HttpAnswerReader.
absl::StatusOr<FetchedAnswer> FetchHttp(const HttpRequest& request,
                                        absl::Duration timeout = kHttpTimeout);

// Parses http://HOST[:PORT][/PATH], with IPv6 addresses in brackets. Errors: InvalidArgument naming
// `flag`, the value and the form wanted.
absl::StatusOr<HttpRequest> ParseHttpUrl(absl::string_view flag, absl::string_view url);

}  // namespace lodestar::notice
