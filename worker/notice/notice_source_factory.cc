// SPDX-License-Identifier: Apache-2.0

#include "worker/notice/notice_source_factory.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/runtime/status_macros.h"
#include "common/storage/file_system.h"
#include "worker/notice/aws_notice.h"
#include "worker/notice/azure_notice.h"
#include "worker/notice/file_notice.h"
#include "worker/notice/gcp_notice.h"
#include "worker/notice/url_notice.h"

namespace lodestar::notice {

absl::StatusOr<NoticeOrigin> ParseNoticeOrigin(absl::string_view flag, absl::string_view value) {
  using Kind = NoticeOrigin::Kind;
  if (value == "aws") return NoticeOrigin{.kind = Kind::kAws};
  if (value == "gcp") return NoticeOrigin{.kind = Kind::kGcp};
  if (value == "azure") return NoticeOrigin{.kind = Kind::kAzure};
  if (absl::StartsWith(value, "http://")) {
    ASSIGN_OR_RETURN(HttpRequest request, ParseHttpUrl(flag, value));
    return NoticeOrigin{.kind = Kind::kUrl, .request = std::move(request)};
  }
  absl::string_view path = value;
  if (absl::ConsumePrefix(&path, "file:") && !path.empty()) {
    return NoticeOrigin{.kind = Kind::kFile, .path = std::string(path)};
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--", flag, "='", value,
                   "' is unknown; allowed: aws, gcp, azure, file:PATH, http://HOST[:PORT]/PATH"));
}

absl::Duration UsualGrace(const NoticeOrigin& origin) {
  switch (origin.kind) {
    case NoticeOrigin::Kind::kGcp:
    case NoticeOrigin::Kind::kAzure:
      return absl::Seconds(30);
    case NoticeOrigin::Kind::kAws:
    case NoticeOrigin::Kind::kFile:
    case NoticeOrigin::Kind::kUrl:
      break;
  }
  return absl::Minutes(2);
}

std::unique_ptr<NoticeSource> MakeNoticeSource(const NoticeOrigin& origin, HttpFetch fetch) {
  switch (origin.kind) {
    case NoticeOrigin::Kind::kAws:
      return std::make_unique<AwsNotice>(std::move(fetch));
    case NoticeOrigin::Kind::kGcp:
      return std::make_unique<GcpNotice>(std::move(fetch));
    case NoticeOrigin::Kind::kAzure:
      return std::make_unique<AzureNotice>(std::move(fetch));
    case NoticeOrigin::Kind::kUrl:
      return std::make_unique<UrlNotice>(origin.request, std::move(fetch));
    case NoticeOrigin::Kind::kFile:
      break;
  }
  return std::make_unique<FileNotice>(origin.path, &storage::FileSystem::Real());
}

}  // namespace lodestar::notice
