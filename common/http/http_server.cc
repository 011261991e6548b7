#include "common/http/http_server.h"

#include <httplib.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/host_port.h"

namespace lodestar {
namespace {

// Readers of events hold one each.
constexpr int kThreads = HttpServer::kMaxReaders + 4;
constexpr int kPatienceSeconds = 2;  // for who neither writes a request nor reads an answer
constexpr size_t kMaxBodyBytes = 1024;

// The page of the dashboard is one file, and talks to this server only.
constexpr char kContentPolicy[] =
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

// The names under which a browser on this machine comes here, with or without a port.
bool IsThisMachine(const std::string& host) {
  const std::string with_port =
      absl::StrContains(host, "]:") || (!absl::EndsWith(host, "]") && absl::StrContains(host, ':'))
          ? host
          : absl::StrCat(host, ":80");
  const absl::StatusOr<HostPort> address = ParseHostPort("", with_port, /*lowest_port=*/1);
  return address.ok() && address->IsLoopback();
}

// Two servers on one port, each with a part of the requests, are what the library's default allows.
void SetSocketOptions(socket_t socket) {
  const int yes = 1;
  setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
}

void Write(const HttpAnswer& answer, httplib::Response& response) {
  response.status = answer.status;
  response.set_content(answer.body, answer.type);
}

HttpQuery QueryOf(const httplib::Request& request) {
  HttpQuery query;
  for (const auto& [name, value] : request.params) query[name] = value;
  return query;
}

// In the same time, wherever they differ.
bool IsSameKey(absl::string_view given, absl::string_view key) {
  unsigned difference = given.size() == key.size() ? 0 : 1;
  for (size_t i = 0; i < given.size() && i < key.size(); ++i) {
    difference |= static_cast<unsigned char>(given[i] ^ key[i]);
  }
  return difference == 0;
}

std::string EventText(const HttpEvent& event) {
  return absl::StrCat("event: ", event.name, "\ndata: ", event.data, "\n\n");
}

}  // namespace

HttpServer::HttpServer(HttpRoutes routes)
    : routes_(std::move(routes)), server_(std::make_unique<httplib::Server>()) {
  server_->new_task_queue = [] { return new httplib::ThreadPool(kThreads); };
  server_->set_socket_options(&SetSocketOptions);
  server_->set_keep_alive_max_count(1);
  server_->set_read_timeout(kPatienceSeconds);
  server_->set_write_timeout(kPatienceSeconds);
  server_->set_payload_max_length(kMaxBodyBytes);
  server_->set_default_headers({{"Cache-Control", "no-store"},
                                {"Content-Security-Policy", kContentPolicy},
                                {"Referrer-Policy", "no-referrer"},
                                {"X-Content-Type-Options", "nosniff"}});
  server_->set_pre_routing_handler(
      [](const httplib::Request& request, httplib::Response& response) {
        if (IsThisMachine(request.get_header_value("Host"))) {
          return httplib::Server::HandlerResponse::Unhandled;
        }
        Write({.status = 403,
               .body = "this page is for browsers on this machine: ask for localhost, also through "
                       "ssh -L\n"},
              response);
        return httplib::Server::HandlerResponse::Handled;
      });
  server_->Get(".*", [this](const httplib::Request& request, httplib::Response& response) {
    Answer(request, response);
  });
  server_->Post(".*", [this](const httplib::Request& request, httplib::Response& response) {
    TakeOrder(request, response);
  });
}

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(const HostPort& address,
                                                              HttpRoutes routes) {
  auto server = std::unique_ptr<HttpServer>(new HttpServer(std::move(routes)));
  int port = address.port;
  errno = 0;
  const bool is_bound = port == 0 ? (port = server->server_->bind_to_any_port(address.host)) > 0
                                  : server->server_->bind_to_port(address.host, port);
  if (!is_bound) {
    return absl::UnavailableError(
        absl::StrCat("--http=", address.ToString(), " cannot be listened on",
                     errno == 0 ? "" : absl::StrCat(": ", std::strerror(errno)),
                     "; give another port, or end the program that has it"));
  }
  HostPort real = address;
  real.port = port;
  server->url_ = absl::StrCat("http://", real.ToString(), "/");
  server->thread_ = std::thread([raw = server.get()] { raw->server_->listen_after_bind(); });
  // Before that, stop() would not stop it; a port that is bound is served.
  while (!server->server_->is_running()) std::this_thread::yield();
  return server;
}

HttpServer::~HttpServer() { Stop(); }

void HttpServer::Stop() {
  {
    absl::MutexLock lock(&mutex_);
    is_stopping_ = true;
  }
  server_->stop();
  if (thread_.joinable()) thread_.join();
}

void HttpServer::Answer(const httplib::Request& request, httplib::Response& response) {
  if (request.path == routes_.events_path) return StreamEvents(response);
  const auto page = routes_.pages.find(request.path);
  if (page == routes_.pages.end()) {
    std::vector<std::string> paths;
    for (const auto& [path, answer] : routes_.pages) paths.push_back(path);
    return Write({.status = 404,
                  .body = absl::StrCat("no such page; there are ", absl::StrJoin(paths, ", "),
                                       " and ", routes_.events_path, "\n")},
                 response);
  }
  Write(page->second(QueryOf(request)), response);
}

void HttpServer::TakeOrder(const httplib::Request& request, httplib::Response& response) {
  const auto order = routes_.orders.find(request.path);
  if (order == routes_.orders.end()) {
    return Write({.status = 404, .body = "no such order\n"}, response);
  }
  // A page of another site gets no further than to ask whether it may send the header.
  if (!request.has_header(kOrderHeader)) {
    return Write(
        {.status = 403, .body = absl::StrCat("an order needs the header ", kOrderHeader, "\n")},
        response);
  }
  if (!routes_.order_key.empty() &&
      !IsSameKey(request.get_header_value(kOrderHeader), routes_.order_key)) {
    return Write({.status = 401,
                  .body = "orders need the key of an operator: open the address that psctl "
                          "dashboard prints\n"},
                 response);
  }
  Write(order->second(QueryOf(request)), response);
}

void HttpServer::StreamEvents(httplib::Response& response) {
  {
    absl::MutexLock lock(&mutex_);
    if (num_readers_ == kMaxReaders) {
      return Write({.status = 503,
                    .body = absl::StrCat("there may be ", kMaxReaders,
                                         " readers of events at a time; close one\n")},
                   response);
    }
    ++num_readers_;
  }
  // Gives the place back with the answer, however that ends.
  const std::shared_ptr<void> place(nullptr, [this](void*) {
    absl::MutexLock lock(&mutex_);
    --num_readers_;
  });
  bool is_first = true;
  response.set_chunked_content_provider(
      "text/event-stream", [this, place, is_first, source = routes_.begin_events()](
                               size_t /*offset*/, httplib::DataSink& sink) mutable {
        if (!std::exchange(is_first, false) && !AwaitNextEvents()) {
          sink.done();
          return true;
        }
        // A comment keeps the connection in use, so that a reader that is gone is noticed.
        std::string text = ":\n\n";
        for (const HttpEvent& event : source()) absl::StrAppend(&text, EventText(event));
        return sink.write(text.data(), text.size());
      });
}

bool HttpServer::AwaitNextEvents() {
  absl::MutexLock lock(&mutex_);
  mutex_.AwaitWithTimeout(absl::Condition(&is_stopping_), routes_.event_interval);
  return !is_stopping_;
}

}  // namespace lodestar
