// SPDX-License-Identifier: Apache-2.0

#include "worker/notice/gcp_notice.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/runtime/peer_text.h"
#include "common/runtime/status_macros.h"

namespace lodestar::notice {
namespace {

constexpr size_t kShownBytes = 80;

}  // namespace

absl::StatusOr<std::optional<std::string>> GcpNotice::Look() {
  // The request uses the server's address instead of its name, so that it does not wait for a name
  // server.
  ASSIGN_OR_RETURN(const FetchedAnswer answer,
                   fetch_({.host = "169.254.169.254",
                           .path = "/computeMetadata/v1/instance/preempted",
                           .host_name = "metadata.google.internal",
                           .headers = {{"Metadata-Flavor", "Google"}}}));
  const absl::string_view word = absl::StripAsciiWhitespace(answer.body);
  if (answer.status == 200 && word == "TRUE") {
    return "Compute Engine gives notice that this machine is preempted";
  }
  if (answer.status == 200 && word == "FALSE") return std::nullopt;
  return absl::UnavailableError(
      absl::StrCat("the source answers ", answer.status, " '", PeerText(word, kShownBytes),
                   "' to the request for instance/preempted; TRUE or FALSE was expected"));
}

}  // namespace lodestar::notice
