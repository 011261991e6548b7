// SPDX-License-Identifier: Apache-2.0

// The pages, events and orders of an HttpServer, and the check of callers. The functions in these
// types are called on threads of the server, and must not block for long.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/security/identity.h"

namespace lodestar::http {

struct HttpAnswer {
  int status = 200;
  std::string type = "text/plain; charset=utf-8";
  std::string body;
};

// Parameters of a request, by name. If a name comes twice, the last value is kept.
using HttpQuery = std::map<std::string, std::string>;

struct HttpEvent {
  std::string name;
  std::string data;  // one line
};

// A function that returns the events since it was called last.
using HttpEventSource = std::function<std::vector<HttpEvent>()>;

// What a peer has shown to prove its identity.
struct HttpCredentials {
  // Identity in a certificate that the authority has issued.
  std::optional<security::Identity> certificate = {};
  // The token in the header Authorization: the token of Bearer, or the password of Basic. Empty
  // means none.
  std::string token = {};
  std::string address = {};  // IP address of the peer's machine, for the log
};

enum class HttpDeed : uint8_t { kLook, kOrder };

// A caller that was let in.
struct HttpCaller {
  std::string text = {};  // name for messages and the log, such as "operator alice"
  bool may_order = false;
};

// A function that checks credentials and returns the caller. Errors: Unauthenticated (nothing valid
// was shown); PermissionDenied (the caller may not do this).
using HttpAccess =
    std::function<absl::StatusOr<HttpCaller>(const HttpCredentials& credentials, HttpDeed deed)>;

struct HttpRoutes {
  // Pages by path, such as "/healthz".
  std::map<std::string, std::function<HttpAnswer(const HttpQuery&)>> pages;
  // Pages, by path, that need no credentials, even if all other pages need them.
  std::map<std::string, std::function<HttpAnswer()>> open_pages;
  std::string events_path;  // such as "/api/events"
  // Called once per reader. The source that it returns is asked at once, and then every
  // `event_interval`.
  std::function<HttpEventSource()> begin_events;
  absl::Duration event_interval = absl::Seconds(1);
  // Orders by path. `caller` is HttpCaller::text. An empty `caller` means that there is no
  // HttpAccess.
  std::map<std::string, std::function<HttpAnswer(const HttpQuery&, const std::string& caller)>>
      orders;
  // Value that the order header must have; empty means that any value is allowed.
  std::string order_key;
  // Path under which the server says which orders the caller may give, such as "/api/orders". Every
  // path in `orders` begins with this path. The answer is one line:
  //   {"orders": [paths of orders, without this path], "why_none": reason why there are none}
  // Empty means that there is no such path.
  std::string orders_path;
};

}  // namespace lodestar::http
