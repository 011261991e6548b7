// SPDX-License-Identifier: Apache-2.0

#include "server/http/status_pages.h"

#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/history/run_history.h"
#include "common/http/dashboard_page.h"
#include "common/http/http_code.h"
#include "proto/message_json.h"
#include "proto/status_text.h"
#include "server/http/prometheus_text.h"

namespace lodestar::http {
namespace {

constexpr char kJson[] = "application/json";
// Number of status events between two history events. A curve has some thousand points, so it is
// not sent with each status event, which comes once a second.
constexpr int kEventsPerHistory = 5;

HttpAnswer JsonAnswer(const google::protobuf::Message& message) {
  const absl::StatusOr<std::string> text = wire::MessageJsonLine(message);
  if (text.ok()) return {.type = kJson, .body = *text};
  return {.status = 500, .body = absl::StrCat(text.status().message(), "\n")};
}

HttpAnswer StatusPage(const v1::ClusterStatus& status, const HttpQuery& query) {
  const auto format = query.find("format");
  if (format == query.end() || format->second == "text") {
    return {.body = wire::StatusText(status, kUnlimitedColumns)};
  }
  if (format->second == "json") return JsonAnswer(status);
  return {.status = 400, .body = "allowed are format=text and format=json\n"};
}

HttpAnswer OrderAnswer(const absl::StatusOr<std::string>& outcome) {
  if (outcome.ok()) return {.body = absl::StrCat(*outcome, "\n")};
  return {.status = HttpCodeOf(outcome.status()),
          .body = absl::StrCat(outcome.status().message(), "\n")};
}

// An EventSource makes the events for one reader.
class EventSource {
 public:
  EventSource(std::function<v1::ClusterStatus()> read_status,
              const status::HistoryRecorder* history)
      : read_status_(std::move(read_status)), history_(history) {}

  std::vector<HttpEvent> Next() {
    std::vector<HttpEvent> events;
    if (const absl::StatusOr<std::string> status = wire::MessageJson(read_status_()); status.ok()) {
      events.push_back({"status", *status});
    }
    const uint64_t version = history_->version();
    if (++num_since_history_ < kEventsPerHistory || version == sent_version_) return events;
    num_since_history_ = 0;
    sent_version_ = version;
    events.push_back({"history", history::HistoryJson(history_->Read())});
    return events;
  }

 private:
  const std::function<v1::ClusterStatus()> read_status_;
  const status::HistoryRecorder* const history_;
  int num_since_history_ = kEventsPerHistory;
  uint64_t sent_version_ = ~uint64_t{0};
};

// RecentReadiness gives probes without credentials an answer that is at most a second old. It is
// thread-safe.
class RecentReadiness {
 public:
  RecentReadiness(std::function<v1::ClusterStatus()> read_status, Clock* clock)
      : read_status_(std::move(read_status)), clock_(clock) {}

  bool Read() ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    const absl::Time now = clock_->Now();
    if (now - read_at_ >= kShortestInterval) {
      is_ready_ = WhyNotReady(read_status_()).empty();
      read_at_ = now;
    }
    return is_ready_;
  }

 private:
  static constexpr absl::Duration kShortestInterval = absl::Seconds(1);

  const std::function<v1::ClusterStatus()> read_status_;
  Clock* const clock_;
  absl::Mutex mutex_;
  absl::Time read_at_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  bool is_ready_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace

std::string WhyNotReady(const v1::ClusterStatus& status) {
  for (const char* state : {"failed", "diverged", "stopping", "done"}) {
    if (status.state() == state) return absl::StrCat("the job is ", state);
  }
  if (status.state() == "journal_lost") return status.open_round().waiting_for();
  for (const v1::ShardStatus& shard : status.shards()) {
    if (shard.state() != "serving") {
      return absl::StrCat("shard ", shard.shard(), " is ", shard.state());
    }
  }
  return status.shards().empty() ? "no shard is connected yet" : "";
}

HttpRoutes StatusPages(std::function<v1::ClusterStatus()> read_status,
                       const status::HistoryRecorder* history, const JobOrders& orders,
                       const std::string& order_key, Clock* clock) {
  HttpRoutes routes;
  routes.order_key = order_key;
  routes.orders_path = "/api/orders";
  for (const auto& [name, order] : orders) {
    routes.orders[absl::StrCat(routes.orders_path, "/", name)] =
        [order = order](const HttpQuery& form, const std::string& caller) {
          return OrderAnswer(order(form, caller));
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
  const auto readiness = std::make_shared<RecentReadiness>(read_status, clock);
  // Reads the status without a time limit. If the coordinator hangs, the request hangs too, and the
  // probe sees that.
  routes.open_pages["/healthz"] = [readiness] {
    readiness->Read();
    return HttpAnswer{.body = "ok\n"};
  };
  routes.open_pages["/readyz"] = [readiness] {
    if (readiness->Read()) return HttpAnswer{.body = "ok\n"};
    return HttpAnswer{.status = 503,
                      .body = "not ready; to see the reason, log in as viewer or operator\n"};
  };
  routes.pages["/statusz"] = [read_status](const HttpQuery& query) {
    return StatusPage(read_status(), query);
  };
  routes.pages["/metrics"] = [read_status](const HttpQuery&) {
    return HttpAnswer{.type = kPrometheusType, .body = PrometheusText(read_status())};
  };
  routes.pages["/api/history"] = [history](const HttpQuery&) {
    return HttpAnswer{.type = kJson,
                      .body = absl::StrCat(history::HistoryJson(history->Read()), "\n")};
  };
  routes.events_path = "/api/events";
  routes.begin_events = [read_status = std::move(read_status), history] {
    return HttpEventSource(
        [source = std::make_shared<EventSource>(read_status, history)] { return source->Next(); });
  };
  return routes;
}

}  // namespace lodestar::http
