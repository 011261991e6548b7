// Azure: scheduled events of the metadata service that end this machine or the processes on it:
// Preempt (of a spot machine, at least 30 s ahead), Terminate, Redeploy and Reboot. A machine also
// hears of the events of others in its scale set, so it asks for its own name first. The first
// request turns the service on and may take minutes, as trouble that passes. Source: Azure
// documentation, "Scheduled Events for Linux VMs".
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "worker/notice/http_fetch.h"
#include "worker/notice/notice_source.h"

namespace lodestar::notice {

class AzureNotice final : public NoticeSource {
 public:
  explicit AzureNotice(HttpFetch fetch) : fetch_(std::move(fetch)) {}
  absl::StatusOr<std::optional<std::string>> Look() override;

 private:
  // The body of the answer. Errors: Unavailable if it is not 200.
  absl::StatusOr<std::string> Get(absl::string_view path);

  const HttpFetch fetch_;
  std::string name_;  // of this machine; empty: not known yet
};

}  // namespace lodestar::notice
