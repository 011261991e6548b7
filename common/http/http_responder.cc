// SPDX-License-Identifier: Apache-2.0

#include "common/http/http_responder.h"

#include <httplib.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/http/request_head.h"
#include "common/http/text_answer.h"
#include "common/net/host_port.h"
#include "common/runtime/json.h"
#include "common/runtime/peer_text.h"
#include "common/security/certificates.h"

namespace lodestar::http {
namespace {

// Content-Security-Policy of the dashboard. Its page is a single file and connects only to this
// server.
constexpr char kContentPolicy[] =
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

constexpr size_t kMaxShownBytes = 128;  // maximum bytes of a header that messages show

constexpr char kFormType[] = "application/x-www-form-urlencoded";

constexpr char kNeedsKey[] =
    "orders need an operator's key: open the page with the address that `psctl dashboard` prints";

const httplib::Headers& CommonHeaders() {
  static const httplib::Headers headers = {{"Cache-Control", "no-store"},
                                           {"Content-Security-Policy", kContentPolicy},
                                           {"Referrer-Policy", "no-referrer"},
                                           {"X-Content-Type-Options", "nosniff"}};
  return headers;
}

// Returns the host without the port. An IPv6 address loses its brackets.
absl::StatusOr<net::HostPort> HostOf(const std::string& host) {
  const bool has_port =
      absl::StrContains(host, "]:") || (!absl::EndsWith(host, "]") && absl::StrContains(host, ':'));
  return net::ParseHostPort("", has_port ? host : absl::StrCat(host, ":80"), /*lowest_port=*/1);
}

HttpQuery QueryOf(const httplib::Request& request) {
  HttpQuery query;
  for (const auto& [name, value] : request.params) query[name] = value;
  return query;
}

// Returns true if the library has read the body as a form. The library does so only if the content
// type begins with exactly kFormType.
bool IsForm(const httplib::Request& request) {
  return absl::StartsWith(request.get_header_value("Content-Type"), kFormType);
}

// A stream that reads one request from memory and keeps the answer in memory.
class MemoryStream final : public httplib::Stream {
 public:
  explicit MemoryStream(absl::string_view request) : request_(request) {}

  std::string TakeAnswer() { return std::move(answer_); }

  bool is_readable() const override { return !request_.empty(); }
  bool is_writable() const override { return true; }
  ssize_t read(char* to, size_t size) override {
    size = std::min(size, request_.size());
    std::memcpy(to, request_.data(), size);
    request_.remove_prefix(size);
    return static_cast<ssize_t>(size);
  }
  ssize_t write(const char* from, size_t size) override {
    answer_.append(from, size);
    return static_cast<ssize_t>(size);
  }
  void get_remote_ip_and_port(std::string&, int&) const override {}
  void get_local_ip_and_port(std::string&, int&) const override {}
  socket_t socket() const override { return INVALID_SOCKET; }

 private:
  absl::string_view request_;
  std::string answer_;
};

}  // namespace

// Handles one request. The library parses the request and formats the answer. This class decides
// what is answered.
class OneRequest : private httplib::Server {
 public:
  OneRequest(const HttpResponder::Config& config, const HttpCredentials& peer)
      : config_(config), shown_(peer) {
    set_payload_max_length(kMaxBodyBytes);
    set_default_headers(CommonHeaders());
    set_pre_routing_handler([this](const httplib::Request& request, httplib::Response& response) {
      return LetIn(request, response) ? HandlerResponse::Unhandled : HandlerResponse::Handled;
    });
    Get(".*", [this](const httplib::Request& request, httplib::Response& response) {
      ShowPage(request, response);
    });
    Post(".*", [this](const httplib::Request& request, httplib::Response& response) {
      TakeOrder(request, response);
    });
  }

  HttpResponder::Reply Answer(absl::string_view request) {
    MemoryStream stream(request);
    bool is_over = true;
    process_request(stream, /*close_connection=*/true, is_over, nullptr);
    if (begins_events_) {
      return {.bytes = BeginningOfEvents(), .begins_events = true, .reader = std::move(shown_)};
    }
    return {.bytes = stream.TakeAnswer()};
  }

 private:
  static void Write(const HttpAnswer& answer, httplib::Response& response) {
    response.status = answer.status;
    response.set_content(answer.body, answer.type);
  }

  static std::string BeginningOfEvents() {
    std::string head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n";
    for (const auto& [name, value] : CommonHeaders()) {
      absl::StrAppend(&head, name, ": ", value, "\r\n");
    }
    return absl::StrCat(head, "Connection: close\r\n\r\n");
  }

  bool IsOwnName(const std::string& host) const {
    const absl::StatusOr<net::HostPort> address = HostOf(absl::AsciiStrToLower(host));
    if (!address.ok()) return false;
    if (address->IsLoopback()) return true;
    if (net::IsAddress(address->host)) return config_.allows_addresses;
    return std::any_of(config_.names.begin(), config_.names.end(), [&](const std::string& name) {
      return absl::EqualsIgnoreCase(name, address->host);
    });
  }

  // Returns the foreign site whose page sent an order. Empty means that a page of this server, or a
  // program, sent it. Looks at two headers that browsers set and pages cannot change:
  //   Sec-Fetch-Site: sent by newer browsers, if the address is https or of this machine
  //   Origin: some older browsers do not send it with forms
  std::string ForeignPage(const httplib::Request& request) const {
    const std::string site = request.get_header_value("Sec-Fetch-Site");
    if (!site.empty() && !absl::EqualsIgnoreCase(site, "same-origin")) {
      return absl::StrCat("Sec-Fetch-Site: ", PeerText(site, kMaxShownBytes));
    }
    if (!request.has_header("Origin")) return "";
    const std::string origin = request.get_header_value("Origin");
    absl::string_view place = origin;
    const bool has_scheme =
        absl::ConsumePrefix(&place, "http://") || absl::ConsumePrefix(&place, "https://");
    // Another port of the same machine counts as another site, because another program listens
    // there.
    const bool is_own = absl::EqualsIgnoreCase(place, request.get_header_value("Host"));
    // A proxy may change Host, so that Origin differs from Host. If Sec-Fetch-Site is
    // "same-origin", the browser has checked the origin. Then Origin only needs a name of this
    // server.
    const bool is_of_proxy = !site.empty() && IsOwnName(std::string(place));
    if (has_scheme && (is_own || is_of_proxy)) return "";
    return absl::StrCat("Origin: ", PeerText(origin, kMaxShownBytes));
  }

  // Returns true if the request may be answered. Otherwise writes the refusal to `response`.
  bool LetIn(const httplib::Request& request, httplib::Response& response) {
    // Browsers always send Host, so a request without it comes from a program, such as a probe of
    // HTTP/1.0.
    if (const std::string name = request.get_header_value("Host");
        request.has_header("Host") && !IsOwnName(name)) {
      config_.on_foreign_name(shown_.address, absl::StrCat("a request for the unknown host name '",
                                                           PeerText(name, kMaxShownBytes), "'"));
      Write({.status = 403, .body = NamesText()}, response);
      return false;
    }
    if (request.method == "POST") {
      if (const std::string page = ForeignPage(request); !page.empty()) {
        config_.on_foreign_order(
            shown_.address,
            absl::StrCat("an order from a page of another web server (", page, ")"));
        Write({.status = 403,
               .body = absl::StrCat(
                   "this order came from a page of another web server (", page,
                   ") and is refused; open this server's own page and give the order there",
                   NamesHint(), "\n")},
              response);
        return false;
      }
    }
    if (config_.access == nullptr) {
      caller_.may_order = true;
      return true;
    }
    const std::string authorization = request.get_header_value("Authorization");
    shown_.token = TokenIn(authorization);
    const auto open = config_.routes.open_pages.find(request.path);
    if (open != config_.routes.open_pages.end() && request.method != "POST" &&
        authorization.empty() && !shown_.certificate.has_value()) {
      Write(open->second(), response);
      return false;
    }
    absl::StatusOr<HttpCaller> caller =
        config_.access(shown_, request.method == "POST" ? HttpDeed::kOrder : HttpDeed::kLook);
    if (caller.ok()) {
      caller_ = *std::move(caller);
      return true;
    }
    const bool is_unknown = absl::IsUnauthenticated(caller.status());
    // With this header the browser asks its user for a token, and sends the token with all later
    // requests.
    if (is_unknown) response.set_header("WWW-Authenticate", "Basic realm=\"lodestar\"");
    Write({.status = is_unknown ? 401 : 403, .body = absl::StrCat(caller.status().message(), "\n")},
          response);
    return false;
  }

  // Returns a hint with the flag that gives this server one more host name, such as that of a
  // proxy.
  std::string NamesHint() const {
    if (config_.names_flag.empty()) return "";
    return absl::StrCat("; if a proxy shows this page under that name, give ", config_.names_flag);
  }

  std::string NamesText() const {
    if (!config_.allows_addresses && config_.names.empty()) {
      return absl::StrCat(
          "this page is only for browsers on this machine: open it with the host name localhost; "
          "from another machine, forward its port with ssh -L",
          config_.names_flag.empty() ? "" : "; to allow other names, give ", config_.names_flag,
          "\n");
    }
    return absl::StrCat("this server has no page under that host name; its names are localhost, ",
                        absl::StrJoin(config_.names, ", "),
                        config_.allows_addresses ? " and IP addresses" : "",
                        config_.names_flag.empty() ? "" : "; to allow other names, give ",
                        config_.names_flag, "\n");
  }

  void ShowPage(const httplib::Request& request, httplib::Response& response) {
    const HttpRoutes& routes = config_.routes;
    if (request.path == routes.events_path) {
      begins_events_ = request.method == "GET";  // HEAD gets only the header
      return;
    }
    if (!routes.orders_path.empty() && request.path == routes.orders_path) {
      return Write(OrdersAnswer(request), response);
    }
    const auto page = routes.pages.find(request.path);
    if (page == routes.pages.end()) {
      std::vector<std::string> paths;
      for (const auto& [path, answer] : routes.pages) paths.push_back(path);
      return Write(
          {.status = 404,
           .body = absl::StrCat("there is no such page; the pages are ", absl::StrJoin(paths, ", "),
                                " and ", routes.events_path, "\n")},
          response);
    }
    Write(page->second(QueryOf(request)), response);
  }

  bool HasOrderKey(const httplib::Request& request) const {
    const std::string& key = config_.routes.order_key;
    return key.empty() ||
           security::AreEqualSecrets(request.get_header_value(HttpResponder::kOrderHeader), key);
  }

  // Returns the orders that the caller may give, so that the page shows only buttons that work.
  HttpAnswer OrdersAnswer(const httplib::Request& request) const {
    std::string why_none;
    if (config_.routes.orders.empty()) {
      why_none = "this page only shows the run and takes no orders";
    } else if (!caller_.may_order) {
      why_none =
          absl::StrCat(caller_.text, " may only look at this page; orders need the role operator");
    } else if (!HasOrderKey(request)) {
      why_none = kNeedsKey;
    }
    Json names = Json::array();
    for (const auto& [path, order] : config_.routes.orders) {
      if (why_none.empty()) names.push_back(path.substr(config_.routes.orders_path.size() + 1));
    }
    return {.type = "application/json",
            .body = absl::StrCat(FormatJson({{"orders", std::move(names)}, {"why_none", why_none}}),
                                 "\n")};
  }

  void TakeOrder(const httplib::Request& request, httplib::Response& response) {
    const HttpRoutes& routes = config_.routes;
    const auto order = routes.orders.find(request.path);
    if (order == routes.orders.end()) {
      return Write({.status = 404, .body = "there is no such order\n"}, response);
    }
    // A browser adds its user's token or certificate also to requests of another site's page. But
    // such a page cannot send this header unless the server allows it (CORS), and this server does
    // not.
    constexpr const char* kHeader = HttpResponder::kOrderHeader;
    if (!request.has_header(kHeader)) {
      return Write(
          {.status = 403, .body = absl::StrCat("an order needs the header ", kHeader, "\n")},
          response);
    }
    if (!HasOrderKey(request)) {
      return Write({.status = 401, .body = absl::StrCat(kNeedsKey, "\n")}, response);
    }
    // The library ignores a body of another type, such as JSON. The order would be obeyed without
    // the settings in that body, so it is refused. The library keeps multipart bodies outside of
    // `request.body`.
    const bool has_body = !request.body.empty() || request.is_multipart_form_data();
    if (has_body && !IsForm(request)) {
      return Write({.status = 415,
                    .body = absl::StrCat(
                        "the body of this order is not a form; leave the body out, or send it as ",
                        kFormType, "\n")},
                   response);
    }
    Write(order->second(QueryOf(request), caller_.text), response);
  }

  const HttpResponder::Config& config_;
  HttpCredentials shown_;
  HttpCaller caller_;
  bool begins_events_ = false;
};

HttpResponder::Reply HttpResponder::Answer(absl::string_view request,
                                           const HttpCredentials& peer) const {
  return OneRequest(config_, peer).Answer(request);
}

bool HttpResponder::MayStillLook(const HttpCredentials& reader) const {
  return config_.access == nullptr || config_.access(reader, HttpDeed::kLook).ok();
}

std::string HttpResponder::TooManyReaders(int allowed) {
  return TextAnswer("503 Service Unavailable",
                    absl::StrCat("this server already updates ", allowed,
                                 " open pages, the maximum; close one of them\n"));
}

std::string HttpResponder::EventText(const HttpEvent& event) {
  return absl::StrCat("event: ", event.name, "\ndata: ", event.data, "\n\n");
}

std::string TokenIn(absl::string_view authorization) {
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(authorization, absl::MaxSplits(' ', 1));
  const absl::string_view value = absl::StripAsciiWhitespace(parts.second);
  if (absl::EqualsIgnoreCase(parts.first, "Bearer")) return std::string(value);
  std::string name_and_password;
  if (!absl::EqualsIgnoreCase(parts.first, "Basic") ||
      !absl::Base64Unescape(value, &name_and_password)) {
    return "";
  }
  const size_t colon = name_and_password.find(':');
  return colon == std::string::npos ? "" : name_and_password.substr(colon + 1);
}

}  // namespace lodestar::http
