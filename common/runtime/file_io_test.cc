// SPDX-License-Identifier: Apache-2.0

#include "common/runtime/file_io.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <utility>

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
  void Write(const std::string& name, const std::string& contents) const {
    std::ofstream(PathOf(name), std::ios::binary) << contents;
  }

  const std::string directory_ =
      ::testing::TempDir() + "/" + ::testing::UnitTest::GetInstance()->current_test_info()->name();
};

TEST_F(FileIoTest, ErrorsNamePathAndReason) {
  const std::string path = PathOf("missing");
  for (const absl::Status& status :
       {ReadWholeFile(path, 10).status(), MappedFile::Open(path).status()}) {
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kNotFound,
                                 AllOf(HasSubstr(path), HasSubstr("No such file"))));
  }
  EXPECT_THAT(ErrnoStatus(ENOSPC, "write", "/disk/file"),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       "cannot write /disk/file: No space left on device"));
  EXPECT_THAT(ErrnoStatus(EACCES, "open", "x"), StatusIs(absl::StatusCode::kPermissionDenied));
  EXPECT_THAT(ErrnoStatus(EMFILE, "open", "x"),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("ulimit -n")));
}

TEST_F(FileIoTest, ErrorsNameLinkThatLeadsNowhereAndOwnerOfWhatIsDenied) {
  const std::string folder = PathOf("folder");
  ASSERT_EQ(mkdir(folder.c_str(), 0700), 0);
  const std::string link = folder + "/latest";
  ASSERT_EQ(symlink("round-00000001", link.c_str()), 0);
  for (const std::string& path : {link, link + "/MANIFEST.json"}) {
    EXPECT_THAT(CheckIsThere(path), StatusIs(absl::StatusCode::kNotFound,
                                             AllOf(HasSubstr(link), HasSubstr("round-00000001"))));
  }
  EXPECT_OK(CheckIsThere(folder));
  EXPECT_THAT(ErrnoStatus(EACCES, "open", folder + "/a/b"),
              StatusIs(absl::StatusCode::kPermissionDenied,
                       AllOf(HasSubstr(folder + " belongs to user"), HasSubstr("mode 0700"))));
}

TEST_F(FileIoTest, ErrorOfAFileThatIsTooLargeNamesTheLimit) {
  EXPECT_EQ(FileSizeLimit(), std::nullopt);
  EXPECT_OK(CheckFileSize("the weights of shard 0", int64_t{1} << 60));
  rlimit before = {};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit small = {4096, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  const std::optional<int64_t> limit = FileSizeLimit();
  const absl::Status written = ErrnoStatus(EFBIG, "write", "/disk/file");
  const absl::Status fits = CheckFileSize("the weights of shard 0", 4096);
  const absl::Status too_large = CheckFileSize("the weights of shard 0", 4097);
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_EQ(limit, 4096);
  EXPECT_THAT(written,
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(HasSubstr("/disk/file: File too large"), HasSubstr("4096 bytes"))));
  EXPECT_OK(fits);
  EXPECT_THAT(too_large, StatusIs(absl::StatusCode::kFailedPrecondition,
                                  AllOf(HasSubstr("the weights of shard 0"), HasSubstr("4097"),
                                        HasSubstr("4096"), HasSubstr("ulimit -f"))));
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

// Opening one of these paths like a regular file would wait for ever, or until a peer opens it.
TEST_F(FileIoTest, RefusesWhatIsNoRegularFileWithoutWaiting) {
  ASSERT_EQ(mkfifo(PathOf("fifo").c_str(), 0600), 0);
  const int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un place = {.sun_family = AF_UNIX, .sun_path = {}};
  // The test's folder may have a longer path than sun_path can hold.
  std::string short_folder = "/tmp/file_io_test.XXXXXX";
  ASSERT_NE(mkdtemp(short_folder.data()), nullptr);
  const std::string socket_path = short_folder + "/socket";
  socket_path.copy(place.sun_path, socket_path.size());
  ASSERT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&place), sizeof(place)), 0);
  close(listener);
  const std::pair<std::string, const char*> kinds[] = {{PathOf("fifo"), "a FIFO"},
                                                       {socket_path, "a socket"},
                                                       {directory_, "a folder"},
                                                       {"/dev/zero", "a device"}};
  for (const auto& [path, kind] : kinds) {
    for (const absl::Status& status :
         {ReadWholeFile(path, 10).status(), MappedFile::Open(path).status(),
          OpenRegularFile(path).status()}) {
      EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument,
                                   AllOf(HasSubstr(path), HasSubstr(kind))));
    }
  }
  std::filesystem::remove_all(short_folder);
}

}  // namespace
}  // namespace lodestar
