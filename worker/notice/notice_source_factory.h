// SPDX-License-Identifier: Apache-2.0

// Makes sources of notices. All other code only uses the interface NoticeSource.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "worker/notice/http_fetch.h"
#include "worker/notice/notice_source.h"

namespace lodestar::notice {

struct NoticeOrigin {
  enum class Kind : uint8_t { kFile, kUrl, kAws, kGcp, kAzure };
  Kind kind = Kind::kFile;
  std::string path = {};     // Set for kFile.
  HttpRequest request = {};  // Set for kUrl.
};

// Parses aws, gcp, azure, file:PATH or http://HOST[:PORT]/PATH. Errors: InvalidArgument naming
// `flag`, the value and what is allowed.
absl::StatusOr<NoticeOrigin> ParseNoticeOrigin(absl::string_view flag, absl::string_view value);

// Returns how long the machine still runs after a notice, as the cloud documents it. For other
// sources, returns two minutes.
absl::Duration UsualGrace(const NoticeOrigin& origin);

std::unique_ptr<NoticeSource> MakeNoticeSource(
    const NoticeOrigin& origin,
    HttpFetch fetch = [](const HttpRequest& request) { return FetchHttp(request); });

}  // namespace lodestar::notice
