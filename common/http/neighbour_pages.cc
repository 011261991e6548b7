// SPDX-License-Identifier: Apache-2.0

#include "common/http/neighbour_pages.h"

#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/history/neighbour_runs.h"
#include "common/history/run_history.h"
#include "common/http/http_code.h"
#include "common/runtime/json.h"

namespace lodestar::http {
namespace {

constexpr char kJson[] = "application/json";

HttpAnswer AnswerOf(const absl::StatusOr<std::string>& json) {
  if (json.ok()) return {.type = kJson, .body = absl::StrCat(*json, "\n")};
  return {.status = HttpCodeOf(json.status()), .body = absl::StrCat(json.status().message(), "\n")};
}

std::string ListJson(const history::NeighbourList& list) {
  Json runs = Json::array();
  for (const history::NeighbourList::Run& run : list.runs) {
    runs.push_back({{"name", run.name},
                    {"written", absl::ToDoubleSeconds(run.written - absl::UnixEpoch())},
                    {"unreadable", run.unreadable.empty() ? Json() : Json(run.unreadable)}});
  }
  return FormatJson({{"folder", list.folder}, {"runs", std::move(runs)}, {"notes", list.notes}});
}

class NeighbourPages {
 public:
  explicit NeighbourPages(std::string run_folder) : runs_(std::move(run_folder)) {}

  HttpAnswer List() {
    return OneAtATime([this]() -> absl::StatusOr<std::string> {
      const absl::StatusOr<history::NeighbourList> list = runs_.List();
      if (!list.ok()) return list.status();
      return ListJson(*list);
    });
  }

  HttpAnswer Read(const std::string& name) {
    return OneAtATime([&]() -> absl::StatusOr<std::string> {
      const absl::StatusOr<history::RunHistory> history = runs_.Read(name);
      if (!history.ok()) return history.status();
      return history::HistoryJson(*history);
    });
  }

 private:
  template <typename Look>
  HttpAnswer OneAtATime(const Look& look) {
    if (!mutex_.TryLock()) {
      return {.status = 503,
              .body = "another page is reading the runs of this folder; try again\n"};
    }
    const absl::StatusOr<std::string> json = look();
    mutex_.Unlock();
    return AnswerOf(json);
  }

  const history::NeighbourRuns runs_;
  absl::Mutex mutex_;  // held while a request reads the disk
};

}  // namespace

void AddNeighbourPages(const std::string& run_folder, HttpRoutes* routes) {
  if (run_folder.empty()) {
    routes->pages["/api/runs"] = [](const HttpQuery&) {
      return HttpAnswer{.type = kJson,
                        .body = absl::StrCat(ListJson(history::NeighbourList()), "\n")};
    };
    return;
  }
  const auto pages = std::make_shared<NeighbourPages>(run_folder);
  routes->pages["/api/runs"] = [pages](const HttpQuery&) { return pages->List(); };
  routes->pages["/api/runs/history"] = [pages](const HttpQuery& query) {
    const auto name = query.find("name");
    if (name == query.end()) {
      return HttpAnswer{
          .status = 400,
          .body =
              "the name of a run is missing; add ?name=NAME with a name that /api/runs lists\n"};
    }
    return pages->Read(name->second);
  };
}

}  // namespace lodestar::http
