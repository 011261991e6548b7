// SPDX-License-Identifier: Apache-2.0

#include "server/coordinator/membership/recent_refusals.h"

#include <algorithm>

#include "common/runtime/peer_text.h"
#include "server/membership/membership_table.h"

namespace lodestar::membership {
namespace {

std::string Printable(absl::string_view text) {
  return PeerText(text, MembershipTable::kMaxNameBytes);
}

}  // namespace

bool RecentRefusals::Note(absl::string_view name, absl::string_view peer,
                          const absl::Status& reason, absl::Time now) {
  Refusal refusal = {Printable(name), Printable(peer), std::string(reason.message()), now};
  const auto same_name =
      std::find_if(refusals_.begin(), refusals_.end(),
                   [&](const Refusal& other) { return other.name == refusal.name; });
  bool is_new = true;
  if (same_name != refusals_.end()) {
    is_new = same_name->reason != refusal.reason;
    refusals_.erase(same_name);
  } else if (refusals_.size() == kMaxRefusals) {
    refusals_.erase(refusals_.begin());
  }
  refusals_.push_back(std::move(refusal));
  return is_new;
}

void RecentRefusals::Forget(absl::string_view name) {
  std::erase_if(refusals_, [name](const Refusal& refusal) { return refusal.name == name; });
}

std::vector<RecentRefusals::Refusal> RecentRefusals::Shown(absl::Time now) const {
  std::vector<Refusal> shown;
  for (const Refusal& refusal : refusals_) {
    if (now - refusal.at <= shown_for_) shown.push_back(refusal);
  }
  return shown;
}

}  // namespace lodestar::membership
