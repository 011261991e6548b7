// SPDX-License-Identifier: Apache-2.0

#include "worker/notice/notice_course.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace lodestar::notice {

std::optional<NoticeCourse::Event> NoticeCourse::OnLook(
    absl::Time begun, absl::Time ended, const absl::StatusOr<std::optional<std::string>>& found) {
  if (!found.ok()) {
    if (std::exchange(has_warned_, true)) return std::nullopt;
    return Warning{absl::StrCat(
        "--notice: the source of notices cannot be read, so a notice would be missed: ",
        found.status().message(), "; the worker keeps trying")};
  }
  if (!found->has_value()) {
    last_without_ = begun;
    return std::nullopt;
  }
  const absl::Time given = last_without_.value_or(begun);
  return MachineNotice{**found, std::max(absl::ZeroDuration(), given + grace_ - ended)};
}

}  // namespace lodestar::notice
