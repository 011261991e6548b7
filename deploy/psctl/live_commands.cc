// SPDX-License-Identifier: Apache-2.0

#include "deploy/psctl/live_commands.h"

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/history/run_history.h"
#include "common/output/output_file.h"
#include "common/runtime/clock.h"
#include "common/runtime/status_macros.h"
#include "common/runtime/text_table.h"
#include "deploy/psctl/cluster_watch.h"
#include "deploy/psctl/history_command.h"
#include "deploy/psctl/log_feed.h"
#include "deploy/psctl/terminal_screen.h"
#include "deploy/psctl/top_text.h"
#include "proto/status_text.h"

namespace lodestar::psctl {
namespace {

constexpr absl::Duration kEventsInterval = absl::Seconds(1);
constexpr absl::Duration kTopInterval = absl::Seconds(1);
constexpr absl::Duration kKeyPatience = absl::Milliseconds(100);
constexpr absl::Duration kHistoryInterval = absl::Seconds(2);

// Gives the events that are new since the last call.
class EventFeed {
 public:
  explicit EventFeed(ClusterClient* client) : client_(*client) {}

  absl::StatusOr<std::vector<history::HistoryEvent>> Next() {
    v1::HistoryRequest request;
    request.set_without_curves(true);
    request.set_events_after_us(after_us_);
    ASSIGN_OR_RETURN(history::RunHistory history, client_.GetHistory(request));
    if (!history.events.empty()) after_us_ = absl::ToUnixMicros(history.events.back().time);
    return std::move(history.events);
  }

 private:
  ClusterClient& client_;
  int64_t after_us_ = 0;
};

// Returns a watch of `client`'s server. Each attempt uses a new connection, because gRPC waits for
// several seconds before it tries a failed connection again.
ClusterWatch WatchOf(const ClusterClient& client, absl::Duration interval) {
  ClusterWatch watch;
  watch.stream = [&client, interval](const ClusterWatch::Show& each) {
    return client.Anew().WatchStatus(interval, each);
  };
  watch.clock = &Clock::Real();
  return watch;
}

std::string AwayText(absl::Duration away) {
  return absl::StrCat("no answer for ", absl::FormatDuration(absl::Ceil(away, absl::Seconds(1))),
                      " from the server; psctl tries again");
}

// Returns true if the terminal can show more than ASCII.
bool HasUtf8() {
  for (const char* const name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const char* const value = std::getenv(name);
    if (value == nullptr || *value == '\0') continue;
    const std::string locale = absl::AsciiStrToLower(value);
    return absl::StrContains(locale, "utf-8") || absl::StrContains(locale, "utf8");
  }
  return false;
}

// Holds the history that psctl top shows, and asks the server for it again every kHistoryInterval.
class TopHistory {
 public:
  explicit TopHistory(ClusterClient* client) : client_(*client) {}

  // Returns the history, at most `kHistoryInterval` old. If the server does not answer, returns the
  // last one that it gave.
  const history::RunHistory& Read(absl::Time now) {
    if (now < next_) return history_;
    next_ = now + kHistoryInterval;
    absl::StatusOr<history::RunHistory> history = client_.GetHistory(v1::HistoryRequest());
    if (history.ok()) history_ = *std::move(history);
    return history_;
  }
  // Returns the last history, without asking the server.
  const history::RunHistory& known() const { return history_; }

 private:
  ClusterClient& client_;
  absl::Time next_ = absl::InfinitePast();
  history::RunHistory history_;
};

absl::Status ShowOnePicture(ClusterClient& client) {
  ASSIGN_OR_RETURN(const v1::ClusterStatus status, client.GetStatus());
  ASSIGN_OR_RETURN(const history::RunHistory history, client.GetHistory(v1::HistoryRequest()));
  return output::WriteToStandardOutput(
      TopText(status, history, {.columns = kUnlimitedColumns, .rows = 0, .has_blocks = HasUtf8()}));
}

// Calls `print`, which prints what is new. With `follows`, calls it again and again until the job
// is over.
absl::Status Follow(ClusterClient& client, bool follows,
                    const std::function<absl::Status()>& print) {
  RETURN_IF_ERROR(print());
  if (!follows) return absl::OkStatus();
  ClusterWatch watch = WatchOf(client, kEventsInterval);
  absl::Status failed;
  watch.show = [&](const v1::ClusterStatus&) {
    const absl::Status printed = print();
    // If the server does not answer, the watch reports that.
    if (!printed.ok() && !absl::IsUnavailable(printed)) failed = printed;
    return failed.ok();
  };
  watch.away = [](absl::string_view, absl::Duration away) {
    std::fprintf(stderr, "psctl: %s\n", AwayText(away).c_str());
    return true;
  };
  RETURN_IF_ERROR(WatchAcrossRestarts(watch));
  RETURN_IF_ERROR(failed);
  // Prints what came at the end of the job, if the server still answers.
  print().IgnoreError();
  return absl::OkStatus();
}

}  // namespace

absl::Status ShowEvents(ClusterClient& client, bool follows, bool as_json, int columns) {
  EventFeed feed(&client);
  return Follow(client, follows, [&]() -> absl::Status {
    ASSIGN_OR_RETURN(const std::vector<history::HistoryEvent> events, feed.Next());
    std::string text;
    for (const history::HistoryEvent& event : events) {
      absl::StrAppend(&text,
                      as_json ? history::EventJson(event) + "\n" : EventText(event, columns));
    }
    return output::WriteToStandardOutput(text);
  });
}

absl::Status ShowLog(ClusterClient& client, const logging::LogQuery& query, bool follows,
                     bool as_json) {
  LogFeed feed([&client](const logging::LogQuery& asked,
                         const std::string& log_id) { return client.ReadLog(asked, log_id); },
               query, as_json, &Clock::Real());
  return Follow(client, follows, [&]() -> absl::Status {
    ASSIGN_OR_RETURN(const std::string text, feed.Next());
    return output::WriteToStandardOutput(text);
  });
}

absl::Status ShowTop(ClusterClient& client) {
  absl::StatusOr<std::unique_ptr<TerminalScreen>> opened = TerminalScreen::Open();
  if (!opened.ok()) return ShowOnePicture(client);
  std::unique_ptr<TerminalScreen> screen = *std::move(opened);
  TopHistory history(&client);
  v1::ClusterStatus last;
  const auto draw = [&](const history::RunHistory& run, std::string note) {
    const TerminalScreen::Size size = screen->size();
    return screen->Draw(TopText(last, run,
                                {.columns = size.columns,
                                 .rows = size.rows,
                                 .has_blocks = HasUtf8(),
                                 .note = std::move(note)}));
  };
  std::stop_source stop;
  client.StopWith(stop.get_token());
  ClusterWatch watch = WatchOf(client, kTopInterval);
  watch.show = [&](const v1::ClusterStatus& status) {
    last = status;
    return draw(history.Read(absl::Now()), "");
  };
  watch.away = [&](absl::string_view, absl::Duration away) {
    return !stop.stop_requested() && draw(history.known(), AwayText(away));
  };
  absl::Status outcome;
  absl::Notification is_over;
  std::thread watching([&] {
    outcome = WatchAcrossRestarts(watch);
    is_over.Notify();
  });
  while (!is_over.HasBeenNotified() && screen->AwaitKey(kKeyPatience) != 'q') {
  }
  const bool is_left = !is_over.HasBeenNotified();
  stop.request_stop();
  watching.join();
  const int columns = screen->size().columns;
  screen.reset();
  if (is_left) return absl::OkStatus();
  RETURN_IF_ERROR(outcome);
  return output::WriteToStandardOutput(wire::StatusText(last, columns));
}

}  // namespace lodestar::psctl
