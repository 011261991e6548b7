// SPDX-License-Identifier: Apache-2.0

#include "common/http/request_head.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/http/text_answer.h"

namespace lodestar::http {
namespace {

constexpr absl::string_view kEndOfLine = "\r\n";
constexpr absl::string_view kEndOfHead = "\r\n\r\n";

bool IsControl(char c) { return absl::ascii_iscntrl(c) && c != '\t'; }

// The library that parses requests may need far more time and stack than a request is long: it
// decompresses bodies, and matches ranges with std::regex. So this function looks at each request
// first, and refuses what could cost much. It also refuses what the library might read differently.
RequestProgress JudgeHead(absl::string_view head, uint64_t& body_bytes) {
  const absl::string_view method = head.substr(0, head.find(' '));
  if (method != "GET" && method != "HEAD" && method != "POST") return RequestProgress::kNoMethod;
  std::optional<uint64_t> length;
  for (const absl::string_view line : absl::StrSplit(head, kEndOfLine)) {
    // A line that ends in '\n' alone is one line for some parsers, and two for others.
    if (std::any_of(line.begin(), line.end(), IsControl)) return RequestProgress::kMalformed;
    const std::pair<absl::string_view, absl::string_view> field =
        absl::StrSplit(line, absl::MaxSplits(':', 1));
    const absl::string_view name = absl::StripAsciiWhitespace(field.first);
    if (absl::EqualsIgnoreCase(name, "Transfer-Encoding")) return RequestProgress::kMalformed;
    if (absl::EqualsIgnoreCase(name, "Content-Encoding")) return RequestProgress::kPacked;
    if (absl::EqualsIgnoreCase(name, "Range")) return RequestProgress::kPart;
    if (!absl::EqualsIgnoreCase(name, "Content-Length")) continue;
    const absl::string_view digits = absl::StripAsciiWhitespace(field.second);
    uint64_t value = 0;
    if (length.has_value() || digits.empty() || !absl::ascii_isdigit(digits[0]) ||
        !absl::SimpleAtoi(digits, &value)) {
      return RequestProgress::kMalformed;
    }
    length = value;
  }
  body_bytes = length.value_or(0);
  return body_bytes > kMaxBodyBytes ? RequestProgress::kBodyTooLong : RequestProgress::kComplete;
}

}  // namespace

RequestProgress JudgeRequest(absl::string_view bytes) {
  const size_t line_bytes = bytes.find(kEndOfLine);
  if (std::min(line_bytes, bytes.size()) > kMaxRequestLineBytes) {
    return RequestProgress::kLineTooLong;
  }
  const size_t end_of_head = bytes.find(kEndOfHead);
  if (std::min(end_of_head, bytes.size()) > kMaxHeadBytes) return RequestProgress::kHeadTooLong;
  if (end_of_head == absl::string_view::npos) return RequestProgress::kIncomplete;
  uint64_t body_bytes = 0;
  const RequestProgress head = JudgeHead(bytes.substr(0, end_of_head), body_bytes);
  if (head != RequestProgress::kComplete) return head;
  const size_t whole = end_of_head + kEndOfHead.size() + body_bytes;
  return bytes.size() < whole ? RequestProgress::kIncomplete : RequestProgress::kComplete;
}

std::string RefusalOf(RequestProgress progress) {
  std::string status = "400 Bad Request";
  std::string text =
      "the request's head has bytes that are not text, or does not say how long its body is; send "
      "Content-Length once, and no Transfer-Encoding\n";
  if (progress == RequestProgress::kLineTooLong) {
    status = "414 URI Too Long";
    text = absl::StrCat("the first line has more than ", kMaxRequestLineBytes, " bytes\n");
  } else if (progress == RequestProgress::kHeadTooLong) {
    status = "431 Request Header Fields Too Large";
    text = absl::StrCat("the headers have more than ", kMaxHeadBytes, " bytes\n");
  } else if (progress == RequestProgress::kBodyTooLong) {
    status = "413 Payload Too Large";
    text = absl::StrCat("the body has more than ", kMaxBodyBytes, " bytes\n");
  } else if (progress == RequestProgress::kNoMethod) {
    status = "405 Method Not Allowed\r\nAllow: GET, HEAD, POST";
    text = "the method is not GET, HEAD or POST\n";
  } else if (progress == RequestProgress::kPacked) {
    status = "415 Unsupported Media Type";
    text = "the body is compressed (Content-Encoding); send it uncompressed\n";
  } else if (progress == RequestProgress::kPart) {
    status = "416 Range Not Satisfiable";
    text = "the server sends only whole pages; send the request without Range\n";
  }
  return TextAnswer(status, text);
}

}  // namespace lodestar::http
