// SPDX-License-Identifier: Apache-2.0

// UrlNotice gives notice when a GET of an address is answered with 200. 404 and 204 mean that there
// is no notice. Every other answer is an error, also a redirect.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "worker/notice/http_fetch.h"
#include "worker/notice/notice_source.h"

namespace lodestar::notice {

class UrlNotice final : public NoticeSource {
 public:
  UrlNotice(HttpRequest request, HttpFetch fetch)
      : request_(std::move(request)), fetch_(std::move(fetch)) {}
  absl::StatusOr<std::optional<std::string>> Look() override;

 private:
  const HttpRequest request_;
  const HttpFetch fetch_;
};

}  // namespace lodestar::notice
