// SPDX-License-Identifier: Apache-2.0

#include "worker/notice/url_notice.h"

#include "absl/strings/str_cat.h"
#include "common/runtime/status_macros.h"

namespace lodestar::notice {

absl::StatusOr<std::optional<std::string>> UrlNotice::Look() {
  ASSIGN_OR_RETURN(const FetchedAnswer answer, fetch_(request_));
  switch (answer.status) {
    case 200:
      return absl::StrCat("notice: http://", request_.host, ":", request_.port, request_.path,
                          " exists");
    case 404:
    case 204:
      return std::nullopt;
    default:
      return absl::UnavailableError(
          absl::StrCat("the source answers ", answer.status,
                       "; 200 means a notice, and 404 or 204 means no notice"));
  }
}

}  // namespace lodestar::notice
