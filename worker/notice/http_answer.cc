// SPDX-License-Identifier: Apache-2.0

#include "worker/notice/http_answer.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/runtime/peer_text.h"
#include "common/runtime/status_macros.h"

namespace lodestar::notice {
namespace {

constexpr size_t kShownBytes = 80;
constexpr absl::string_view kStart = "HTTP/1.";
constexpr absl::string_view kHeaderEnd = "\r\n\r\n";
constexpr absl::string_view kLastChunk = "0\r\n\r\n";

absl::Status NoHttp(absl::string_view found) {
  return absl::InvalidArgumentError(
      absl::StrCat("the answer is not HTTP: '", PeerText(found, kShownBytes), "'"));
}

// Returns the status code of a line such as "HTTP/1.1 404 Not Found".
absl::StatusOr<int> StatusIn(absl::string_view line) {
  const std::vector<absl::string_view> words = absl::StrSplit(line, ' ');
  int status = 0;
  if (words.size() < 2 || words[1].size() != 3 || !absl::SimpleAtoi(words[1], &status) ||
      status < 200 || status > 599) {
    return NoHttp(line);
  }
  return status;
}

// Returns the body that the chunks contain (RFC 9112, section 7.1). Ignores extensions and
// trailers.
absl::StatusOr<std::string> JoinChunks(absl::string_view rest) {
  std::string body;
  while (true) {
    const size_t line_end = rest.find("\r\n");
    if (line_end == absl::string_view::npos) {
      return absl::UnavailableError("the answer ends in the middle of a chunk");
    }
    const absl::string_view line = rest.substr(0, line_end);
    const absl::string_view number = line.substr(0, line.find_first_of("; \t"));
    uint32_t size = 0;
    if (number.empty() || !absl::SimpleHexAtoi(number, &size)) {
      return absl::InvalidArgumentError(absl::StrCat("the answer has a chunk of size '",
                                                     PeerText(number, kShownBytes),
                                                     "', which is not a hexadecimal number"));
    }
    rest.remove_prefix(line_end + 2);
    if (size == 0) return body;
    if (size > rest.size())
      return absl::UnavailableError("the answer ends in the middle of a chunk");
    absl::StrAppend(&body, rest.substr(0, size));
    rest.remove_prefix(size);
    if (!absl::ConsumePrefix(&rest, "\r\n")) {
      return rest.size() < 2 ? absl::UnavailableError("the answer ends in the middle of a chunk")
                             : absl::InvalidArgumentError(
                                   "the answer has a chunk that is longer than its announced size");
    }
  }
}

}  // namespace

absl::Status HttpAnswerReader::Add(absl::string_view bytes) {
  if (bytes.size() > kMaxBytes - bytes_.size()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the answer is longer than ", kMaxBytes, " bytes"));
  }
  absl::StrAppend(&bytes_, bytes);
  const size_t known = std::min(bytes_.size(), kStart.size());
  if (absl::string_view(bytes_).substr(0, known) != kStart.substr(0, known)) return NoHttp(bytes_);
  return body_begin_.has_value() ? absl::OkStatus() : ReadHeader();
}

absl::Status HttpAnswerReader::ReadHeader() {
  const size_t end = absl::string_view(bytes_).find(kHeaderEnd);
  if (end == absl::string_view::npos) return absl::OkStatus();
  const std::vector<absl::string_view> lines =
      absl::StrSplit(absl::string_view(bytes_).substr(0, end), "\r\n");
  ASSIGN_OR_RETURN(status_, StatusIn(lines[0]));
  body_begin_ = end + kHeaderEnd.size();
  for (size_t i = 1; i < lines.size(); ++i) {
    const std::pair<absl::string_view, absl::string_view> field =
        absl::StrSplit(lines[i], absl::MaxSplits(':', 1));
    const absl::string_view value = absl::StripAsciiWhitespace(field.second);
    if (absl::EqualsIgnoreCase(field.first, "transfer-encoding")) {
      if (!absl::EqualsIgnoreCase(value, "chunked")) {
        return absl::InvalidArgumentError(absl::StrCat("the answer has transfer encoding '",
                                                       PeerText(value, kShownBytes),
                                                       "', but only chunked can be read"));
      }
      is_chunked_ = true;
    }
    if (absl::EqualsIgnoreCase(field.first, "content-length")) {
      uint64_t length = 0;
      if (!absl::SimpleAtoi(value, &length) || length > kMaxBytes) {
        return absl::ResourceExhaustedError(
            absl::StrCat("the answer is '", PeerText(value, kShownBytes),
                         "' bytes long; allowed are at most ", kMaxBytes));
      }
      body_bytes_ = length;
    }
  }
  if (status_ == 204 || status_ == 304) body_bytes_ = 0;
  return absl::OkStatus();
}

bool HttpAnswerReader::is_complete() const {
  if (!body_begin_.has_value()) return false;
  // The bytes of the last chunk may also occur inside another chunk, so all chunks are parsed.
  if (is_chunked_) return absl::EndsWith(body(), kLastChunk) && JoinChunks(body()).ok();
  return body_bytes_.has_value() && body().size() >= *body_bytes_;
}

absl::StatusOr<FetchedAnswer> HttpAnswerReader::Finish() const {
  if (!body_begin_.has_value()) {
    return absl::UnavailableError("the connection was closed before an answer arrived");
  }
  if (is_chunked_) {
    ASSIGN_OR_RETURN(std::string joined, JoinChunks(body()));
    return FetchedAnswer{status_, std::move(joined)};
  }
  if (body_bytes_.has_value() && body().size() < *body_bytes_) {
    return absl::UnavailableError(
        absl::StrCat("the answer ends after ", body().size(), " of ", *body_bytes_, " bytes"));
  }
  return FetchedAnswer{status_, std::string(body().substr(0, body_bytes_.value_or(body().size())))};
}

}  // namespace lodestar::notice
