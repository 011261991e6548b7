#include "common/file_io.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "common/crc32c.h"
#include "common/testing/status_matchers.h"

namespace lodestar {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class FileIoTest : public ::testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(directory_); }
  void TearDown() override { std::filesystem::remove_all(directory_); }
  std::string PathOf(const std::string& name) const { return directory_ + "/" + name; }
  void Write(const std::string& name, absl::string_view contents) const {
    ASSERT_OK_AND_ASSIGN(SequentialFileWriter writer, SequentialFileWriter::Create(PathOf(name)));
    ASSERT_OK(writer.Append(contents));
    ASSERT_OK(writer.Finish(/*sync=*/false));
  }

  const std::string directory_ =
      ::testing::TempDir() + "/" + ::testing::UnitTest::GetInstance()->current_test_info()->name();
};

TEST_F(FileIoTest, ErrorsNamePathAndReason) {
  const std::string path = PathOf("missing");
  for (const absl::Status& status :
       {ReadWholeFile(path, 10).status(), MappedFile::Open(path).status(), FsyncDirectory(path),
        SequentialFileWriter::Create(path + "/file").status()}) {
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kNotFound,
                                 AllOf(HasSubstr(path), HasSubstr("No such file"))));
  }
  EXPECT_THAT(ErrnoStatus(ENOSPC, "write", "/disk/file"),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       "cannot write /disk/file: No space left on device"));
  EXPECT_THAT(ErrnoStatus(EACCES, "open", "x"), StatusIs(absl::StatusCode::kPermissionDenied));
}

TEST_F(FileIoTest, AFullDiskIsResourceExhausted) {
  if (access("/dev/full", W_OK) != 0) GTEST_SKIP() << "no /dev/full here";
  ASSERT_OK_AND_ASSIGN(SequentialFileWriter writer, SequentialFileWriter::Create("/dev/full"));
  ASSERT_OK(writer.Append("data"));
  EXPECT_THAT(writer.Finish(/*sync=*/false), StatusIs(absl::StatusCode::kResourceExhausted));
}

TEST_F(FileIoTest, ReadsAtMostWhatIsAllowed) {
  const std::string contents(200'000, 'x');
  Write("f", contents);
  EXPECT_THAT(ReadWholeFile(PathOf("f"), 200'000), IsOkAndHolds(contents));
  EXPECT_THAT(ReadWholeFile(PathOf("f"), 199'999), StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST_F(FileIoTest, MapsFilesAndSurvivesMoves) {
  Write("f", "hello");
  ASSERT_OK_AND_ASSIGN(MappedFile file, MappedFile::Open(PathOf("f")));
  const absl::Span<const uint8_t> bytes = file.bytes();
  MappedFile moved = std::move(file);
  moved.AdviseSequential();
  EXPECT_EQ(moved.bytes().data(), bytes.data());
  EXPECT_EQ(std::string(bytes.begin(), bytes.end()), "hello");
  EXPECT_EQ(moved.path(), PathOf("f"));

  Write("empty", "");
  ASSERT_OK_AND_ASSIGN(moved, MappedFile::Open(PathOf("empty")));
  EXPECT_TRUE(moved.bytes().empty());
  EXPECT_THAT(MappedFile::Open(directory_),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("not a regular file")));
}

TEST_F(FileIoTest, ANewFileReplacesNoneAndFollowsNoLink) {
  Write("f", "old");
  EXPECT_THAT(SequentialFileWriter::CreateNew(PathOf("f")),
              StatusIs(absl::StatusCode::kAlreadyExists));
  std::filesystem::create_symlink(PathOf("elsewhere"), PathOf("link"));
  EXPECT_THAT(SequentialFileWriter::CreateNew(PathOf("link")),
              StatusIs(absl::StatusCode::kAlreadyExists));
  EXPECT_THAT(ReadWholeFile(PathOf("f"), 100), IsOkAndHolds("old"));
}

TEST_F(FileIoTest, SequentialWriterKeepsOrderAcrossItsBuffer) {
  ASSERT_OK_AND_ASSIGN(SequentialFileWriter writer, SequentialFileWriter::Create(PathOf("f")));
  std::string expected;
  for (size_t size : {0, 3, 1'000'000, 100'000, 2'500'000, 1, 1 << 20, 7}) {
    const std::string piece(size, static_cast<char>('a' + size % 26));
    ASSERT_OK(writer.Append(piece));
    expected += piece;
  }
  ASSERT_OK(writer.Finish(/*sync=*/true));
  EXPECT_EQ(writer.num_bytes(), expected.size());
  EXPECT_EQ(writer.crc32c(), Crc32c(expected.data(), expected.size()));
  ASSERT_OK_AND_ASSIGN(const std::string contents, ReadWholeFile(PathOf("f"), 10'000'000));
  EXPECT_TRUE(contents == expected);
}

}  // namespace
}  // namespace lodestar
