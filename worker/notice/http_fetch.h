// SPDX-License-Identifier: Apache-2.0

// Sends one request to an HTTP server and reads the answer, for the metadata service of a cloud. It
// uses plain text and a new connection, without proxies or redirects. The HTTP client of gRPC is
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
  // The host that the request names. Empty means `host`.
  std::string host_name = {};
  std::vector<std::pair<std::string, std::string>> headers = {};
};

using HttpFetch = std::function<absl::StatusOr<FetchedAnswer>(const HttpRequest&)>;

// Time for connecting, the request and the answer. The look-up of a host's name is not included,
// because the system limits its time.
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
