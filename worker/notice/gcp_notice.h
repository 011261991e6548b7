// SPDX-License-Identifier: Apache-2.0

// GcpNotice asks the metadata server of Google Compute Engine for instance/preempted. The answer is
// TRUE once a spot machine is preempted. The machine is stopped 30 s later. Source: Compute Engine
// documentation, "Spot VMs" and "View and query VM metadata".
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "worker/notice/http_fetch.h"
#include "worker/notice/notice_source.h"

namespace lodestar::notice {

class GcpNotice final : public NoticeSource {
 public:
  explicit GcpNotice(HttpFetch fetch) : fetch_(std::move(fetch)) {}
  absl::StatusOr<std::optional<std::string>> Look() override;

 private:
  const HttpFetch fetch_;
};

}  // namespace lodestar::notice
