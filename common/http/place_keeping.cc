// SPDX-License-Identifier: Apache-2.0

#include "common/http/place_keeping.h"

#include <map>
#include <tuple>

#include "absl/strings/string_view.h"

namespace lodestar::http {

std::optional<uint64_t> ChooseToGo(const std::vector<PlaceHolder>& holders) {
  std::map<absl::string_view, int> num_of_address;
  for (const PlaceHolder& holder : holders) ++num_of_address[holder.address];
  const PlaceHolder* chosen = nullptr;
  // Connections are closed in this order. Those of the address with the most connections come
  // first. Among them, those to which no answer or events are being sent come first, and then the
  // oldest.
  const auto rank = [&](const PlaceHolder& holder) {
    return std::make_tuple(-num_of_address[holder.address], holder.is_told, holder.since);
  };
  for (const PlaceHolder& holder : holders) {
    if (holder.stays) continue;
    if (chosen == nullptr || rank(holder) < rank(*chosen)) chosen = &holder;
  }
  return chosen == nullptr ? std::nullopt : std::make_optional(chosen->id);
}

}  // namespace lodestar::http
