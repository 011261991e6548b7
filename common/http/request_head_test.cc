// SPDX-License-Identifier: Apache-2.0

#include "common/http/request_head.h"

#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"

namespace lodestar::http {
namespace {

using ::testing::StartsWith;

TEST(RequestHeadTest, IsCompleteWithItsLastByteAndNotBefore) {
  const std::string request = "POST /x HTTP/1.1\r\nHost: a\r\ncontent-length: 3\r\n\r\nabc";
  for (size_t i = 0; i < request.size(); ++i) {
    EXPECT_EQ(JudgeRequest(absl::string_view(request).substr(0, i)), RequestProgress::kIncomplete)
        << i;
  }
  EXPECT_EQ(JudgeRequest(request), RequestProgress::kComplete);
  EXPECT_EQ(JudgeRequest("GET / HTTP/1.1\r\n\r\n"), RequestProgress::kComplete);
}

TEST(RequestHeadTest, WhatIsTooLongIsNotWaitedFor) {
  EXPECT_EQ(JudgeRequest(std::string(kMaxRequestLineBytes + 1, 'x')),
            RequestProgress::kLineTooLong);
  EXPECT_EQ(JudgeRequest(std::string(kMaxRequestLineBytes, 'x')), RequestProgress::kIncomplete);
  const std::string begin = "GET / HTTP/1.1\r\nX: ";
  EXPECT_EQ(JudgeRequest(begin + std::string(kMaxHeadBytes, 'x')), RequestProgress::kHeadTooLong);
  EXPECT_EQ(JudgeRequest(
                absl::StrCat("POST / HTTP/1.1\r\nContent-Length: ", kMaxBodyBytes + 1, "\r\n\r\n")),
            RequestProgress::kBodyTooLong);
  EXPECT_EQ(JudgeRequest("POST / HTTP/1.1\r\nContent-Length: 99999999999999999\r\n\r\n"),
            RequestProgress::kBodyTooLong);
}

TEST(RequestHeadTest, ABodyWhoseEndIsNotClearIsRefused) {
  for (const char* fields :
       {"Content-Length: -1", "Content-Length: ", "Content-Length: x", "Content-Length: +1",
        "Content-Length: 1\r\nContent-Length: 1", "Transfer-Encoding: chunked",
        "Content-Length: 99999999999999999999999"}) {
    EXPECT_EQ(JudgeRequest(absl::StrCat("POST / HTTP/1.1\r\n", fields, "\r\n\r\n")),
              RequestProgress::kMalformed)
        << fields;
  }
}

TEST(RequestHeadTest, ALineIsOneForEverybodyThatReadsIt) {
  for (const std::string fields :
       {"X: a\nContent-Encoding: br", "X: a\n", "X: a\rRange: bytes=0-", "X: \x01"}) {
    EXPECT_EQ(JudgeRequest(absl::StrCat("GET / HTTP/1.1\r\n", fields, "\r\n\r\n")),
              RequestProgress::kMalformed)
        << fields;
  }
  EXPECT_EQ(JudgeRequest("GET /\nRange: bytes=0- HTTP/1.1\r\n\r\n"), RequestProgress::kMalformed);
  EXPECT_EQ(JudgeRequest("GET / HTTP/1.1\r\nX:\ta\xc3\xa4\r\n\r\n"), RequestProgress::kComplete);
}

TEST(RequestHeadTest, RefusalsAreWholeAnswers) {
  EXPECT_THAT(RefusalOf(RequestProgress::kLineTooLong), StartsWith("HTTP/1.1 414 "));
  EXPECT_THAT(RefusalOf(RequestProgress::kHeadTooLong), StartsWith("HTTP/1.1 431 "));
  EXPECT_THAT(RefusalOf(RequestProgress::kBodyTooLong), StartsWith("HTTP/1.1 413 "));
  EXPECT_THAT(RefusalOf(RequestProgress::kMalformed), StartsWith("HTTP/1.1 400 "));
  EXPECT_THAT(RefusalOf(RequestProgress::kNoMethod), StartsWith("HTTP/1.1 405 "));
  EXPECT_THAT(RefusalOf(RequestProgress::kPacked), StartsWith("HTTP/1.1 415 "));
  EXPECT_THAT(RefusalOf(RequestProgress::kPart), StartsWith("HTTP/1.1 416 "));
}

}  // namespace
}  // namespace lodestar::http
