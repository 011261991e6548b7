// SPDX-License-Identifier: Apache-2.0

#include "common/process/command_line.h"

#include <fstream>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/reflection.h"
#include "common/runtime/local_path.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

ABSL_FLAG(int, test_count, 3, "How many; default 3.");
ABSL_FLAG(double, test_rate, 1.0, "A rate.");
ABSL_FLAG(bool, test_switch, false, "Switches.");
ABSL_FLAG(std::string, test_text, "", "Any text. Second sentence.");
ABSL_FLAG(lodestar::LocalPath, test_path, "", "Any path.");

namespace lodestar::process {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
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
  EXPECT_THAT(line->positionals, ElementsAre("run"));
  EXPECT_THAT(line->passed_on, ElementsAre("--not_a_flag"));
  EXPECT_THAT(line->given, UnorderedElementsAre("test_count", "test_text", "test_switch"));
  ASSERT_TRUE(ParseCommandLine({"--notest_switch"}).ok());
  EXPECT_FALSE(absl::GetFlag(FLAGS_test_switch));
}

TEST_F(CommandLineTest, ReadsFlagFiles) {
  const std::string path = WriteFile("flags.txt", "--test_count=5  # five\n--test_switch\n");
  for (const std::vector<std::string>& form :
       {std::vector<std::string>{"--flagfile=" + path}, {"--flagfile", path}}) {
    absl::FlagSaver saver;
    std::vector<std::string> arguments = {"--test_count=1"};
    arguments.insert(arguments.end(), form.begin(), form.end());
    const auto line = ParseCommandLine(arguments);
    ASSERT_TRUE(line.ok()) << line.status();
    EXPECT_EQ(absl::GetFlag(FLAGS_test_count), 5);
    EXPECT_TRUE(absl::GetFlag(FLAGS_test_switch));
  }
}

std::string ErrorOf(const std::vector<std::string>& arguments) {
  return std::string(ParseCommandLine(arguments).status().message());
}

TEST_F(CommandLineTest, RefusesWhatNoMessageCanCarry) {
  EXPECT_THAT(ParseCommandLine({"--test_text=d\xff"}).status().message(),
              HasSubstr("\"--test_text=d\\xff\" has bytes that are not UTF-8"));
}

TEST_F(CommandLineTest, NamesWhatIsWrong) {
  EXPECT_THAT(ErrorOf({"--test_count=x"}), HasSubstr("--test_count=x is not a whole number"));
  EXPECT_THAT(ErrorOf({"--test_count=2147483648"}),
              AllOf(HasSubstr("--test_count=2147483648"), HasSubstr("to 2147483647")));
  EXPECT_THAT(ErrorOf({"--test_count=1e4"}), HasSubstr("digits only: 10000"));
  EXPECT_THAT(ErrorOf({"--test_count=1e30"}), Not(HasSubstr("digits only")));
  EXPECT_THAT(ErrorOf({"-x"}), AllOf(HasSubstr("-x is not a flag"), Not(HasSubstr("--x"))));
  EXPECT_THAT(ErrorOf({"--test_switch=2"}), HasSubstr("is not true or false"));
  EXPECT_THAT(ErrorOf({"--test_text"}), HasSubstr("needs a value"));
  EXPECT_THAT(ErrorOf({"--flagfile"}), HasSubstr("needs a value"));
}

TEST_F(CommandLineTest, NamesANoBreakSpaceByItsNumber) {
  EXPECT_THAT(ErrorOf({"--test_count\xc2\xa0"
                       "5"}),
              HasSubstr("U+00A0"));
  EXPECT_THAT(ErrorOf({"--test_count=\xc2\xa0"
                       "5"}),
              HasSubstr("U+00A0"));
  EXPECT_THAT(ErrorOf({"--test_count=x"}), Not(HasSubstr("U+00A0")));
}

TEST_F(CommandLineTest, NumbersThatWouldBeReadAsZeroAreRefused) {
  for (const std::string tiny : {"1e-400", "-1e-400", "0.2e-310"}) {
    EXPECT_THAT(ErrorOf({"--test_rate=" + tiny}), HasSubstr("--test_rate=" + tiny));
  }
  for (const std::string fine : {"0", "0e-400", "-0.0", "1e-300", "5"}) {
    EXPECT_EQ(ErrorOf({"--test_rate=" + fine}), "");
  }
}

TEST_F(CommandLineTest, FlagThatIsGivenTwiceIsNamedWithBothValues) {
  const CommandLine line =
      *ParseCommandLine({"--test_count=7", "--test_text=a", "--test_count=8", "--test_text=a"});
  ASSERT_EQ(line.doubts.size(), 1);
  EXPECT_THAT(line.doubts[0], AllOf(HasSubstr("--test_count"), HasSubstr("7"), HasSubstr("8")));
  EXPECT_EQ(absl::GetFlag(FLAGS_test_count), 8);
  // A command line may override a flag file. That is not reported as a doubt.
  const std::string file = WriteFile("defaults.txt", "--test_count=6\n");
  EXPECT_TRUE(ParseCommandLine({"--flagfile=" + file, "--test_count=7"})->doubts.empty());
}

TEST_F(CommandLineTest, FlagsThatAreGivenWithoutAValueAreNamedInOneSentence) {
  const CommandLine line = *ParseCommandLine({"--test_path=", "--test_text", "", "--test_count=7"});
  ASSERT_EQ(line.doubts.size(), 1);
  EXPECT_THAT(line.doubts[0], AllOf(HasSubstr("--test_path"), HasSubstr("--test_text")));
  EXPECT_THAT(line.doubts[0], Not(HasSubstr("--test_count")));
  const std::string file = WriteFile("empty.txt", "--test_path=\n");
  EXPECT_EQ(ParseCommandLine({"--flagfile=" + file})->doubts.size(), 1);
  EXPECT_EQ(ParseCommandLine({"--test_path=", "--test_path=runs"})->doubts.size(), 1);
}

TEST_F(CommandLineTest, HomeThatTheShellDidNotPutInIsRefused) {
  EXPECT_THAT(ErrorOf({"--test_path=~/runs"}),
              AllOf(HasSubstr("--test_path"), HasSubstr("$HOME/runs")));
}

TEST_F(CommandLineTest, PathsOfOtherMachinesAreRefused) {
  EXPECT_THAT(ErrorOf({"--test_path=s3://bucket/run"}),
              AllOf(HasSubstr("--test_path"), HasSubstr("s3://bucket/run")));
  EXPECT_THAT(ErrorOf({"--flagfile=s3://bucket/flags"}), HasSubstr("s3://bucket/flags"));
  EXPECT_EQ(ErrorOf({"--test_path=runs/1"}), "");
  EXPECT_EQ(ErrorOf({"--test_text=s3://bucket/run"}), "");
}

TEST_F(CommandLineTest, GuessesTheFlagThatWasMeant) {
  EXPECT_THAT(ErrorOf({"--tset_count=1"}), HasSubstr("did you mean --test_count?"));
  EXPECT_THAT(ErrorOf({"--test-switch"}), HasSubstr("did you mean --test_switch?"));
  EXPECT_THAT(ErrorOf({"--elephants"}), HasSubstr("--helpfull lists them"));
}

TEST_F(CommandLineTest, ErrorsOfFlagFilesNameFileAndLine) {
  const std::string wrong = WriteFile("wrong.txt", "\n--test_count=x\n");
  EXPECT_THAT(ErrorOf({"--flagfile=" + wrong}), HasSubstr("wrong.txt line 2: --test_count=x"));
  const std::string outer = WriteFile("outer.txt", "--flagfile=" + wrong + "\n");
  EXPECT_THAT(ErrorOf({"--flagfile", outer}),
              AllOf(HasSubstr("outer.txt line 1: "), HasSubstr("wrong.txt line 2: ")));
  EXPECT_THAT(ErrorOf({"--flagfile=/no/such/file"}), HasSubstr("cannot open /no/such/file"));
  EXPECT_THAT(ErrorOf({"--flagfile=" + testing::TempDir()}), HasSubstr("a folder"));
  const std::string cycle = testing::TempDir() + "/cycle.txt";
  WriteFile("cycle.txt", "--flagfile=" + cycle + "\n");
  EXPECT_THAT(ErrorOf({"--flagfile=" + cycle}), HasSubstr("leads back to itself"));
}

TEST_F(CommandLineTest, WordsAreRefusedWhereOnlyFlagsCount) {
  EXPECT_TRUE(CheckOnlyFlags(*ParseCommandLine({"--test_count=7"})).ok());
  EXPECT_THAT(CheckOnlyFlags(*ParseCommandLine({"rounds=7"})).message(), HasSubstr("\"rounds=7\""));
  EXPECT_THAT(CheckOnlyFlags(*ParseCommandLine({"--", "rest"})).message(), HasSubstr("\"rest\""));
  EXPECT_THAT(
      CheckOnlyFlags(*ParseCommandLine({"lodestar://h:1/L1secret"})).message(),
      AllOf(HasSubstr("lodestar://h:1/..."), HasSubstr("--join"), Not(HasSubstr("secret"))));
}

TEST_F(CommandLineTest, HelpShowsGroupsDefaultsAndText) {
  for (const char* form : {"--help", "-help", "-h"}) {
    EXPECT_EQ(ParseCommandLine({form})->request, CommandLineRequest::kHelp) << form;
  }
  EXPECT_EQ(ParseCommandLine({"--helpfull"})->request, CommandLineRequest::kHelpFull);
  EXPECT_EQ(ParseCommandLine({"--version"})->request, CommandLineRequest::kVersion);
  const std::string help = FormatHelp("usage\n", {{"Numbers", {"test_count"}}});
  EXPECT_THAT(help, HasSubstr("Numbers:\n  --test_count=3\n      How many; default 3.\n"));
}

TEST_F(CommandLineTest, ShortHelpShowsFirstSentencesAndWhereTheOthersAre) {
  const std::string help = FormatShortHelp("usage\n", {"test_text"});
  EXPECT_THAT(help, AllOf(HasSubstr("usage\n"), HasSubstr("  --test_text"), HasSubstr("--helpfull"),
                          Not(HasSubstr("--test_count"))));
  EXPECT_THAT(help, Not(HasSubstr("Second sentence")));
}

}  // namespace
}  // namespace lodestar::process
