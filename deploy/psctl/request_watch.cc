// SPDX-License-Identifier: Apache-2.0

#include "deploy/psctl/request_watch.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace lodestar::psctl {

std::string RequestWatch::Look(const v1::ClusterStatus& status) {
  const auto request =
      std::find_if(status.requests().begin(), status.requests().end(),
                   [this](const v1::PendingRequest& one) { return one.what() == what_; });
  if (request == status.requests().end() || request->waiting_for_undated() == told_) return "";
  told_ = request->waiting_for_undated();
  if (told_.empty()) return "";
  return absl::StrCat("the ", what_, ": ", request->waiting_for(),
                      request->way_out().empty() ? "" : "; ", request->way_out());
}

}  // namespace lodestar::psctl
