// SPDX-License-Identifier: Apache-2.0

// Answers one whole request: bytes in, bytes out. Checks that the request names this server as its
// host, that an order comes from a page of this server, and that the caller is allowed to ask. Then
// gets the answer from the routes. Has no sockets and no threads. Thread-safe.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/http/http_routes.h"

namespace lodestar::http {

class HttpResponder {
 public:
  static constexpr char kOrderHeader[] = "X-Lodestar-Order";

  struct Config {
    HttpRoutes routes;
    // Checks callers. Null means that every client may do everything, except that orders need
    // `order_key`.
    HttpAccess access;
    // Host names under which browsers reach this server, besides the loopback names such as
    // localhost.
    std::vector<std::string> names;
    // Flag that adds such names, for messages; empty means that there is none.
    std::string names_flag;
    // True means that browsers may also use an IP address. This is safe: an attack that makes a
    // foreign site's name point to this server ("DNS rebinding") always uses a name, never an
    // address.
    bool allows_addresses = false;
    // Called when an order from a foreign page is refused. `address` is the browser's address, and
    // `why` is the reason, for the log.
    std::function<void(const std::string& address, const std::string& why)> on_foreign_order =
        [](const std::string&, const std::string&) {};
    // Called when a request is refused because it names a host that is not this server.
    std::function<void(const std::string& address, const std::string& why)> on_foreign_name =
        [](const std::string&, const std::string&) {};
  };

  struct Reply {
    std::string bytes;
    bool begins_events = false;   // events follow until one side closes the connection
    HttpCredentials reader = {};  // the reader of the events
  };

  explicit HttpResponder(Config config) : config_(std::move(config)) {}

  const HttpRoutes& routes() const { return config_.routes; }
  // Returns the answer. `peer.token` is empty, because the token is read from the request.
  // Requires: JudgeRequest(request) is kComplete. Other requests could take any amount of memory to
  // parse.
  Reply Answer(absl::string_view request, const HttpCredentials& peer) const;
  // Returns true if `reader` is still allowed to read. Used during a stream of events, because its
  // request was checked only at the start.
  bool MayStillLook(const HttpCredentials& reader) const;
  // Returns the answer to a reader who gets no stream, because `allowed` streams are open already.
  static std::string TooManyReaders(int allowed);
  static std::string EventText(const HttpEvent& event);

 private:
  friend class OneRequest;

  const Config config_;
};

// Returns the token in the value of an Authorization header: "Bearer TOKEN", or "Basic" with the
// token as the password and any user name. Empty means that there is none.
std::string TokenIn(absl::string_view authorization);

}  // namespace lodestar::http
