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

namespace lodestar {
namespace {

constexpr absl::string_view kEndOfLine = "\r\n";
constexpr absl::string_view kEndOfHead = "\r\n\r\n";

// Bytes of the body; nothing: what the head says of it is not clear.
std::optional<uint64_t> BodyBytes(absl::string_view head) {
  std::optional<uint64_t> length;
  for (const absl::string_view line : absl::StrSplit(head, kEndOfLine)) {
    const std::pair<absl::string_view, absl::string_view> field =
        absl::StrSplit(line, absl::MaxSplits(':', 1));
    const absl::string_view name = absl::StripAsciiWhitespace(field.first);
    if (absl::EqualsIgnoreCase(name, "Transfer-Encoding")) return std::nullopt;
    if (!absl::EqualsIgnoreCase(name, "Content-Length")) continue;
    const absl::string_view digits = absl::StripAsciiWhitespace(field.second);
    uint64_t value = 0;
    if (length.has_value() || digits.empty() || !absl::ascii_isdigit(digits[0]) ||
        !absl::SimpleAtoi(digits, &value)) {
      return std::nullopt;
    }
    length = value;
  }
  return length.value_or(0);
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
  const std::optional<uint64_t> body_bytes = BodyBytes(bytes.substr(0, end_of_head));
  if (!body_bytes.has_value()) return RequestProgress::kMalformed;
  if (*body_bytes > kMaxBodyBytes) return RequestProgress::kBodyTooLong;
  const size_t whole = end_of_head + kEndOfHead.size() + *body_bytes;
  return bytes.size() < whole ? RequestProgress::kIncomplete : RequestProgress::kComplete;
}

std::string RefusalOf(RequestProgress progress) {
  std::string status = "400 Bad Request";
  std::string text = "the request says of its body neither nothing nor one Content-Length\n";
  if (progress == RequestProgress::kLineTooLong) {
    status = "414 URI Too Long";
    text = absl::StrCat("the first line has more than ", kMaxRequestLineBytes, " bytes\n");
  } else if (progress == RequestProgress::kHeadTooLong) {
    status = "431 Request Header Fields Too Large";
    text = absl::StrCat("the headers have more than ", kMaxHeadBytes, " bytes\n");
  } else if (progress == RequestProgress::kBodyTooLong) {
    status = "413 Payload Too Large";
    text = absl::StrCat("the body has more than ", kMaxBodyBytes, " bytes\n");
  }
  return TextAnswer(status, text);
}

}  // namespace lodestar
