// SPDX-License-Identifier: Apache-2.0

#include "deploy/psctl/registration_watch.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/runtime/time_text.h"

namespace lodestar::psctl {

RegistrationWatch::RegistrationWatch(std::vector<Worker> workers, absl::Time started_at)
    : num_workers_(workers.size()),
      started_at_(started_at),
      next_look_(started_at + kFirstLook),
      missing_(std::move(workers)) {}

bool RegistrationWatch::BeginLook(absl::Time now) {
  if (missing_.empty() || now < next_look_) return false;
  next_look_ = now + kLookAgain;
  return true;
}

std::string RegistrationWatch::Take(const std::set<std::string>& registered, absl::Time now) {
  std::erase_if(missing_,
                [&registered](const Worker& worker) { return registered.contains(worker.name); });
  if (missing_.empty()) return "";
  const auto name = [](std::string* out, const Worker& worker) {
    absl::StrAppend(out, worker.name, " on ", worker.host);
  };
  return absl::StrCat(missing_.size(), " of ", num_workers_, " workers have not registered after ",
                      DurationText(now - started_at_), ": ", absl::StrJoin(missing_, ", ", name),
                      "; look at their output above, and try ssh ", missing_.front().host, " true");
}

}  // namespace lodestar::psctl
