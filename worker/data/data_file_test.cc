// SPDX-License-Identifier: Apache-2.0

#include "worker/data/data_file.h"

#include <sys/stat.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/data/testing/test_folder.h"

namespace lodestar::data {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string Content(const DataFile& file) {
  std::string content(file.num_bytes(), '?');
  EXPECT_OK(
      file.Read(0, absl::MakeSpan(reinterpret_cast<uint8_t*>(content.data()), content.size())));
  return content;
}

std::string ReadWhole(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

// Returns content that is larger than one step of inflation, and whose bytes differ.
std::string LongContent() {
  std::string content;
  uint32_t state = 1;
  while (content.size() < 2500001) {
    state = state * 1664525u + 1013904223u;
    content.push_back(static_cast<char>(state >> 28));
  }
  return content;
}

absl::Status ReadByte(const DataFile& file, int64_t offset = 0) {
  uint8_t byte = 0;
  return file.Read(offset, absl::MakeSpan(&byte, 1));
}

// Sets the time of the file's last change to a later time.
void Touch(const std::string& path) {
  std::filesystem::last_write_time(path,
                                   std::filesystem::last_write_time(path) + std::chrono::hours(1));
}

class OpenDataFileTest : public testing::TestWithParam<DataFile::Descriptor> {
 protected:
  std::shared_ptr<const DataFile> Open(const std::string& path) {
    return *DataFile::Open(path, GetParam());
  }

  TestFolder folder_;
};

INSTANTIATE_TEST_SUITE_P(All, OpenDataFileTest,
                         testing::Values(DataFile::Descriptor::kKept,
                                         DataFile::Descriptor::kPerRead));

TEST_P(OpenDataFileTest, ReadsAnyPart) {
  const auto file = Open(folder_.Write("f", "hello"));
  EXPECT_EQ(file->num_bytes(), 5);
  EXPECT_EQ(Content(*file), "hello");
  uint8_t part[3];
  EXPECT_OK(file->Read(2, absl::MakeSpan(part)));
  EXPECT_EQ(std::string(part, part + 3), "llo");
  EXPECT_OK(file->Read(5, {}));
}

TEST_P(OpenDataFileTest, AFileThatWasCutShortIsAnErrorWithBothSizes) {
  const std::string path = folder_.Write("f", std::string(100, 'x'));
  const auto file = Open(path);
  EXPECT_OK(ReadByte(*file, 99));
  std::filesystem::resize_file(path, 40);
  for (const int64_t offset : {0, 99}) {
    EXPECT_THAT(ReadByte(*file, offset),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         AllOf(HasSubstr(path), HasSubstr("changed while it was in use"),
                               HasSubstr("had 100 bytes"), HasSubstr("has 40"))));
  }
}

TEST_P(OpenDataFileTest, AFileThatWasWrittenToIsAnError) {
  const std::string path = folder_.Write("f", "before");
  const auto file = Open(path);
  folder_.Write("f", "after!");
  Touch(path);
  EXPECT_THAT(ReadByte(*file),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("Put the old file back")));
}

TEST_P(OpenDataFileTest, AFileThatGrewIsAnError) {
  const std::string path = folder_.Write("f", "before");
  const auto file = Open(path);
  folder_.Write("f", "before and after");
  EXPECT_FALSE(ReadByte(*file).ok());
}

TEST_P(OpenDataFileTest, ReadingAndOtherRightsAreNoChange) {
  const std::string path = folder_.Write("f", "text");
  const auto file = Open(path);
  EXPECT_EQ(ReadWhole(path), "text");
  std::filesystem::permissions(path, std::filesystem::perms::owner_read);
  EXPECT_OK(ReadByte(*file));
}

TEST_P(OpenDataFileTest, LinksToOneFileAreTheSame) {
  folder_.Write("f", "text");
  folder_.Link("f", "link");
  EXPECT_TRUE(Open(folder_.Path("link"))->IsSameAs(*Open(folder_.Path("f"))));
  EXPECT_FALSE(Open(folder_.Write("g", "text"))->IsSameAs(*Open(folder_.Path("f"))));
}

TEST_P(OpenDataFileTest, WhatIsNoFileIsRefusedWithoutWaiting) {
  EXPECT_EQ(DataFile::Open(folder_.root(), GetParam()).status().code(),
            absl::StatusCode::kInvalidArgument);
  const std::string fifo = folder_.Path("fifo");
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_THAT(DataFile::Open(fifo, GetParam()).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("fifo")));
}

// If a file is replaced, a process that has the old file open still reads the old one.
TEST(DataFileTest, AReplacedFileIsTheOldOneForWhoKeepsItOpenAndAnErrorForWhoDoesNot) {
  TestFolder folder;
  const std::string path = folder.Write("f", "before");
  const auto kept = *DataFile::Open(path);
  const auto reopened = *DataFile::Open(path, DataFile::Descriptor::kPerRead);
  std::filesystem::rename(folder.Write("new", "after!"), path);
  EXPECT_EQ(Content(*kept), "before");
  EXPECT_THAT(ReadByte(*reopened), StatusIs(absl::StatusCode::kFailedPrecondition));
  std::filesystem::remove(path);
  EXPECT_EQ(Content(*kept), "before");
  EXPECT_THAT(ReadByte(*reopened), StatusIs(absl::StatusCode::kNotFound, HasSubstr(path)));
}

// Files of sysfs have fewer bytes than their size, which is one page.
TEST(DataFileTest, AFileWithLessThanItsSizeIsAnError) {
  const auto file = DataFile::Open("/sys/kernel/uevent_seqnum");
  if (!file.ok()) GTEST_SKIP() << file.status();
  EXPECT_THAT(ReadByte(**file, (*file)->num_bytes() - 1),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("uevent_seqnum has")));
}

TEST(DataFileTest, MissingFileIsNotFoundWithItsName) {
  TestFolder folder;
  EXPECT_THAT(DataFile::Open(folder.Path("gone")).status(),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("gone")));
}

TEST(DataFileTest, ScansInPieces) {
  TestFolder folder;
  const std::string content = LongContent();
  const auto file = *DataFile::Open(folder.Write("f", content));
  std::string scanned;
  std::vector<int64_t> offsets;
  EXPECT_OK(
      ScanDataFile(*file, 3, NeverStopped, [&](int64_t offset, absl::Span<const uint8_t> piece) {
        offsets.push_back(offset);
        scanned.append(piece.begin(), piece.end());
        return absl::OkStatus();
      }));
  EXPECT_EQ(scanned, content.substr(3));
  EXPECT_EQ(offsets.size(), (content.size() - 3 + (1 << 18) - 1) >> 18);
  EXPECT_EQ(offsets[1], 3 + (1 << 18));
  EXPECT_EQ(ScanDataFile(
                *file, 0, NeverStopped,
                [](int64_t, absl::Span<const uint8_t>) { return absl::CancelledError("enough"); })
                .code(),
            absl::StatusCode::kCancelled);
}

TEST(DataFileTest, AScanEndsWithinAPieceOfAStop) {
  TestFolder folder;
  const auto file = *DataFile::Open(folder.Write("f", LongContent()));
  int num_pieces = 0;
  EXPECT_THAT(
      ScanDataFile(
          *file, 0, [&](int64_t) { return num_pieces == 1; },
          [&](int64_t, absl::Span<const uint8_t>) {
            ++num_pieces;
            return absl::OkStatus();
          }),
      StatusIs(absl::StatusCode::kCancelled, HasSubstr("stopped on request while reading")));
  EXPECT_EQ(num_pieces, 1);
}

absl::StatusOr<std::shared_ptr<const DataFile>> InflateAll(const std::string& path) {
  return DataFile::Inflate(path, /*header_bytes=*/0, [](absl::Span<const uint8_t>) {
    return absl::StatusOr<int64_t>(DataFile::kMaxInflatedBytes);
  });
}

TEST(DataFileTest, InflatesWhatGzipWrote) {
  TestFolder folder;
  for (const std::string& content : {std::string(), std::string("x"), LongContent()}) {
    auto file = InflateAll(folder.WriteGzip("f.gz", content));
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_EQ(Content(**file), content);
  }
}

TEST(DataFileTest, InflatesSeveralMembers) {
  TestFolder folder;
  const std::string one = ReadWhole(folder.WriteGzip("1.gz", "one "));
  const std::string two = ReadWhole(folder.WriteGzip("2.gz", "two"));
  auto file = InflateAll(folder.Write("both.gz", one + two));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(Content(**file), "one two");
}

TEST(DataFileTest, DamageIsAnErrorWithFileAndOffset) {
  TestFolder folder;
  const std::string good = ReadWhole(folder.WriteGzip("f.gz", LongContent()));
  std::string flipped = good;
  flipped[good.size() / 2] ^= 0x55;
  std::string wrong_sum = good;
  wrong_sum[good.size() - 6] ^= 1;
  const std::string bad_contents[] = {flipped, wrong_sum, good.substr(0, good.size() / 2),
                                      good.substr(0, good.size() - 1), good + "trailing garbage"};
  for (const std::string& bad : bad_contents) {
    const absl::Status status = InflateAll(folder.Write("bad.gz", bad)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("bad.gz"), HasSubstr("offset")));
  }
}

TEST(DataFileTest, InflatesNoMoreThanTheHeaderAnnounces) {
  TestFolder folder;
  const std::string content = "header" + std::string(10 << 20, '\0');
  const std::string path = folder.WriteGzip("bomb.gz", content);
  const auto size = static_cast<int64_t>(content.size());
  std::string header;
  const auto inflate = [&](int64_t announced) {
    return DataFile::Inflate(path, 6,
                             [&](absl::Span<const uint8_t> start) -> absl::StatusOr<int64_t> {
                               header.assign(start.begin(), start.end());
                               return announced;
                             });
  };
  EXPECT_OK(inflate(size));
  EXPECT_EQ(header, "header");
  EXPECT_THAT(inflate(1 << 20), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(path)));
  EXPECT_THAT(inflate(DataFile::kMaxInflatedBytes + 1),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(path)));
}

TEST(DataFileTest, NamesWhatAFileIsThatIsNoGzipData) {
  TestFolder folder;
  EXPECT_THAT(
      InflateAll(folder.Write("page.gz", "<!DOCTYPE html><html>404")),
      StatusIs(absl::StatusCode::kInvalidArgument, AllOf(HasSubstr("page.gz"), HasSubstr("HTML"))));
  EXPECT_THAT(InflateAll(folder.Write("images.gz", BigEndianBytes({0x803, 0, 1, 1}))),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("IDX images")));
  EXPECT_THAT(InflateAll(folder.Write("empty.gz", "")),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("empty")));
}

TEST(DataFileTest, RefusesPointerOfGitLfs) {
  TestFolder folder;
  const std::string pointer = folder.Write(
      "a.txt", "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 123456\n");
  EXPECT_THAT(DataFile::Open(pointer),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("git lfs pull")));
}

}  // namespace
}  // namespace lodestar::data
