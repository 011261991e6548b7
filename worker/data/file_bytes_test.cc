#include "worker/data/file_bytes.h"

#include <cstdint>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/data/testing/test_folder.h"

namespace lodestar {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string Content(const FileBytes& file) {
  return std::string(file.bytes().begin(), file.bytes().end());
}

std::string ReadWhole(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

// Larger than one step of inflation, and not one byte repeated.
std::string LongContent() {
  std::string content;
  uint32_t state = 1;
  while (content.size() < 2500001) {
    state = state * 1664525u + 1013904223u;
    content.push_back(static_cast<char>(state >> 28));
  }
  return content;
}

TEST(FileBytesTest, MapsAFileAndSurvivesMoves) {
  TestFolder folder;
  auto file = FileBytes::Map(folder.Write("f", "hello"));
  ASSERT_TRUE(file.ok()) << file.status();
  const uint8_t* data = file->bytes().data();
  const FileBytes moved = *std::move(file);
  EXPECT_EQ(Content(moved), "hello");
  EXPECT_EQ(moved.bytes().data(), data);
}

TEST(FileBytesTest, MissingFileIsNotFoundWithItsName) {
  TestFolder folder;
  const absl::Status status = FileBytes::Map(folder.Path("gone")).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("gone"));
}

TEST(FileBytesTest, InflatesWhatGzipWrote) {
  TestFolder folder;
  for (const std::string& content : {std::string(), std::string("x"), LongContent()}) {
    auto file = FileBytes::Inflate(folder.WriteGzip("f.gz", content));
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_EQ(Content(*file), content);
  }
}

TEST(FileBytesTest, InflatesSeveralMembers) {
  TestFolder folder;
  const std::string one = ReadWhole(folder.WriteGzip("1.gz", "one "));
  const std::string two = ReadWhole(folder.WriteGzip("2.gz", "two"));
  auto file = FileBytes::Inflate(folder.Write("both.gz", one + two));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(Content(*file), "one two");
}

TEST(FileBytesTest, DamageIsAnErrorWithFileAndOffset) {
  TestFolder folder;
  const std::string good = ReadWhole(folder.WriteGzip("f.gz", LongContent()));
  std::string flipped = good;
  flipped[good.size() / 2] ^= 0x55;
  std::string wrong_sum = good;
  wrong_sum[good.size() - 6] ^= 1;
  const std::string bad_contents[] = {flipped,
                                      wrong_sum,
                                      good.substr(0, good.size() / 2),
                                      good.substr(0, good.size() - 1),
                                      "not gzip",
                                      good + "trailing garbage"};
  for (const std::string& bad : bad_contents) {
    const absl::Status status = FileBytes::Inflate(folder.Write("bad.gz", bad)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("bad.gz"), HasSubstr("offset")));
  }
}

TEST(FileBytesTest, BoundsTheInflatedSize) {
  TestFolder folder;
  const std::string path = folder.WriteGzip("bomb.gz", std::string(10 << 20, '\0'));
  EXPECT_EQ(FileBytes::Inflate(path, 1 << 20).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(FileBytes::Inflate(path, 10 << 20).ok());
}

}  // namespace
}  // namespace lodestar
