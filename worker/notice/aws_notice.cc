// SPDX-License-Identifier: Apache-2.0

#include "worker/notice/aws_notice.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/runtime/json.h"
#include "common/runtime/peer_text.h"
#include "common/runtime/status_macros.h"

namespace lodestar::notice {
namespace {

constexpr char kAddress[] = "169.254.169.254";
// Lifetime of a token: the longest that the service allows.
constexpr char kTokenSeconds[] = "21600";
constexpr size_t kMaxTokenBytes = 1024;
constexpr size_t kMaxActionBytes = 64;
constexpr int kUnauthorized = 401;

// Returns true if `text` may be a token. A token becomes a part of a header line, so it must be one
// word.
bool IsToken(const std::string& text) {
  return !text.empty() && text.size() <= kMaxTokenBytes &&
         std::all_of(text.begin(), text.end(),
                     [](char c) { return absl::ascii_isgraph(static_cast<unsigned char>(c)); });
}

// Returns the action in an answer. The answer {"action": "terminate", "time":
// "2017-09-18T08:22:00Z"} has the action "terminate".
std::string ActionIn(const std::string& body) {
  const absl::StatusOr<Json> json = ParseJson(body);
  const absl::StatusOr<std::string> action =
      json.ok() ? GetString(*json, "action") : absl::StatusOr<std::string>(json.status());
  return action.ok() ? PeerText(*action, kMaxActionBytes) : "interruption";
}

}  // namespace

absl::Status AwsNotice::TakeToken() {
  ASSIGN_OR_RETURN(const FetchedAnswer answer,
                   fetch_({.method = "PUT",
                           .host = kAddress,
                           .path = "/latest/api/token",
                           .headers = {{"X-aws-ec2-metadata-token-ttl-seconds", kTokenSeconds}}}));
  const std::string token(absl::StripAsciiWhitespace(answer.body));
  if (answer.status != 200 || !IsToken(token)) {
    return absl::UnavailableError(absl::StrCat("the source answers ", answer.status,
                                               " to the request for a token, but sends no token"));
  }
  token_ = token;
  return absl::OkStatus();
}

absl::StatusOr<FetchedAnswer> AwsNotice::AskForAction() {
  if (token_.empty()) RETURN_IF_ERROR(TakeToken());
  return fetch_({.host = kAddress,
                 .path = "/latest/meta-data/spot/instance-action",
                 .headers = {{"X-aws-ec2-metadata-token", token_}}});
}

absl::StatusOr<std::optional<std::string>> AwsNotice::Look() {
  ASSIGN_OR_RETURN(FetchedAnswer answer, AskForAction());
  if (answer.status == kUnauthorized) {
    token_.clear();
    ASSIGN_OR_RETURN(answer, AskForAction());
  }
  if (answer.status == 404) return std::nullopt;
  if (answer.status == 200) {
    return absl::StrCat("EC2 gives notice of the action '", ActionIn(answer.body),
                        "' for this spot machine");
  }
  if (answer.status == kUnauthorized) token_.clear();
  return absl::UnavailableError(absl::StrCat(
      "the source answers ", answer.status,
      " to the request for spot/instance-action; 200 means a notice, and 404 means no notice"));
}

}  // namespace lodestar::notice
