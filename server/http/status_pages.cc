#include "server/http/status_pages.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/http/dashboard_page.h"
#include "common/run_history.h"
#include "proto/message_json.h"
#include "proto/status_text.h"
#include "server/http/prometheus_text.h"

namespace lodestar {
namespace {

constexpr char kJson[] = "application/json";
// A curve has some thousand points: it is sent that often at most, in events of one second each.
constexpr int kEventsPerHistory = 5;

HttpAnswer JsonAnswer(const google::protobuf::Message& message) {
  const absl::StatusOr<std::string> text = MessageJsonLine(message);
  if (text.ok()) return {.type = kJson, .body = *text};
  return {.status = 500, .body = absl::StrCat(text.status().message(), "\n")};
}

HttpAnswer StatusPage(const v1::ClusterStatus& status, const HttpQuery& query) {
  const auto format = query.find("format");
  if (format == query.end() || format->second == "text") {
    return {.body = StatusText(status, kUnlimitedColumns)};
  }
  if (format->second == "json") return JsonAnswer(status);
  return {.status = 400, .body = "allowed are format=text and format=json\n"};
}

int HttpCodeOf(const absl::Status& error) {
  switch (error.code()) {
    case absl::StatusCode::kInvalidArgument:
      return 400;
    case absl::StatusCode::kNotFound:
      return 404;
    case absl::StatusCode::kFailedPrecondition:
      return 409;
    case absl::StatusCode::kUnavailable:
      return 503;
    default:
      return 500;
  }
}

HttpAnswer OrderAnswer(const absl::StatusOr<std::string>& outcome) {
  if (outcome.ok()) return {.body = absl::StrCat(*outcome, "\n")};
  return {.status = HttpCodeOf(outcome.status()),
          .body = absl::StrCat(outcome.status().message(), "\n")};
}

// For one reader.
class EventSource {
 public:
  EventSource(std::function<v1::ClusterStatus()> read_status, const HistoryRecorder* history)
      : read_status_(std::move(read_status)), history_(history) {}

  std::vector<HttpEvent> Next() {
    std::vector<HttpEvent> events;
    if (const absl::StatusOr<std::string> status = MessageJson(read_status_()); status.ok()) {
      events.push_back({"status", *status});
    }
    const uint64_t version = history_->version();
    if (++num_since_history_ < kEventsPerHistory || version == sent_version_) return events;
    num_since_history_ = 0;
    sent_version_ = version;
    events.push_back({"history", HistoryJson(history_->Read())});
    return events;
  }

 private:
  const std::function<v1::ClusterStatus()> read_status_;
  const HistoryRecorder* const history_;
  int num_since_history_ = kEventsPerHistory;
  uint64_t sent_version_ = ~uint64_t{0};
};

}  // namespace

std::string WhyNotReady(const v1::ClusterStatus& status) {
  for (const char* state : {"failed", "diverged", "stopping", "done"}) {
    if (status.state() == state) return absl::StrCat("the job is ", state);
  }
  for (const v1::ShardStatus& shard : status.shards()) {
    if (shard.state() != "serving") {
      return absl::StrCat("shard ", shard.shard(), " is ", shard.state());
    }
  }
  return status.shards().empty() ? "no shard is there yet" : "";
}

HttpRoutes StatusPages(std::function<v1::ClusterStatus()> read_status,
                       const HistoryRecorder* history, const JobOrders& orders,
                       const std::string& order_key) {
  HttpRoutes routes;
  routes.order_key = order_key;
  for (const auto& [name, order] : orders) {
    routes.orders[absl::StrCat("/api/orders/", name)] = [order = order](const HttpQuery& form) {
      return OrderAnswer(order(form));
    };
  }
  routes.pages["/"] = [](const HttpQuery&) {
    return HttpAnswer{.type = "text/html; charset=utf-8", .body = std::string(kDashboardPage)};
  };
  routes.pages["/healthz"] = [read_status](const HttpQuery&) {
    read_status();
    return HttpAnswer{.body = "ok\n"};
  };
  routes.pages["/readyz"] = [read_status](const HttpQuery&) {
    const std::string why_not = WhyNotReady(read_status());
    if (why_not.empty()) return HttpAnswer{.body = "ok\n"};
    return HttpAnswer{.status = 503, .body = absl::StrCat(why_not, "\n")};
  };
  routes.pages["/statusz"] = [read_status](const HttpQuery& query) {
    return StatusPage(read_status(), query);
  };
  routes.pages["/metrics"] = [read_status](const HttpQuery&) {
    return HttpAnswer{.type = kPrometheusType, .body = PrometheusText(read_status())};
  };
  routes.pages["/api/history"] = [history](const HttpQuery&) {
    return HttpAnswer{.type = kJson, .body = absl::StrCat(HistoryJson(history->Read()), "\n")};
  };
  routes.events_path = "/api/events";
  routes.begin_events = [read_status = std::move(read_status), history] {
    return HttpEventSource(
        [source = std::make_shared<EventSource>(read_status, history)] { return source->Next(); });
  };
  return routes;
}

}  // namespace lodestar
