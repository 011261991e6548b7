// SPDX-License-Identifier: Apache-2.0

#include "common/process/shell_command.h"

#include <fcntl.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lodestar::process {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(ShellCommandTest, PassesEnvironmentAndLines) {
  std::vector<std::string> lines;
  ShellCommandDeps deps;
  deps.on_line = [&](absl::string_view line) { lines.emplace_back(line); };
  EXPECT_OK(RunShellCommand(
      {"echo \"$LODESTAR_TEST\"; echo error >&2; printf end; cat", {{"LODESTAR_TEST", "a b"}}},
      deps));
  EXPECT_THAT(lines, ElementsAre("a b", "error", "end"));
}

TEST(ShellCommandTest, TellsExitCodeSignalAndLastLine) {
  EXPECT_THAT(RunShellCommand({"echo no such bucket; exit 3", {}}, {}),
              StatusIs(absl::StatusCode::kAborted,
                       AllOf(HasSubstr("exit code 3"), HasSubstr("no such bucket"))));
  EXPECT_THAT(RunShellCommand({"kill -9 $$", {}}, {}),
              StatusIs(absl::StatusCode::kAborted, HasSubstr("signal 9")));
  EXPECT_THAT(RunShellCommand({"/no/such/program", {}}, {}),
              StatusIs(absl::StatusCode::kAborted, HasSubstr("exit code 127")));
}

TEST(ShellCommandTest, EndsWhatItHasStarted) {
  ShellCommandDeps deps;
  deps.must_end = [] { return true; };
  EXPECT_THAT(RunShellCommand({"sleep 1000 & sleep 1000", {}}, deps),
              StatusIs(absl::StatusCode::kCancelled, HasSubstr("was stopped")));
}

TEST(ShellCommandTest, WaitsForNoOutputThatAGrandchildKeepsOpen) {
  EXPECT_OK(RunShellCommand({"sleep 5 &", {}}, {}));
}

TEST(ShellCommandTest, HasNoFilesOfThisProcess) {
  const int kept = open("/dev/null", O_RDONLY);
  std::vector<std::string> lines;
  ShellCommandDeps deps;
  deps.on_line = [&](absl::string_view line) { lines.emplace_back(line); };
  EXPECT_OK(RunShellCommand(
      {"test -e /proc/$$/fd/" + std::to_string(kept) + " && echo open; echo done", {}}, deps));
  EXPECT_THAT(lines, ElementsAre("done"));
  close(kept);
}

}  // namespace
}  // namespace lodestar::process
