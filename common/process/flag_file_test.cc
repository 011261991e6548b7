// SPDX-License-Identifier: Apache-2.0

#include "common/process/flag_file.h"

#include <fstream>

#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lodestar::process {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

absl::StatusOr<std::vector<FlagFileLine>> Read(const std::string& content) {
  const std::string path = testing::TempDir() + "/flags.txt";
  std::ofstream(path, std::ios::binary) << content;
  return ReadFlagFile(path);
}

std::vector<std::string> ArgumentsOf(const std::string& content) {
  const auto lines = Read(content);
  EXPECT_OK(lines.status());
  std::vector<std::string> arguments;
  if (!lines.ok()) return arguments;
  for (const FlagFileLine& line : *lines) arguments.push_back(line.argument);
  return arguments;
}

TEST(FlagFileTest, TakesTheFormsOfACommandLine) {
  EXPECT_THAT(ArgumentsOf("--a=1\n  -b 2\r\n\n--c\t3\n--d\n--e=x y\n--f = 4\n--g  =\"5\"\n--h "
                          "=\n--i = # no\n--j==6"),
              ElementsAre("--a=1", "-b=2", "--c=3", "--d", "--e=x y", "--f=4", "--g=5",
                          "--h=", "--i=", "--j==6"));
}

TEST(FlagFileTest, SkipsCommentsAndAByteOrderMark) {
  EXPECT_THAT(ArgumentsOf("\xef\xbb\xbf# head\n--a=1 # one\n--b\t#two\n  # three\n--c=#4\n--d=5#6"),
              ElementsAre("--a=1", "--b", "--c=#4", "--d=5#6"));
}

TEST(FlagFileTest, QuotesKeepAValueAsItIs) {
  EXPECT_THAT(ArgumentsOf("--a=\" x # y \"  # z\n--b \"\"\n--c=say \"hi\""),
              ElementsAre("--a= x # y ", "--b=", "--c=say \"hi\""));
  EXPECT_THAT(Read("--a=\"x"), StatusIs(absl::StatusCode::kInvalidArgument,
                                        AllOf(HasSubstr("line 1"), HasSubstr("not closed"))));
  EXPECT_THAT(Read("--a=\"x\"y"), StatusIs(absl::StatusCode::kInvalidArgument,
                                           AllOf(HasSubstr("line 1"), HasSubstr("closing quote"))));
}

TEST(FlagFileTest, LinesKeepTheirNumbers) {
  ASSERT_OK_AND_ASSIGN(const auto lines, Read("\n# one\n--a=1\n\n--b=2\n"));
  ASSERT_EQ(lines.size(), 2);
  EXPECT_EQ(lines[0].number, 3);
  EXPECT_EQ(lines[1].number, 5);
}

TEST(FlagFileTest, RefusesWhatIsNoFlagFile) {
  EXPECT_THAT(Read("--a=1\nrounds=5\n"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("flags.txt line 2: \"rounds=5\" is not a flag"))));
  EXPECT_THAT(Read("--"), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("line 1")));
  EXPECT_THAT(Read(std::string("--rounds=5\n--x=\0007\n", 18)),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("line 2: byte 5")));
  EXPECT_THAT(Read("--rounds\xc2\xa0"
                   "5\n"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("line 1"), HasSubstr("U+00A0"))));
  EXPECT_THAT(Read("\xc2\xa0--rounds=5\n"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("U+00A0")));
  EXPECT_THAT(Read("\xff\xfe-\n"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("UTF-16")));
  EXPECT_THAT(ReadFlagFile(testing::TempDir()),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("a folder")));
  EXPECT_THAT(Read(std::string((1 << 20) + 1, '#')),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("has more than")));
}

}  // namespace
}  // namespace lodestar::process
