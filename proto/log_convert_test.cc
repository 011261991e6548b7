// SPDX-License-Identifier: Apache-2.0

#include "proto/log_convert.h"

#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lodestar::wire {
namespace {

using ::testing::HasSubstr;

TEST(LogConvertTest, AQueryGoesThereAndBack) {
  const logging::LogQuery query = {.after = 7,
                                   .least_level = logging::LogLevel::kWarn,
                                   .worker = "w1",
                                   .round = 0,
                                   .most_lines = 12,
                                   .oldest_first = true};
  const absl::StatusOr<logging::LogQuery> back = FromProto(ToProto(query, "ab"), "ab");
  ASSERT_OK(back);
  EXPECT_EQ(back->after, 7);
  EXPECT_EQ(back->least_level, logging::LogLevel::kWarn);
  EXPECT_EQ(back->worker, "w1");
  EXPECT_EQ(back->round, 0);
  EXPECT_EQ(back->most_lines, 12);
  EXPECT_TRUE(back->oldest_first);
}

TEST(LogConvertTest, AnotherLogIsReadFromItsBegin) {
  EXPECT_EQ(FromProto(ToProto(logging::LogQuery{.after = 7}, "ab"), "cd")->after, 0);
}

TEST(LogConvertTest, ARequestIsBounded) {
  v1::ReadLogRequest request;
  EXPECT_EQ(FromProto(request, "")->most_lines, 1000);
  request.set_max_lines(4'000'000'000);
  EXPECT_EQ(FromProto(request, "")->most_lines, 1000);
  EXPECT_EQ(FromProto(request, "")->most_bytes, 1 << 20);
  request.set_round(-1);
  EXPECT_THAT(FromProto(request, ""),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("round is -1")));
  request.set_round(1);
  request.set_worker(std::string(65, 'w'));
  EXPECT_THAT(FromProto(request, ""),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("65 bytes")));
}

TEST(LogConvertTest, AnAnswerGoesThereAndBackAndDeceivesNoTerminal) {
  LogPage page = {.log_id = "ab", .process = "ps_server", .excerpt = {}};
  page.excerpt.lines = {{9, absl::FromUnixMicros(5), logging::LogLevel::kError, "disk full"}};
  page.excerpt.last_number = 9;
  page.excerpt.num_gone = 3;
  page.excerpt.has_more = true;
  absl::StatusOr<LogPage> back = FromProto(ToProto(page));
  ASSERT_OK(back);
  EXPECT_EQ(back->log_id, "ab");
  EXPECT_EQ(back->process, "ps_server");
  EXPECT_EQ(back->excerpt.lines, page.excerpt.lines);
  EXPECT_EQ(back->excerpt.last_number, 9);
  EXPECT_EQ(back->excerpt.num_gone, 3);
  EXPECT_TRUE(back->excerpt.has_more);

  page.excerpt.lines[0].text = "a\x1b[2J";
  EXPECT_EQ(FromProto(ToProto(page))->excerpt.lines[0].text, "a\\x1b[2J");
  v1::ReadLogReply many;
  for (int i = 0; i <= 1000; ++i) many.add_lines();
  EXPECT_THAT(FromProto(many), StatusIs(absl::StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace lodestar::wire
