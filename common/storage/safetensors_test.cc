// SPDX-License-Identifier: Apache-2.0

#include "common/storage/safetensors.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>

#include "common/storage/file_system.h"
#include "common/testing/status_matchers.h"

namespace lodestar::storage {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class SafetensorsTest : public ::testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove(path_); }

  // Writes a file with this header and `data_bytes` bytes of data. Returns the error message of
  // Open().
  std::string OpenError(const std::string& header, size_t data_bytes) {
    std::string file(8, '\0');
    for (int i = 0; i < 8; ++i) file[i] = static_cast<char>(header.size() >> (8 * i));
    return OpenErrorOfFile(file + header + std::string(data_bytes, 'd'));
  }
  std::string OpenErrorOfFile(const std::string& contents) {
    std::ofstream(path_, std::ios::binary) << contents;
    const absl::Status status = SafetensorsReader::Open(FileSystem::Real(), path_).status();
    EXPECT_EQ(status.code(),
              status.ok() ? absl::StatusCode::kOk : absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  }

  const std::string path_ = ::testing::TempDir() + "/" +
                            ::testing::UnitTest::GetInstance()->current_test_info()->name() +
                            ".safetensors";
};

std::vector<float> Ascending(size_t size, float start) {
  std::vector<float> values(size);
  std::iota(values.begin(), values.end(), start);
  return values;
}

TEST_F(SafetensorsTest, RefusesPointerOfGitLfs) {
  std::ofstream(path_) << "version https://git-lfs.github.com/spec/v1\noid sha256:4d\nsize 12\n";
  EXPECT_THAT(SafetensorsReader::Open(FileSystem::Real(), path_),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("git lfs pull")));
}

TEST_F(SafetensorsTest, SaysWhatAFileIsThatIsNone) {
  const std::string rest(600, 'x');
  EXPECT_THAT(OpenErrorOfFile("PK\x03\x04" + rest), HasSubstr("torch.save"));
  EXPECT_THAT(OpenErrorOfFile("\x80\x02" + rest), HasSubstr("torch.save"));
  EXPECT_THAT(OpenErrorOfFile("<!doctype html>" + rest), HasSubstr("an HTML page"));
  EXPECT_THAT(OpenErrorOfFile("\x1f\x8b" + rest), HasSubstr("gzip data"));
}

TEST_F(SafetensorsTest, HeaderIsReadFromTheFirstBytesOfAFile) {
  ASSERT_OK_AND_ASSIGN(const SafetensorsHeader header,
                       FormatSafetensorsHeader("f", {{"a", {2, 3}}, {"b", {4}}}, {{"k", "v"}}));
  for (size_t size = 0; size < header.bytes.size(); ++size) {
    ASSERT_OK_AND_ASSIGN(const auto early, ReadSafetensorsHeader(header.bytes.substr(0, size)));
    ASSERT_FALSE(early.has_value()) << size;
  }
  ASSERT_OK_AND_ASSIGN(const auto contents, ReadSafetensorsHeader(header.bytes + "data"));
  ASSERT_TRUE(contents.has_value());
  EXPECT_EQ(contents->file_bytes, header.bytes.size() + header.data_bytes);
  EXPECT_EQ(contents->metadata.at("k"), "v");
  ASSERT_EQ(contents->tensors.size(), 2);
  EXPECT_EQ(contents->tensors[1].offset, header.bytes.size() + 24);
  EXPECT_THAT(ReadSafetensorsHeader(std::string(8, '\xff')),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST_F(SafetensorsTest, ReadsBackWhatWasWrittenInPieces) {
  const std::vector<float> a = Ascending(6, 1);
  const std::vector<float> b = Ascending(700'000, 100);
  ASSERT_OK_AND_ASSIGN(auto writer, SafetensorsWriter::Create(
                                        FileSystem::Real(), path_,
                                        {{"h.0.a", {2, 3}}, {"b", {700, 1000}}, {"empty", {0, 4}}},
                                        {{"round", "12"}, {"quoted \"key\"", "\n"}}));
  ASSERT_OK(writer->Append(absl::MakeConstSpan(a).subspan(0, 4)));
  ASSERT_OK(writer->Append(absl::MakeConstSpan(a).subspan(4)));
  ASSERT_OK(writer->Append(absl::MakeConstSpan(b).subspan(0, 1)));
  ASSERT_OK(writer->Append(absl::MakeConstSpan(b).subspan(1)));
  ASSERT_OK_AND_ASSIGN(const WrittenFile written, writer->Finish(/*sync=*/true));

  ASSERT_OK_AND_ASSIGN(const auto reader, SafetensorsReader::Open(FileSystem::Real(), path_));
  EXPECT_EQ(reader->file_bytes(), written.num_bytes);
  EXPECT_EQ(reader->ComputeCrc32c(), written.crc32c);
  EXPECT_THAT(reader->metadata(),
              ElementsAre(std::pair("quoted \"key\"", "\n"), std::pair("round", "12")));
  EXPECT_THAT(reader->Floats("h.0.a"), IsOkAndHolds(absl::MakeConstSpan(a)));
  EXPECT_THAT(reader->Floats("b"), IsOkAndHolds(absl::MakeConstSpan(b)));
  EXPECT_TRUE(reader->Floats("empty")->empty());
  ASSERT_EQ(reader->tensors().size(), 3);
  EXPECT_EQ(reader->tensors()[0].name, "h.0.a");
  EXPECT_EQ(reader->tensors()[0].offset % 64, 0);
  EXPECT_THAT(reader->Find("b")->shape, ElementsAre(700, 1000));
  EXPECT_EQ(reader->Find("c"), nullptr);
}

TEST_F(SafetensorsTest, WritesTheDocumentedBytes) {
  ASSERT_OK_AND_ASSIGN(auto writer, SafetensorsWriter::Create(FileSystem::Real(), path_,
                                                              {{"x", {1}}}, {{"k", "v"}}));
  ASSERT_OK(writer->Append(Ascending(1, 1.0f)));
  ASSERT_OK(writer->Finish(/*sync=*/false));
  ASSERT_OK_AND_ASSIGN(const std::string file, FileSystem::Real().ReadWholeFile(path_, 1000));
  const std::string header =
      R"({"__metadata__":{"k":"v"},"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
  ASSERT_EQ(file.size(), 128 + 4);
  EXPECT_EQ(file.substr(0, 8), std::string("\x78\0\0\0\0\0\0\0", 8));
  EXPECT_EQ(file.substr(8, 120), header + std::string(120 - header.size(), ' '));
  EXPECT_EQ(file.substr(128), std::string("\0\0\x80\x3f", 4));
}

TEST_F(SafetensorsTest, WriterCountsItsBytes) {
  ASSERT_OK_AND_ASSIGN(auto writer,
                       SafetensorsWriter::Create(FileSystem::Real(), path_, {{"x", {3}}}, {}));
  ASSERT_OK(writer->Append(Ascending(2, 0)));
  EXPECT_THAT(writer->Finish(false), StatusIs(absl::StatusCode::kFailedPrecondition,
                                              HasSubstr("12 bytes of tensors, but only 8")));
  EXPECT_THAT(writer->Append(Ascending(2, 0)), StatusIs(absl::StatusCode::kFailedPrecondition));
}

TEST_F(SafetensorsTest, WriterRefusesWhatNoReaderTakes) {
  const auto error_of = [&](const std::vector<SafetensorsEntry>& entries) {
    return std::string(
        SafetensorsWriter::Create(FileSystem::Real(), path_, entries, {}).status().message());
  };
  EXPECT_THAT(error_of({{"a", {1}}, {"a", {1}}}), HasSubstr("tensor 'a' occurs twice"));
  EXPECT_THAT(error_of({{"__metadata__", {1}}}), HasSubstr("reserved"));
  EXPECT_THAT(error_of({{"a", {1}, "F31"}}), HasSubstr("'F31' is unknown"));
  EXPECT_THAT(error_of({{"a", {-1}}}), HasSubstr("below 0"));
  EXPECT_THAT(error_of({{"a", {int64_t{1} << 62, 4}}}), HasSubstr("more elements"));
  EXPECT_THAT(error_of({{"a", {int64_t{1} << 57}}, {"b", {int64_t{1} << 57}}}), "");
  EXPECT_THAT(error_of({{"a", {int64_t{1} << 62}, "U8"}}), HasSubstr("more bits"));
}

TEST_F(SafetensorsTest, ReadsTensorsThatAreNotAligned) {
  const std::string header = R"({"b":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                             R"("f":{"dtype":"F32","shape":[],"data_offsets":[1,5]}})";
  EXPECT_EQ(OpenError(header, 5), "");
  ASSERT_OK_AND_ASSIGN(const auto reader, SafetensorsReader::Open(FileSystem::Real(), path_));
  float expected;
  std::memcpy(&expected, "dddd", 4);
  EXPECT_THAT(reader->Floats("f"), IsOkAndHolds(ElementsAre(expected)));
  EXPECT_THAT(reader->Floats("b"), StatusIs(absl::StatusCode::kInvalidArgument,
                                            AllOf(HasSubstr("U8"), HasSubstr("expected F32"))));
  EXPECT_THAT(reader->Floats("c"), StatusIs(absl::StatusCode::kNotFound, HasSubstr(path_)));
  EXPECT_EQ(reader->Bytes(*reader->Find("b")).size(), 1);
}

TEST_F(SafetensorsTest, RefusesBrokenFrames) {
  EXPECT_THAT(OpenErrorOfFile(""), AllOf(HasSubstr(path_), HasSubstr("0 bytes")));
  EXPECT_THAT(OpenErrorOfFile("1234567"), HasSubstr("7 bytes"));
  EXPECT_THAT(OpenErrorOfFile(std::string(8, '\0')), HasSubstr("does not start with '{'"));
  EXPECT_THAT(OpenErrorOfFile(std::string("\x03\0\0\0\0\0\0\0{}", 10)),
              HasSubstr("is 3, expected at most 2"));
  EXPECT_THAT(OpenErrorOfFile(std::string(8, '\xff') + "{}"), HasSubstr("18446744073709551615"));
  EXPECT_THAT(OpenError(" {}", 0), HasSubstr("does not start with '{'"));
  EXPECT_THAT(OpenError(R"({"a":)", 0), HasSubstr("malformed at byte"));
  EXPECT_EQ(OpenError("{}   ", 0), "");
  EXPECT_THAT(OpenError("{}", 4), HasSubstr("end at data offset 0, but the file holds 4"));
}

TEST_F(SafetensorsTest, RefusesTensorsThatDoNotTile) {
  const auto entry = [](const char* name, int begin, int end) {
    return "\"" + std::string(name) + R"(":{"dtype":"U8","shape":[)" + std::to_string(end - begin) +
           R"(],"data_offsets":[)" + std::to_string(begin) + "," + std::to_string(end) + "]}";
  };
  EXPECT_EQ(OpenError("{" + entry("b", 2, 5) + "," + entry("a", 0, 2) + "}", 5), "");
  EXPECT_THAT(OpenError("{" + entry("a", 1, 3) + "}", 3),
              HasSubstr("'a' begins at data offset 1, expected 0: there is a gap"));
  EXPECT_THAT(OpenError("{" + entry("a", 0, 2) + "," + entry("b", 1, 3) + "}", 3),
              HasSubstr("'b' begins at data offset 1, expected 2: there is an overlap"));
  EXPECT_THAT(OpenError("{" + entry("a", 0, 2) + "," + entry("b", 3, 4) + "}", 4),
              HasSubstr("a gap"));
  EXPECT_THAT(OpenError("{" + entry("a", 0, 9) + "}", 8), HasSubstr("cut short"));
  EXPECT_THAT(OpenError("{" + entry("a", 0, 9) + "," + entry("a", 9, 10) + "}", 10),
              HasSubstr("'a' twice"));
}

TEST_F(SafetensorsTest, RefusesBadEntries) {
  EXPECT_THAT(OpenError(R"({"a":1})", 0), HasSubstr("tensor 'a'"));
  EXPECT_THAT(OpenError(R"({"a":{"dtype":"F99","shape":[],"data_offsets":[0,4]}})", 4),
              HasSubstr("dtype 'F99' is unknown"));
  EXPECT_THAT(OpenError(R"({"a":{"shape":[],"data_offsets":[0,4]}})", 4), HasSubstr("'dtype'"));
  EXPECT_THAT(OpenError(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4),
              HasSubstr("are for 4 bytes, but F32 of shape [2] needs 8"));
  EXPECT_THAT(OpenError(R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4),
              HasSubstr("below 0"));
  EXPECT_THAT(OpenError(R"({"a":{"dtype":"F32","shape":[1.0],"data_offsets":[0,4]}})", 4),
              HasSubstr("expected integer"));
  EXPECT_THAT(
      OpenError(R"({"a":{"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0),
      HasSubstr("more elements"));
  EXPECT_THAT(OpenError(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[4,0]}})", 4),
              HasSubstr("expected is 0 <= begin <= end"));
  EXPECT_THAT(OpenError(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0]}})", 4),
              HasSubstr("data_offsets are [0]"));
  EXPECT_THAT(OpenError(R"({"a":{"dtype":"F4","shape":[3],"data_offsets":[0,1]}})", 1),
              HasSubstr("whole bytes"));
  EXPECT_THAT(OpenError(R"({"__metadata__":{"a":1}})", 0), HasSubstr("'a' is not a string"));
  EXPECT_THAT(OpenError(R"({"__metadata__":[]})", 0), HasSubstr("not an object"));
}

TEST_F(SafetensorsTest, EveryTruncationIsRefused) {
  ASSERT_OK_AND_ASSIGN(auto writer,
                       SafetensorsWriter::Create(FileSystem::Real(), path_, {{"x", {9}}}, {}));
  ASSERT_OK(writer->Append(Ascending(9, 0)));
  ASSERT_OK(writer->Finish(/*sync=*/false));
  ASSERT_OK_AND_ASSIGN(const std::string file, FileSystem::Real().ReadWholeFile(path_, 1000));
  for (size_t size = 0; size < file.size(); ++size) {
    ASSERT_NE(OpenErrorOfFile(file.substr(0, size)), "") << size << " bytes";
  }
  EXPECT_EQ(OpenErrorOfFile(file), "");
}

}  // namespace
}  // namespace lodestar::storage
