// What an HttpServer serves, and to whom: plain data, and functions that the owner gives. All of
// them are called from threads of the server; they must not block for long.
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

namespace lodestar {

struct HttpAnswer {
  int status = 200;
  std::string type = "text/plain; charset=utf-8";
  std::string body;
};

// By name; of one that comes twice the last.
using HttpQuery = std::map<std::string, std::string>;

struct HttpEvent {
  std::string name;
  std::string data;  // one line
};

// What is new since it was asked last.
using HttpEventSource = std::function<std::vector<HttpEvent>()>;

// What a peer has shown of who it is.
struct HttpCredentials {
  std::optional<Identity> certificate = {};  // that the authority vouches for
  // The token in the header Authorization: that of Bearer, or the password of Basic. Empty: none.
  std::string token = {};
  std::string address = {};  // of its machine, for the log
};

enum class HttpDeed : uint8_t { kLook, kOrder };

// The peer that was let in.
struct HttpCaller {
  std::string text = {};  // for people and the log: "operator alice"
  bool may_order = false;
};

// Returns the caller. Errors: Unauthenticated if nothing was shown that counts here,
// PermissionDenied if the caller may not do that.
using HttpAccess =
    std::function<absl::StatusOr<HttpCaller>(const HttpCredentials& credentials, HttpDeed deed)>;

struct HttpRoutes {
  std::map<std::string, std::function<HttpAnswer(const HttpQuery&)>> pages;  // by path: "/healthz"
  // By path: what those get who have shown nothing, where the others have to. Paths that are not
  // here are closed to them.
  std::map<std::string, std::function<HttpAnswer()>> open_pages;
  std::string events_path;  // "/api/events"
  // For each reader, whose source is asked at once, and then each `event_interval`.
  std::function<HttpEventSource()> begin_events;
  absl::Duration event_interval = absl::Seconds(1);
  // By path, as pages. `caller`: as HttpAccess tells it. Empty means that HttpAccess was not asked.
  std::map<std::string, std::function<HttpAnswer(const HttpQuery&, const std::string& caller)>>
      orders;
  std::string order_key;  // what the header says; empty: whatever it says
  // Path that answers which orders the caller may give, such as "/api/orders". Every path in
  // `orders` begins with it. The answer is one line: {"orders": [names without that path],
  // "why_none": sentence that says why there are none}. Empty means that there is no such path.
  std::string orders_path;
};

}  // namespace lodestar
