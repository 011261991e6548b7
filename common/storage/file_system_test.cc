// SPDX-License-Identifier: Apache-2.0

#include "common/storage/file_system.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/crc32c/crc32c.h"
#include "common/runtime/file_io.h"
#include "common/testing/simulated_file_system.h"
#include "common/testing/status_matchers.h"

namespace lodestar::storage {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;
using ::testing::UnorderedElementsAre;

using IfExists = FileSystem::IfExists;

void Write(FileSystem& files, const std::string& path, absl::string_view contents,
           bool sync = false) {
  ASSERT_OK_AND_ASSIGN(SequentialFileWriter writer, SequentialFileWriter::Create(files, path));
  ASSERT_OK(writer.Append(contents));
  ASSERT_OK(writer.Finish(sync));
}

// Returns the content, or "(none)" if there is no such file.
std::string ContentsOf(FileSystem& files, const std::string& path) {
  return files.ReadWholeFile(path, 1 << 20).value_or("(none)");
}

// Tests that every implementation must pass. The parameter is true for the machine's file system,
// and false for SimulatedFileSystem.
class FileSystemTest : public ::testing::TestWithParam<bool> {
 protected:
  FileSystemTest() { EXPECT_OK(files().CreateDirectories(directory_)); }
  ~FileSystemTest() override { EXPECT_OK(files().RemoveAll(directory_)); }

  FileSystem& files() {
    if (GetParam()) return FileSystem::Real();
    return simulated_;
  }
  std::string PathOf(const std::string& name) const { return directory_ + "/" + name; }

  SimulatedFileSystem simulated_;
  const std::string directory_ = absl::StrCat(testing::TempDir(), "/file-system-", getpid());
};

INSTANTIATE_TEST_SUITE_P(All, FileSystemTest, testing::Bool(),
                         [](const auto& info) { return info.param ? "Real" : "Simulated"; });

TEST_P(FileSystemTest, WhatIsMissingIsNotFoundByName) {
  const std::string path = PathOf("missing");
  const auto ignore = [](absl::string_view) { return absl::OkStatus(); };
  for (const absl::Status& status :
       {files().ReadWholeFile(path, 10).status(), files().Read(path, ignore),
        files().Map(path).status(), files().SyncDirectory(path),
        files().Rename(path, PathOf("other")),
        files().Create(path + "/file", IfExists::kTruncate).status()}) {
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kNotFound,
                                 AllOf(HasSubstr(path), HasSubstr("No such file"))));
  }
  EXPECT_THAT(files().List(path), IsOkAndHolds(IsEmpty()));
  EXPECT_OK(files().RemoveAll(path));
  EXPECT_FALSE(files().Exists(path));
  EXPECT_FALSE(files().IsDirectory(path));
  EXPECT_FALSE(files().AreSame(path, path));
}

TEST_P(FileSystemTest, FilesAndDirectoriesAreToldApart) {
  Write(files(), PathOf("f"), "x");
  EXPECT_FALSE(files().IsDirectory(PathOf("f")));
  EXPECT_TRUE(files().IsDirectory(directory_));
  EXPECT_THAT(files().Create(directory_, IfExists::kTruncate),
              StatusIs(absl::StatusCode::kInvalidArgument, StartsWith("cannot create")));
  EXPECT_THAT(files().Map(directory_), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(files().ReadWholeFile(directory_, 10), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(files().List(PathOf("f")), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(files().SyncDirectory(PathOf("f")), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(files().CreateDirectories(PathOf("f/below")), StatusIs(absl::StatusCode::kNotFound));
}

TEST_P(FileSystemTest, WhatWasWrittenIsReadMappedAndInBlocks) {
  Write(files(), PathOf("f"), "hello");
  EXPECT_THAT(files().ReadWholeFile(PathOf("f"), 5), IsOkAndHolds("hello"));
  EXPECT_THAT(files().ReadWholeFile(PathOf("f"), 4), StatusIs(absl::StatusCode::kInvalidArgument));
  FileBytes copy;
  {
    ASSERT_OK_AND_ASSIGN(const FileBytes mapped, files().Map(PathOf("f")));
    copy = mapped;
  }
  EXPECT_EQ(copy.path, PathOf("f"));
  EXPECT_EQ(std::string(copy.bytes.begin(), copy.bytes.end()), "hello");
  std::string read;
  EXPECT_OK(files().Read(PathOf("f"), [&](absl::string_view block) {
    absl::StrAppend(&read, block);
    return absl::OkStatus();
  }));
  EXPECT_EQ(read, "hello");
  EXPECT_THAT(files().Read(PathOf("f"), [](absl::string_view) { return absl::AbortedError(""); }),
              StatusIs(absl::StatusCode::kAborted));

  Write(files(), PathOf("empty"), "");
  ASSERT_OK_AND_ASSIGN(copy, files().Map(PathOf("empty")));
  EXPECT_TRUE(copy.bytes.empty());
}

TEST(RealFileSystemTest, JournalsAreForTheirOwnerAlone) {
  FileSystem& files = FileSystem::Real();
  const std::string directory = absl::StrCat(testing::TempDir(), "/journals-", getpid());
  ASSERT_OK(files.CreateDirectories(directory));
  const auto mode_of = [](const std::string& path) -> mode_t {
    struct stat info;
    EXPECT_EQ(stat(path.c_str(), &info), 0) << path;
    return info.st_mode & 07777;
  };
  const mode_t mask_before = umask(0022);
  for (const char* name : {"1.journal", "1.journal.unfinished", "1.journal.damaged"}) {
    const std::string path = absl::StrCat(directory, "/", name);
    ASSERT_OK_AND_ASSIGN(const auto file, files.Create(path, IfExists::kFail));
    EXPECT_EQ(mode_of(path), 0600) << name;
    // Gives the file the mode with which an earlier release wrote it.
    const auto reopen = [&]() -> absl::Status {
      return files.Create(path, IfExists::kGoOn).status();
    };
    const auto read = [&]() -> absl::Status {
      return files.Read(path, [](absl::string_view) { return absl::OkStatus(); });
    };
    const auto map = [&]() -> absl::Status { return files.Map(path).status(); };
    for (const std::function<absl::Status()>& open : {std::function(reopen), {read}, {map}}) {
      ASSERT_EQ(chmod(path.c_str(), 0644), 0);
      EXPECT_OK(open());
      EXPECT_EQ(mode_of(path), 0600) << name;
    }
  }
  for (const char* name : {"a.safetensors", "a.journals", "journal"}) {
    const std::string path = absl::StrCat(directory, "/", name);
    Write(files, path, "");
    EXPECT_EQ(mode_of(path), 0644) << name;
  }
  umask(mask_before);
  EXPECT_OK(files.RemoveAll(directory));
}

TEST_P(FileSystemTest, ANewFileReplacesNoneAndAnotherTruncates) {
  Write(files(), PathOf("f"), "old and long");
  EXPECT_THAT(SequentialFileWriter::CreateNew(files(), PathOf("f")),
              StatusIs(absl::StatusCode::kAlreadyExists));
  EXPECT_EQ(ContentsOf(files(), PathOf("f")), "old and long");
  Write(files(), PathOf("f"), "new");
  EXPECT_EQ(ContentsOf(files(), PathOf("f")), "new");
}

TEST_P(FileSystemTest, AFileIsGoneOnWithBehindWhatIsThere) {
  Write(files(), PathOf("a"), "first");
  {
    ASSERT_OK_AND_ASSIGN(const std::unique_ptr<WritableFile> file,
                         files().Create(PathOf("a"), IfExists::kGoOn));
    ASSERT_OK(file->Append(", second"));
    ASSERT_OK(file->Close());
  }
  EXPECT_EQ(ContentsOf(files(), PathOf("a")), "first, second");
  ASSERT_OK(files().Create(PathOf("new"), IfExists::kGoOn).status());
  EXPECT_EQ(ContentsOf(files(), PathOf("new")), "");
}

TEST_P(FileSystemTest, ARenameReplacesFilesAndEmptyDirectoriesOnly) {
  Write(files(), PathOf("a"), "a");
  Write(files(), PathOf("b"), "b");
  EXPECT_OK(files().Rename(PathOf("a"), PathOf("b")));
  EXPECT_FALSE(files().Exists(PathOf("a")));
  EXPECT_EQ(ContentsOf(files(), PathOf("b")), "a");

  EXPECT_OK(files().CreateDirectories(PathOf("full/below")));
  EXPECT_OK(files().CreateDirectories(PathOf("empty")));
  EXPECT_THAT(files().Rename(PathOf("empty"), PathOf("full")),
              StatusIs(absl::StatusCode::kInternal,
                       AllOf(HasSubstr(PathOf("empty")), HasSubstr("not empty"))));
  EXPECT_FALSE(files().Rename(PathOf("b"), PathOf("empty")).ok());
  EXPECT_FALSE(files().Rename(PathOf("empty"), PathOf("b")).ok());
  EXPECT_OK(files().Rename(PathOf("full"), PathOf("empty")));
  EXPECT_TRUE(files().IsDirectory(PathOf("empty/below")));
  EXPECT_THAT(files().List(directory_), IsOkAndHolds(UnorderedElementsAre("b", "empty")));
}

TEST_P(FileSystemTest, RemovesFilesAndWholeTrees) {
  EXPECT_OK(files().CreateDirectories(PathOf("tree/below")));
  EXPECT_OK(files().CreateDirectories(PathOf("tree/below"))) << "again";
  Write(files(), PathOf("tree/f"), "x");
  Write(files(), PathOf("tree/below/f"), "x");
  Write(files(), PathOf("tree2"), "x");
  EXPECT_OK(files().RemoveAll(PathOf("tree2")));
  EXPECT_OK(files().SyncDirectory(directory_));
  EXPECT_THAT(files().List(directory_), IsOkAndHolds(UnorderedElementsAre("tree")));
  EXPECT_OK(files().RemoveAll(PathOf("tree/")));
  EXPECT_THAT(files().List(directory_), IsOkAndHolds(IsEmpty()));
}

TEST_P(FileSystemTest, APathIsTheSameHoweverItIsWritten) {
  EXPECT_OK(files().CreateDirectories(PathOf("a")));
  EXPECT_OK(files().CreateDirectories(PathOf("b")));
  EXPECT_TRUE(files().AreSame(PathOf("a"), PathOf("./a//")));
  EXPECT_FALSE(files().AreSame(PathOf("a"), PathOf("b")));
  EXPECT_FALSE(files().AreSame(PathOf("a"), ""));
}

TEST_P(FileSystemTest, AFileThatIsGoneStaysWithThoseWhoMapOrWriteIt) {
  Write(files(), PathOf("f"), "old");
  ASSERT_OK_AND_ASSIGN(const FileBytes mapped, files().Map(PathOf("f")));
  ASSERT_OK_AND_ASSIGN(auto writer, files().Create(PathOf("g"), IfExists::kFail));
  EXPECT_OK(files().RemoveAll(PathOf("f")));
  EXPECT_OK(files().RemoveAll(PathOf("g")));
  EXPECT_EQ(std::string(mapped.bytes.begin(), mapped.bytes.end()), "old");
  EXPECT_OK(writer->Append("bytes"));
  EXPECT_OK(writer->Sync());
  EXPECT_OK(writer->Close());
  EXPECT_THAT(files().List(directory_), IsOkAndHolds(IsEmpty()));
}

TEST_P(FileSystemTest, TellsHowMuchIsFree) {
  ASSERT_TRUE(files().FreeBytes(directory_).has_value());
  EXPECT_GT(*files().FreeBytes(directory_), 0);
}

TEST_P(FileSystemTest, SequentialWriterKeepsOrderAcrossItsBuffer) {
  ASSERT_OK_AND_ASSIGN(SequentialFileWriter writer,
                       SequentialFileWriter::Create(files(), PathOf("f")));
  std::string expected;
  for (size_t size : {0, 3, 1'000'000, 100'000, 2'500'000, 1, 1 << 20, 7}) {
    const std::string piece(size, static_cast<char>('a' + size % 26));
    ASSERT_OK(writer.Append(piece));
    expected += piece;
  }
  SequentialFileWriter moved = std::move(writer);
  ASSERT_OK(moved.Finish(/*sync=*/true));
  EXPECT_EQ(moved.num_bytes(), expected.size());
  EXPECT_EQ(moved.crc32c(), crc32c::Crc32c(expected.data(), expected.size()));
  ASSERT_OK_AND_ASSIGN(const std::string contents, files().ReadWholeFile(PathOf("f"), 10'000'000));
  EXPECT_TRUE(contents == expected);
}

TEST(RealFileSystemTest, AFullDiskIsResourceExhausted) {
  if (access("/dev/full", W_OK) != 0) GTEST_SKIP() << "no /dev/full here";
  ASSERT_OK_AND_ASSIGN(SequentialFileWriter writer,
                       SequentialFileWriter::Create(FileSystem::Real(), "/dev/full"));
  ASSERT_OK(writer.Append("data"));
  EXPECT_THAT(writer.Finish(/*sync=*/false), StatusIs(absl::StatusCode::kResourceExhausted));
}

TEST(RealFileSystemTest, ANewFileFollowsNoLinkThatLeadsNowhere) {
  const std::string link = absl::StrCat(testing::TempDir(), "/link-", getpid());
  std::filesystem::create_symlink(link + "-target", link);
  EXPECT_THAT(FileSystem::Real().Create(link, IfExists::kFail),
              StatusIs(absl::StatusCode::kAlreadyExists));
  std::filesystem::remove(link);
}

TEST(RealFileSystemTest, TellsHowOldAFileIs) {
  EXPECT_GT(*FileSystem::Real().AgeOf("/proc/self/stat"), -absl::Minutes(1));
  EXPECT_EQ(FileSystem::Real().AgeOf("/proc/missing"), std::nullopt);
}

// Runs `write` on 300 disks and crashes each of them with another random seed. Returns the contents
// that the file at `path` then has.
std::set<std::string> AfterCrashes(absl::FunctionRef<void(SimulatedFileSystem&)> write,
                                   const std::string& path) {
  std::set<std::string> contents;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    std::mt19937_64 chance(seed);
    SimulatedFileSystem disk;
    write(disk);
    disk.Crash(chance);
    contents.insert(ContentsOf(disk, path));
  }
  return contents;
}

TEST(SimulatedFileSystemTest, ACrashKeepsWhatWasSyncedWithItsName) {
  EXPECT_EQ(AfterCrashes(
                [](SimulatedFileSystem& disk) {
                  Write(disk, "/f", "synced", /*sync=*/true);
                  EXPECT_OK(disk.SyncDirectory("/"));
                },
                "/f"),
            std::set<std::string>{"synced"});
}

TEST(SimulatedFileSystemTest, ACrashLosesOrTearsWhatWasNotSynced) {
  const std::set<std::string> torn = AfterCrashes(
      [](SimulatedFileSystem& disk) {
        ASSERT_OK_AND_ASSIGN(const auto file, disk.Create("/f", IfExists::kFail));
        ASSERT_OK(file->Append("ab"));
        ASSERT_OK(file->Sync());
        ASSERT_OK(disk.SyncDirectory("/"));
        ASSERT_OK(file->Append("cd"));
      },
      "/f");
  for (const std::string& contents : torn) {
    EXPECT_THAT(contents, StartsWith("ab"));
    EXPECT_THAT(contents.size(), AnyOf(2, 3, 4));
  }
  EXPECT_THAT(torn,
              testing::IsSupersetOf({std::string("ab"), std::string("abc"), std::string("abcd"),
                                     std::string("ab\0\0", 4), std::string("abc\0", 4)}));
  EXPECT_GT(torn.size(), 6) << "garbage, too";
}

TEST(SimulatedFileSystemTest, ACrashMayBringBackWhatWasTruncated) {
  const std::set<std::string> found = AfterCrashes(
      [](SimulatedFileSystem& disk) {
        Write(disk, "/f", "o", /*sync=*/true);
        ASSERT_OK(disk.SyncDirectory("/"));
        Write(disk, "/f", "n");
      },
      "/f");
  EXPECT_THAT(found, testing::IsSupersetOf({"o", "n", ""}));
}

TEST(SimulatedFileSystemTest, ANameThatWasNotSyncedIsThereOrNot) {
  EXPECT_EQ(
      AfterCrashes([](SimulatedFileSystem& disk) { Write(disk, "/f", "x", /*sync=*/true); }, "/f"),
      (std::set<std::string>{"(none)", "x"}));
  EXPECT_EQ(AfterCrashes(
                [](SimulatedFileSystem& disk) {
                  Write(disk, "/f", "x", /*sync=*/true);
                  ASSERT_OK(disk.SyncDirectory("/"));
                  ASSERT_OK(disk.RemoveAll("/f"));
                },
                "/f"),
            (std::set<std::string>{"(none)", "x"}));
}

TEST(SimulatedFileSystemTest, ARenameIsWholeAndNeedsWhatMadeRoomForIt) {
  std::set<std::pair<std::string, std::string>> found;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    std::mt19937_64 chance(seed);
    SimulatedFileSystem disk;
    Write(disk, "/f", "1", /*sync=*/true);
    Write(disk, "/g", "2", /*sync=*/true);
    ASSERT_OK(disk.SyncDirectory("/"));
    ASSERT_OK(disk.Rename("/f", "/f.old"));
    ASSERT_OK(disk.Rename("/g", "/f"));
    disk.Crash(chance);
    ASSERT_OK_AND_ASSIGN(const std::vector<std::string> names, disk.List("/"));
    EXPECT_EQ(names.size(), 2);
    found.insert({ContentsOf(disk, "/f"), ContentsOf(disk, "/f.old")});
  }
  EXPECT_EQ(found, (std::set<std::pair<std::string, std::string>>{
                       {"1", "(none)"}, {"(none)", "1"}, {"2", "1"}}));
}

TEST(SimulatedFileSystemTest, TheSameSeedGivesTheSameDisk) {
  const auto crash = [](uint64_t seed) {
    std::mt19937_64 chance(seed);
    SimulatedFileSystem disk;
    for (int i = 0; i < 20; ++i) Write(disk, absl::StrCat("/f", i), "twenty bytes or more");
    disk.Crash(chance);
    std::string all;
    const std::vector<std::string> names = disk.List("/").value_or(std::vector<std::string>());
    for (const std::string& name : names) {
      absl::StrAppend(&all, name, "=", ContentsOf(disk, "/" + name), ";");
    }
    return all;
  };
  EXPECT_EQ(crash(1), crash(1));
  EXPECT_NE(crash(1), crash(2));
}

TEST(SimulatedFileSystemTest, FilesThatWereOpenAtACrashCannotBeWritten) {
  std::mt19937_64 chance(1);
  SimulatedFileSystem disk;
  ASSERT_OK_AND_ASSIGN(const auto file, disk.Create("/f", IfExists::kFail));
  disk.Crash(chance);
  EXPECT_FALSE(file->Append("late").ok());
  EXPECT_FALSE(file->Sync().ok());
}

TEST(SimulatedFileSystemTest, AFullDiskTakesWhatFitsAndHasRoomAgainAfterARemoval) {
  SimulatedFileSystem disk;
  disk.SetCapacity(8);
  Write(disk, "/f", "12345");
  EXPECT_EQ(disk.FreeBytes("/"), 3);
  ASSERT_OK_AND_ASSIGN(SequentialFileWriter writer, SequentialFileWriter::Create(disk, "/g"));
  ASSERT_OK(writer.Append("67890"));
  EXPECT_THAT(writer.Finish(/*sync=*/true), StatusIs(absl::StatusCode::kResourceExhausted,
                                                     "cannot write /g: No space left on device"));
  EXPECT_EQ(ContentsOf(disk, "/g"), "678");
  EXPECT_EQ(disk.FreeBytes("/"), 0);
  EXPECT_OK(disk.RemoveAll("/f"));
  EXPECT_EQ(disk.FreeBytes("/"), 5);
  Write(disk, "/g", "");
  EXPECT_EQ(disk.FreeBytes("/"), 8);
}

TEST(SimulatedFileSystemTest, WhatTheHookRefusesDoesNotHappen) {
  SimulatedFileSystem disk;
  EXPECT_OK(disk.CreateDirectories("/d"));
  Write(disk, "/d/f", "x");
  std::vector<std::string> asked;
  disk.SetFaultHook([&](FileOperation operation, const std::string& path) {
    asked.push_back(path);
    return operation == FileOperation::kRead ? absl::OkStatus() : absl::InternalError("refused");
  });
  EXPECT_FALSE(disk.RemoveAll("/d").ok());
  EXPECT_FALSE(disk.Rename("/d", "/e").ok());
  EXPECT_FALSE(disk.Create("/d/f", IfExists::kTruncate).ok());
  EXPECT_FALSE(disk.CreateDirectories("/d/below").ok());
  EXPECT_EQ(ContentsOf(disk, "/d/f"), "x");
  EXPECT_EQ(asked, (std::vector<std::string>{"/d/f", "/d", "/d/f", "/d/below", "/d/f"}));
}

}  // namespace
}  // namespace lodestar::storage
