// SPDX-License-Identifier: Apache-2.0

#include "common/output/output_file.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/runtime/file_descriptor.h"
#include "common/runtime/file_io.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lodestar::output {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

class OutputFileTest : public testing::Test {
 protected:
  void SetUp() override { fs::create_directories(directory_); }
  void TearDown() override { fs::remove_all(directory_); }
  std::string PathOf(const std::string& name) const { return directory_ + "/" + name; }
  std::string ContentsOf(const std::string& name) const {
    const absl::StatusOr<std::string> contents = ReadWholeFile(PathOf(name), 1000);
    return contents.ok() ? *contents : contents.status().ToString();
  }
  int64_t NumEntries() const {
    const fs::directory_iterator entries(directory_);
    return std::distance(begin(entries), end(entries));
  }

  const std::string directory_ =
      testing::TempDir() + "/" + testing::UnitTest::GetInstance()->current_test_info()->name();
};

TEST_F(OutputFileTest, AReplacementComesWholeAndLeavesNothingElse) {
  ASSERT_OK(WriteFileAtomically(PathOf("f"), "first"));
  ASSERT_OK_AND_ASSIGN(ReplacementFile file, ReplacementFile::Create(PathOf("f")));
  ASSERT_OK(file.Append("sec"));
  EXPECT_EQ(ContentsOf("f"), "first");
  ASSERT_OK(file.Append("ond"));
  ASSERT_OK_AND_ASSIGN(const std::string written, file.Finish());
  EXPECT_EQ(std::filesystem::file_size(written), 6);
  EXPECT_EQ(ContentsOf("f"), "first");
  ASSERT_OK(file.Commit());
  EXPECT_EQ(ContentsOf("f"), "second");
  EXPECT_EQ(NumEntries(), 1);
}

TEST_F(OutputFileTest, WithoutCommitNothingHasHappened) {
  ASSERT_OK(WriteFileAtomically(PathOf("f"), "old"));
  {
    ASSERT_OK_AND_ASSIGN(ReplacementFile file, ReplacementFile::Create(PathOf("f")));
    ASSERT_OK(file.Append("new"));
  }
  EXPECT_EQ(ContentsOf("f"), "old");
  EXPECT_EQ(NumEntries(), 1);
}

TEST_F(OutputFileTest, AReplacementKeepsPermissions) {
  ASSERT_OK(WriteFileAtomically(PathOf("f"), "old"));
  ASSERT_EQ(chmod(PathOf("f").c_str(), 0600), 0);
  ASSERT_OK(WriteFileAtomically(PathOf("f"), "new"));
  struct stat info;
  ASSERT_EQ(stat(PathOf("f").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0600);
}

TEST_F(OutputFileTest, LinksStayAndWhatTheyLeadToIsReplaced) {
  fs::create_directories(PathOf("data"));
  ASSERT_OK(WriteFileAtomically(PathOf("data/target"), "old"));
  fs::create_symlink("data/target", PathOf("link"));
  fs::create_symlink("link", PathOf("link_to_link"));
  EXPECT_THAT(ResolveOutput(PathOf("link_to_link")), IsOkAndHolds(HasSubstr("data/target")));
  ASSERT_OK(WriteFileAtomically(PathOf("link_to_link"), "new"));
  EXPECT_EQ(ContentsOf("data/target"), "new");
  EXPECT_TRUE(fs::is_symlink(PathOf("link_to_link")));

  fs::create_symlink("data/not_yet", PathOf("dangling"));
  ASSERT_OK(WriteFileAtomically(PathOf("dangling"), "new"));
  EXPECT_EQ(ContentsOf("data/not_yet"), "new");
  EXPECT_TRUE(fs::is_symlink(PathOf("dangling")));

  fs::create_symlink("circle", PathOf("circle"));
  EXPECT_THAT(ResolveOutput(PathOf("circle")).status().ToString(), HasSubstr("circle"));
}

// Tries every way to write an output on paths that are not regular files.
TEST_F(OutputFileTest, OnlyRegularFilesAreWritten) {
  ASSERT_EQ(mkfifo(PathOf("fifo").c_str(), 0600), 0);
  fs::create_symlink("/dev/null", PathOf("null"));
  fs::create_directories(PathOf("folder"));
  int pipe_ends[2];
  ASSERT_EQ(pipe(pipe_ends), 0);
  const struct {
    std::string path;
    std::string text;
  } cases[] = {{PathOf("fifo"), "a FIFO"},
               {absl::StrCat("/proc/self/fd/", pipe_ends[1]), "a FIFO"},
               {"-", "would mean standard output"},
               {"/dev/null", "a device"},
               {PathOf("null"), "leads to /dev/null, a device"},
               {PathOf("folder"), "a folder"},
               {"", "is empty"}};
  for (const auto& [path, text] : cases) {
    const auto is_refused =
        StatusIs(absl::StatusCode::kInvalidArgument, AllOf(HasSubstr(path), HasSubstr(text)));
    EXPECT_THAT(WriteFileAtomically(path, "x"), is_refused);
    EXPECT_THAT(ReplacementFile::Create(path).status(), is_refused);
    EXPECT_THAT(LineFile::Open(path).status(), is_refused);
  }
  EXPECT_TRUE(fs::is_fifo(PathOf("fifo")));
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
  EXPECT_EQ(NumEntries(), 3);
  close(pipe_ends[0]);
  close(pipe_ends[1]);
}

TEST_F(OutputFileTest, FileOfStandardErrorIsRefused) {
  const FileDescriptor log(open(PathOf("log").c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
  const FileDescriptor former(dup(STDERR_FILENO));
  ASSERT_EQ(dup2(log.get(), STDERR_FILENO), STDERR_FILENO);
  std::vector<absl::Status> refusals;
  for (const std::string& path : {PathOf("log"), std::string("/dev/stderr")}) {
    refusals.push_back(WriteFileAtomically(path, "x"));
    refusals.push_back(LineFile::Open(path).status());
  }
  ASSERT_EQ(dup2(former.get(), STDERR_FILENO), STDERR_FILENO);
  for (const absl::Status& refusal : refusals) {
    EXPECT_THAT(refusal, StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("standard error")));
  }
  EXPECT_EQ(NumEntries(), 1);
  EXPECT_OK(WriteFileAtomically(PathOf("log"), "x"));
}

constexpr char kCheckpoint[] = "/round-00000039";

TEST_F(OutputFileTest, RefusesEveryFileInACheckpoint) {
  fs::create_directories(PathOf("round-00000039/below"));
  // The manifest makes the folder of the file a checkpoint.
  ASSERT_OK(WriteFileAtomically(PathOf("round-00000039/weights"), "trained"));
  ASSERT_OK(WriteFileAtomically(PathOf("round-00000039/MANIFEST.json"), "{}"));
  fs::create_symlink("round-00000039/weights", PathOf("link_to_file"));
  fs::create_directory_symlink("round-00000039", PathOf("link_to_folder"));
  fs::create_directories(PathOf("other"));
  for (const char* name :
       {"round-00000039/weights", "round-00000039/MANIFEST.json", "round-00000039/new",
        "round-00000039/below/new", "round-00000039/not_yet/new", "link_to_file",
        "link_to_folder/weights", "other/../round-00000039/weights"}) {
    const auto is_refused = StatusIs(absl::StatusCode::kInvalidArgument,
                                     AllOf(HasSubstr(name), HasSubstr(kCheckpoint)));
    EXPECT_THAT(ResolveOutput(PathOf(name)).status(), is_refused);
    EXPECT_THAT(WriteFileAtomically(PathOf(name), "x"), is_refused);
    EXPECT_THAT(LineFile::Open(PathOf(name)).status(), is_refused);
    EXPECT_THAT(CheckOutput("out", PathOf(name)), is_refused);
  }
  EXPECT_EQ(ContentsOf("round-00000039/weights"), "trained");
  // A MANIFEST.json in a folder further up counts only if that folder has the name of a checkpoint.
  ASSERT_OK(WriteFileAtomically(PathOf("other/MANIFEST.json"), "{}"));
  fs::create_directories(PathOf("other/below"));
  EXPECT_OK(WriteFileAtomically(PathOf("other/below/f"), "x"));
  EXPECT_OK(WriteFileAtomically(PathOf("f"), "x"));
}

TEST_F(OutputFileTest, RefusesAFileInTheCheckpointAtWork) {
  fs::create_directories(PathOf("round-00000039"));
  ASSERT_OK(WriteFileAtomically(PathOf("round-00000039/MANIFEST.json"), "{}"));
  const fs::path before = fs::current_path();
  fs::current_path(PathOf("round-00000039"));
  EXPECT_THAT(ResolveOutput("weights").status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(kCheckpoint)));
  fs::current_path(before);
}

TEST_F(OutputFileTest, ChecksWhatAFlagNamesWithoutTouchingIt) {
  EXPECT_OK(CheckOutput("trace", ""));
  EXPECT_OK(CheckOutput("trace", PathOf("new")));
  EXPECT_EQ(NumEntries(), 0);
  EXPECT_THAT(
      CheckOutput("trace", PathOf("none/f")),
      StatusIs(absl::StatusCode::kNotFound,
               AllOf(HasSubstr("--trace=" + PathOf("none/f") + ": "), HasSubstr("No such file"))));
  EXPECT_THAT(CheckOutput("port_file", directory_),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("is a folder")));
}

TEST_F(OutputFileTest, LineFileThatWasRemovedIsCreatedAgain) {
  ASSERT_OK_AND_ASSIGN(LineFile file, LineFile::Open(PathOf("f")));
  ASSERT_OK(file.Append("one"));
  std::filesystem::remove(PathOf("f"));
  ASSERT_OK(file.Append("two"));
  ASSERT_OK(file.Append("three"));
  EXPECT_EQ(ReadWholeFile(PathOf("f"), 100).value(), "two\nthree\n");
}

TEST_F(OutputFileTest, LinesGoBehindWhatIsThere) {
  ASSERT_OK(WriteFileAtomically(PathOf("f"), "one\ntw"));  // the last line was cut short
  {
    ASSERT_OK_AND_ASSIGN(LineFile file, LineFile::Open(PathOf("f")));
    ASSERT_OK(file.Append("three"));
  }
  ASSERT_OK_AND_ASSIGN(LineFile file, LineFile::Open(PathOf("f")));
  ASSERT_OK(file.Append("four"));
  EXPECT_EQ(ContentsOf("f"), "one\ntw\nthree\nfour\n");
}

TEST_F(OutputFileTest, RefusesALineFileThatIsOpen) {
  {
    ASSERT_OK_AND_ASSIGN(LineFile file, LineFile::Open(PathOf("f")));
    EXPECT_THAT(LineFile::Open(PathOf("f")).status(),
                StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr(PathOf("f"))));
    EXPECT_OK(LineFile::Open(PathOf("f"), /*may_share=*/true).status());
  }
  EXPECT_OK(LineFile::Open(PathOf("f")).status());
}

// Returns true if lines beyond the limit of file sizes are refused, and accepted again without the
// limit. Call it in a process of its own.
bool WriteBeyondTheLimit(const std::string& path) {
  std::signal(SIGXFSZ, SIG_IGN);
  const auto limit_size = [](rlim_t bytes) {
    const rlimit limit{bytes, RLIM_INFINITY};
    return setrlimit(RLIMIT_FSIZE, &limit) == 0;
  };
  absl::StatusOr<LineFile> file = LineFile::Open(path);
  return file.ok() && file->Append("0123456789").ok() && limit_size(14) &&
         absl::IsResourceExhausted(file->Append("0123456789")) &&
         absl::IsResourceExhausted(file->Append("0123456789")) && limit_size(RLIM_INFINITY) &&
         file->Append("end").ok();
}

TEST_F(OutputFileTest, ALineThatDoesNotFitLeavesNothing) {
  EXPECT_EXIT(std::exit(WriteBeyondTheLimit(PathOf("f")) ? 0 : 1), testing::ExitedWithCode(0), "");
  EXPECT_EQ(ContentsOf("f"), "0123456789\nend\n");
}

TEST_F(OutputFileTest, AFullDiskUnderTheStandardOutputIsSeen) {
  if (access("/dev/full", W_OK) != 0) GTEST_SKIP() << "no /dev/full here";
  const int saved = dup(STDOUT_FILENO);
  const int full = open("/dev/full", O_WRONLY);
  dup2(full, STDOUT_FILENO);
  const absl::Status status = WriteToStandardOutput("text");
  dup2(saved, STDOUT_FILENO);
  close(saved);
  close(full);
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kResourceExhausted,
                               HasSubstr("standard output: No space left")));
}

}  // namespace
}  // namespace lodestar::output
