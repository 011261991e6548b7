// SPDX-License-Identifier: Apache-2.0

// AzureNotice asks Azure's metadata service for scheduled events that end this machine or its
// processes: Preempt (of a spot machine, at least 30 s before), Terminate, Redeploy and Reboot.
//
// The service also lists the events of other machines of a scale set, so AzureNotice first asks for
// the name of this machine. The first request enables the service, which may take minutes. Until
// then Look() returns errors.
//
// Source: Azure documentation, "Scheduled Events for Linux VMs".
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
  // Returns the body of the answer. Errors: Unavailable if the status is not 200.
  absl::StatusOr<std::string> Get(absl::string_view path);

  const HttpFetch fetch_;
  std::string name_;  // The name of this machine. Empty means not known yet.
};

}  // namespace lodestar::notice
