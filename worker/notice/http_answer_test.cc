// SPDX-License-Identifier: Apache-2.0

#include "worker/notice/http_answer.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lodestar::notice {
namespace {

using ::testing::HasSubstr;

// Passes an answer to a reader in pieces of `piece` bytes, until the reader says that it is
// complete.
absl::StatusOr<FetchedAnswer> Read(absl::string_view bytes, size_t piece) {
  HttpAnswerReader reader;
  while (!bytes.empty() && !reader.is_complete()) {
    const absl::Status added = reader.Add(bytes.substr(0, piece));
    if (!added.ok()) return added;
    bytes.remove_prefix(std::min(piece, bytes.size()));
  }
  return reader.Finish();
}

void ExpectBody(absl::string_view bytes, int status, const std::string& body) {
  for (const size_t piece : {1, 7, 100000}) {
    const absl::StatusOr<FetchedAnswer> answer = Read(bytes, piece);
    ASSERT_OK(answer) << piece;
    EXPECT_EQ(answer->status, status);
    EXPECT_EQ(answer->body, body);
  }
}

void ExpectError(absl::string_view bytes, absl::StatusCode code, const std::string& text) {
  for (const size_t piece : {1, 7, 100000}) {
    EXPECT_THAT(Read(bytes, piece), StatusIs(code, HasSubstr(text))) << piece;
  }
}

TEST(HttpAnswerTest, EndsWhereItsLengthItsChunksOrItsConnectionDo) {
  ExpectBody("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nTRUE", 200, "TRUE");
  ExpectBody("HTTP/1.0 404 Not Found\r\ncontent-length:0\r\n\r\n", 404, "");
  ExpectBody("HTTP/1.1 204 No Content\r\n\r\n", 204, "");
  ExpectBody("HTTP/1.1 200 OK\r\nServer: x\r\n\r\nuntil the end", 200, "until the end");
  ExpectBody(
      "HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n5;a=b\r\nFALSE\r\nA\r\n0\r\n\r\n56789"
      "\r\n0\r\n\r\n",
      200, "FALSE0\r\n\r\n56789");
  ExpectBody("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 200, "");
}

TEST(HttpAnswerTest, WhatFollowsIsNotPartOfIt) {
  EXPECT_EQ(Read("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nabcd", 1000)->body, "ab");
}

TEST(HttpAnswerTest, WhatEndsTooSoonIsUnavailable) {
  const auto code = absl::StatusCode::kUnavailable;
  ExpectError("", code, "before an answer arrived");
  ExpectError("HTTP/1.1 200 OK\r\nServer: x\r\n", code, "before an answer arrived");
  ExpectError("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nTRUE", code, "4 of 5 bytes");
  const std::string chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (const char* rest : {"", "5", "5\r\nFAL", "5\r\nFALSE", "5\r\nFALSE\r\n"}) {
    ExpectError(chunked + rest, code, "in the middle of a chunk");
  }
}

TEST(HttpAnswerTest, WhatIsNoHttpIsRefused) {
  const auto code = absl::StatusCode::kInvalidArgument;
  ExpectError("SSH-2.0-OpenSSH_9.2\r\n", code, "not HTTP");
  ExpectError("HTTP/2 200\r\n\r\n", code, "not HTTP");
  for (const char* status : {"", "ok", "20", "2000", "100", "600", "-20", "+20"}) {
    ExpectError(absl::StrCat("HTTP/1.1 ", status, " x\r\n\r\n"), code, "not HTTP");
  }
  const std::string header = "HTTP/1.1 200 OK\r\nTransfer-Encoding: ";
  ExpectError(header + "gzip\r\n\r\n", code, "gzip");
  ExpectError(header + "chunked\r\n\r\nx\r\n0\r\n\r\n", code, "chunk of size 'x'");
  ExpectError(header + "chunked\r\n\r\n100000000\r\n\r\n0\r\n\r\n", code, "chunk of size");
  ExpectError(header + "chunked\r\n\r\n1\r\nabc\r\n0\r\n\r\n", code,
              "longer than its announced size");
}

TEST(HttpAnswerTest, ALongOneIsRefusedBeforeItIsThere) {
  const auto code = absl::StatusCode::kResourceExhausted;
  for (const char* length : {"65537", "18446744073709551616", "-1", "x"}) {
    ExpectError(absl::StrCat("HTTP/1.1 200 OK\r\nContent-Length: ", length, "\r\n\r\n"), code,
                length);
  }
  const std::string begin = "HTTP/1.1 200 OK\r\n\r\n";
  const std::string fits(HttpAnswerReader::kMaxBytes - begin.size(), 'x');
  EXPECT_OK(Read(begin + fits, 4096));
  EXPECT_THAT(Read(begin + fits + "x", 4096), StatusIs(code, HasSubstr("longer than 65536")));
  EXPECT_THAT(Read("HTTP/1.1 200 OK\r\nx: " + fits + fits, 4096), StatusIs(code));
}

TEST(HttpAnswerTest, TextsOfTheServerCannotDeceiveATerminal) {
  EXPECT_THAT(Read("\x1b[2J", 100),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("\\x1b")));
}

}  // namespace
}  // namespace lodestar::notice
