#include "common/command_line.h"

#include <fstream>

#include "absl/flags/flag.h"
#include "absl/flags/reflection.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

ABSL_FLAG(int, test_count, 3, "How many; default 3.");
ABSL_FLAG(bool, test_switch, false, "Switches.");
ABSL_FLAG(std::string, test_text, "", "Any text.");

namespace lodestar {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

class CommandLineTest : public testing::Test {
 private:
  absl::FlagSaver saver_;
};

std::string WriteFile(const std::string& name, const std::string& content) {
  const std::string path = testing::TempDir() + "/" + name;
  std::ofstream(path) << content;
  return path;
}

TEST_F(CommandLineTest, SetsFlagsInEveryForm) {
  const auto line = ParseCommandLine(
      {"--test_count=7", "run", "--test_text", "a b", "--test_switch", "--", "--not_a_flag"});
  ASSERT_TRUE(line.ok()) << line.status();
  EXPECT_EQ(absl::GetFlag(FLAGS_test_count), 7);
  EXPECT_EQ(absl::GetFlag(FLAGS_test_text), "a b");
  EXPECT_TRUE(absl::GetFlag(FLAGS_test_switch));
  EXPECT_THAT(line->positionals, ElementsAre("run", "--not_a_flag"));
  EXPECT_THAT(line->given, UnorderedElementsAre("test_count", "test_text", "test_switch"));
  ASSERT_TRUE(ParseCommandLine({"--notest_switch"}).ok());
  EXPECT_FALSE(absl::GetFlag(FLAGS_test_switch));
}

TEST_F(CommandLineTest, ReadsFlagFiles) {
  const std::string path = WriteFile("flags.txt", "# comment\n\n--test_count=5\n  --test_switch\n");
  const auto line = ParseCommandLine({"--test_count=1", "--flagfile=" + path, "--test_text=x"});
  ASSERT_TRUE(line.ok()) << line.status();
  EXPECT_EQ(absl::GetFlag(FLAGS_test_count), 5);
  EXPECT_TRUE(absl::GetFlag(FLAGS_test_switch));
}

TEST_F(CommandLineTest, NamesWhatIsWrong) {
  EXPECT_THAT(ParseCommandLine({"--test_count=x"}).status().ToString(),
              HasSubstr("--test_count=x cannot be read"));
  EXPECT_THAT(ParseCommandLine({"--tset_count=1"}).status().ToString(),
              HasSubstr("--tset_count is not a flag"));
  EXPECT_THAT(ParseCommandLine({"--test_text"}).status().ToString(), HasSubstr("needs a value"));
  EXPECT_THAT(ParseCommandLine({"--flagfile=" + WriteFile("bad.txt", "--test_count=1\nwrong\n")})
                  .status()
                  .ToString(),
              HasSubstr("line 2: \"wrong\""));
  const std::string cycle = testing::TempDir() + "/cycle.txt";
  WriteFile("cycle.txt", "--flagfile=" + cycle + "\n");
  EXPECT_THAT(ParseCommandLine({"--flagfile=" + cycle}).status().ToString(), HasSubstr("cycle"));
}

TEST_F(CommandLineTest, HelpShowsGroupsDefaultsAndText) {
  EXPECT_EQ(ParseCommandLine({"--help"})->request, CommandLineRequest::kHelp);
  EXPECT_EQ(ParseCommandLine({"--version"})->request, CommandLineRequest::kVersion);
  const std::string help = FormatHelp("usage\n", {{"Numbers", {"test_count"}}});
  EXPECT_THAT(help, HasSubstr("Numbers:\n  --test_count=3\n      How many; default 3.\n"));
}

}  // namespace
}  // namespace lodestar
