// From the bytes of one whole request to the bytes of its answer: whether it comes under a name of
// this server and, with an order, from a page of its own; who asks and whether they may; and what
// is answered. No sockets, no threads of its own. Thread-safe.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/http/http_routes.h"

namespace lodestar {

class HttpResponder {
 public:
  static constexpr char kOrderHeader[] = "X-Lodestar-Order";

  struct Config {
    HttpRoutes routes;
    // Null means that every client may do everything, but for `order_key`.
    HttpAccess access;
    // Names of hosts under which browsers come here, beside those of this machine alone.
    std::vector<std::string> names;
    std::string names_flag;  // with which the program is given further ones, for texts; empty: none
    // Whether they also come by an address. A page of a foreign site that has its name lead here
    // ("DNS rebinding") has a name, and never an address.
    bool allows_addresses = false;
    // Called when an order comes from a foreign page, which gets nothing: `address` is that of the
    // browser, and `why` says why the order is refused, for the log.
    std::function<void(const std::string& address, const std::string& why)> on_foreign_order =
        [](const std::string&, const std::string&) {};
    // The same of a page that was asked for under a foreign name.
    std::function<void(const std::string& address, const std::string& why)> on_foreign_name =
        [](const std::string&, const std::string&) {};
  };

  struct Reply {
    std::string bytes;
    bool begins_events = false;   // they follow, until one side ends the connection
    HttpCredentials reader = {};  // of the events
  };

  explicit HttpResponder(Config config) : config_(std::move(config)) {}

  const HttpRoutes& routes() const { return config_.routes; }
  // `peer`: without a token, which the request has. Requires: JudgeRequest(request) is kComplete;
  // other requests can cost any amount of memory.
  Reply Answer(absl::string_view request, const HttpCredentials& peer) const;
  // Whether `reader`, whose request was answered, may still look: for what goes on for long.
  bool MayStillLook(const HttpCredentials& reader) const;
  // Instead of the beginning of the events.
  static std::string TooManyReaders(int allowed);
  static std::string EventText(const HttpEvent& event);

 private:
  friend class OneRequest;

  const Config config_;
};

// The token in the value of a header Authorization: Bearer TOKEN, or Basic with it as the password
// and any name; empty: there is none.
std::string TokenIn(absl::string_view authorization);

}  // namespace lodestar
