#include "deploy/psctl/serve_command.h"

#include <sys/stat.h>

#include <cerrno>
#include <climits>
#include <filesystem>
#include <memory>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "common/file_io.h"
#include "common/folder_lock.h"
#include "common/http/dashboard_page.h"
#include "common/http/neighbour_pages.h"
#include "common/json.h"
#include "common/listen_address.h"
#include "common/neighbour_runs.h"
#include "common/peer_text.h"
#include "common/run_history.h"
#include "common/status_macros.h"

namespace lodestar {
namespace {

constexpr char kJson[] = "application/json";
constexpr size_t kMaxSuggestions = 5;

class KeptRun {
 public:
  explicit KeptRun(std::filesystem::path folder)
      : folder_(std::move(folder)), file_(folder_ / kHistoryFileName) {}

  // Of the history file; none where it cannot be seen.
  std::optional<absl::Time> Written() const {
    struct stat facts;
    if (stat(file_.c_str(), &facts) != 0) return std::nullopt;
    return absl::TimeFromTimespec(facts.st_mtim);
  }

  absl::StatusOr<RunHistory> Read() const { return ReadHistory(file_.string()); }

  std::string FinishedJson(absl::Time written, absl::string_view trouble) const {
    return FormatJson({{"name", PeerText(folder_.filename().string(), PATH_MAX)},
                       {"folder", PeerText(folder_.string(), PATH_MAX)},
                       {"written", absl::ToDoubleSeconds(written - absl::UnixEpoch())},
                       {"is_held", IsFolderHeld(folder_.string())},
                       {"trouble", std::string(trouble)}});
  }

 private:
  const std::filesystem::path folder_;
  const std::filesystem::path file_;
};

// For one reader.
class EventSource {
 public:
  explicit EventSource(std::shared_ptr<const KeptRun> run) : run_(std::move(run)) {}

  std::vector<HttpEvent> Next() {
    std::vector<HttpEvent> events;
    const std::optional<absl::Time> written = run_->Written();
    std::optional<std::string> history;
    if (!written.has_value()) {
      trouble_ = "the file is gone";
    } else if (written != written_ || !trouble_.empty()) {
      const absl::StatusOr<RunHistory> read = run_->Read();
      trouble_ = std::string(read.status().message());
      if (read.ok()) history = HistoryJson(*read);
      written_ = *written;
    }
    std::string finished = run_->FinishedJson(written_, trouble_);
    if (finished != finished_) events.push_back({"finished", finished_ = std::move(finished)});
    if (history.has_value()) events.push_back({"history", *std::move(history)});
    return events;
  }

 private:
  const std::shared_ptr<const KeptRun> run_;
  absl::Time written_ = absl::UnixEpoch();
  std::string trouble_;
  std::string finished_;
};

absl::Status NoHistoryIn(const std::filesystem::path& folder) {
  std::string text =
      absl::StrCat("there is no ", kHistoryFileName, " in ", PeerText(folder.string(), PATH_MAX),
                   ": no server has had it as its --checkpoint_dir");
  const absl::StatusOr<NeighbourList> list = NeighbourRuns(folder.string()).List();
  std::vector<std::string> below;
  const std::string own = absl::StrCat(PeerText(folder.filename().string(), NAME_MAX), "/");
  for (const NeighbourList::Run& run : list.ok() ? list->runs : std::vector<NeighbourList::Run>()) {
    if (absl::StartsWith(run.name, own) && below.size() < kMaxSuggestions) {
      below.push_back(run.name.substr(own.size()));
    }
  }
  if (!below.empty()) {
    absl::StrAppend(&text, "; runs are in its folders ", absl::StrJoin(below, ", "),
                    ": give one of them");
  }
  return absl::NotFoundError(text);
}

}  // namespace

absl::StatusOr<HttpRoutes> KeptRunPages(const std::string& folder) {
  std::error_code error;
  // Also of "runs/7/" and "." the name.
  const std::filesystem::path path = std::filesystem::canonical(folder, error);
  if (error) return ErrnoStatus(error.value(), "open", PeerText(folder, PATH_MAX));
  if (!std::filesystem::is_directory(path, error)) {
    return absl::FailedPreconditionError(
        absl::StrCat(PeerText(folder, PATH_MAX),
                     " is no folder; give the one that was --checkpoint_dir of the run's servers"));
  }
  const auto run = std::make_shared<const KeptRun>(path);
  const absl::StatusOr<RunHistory> history = run->Read();
  if (absl::IsNotFound(history.status())) return NoHistoryIn(path);
  if (!history.ok()) return history.status();

  HttpRoutes routes;
  routes.pages["/"] = [](const HttpQuery&) {
    return HttpAnswer{.type = "text/html; charset=utf-8", .body = std::string(kDashboardPage)};
  };
  routes.pages["/api/history"] = [run](const HttpQuery&) {
    const absl::StatusOr<RunHistory> history = run->Read();
    if (history.ok()) return HttpAnswer{.type = kJson, .body = HistoryJson(*history) + "\n"};
    return HttpAnswer{.status = 500, .body = absl::StrCat(history.status().message(), "\n")};
  };
  routes.events_path = "/api/events";
  routes.begin_events = [run] {
    return HttpEventSource(
        [source = std::make_shared<EventSource>(run)] { return source->Next(); });
  };
  AddNeighbourPages(path.string(), &routes);
  return routes;
}

absl::Status ServeKeptRun(const std::string& folder, const std::string& http,
                          const std::function<absl::Status(absl::string_view)>& say_url,
                          const std::function<void()>& wait) {
  ASSIGN_OR_RETURN(const ListenAddress address, ParseListenAddress("http", http));
  if (!address.IsLoopback()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--http=", address.ToString(),
        ": what is served there is neither encrypted nor asks who reads it, and stays on this "
        "machine; give 127.0.0.1:",
        address.port, ", and from elsewhere use ssh -L"));
  }
  HttpServer::Config config;
  config.address = address;
  ASSIGN_OR_RETURN(config.pages.routes, KeptRunPages(folder));
  ASSIGN_OR_RETURN(const std::unique_ptr<HttpServer> server, HttpServer::Start(std::move(config)));
  RETURN_IF_ERROR(say_url(server->url()));
  wait();
  server->Stop();
  return absl::OkStatus();
}

}  // namespace lodestar
