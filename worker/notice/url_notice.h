// A notice at an address: a GET is answered 200. 404 and 204 are no notice, and all else is
// trouble, redirects, too.
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
