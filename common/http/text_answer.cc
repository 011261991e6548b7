// SPDX-License-Identifier: Apache-2.0

#include "common/http/text_answer.h"

#include "absl/strings/str_cat.h"

namespace lodestar::http {

std::string TextAnswer(absl::string_view status, absl::string_view text) {
  return absl::StrCat("HTTP/1.1 ", status,
                      "\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: ",
                      text.size(), "\r\nConnection: close\r\n\r\n", text);
}

}  // namespace lodestar::http
