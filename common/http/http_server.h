// HttpServer: plain HTTP for people and monitoring on this machine: answers to GET, a stream of
// server-sent events (HTML standard, "Server-sent events"), and orders by POST. It has threads of
// its own and a bound on what is open at a time, so whoever reads slowly, or never, costs training
// nothing. Requests under another name than one of this machine are refused: a page of a foreign
// site that has its name lead here ("DNS rebinding") reads nothing. Orders need a header that pages
// of foreign sites cannot send, and its key where there is one.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/host_port.h"

namespace httplib {
class Server;
struct Request;
struct Response;
}  // namespace httplib

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

// All functions are called from threads of the server; they must not block for long.
struct HttpRoutes {
  std::map<std::string, std::function<HttpAnswer(const HttpQuery&)>> pages;  // by path: "/healthz"
  std::string events_path;                                                   // "/api/events"
  // For each reader, whose source is asked at once, and then each `event_interval`.
  std::function<HttpEventSource()> begin_events;
  absl::Duration event_interval = absl::Seconds(1);
  std::map<std::string, std::function<HttpAnswer(const HttpQuery&)>> orders;  // by path, as pages
  std::string order_key;  // what the header says; empty: whatever it says
};

class HttpServer {
 public:
  // Of streams of events at a time; others are answered 503.
  static constexpr int kMaxReaders = 8;
  static constexpr char kOrderHeader[] = "X-Lodestar-Order";

  // Listens from here on. Requires: an address that is this machine's alone. Errors: Unavailable if
  // it cannot be listened on.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(const HostPort& address,
                                                           HttpRoutes routes);
  ~HttpServer();

  const std::string& url() const { return url_; }  // "http://127.0.0.1:8080/"
  // Ends all streams. When it returns, no function of the routes is called any more. Repeats are
  // harmless.
  void Stop() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  explicit HttpServer(HttpRoutes routes);
  void Answer(const httplib::Request& request, httplib::Response& response);
  void TakeOrder(const httplib::Request& request, httplib::Response& response);
  void StreamEvents(httplib::Response& response) ABSL_LOCKS_EXCLUDED(mutex_);
  // Whether to go on.
  bool AwaitNextEvents() ABSL_LOCKS_EXCLUDED(mutex_);

  const HttpRoutes routes_;
  std::string url_;
  const std::unique_ptr<httplib::Server> server_;
  absl::Mutex mutex_;
  bool is_stopping_ ABSL_GUARDED_BY(mutex_) = false;
  int num_readers_ ABSL_GUARDED_BY(mutex_) = 0;
  std::thread thread_;
};

}  // namespace lodestar
