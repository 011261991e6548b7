// SPDX-License-Identifier: Apache-2.0

#include "worker/notice/azure_notice.h"

#include <algorithm>
#include <array>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/runtime/json.h"
#include "common/runtime/status_macros.h"
#include "worker/notice/http_answer.h"

namespace lodestar::notice {
namespace {

constexpr JsonLimits kLimits = {.max_bytes = HttpAnswerReader::kMaxBytes, .max_depth = 8};
// Kinds of events that end the processes. Freeze is not among them, because a freeze lasts only
// seconds.
constexpr std::array<absl::string_view, 4> kEndings = {"Preempt", "Terminate", "Redeploy",
                                                       "Reboot"};

bool IsAbout(const Json& event, const std::string& machine) {
  const absl::StatusOr<const Json*> resources = GetArray(event, "Resources");
  return resources.ok() &&
         std::any_of((*resources)->begin(), (*resources)->end(), [&machine](const Json& resource) {
           return resource.is_string() &&
                  absl::EqualsIgnoreCase(resource.get_ref<const std::string&>(), machine);
         });
}

}  // namespace

absl::StatusOr<std::string> AzureNotice::Get(absl::string_view path) {
  ASSIGN_OR_RETURN(FetchedAnswer answer, fetch_({.host = "169.254.169.254",
                                                 .path = absl::StrCat("/metadata/", path),
                                                 .headers = {{"Metadata", "true"}}}));
  if (answer.status != 200) {
    return absl::UnavailableError(absl::StrCat("the source answers ", answer.status,
                                               " to the request for ", path, "; 200 was expected"));
  }
  return std::move(answer.body);
}

absl::StatusOr<std::optional<std::string>> AzureNotice::Look() {
  if (name_.empty()) {
    ASSIGN_OR_RETURN(const std::string name,
                     Get("instance/compute/name?api-version=2021-02-01&format=text"));
    name_ = std::string(absl::StripAsciiWhitespace(name));
    if (name_.empty())
      return absl::UnavailableError("Azure's metadata service does not give this machine's name");
  }
  ASSIGN_OR_RETURN(const std::string body, Get("scheduledevents?api-version=2020-07-01"));
  ASSIGN_OR_RETURN(const Json json, ParseJson(body, kLimits));
  ASSIGN_OR_RETURN(const Json* events, GetArray(json, "Events"));
  for (const Json& event : *events) {
    ASSIGN_OR_RETURN(const std::string type, GetString(event, "EventType"));
    if (std::find(kEndings.begin(), kEndings.end(), type) == kEndings.end()) continue;
    if (IsAbout(event, name_))
      return absl::StrCat("Azure gives notice of the event '", type, "' for this machine");
  }
  return std::nullopt;
}

}  // namespace lodestar::notice
