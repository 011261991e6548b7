// SPDX-License-Identifier: Apache-2.0

// AwsNotice asks the metadata service of Amazon EC2 for spot/instance-action. This entry appears
// two minutes before the machine is stopped, terminated or hibernated. Version 2 of the service
// needs a token. AwsNotice asks for the token first, and again once the token has expired. Source:
// Amazon EC2 User Guide, "Spot Instance interruption notices" and "Use IMDSv2".
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "worker/notice/http_fetch.h"
#include "worker/notice/notice_source.h"

namespace lodestar::notice {

class AwsNotice final : public NoticeSource {
 public:
  explicit AwsNotice(HttpFetch fetch) : fetch_(std::move(fetch)) {}
  absl::StatusOr<std::optional<std::string>> Look() override;

 private:
  absl::Status TakeToken();
  absl::StatusOr<FetchedAnswer> AskForAction();

  const HttpFetch fetch_;
  std::string token_;  // Empty means that there is no token yet.
};

}  // namespace lodestar::notice
