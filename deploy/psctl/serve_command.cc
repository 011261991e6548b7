// SPDX-License-Identifier: Apache-2.0

#include "deploy/psctl/serve_command.h"

#include <sys/stat.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/history/neighbour_runs.h"
#include "common/history/run_history.h"
#include "common/http/dashboard_page.h"
#include "common/http/neighbour_pages.h"
#include "common/net/listen_address.h"
#include "common/runtime/file_io.h"
#include "common/runtime/json.h"
#include "common/runtime/peer_text.h"
#include "common/runtime/status_macros.h"
#include "common/storage/folder_lock.h"

namespace lodestar::psctl {
namespace {

constexpr char kJson[] = "application/json";
constexpr size_t kMaxSuggestions = 5;

// The result of reading the history of the run.
struct Reading {
  int64_t number = 0;  // Readings are counted from 1.
  // Time when the history file was written. NotFound means that there is no file. Any other error
  // says why psctl cannot find out whether there is a file.
  absl::StatusOr<absl::Time> written = absl::NotFoundError("");
  absl::Status status;  // The outcome of reading the file.
  std::string history;  // HistoryJson() if `status` is OK.
};

// Reads the history for all readers, one reading at a time. Thread-safe.
class KeptRun {
 public:
  explicit KeptRun(std::filesystem::path folder)
      : folder_(std::move(folder)), file_(folder_ / history::kHistoryFileName) {}

  // Returns the last reading. `seen` is the number of the last reading that the caller got. First
  // reads the file again in these cases:
  // - The file has changed.
  // - The last reading failed, and the caller has got that reading already.
  //
  // So a file that cannot be read is read once for all callers, and not once for each.
  std::shared_ptr<const Reading> Look(int64_t seen) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    const absl::StatusOr<absl::Time> written = Written();
    const bool is_same = last_->number > 0 && last_->written == written;
    if (is_same && (last_->status.ok() || last_->number != seen)) return last_;
    auto reading = std::make_shared<Reading>();
    reading->number = last_->number + 1;
    reading->written = written;
    if (written.ok()) {
      const absl::StatusOr<history::RunHistory> read =
          history::ReadHistoryUntouched(folder_.string());
      reading->status = read.status();
      if (read.ok()) reading->history = history::HistoryJson(*read);
    } else {
      reading->status = written.status();
    }
    last_ = std::move(reading);
    number_ = last_->number;
    return last_;
  }
  // Returns the reading of the present file. If the last reading failed, reads the file again.
  std::shared_ptr<const Reading> Look() { return Look(number_); }

  std::string FinishedJson(absl::Time written, absl::string_view trouble) const {
    return FormatJson({{"name", PeerText(folder_.filename().string(), PATH_MAX)},
                       {"folder", PeerText(folder_.string(), PATH_MAX)},
                       {"written", absl::ToDoubleSeconds(written - absl::UnixEpoch())},
                       {"is_held", storage::IsFolderHeld(folder_.string())},
                       {"trouble", std::string(trouble)}});
  }

 private:
  // Returns when the history file was written.
  absl::StatusOr<absl::Time> Written() const {
    struct stat facts;
    if (lstat(file_.c_str(), &facts) == 0) return absl::TimeFromTimespec(facts.st_mtim);
    if (errno == ENOENT || errno == ENOTDIR) {
      return absl::NotFoundError(
          absl::StrCat("there is no ", history::kHistoryFileName,
                       " yet; a running server writes it every ten seconds"));
    }
    return ErrnoStatus(errno, "look at", PeerText(file_.string(), PATH_MAX));
  }

  const std::filesystem::path folder_;
  const std::filesystem::path file_;
  std::atomic<int64_t> number_ = 0;  // The number of last_.
  absl::Mutex mutex_;
  std::shared_ptr<const Reading> last_ ABSL_GUARDED_BY(mutex_) = std::make_shared<Reading>();
};

// Makes the server-sent events of /api/events for one reader.
class EventSource {
 public:
  explicit EventSource(std::shared_ptr<KeptRun> run) : run_(std::move(run)) {}

  std::vector<http::HttpEvent> Next() {
    std::vector<http::HttpEvent> events;
    const std::shared_ptr<const Reading> reading = run_->Look(seen_);
    written_ = reading->written.value_or(written_);
    std::string finished = run_->FinishedJson(written_, reading->status.message());
    if (finished != finished_) events.push_back({"finished", finished_ = std::move(finished)});
    if (reading->number != seen_ && reading->status.ok()) {
      events.push_back({"history", reading->history});
    }
    seen_ = reading->number;
    return events;
  }

 private:
  const std::shared_ptr<KeptRun> run_;
  int64_t seen_ = 0;  // the number of the last reading
  absl::Time written_ = absl::UnixEpoch();
  std::string finished_;
};

// If the user has no permission for the folder, adds advice to the error.
absl::Status Explain(const absl::Status& status) {
  if (!absl::IsPermissionDenied(status)) return status;
  return absl::PermissionDeniedError(
      absl::StrCat(status.message(), "; run psctl as the user of the run's servers"));
}

absl::Status NoHistoryIn(const std::filesystem::path& folder) {
  std::string text = absl::StrCat("there is no ", history::kHistoryFileName, " in ",
                                  PeerText(folder.string(), PATH_MAX),
                                  ", which servers write into their --checkpoint_dir");
  const absl::StatusOr<history::NeighbourList> list =
      history::NeighbourRuns(folder.string()).List();
  std::vector<std::string> below;
  const std::string own = absl::StrCat(PeerText(folder.filename().string(), NAME_MAX), "/");
  for (const history::NeighbourList::Run& run :
       list.ok() ? list->runs : std::vector<history::NeighbourList::Run>()) {
    if (absl::StartsWith(run.name, own) && below.size() < kMaxSuggestions) {
      below.push_back(run.name.substr(own.size()));
    }
  }
  if (!below.empty()) {
    absl::StrAppend(&text, "; its folders with runs are ", absl::StrJoin(below, ", "),
                    ": give one of these");
  }
  return absl::NotFoundError(text);
}

}  // namespace

absl::StatusOr<http::HttpRoutes> KeptRunPages(const std::string& folder) {
  std::error_code error;
  // The canonical path ends with the name of the folder, also for "runs/7/" and ".".
  const std::filesystem::path path = std::filesystem::canonical(folder, error);
  if (error) {
    return Explain(ErrnoStatus(error.value(), "open", PeerText(folder, PATH_MAX)));
  }
  if (!std::filesystem::is_directory(path, error)) {
    return absl::FailedPreconditionError(
        absl::StrCat(PeerText(folder, PATH_MAX),
                     " is not a folder; give the --checkpoint_dir of the run's servers"));
  }
  const auto run = std::make_shared<KeptRun>(path);
  const absl::Status status = run->Look()->status;
  // There may be no history that can be read at first. A server that has just started writes its
  // history within ten seconds. A server may also be writing it at this moment. Until then the
  // pages say that there is none.
  const bool is_awaited = absl::IsNotFound(status) && storage::IsFolderHeld(path.string());
  if (absl::IsNotFound(status) && !is_awaited) return NoHistoryIn(path);
  if (!status.ok() && !is_awaited && !absl::IsUnavailable(status)) return Explain(status);

  http::HttpRoutes routes;
  routes.pages["/"] = [](const http::HttpQuery&) {
    return http::HttpAnswer{.type = "text/html; charset=utf-8",
                            .body = std::string(http::kDashboardPage)};
  };
  routes.pages["/api/history"] = [run](const http::HttpQuery&) {
    const std::shared_ptr<const Reading> reading = run->Look();
    if (reading->status.ok())
      return http::HttpAnswer{.type = kJson, .body = reading->history + "\n"};
    return http::HttpAnswer{.status = 500, .body = absl::StrCat(reading->status.message(), "\n")};
  };
  routes.orders_path = "/api/orders";  // it answers that no orders are allowed
  routes.events_path = "/api/events";
  routes.begin_events = [run] {
    return http::HttpEventSource(
        [source = std::make_shared<EventSource>(run)] { return source->Next(); });
  };
  http::AddNeighbourPages(path.string(), &routes);
  return routes;
}

absl::Status ServeKeptRun(const std::string& folder, const std::string& http,
                          const std::function<absl::Status(absl::string_view)>& say_url,
                          const std::function<void()>& wait) {
  ASSIGN_OR_RETURN(const net::ListenAddress address, net::ParseListenAddress("http", http));
  if (!address.IsLoopback()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--http=", address.ToString(),
                     ": the page is neither encrypted nor protected by a password, so it must stay "
                     "on this machine. Give 127.0.0.1:",
                     address.port, ", and use ssh -L from other machines"));
  }
  http::HttpServer::Config config;
  config.address = address;
  ASSIGN_OR_RETURN(config.pages.routes, KeptRunPages(folder));
  ASSIGN_OR_RETURN(const std::unique_ptr<http::HttpServer> server,
                   http::HttpServer::Start(std::move(config)));
  RETURN_IF_ERROR(say_url(server->url()));
  wait();
  server->Stop();
  return absl::OkStatus();
}

}  // namespace lodestar::psctl
