// SPDX-License-Identifier: Apache-2.0

// Checks our code against the test vectors of proto/README.md, with which clients in other
// languages check themselves. Their lines are "kind key=value ... -> result".
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/crc32c/crc32c.h"
#include "common/params/encoding.h"
#include "common/params/model_spec.h"
#include "kernels/codec/codec.h"
#include "proto/chunk_codec.h"
#include "worker/data/content_hash.h"
#include "worker/data/dataset_factory.h"
#include "worker/data/sample_order.h"
#include "worker/data/testing/test_folder.h"

namespace lodestar {
namespace {

struct Vector {
  std::string line;
  std::map<std::string, std::string> inputs;
  std::string outcome;

  std::string Text(const std::string& key) const {
    const auto found = inputs.find(key);
    EXPECT_NE(found, inputs.end()) << line << ": no " << key;
    return found == inputs.end() ? "" : found->second;
  }
  int64_t Number(const std::string& key) const {
    int64_t number = 0;
    EXPECT_TRUE(absl::SimpleAtoi(Text(key), &number)) << line << ": " << key;
    return number;
  }
};

std::vector<Vector> VectorsOf(absl::string_view kind) {
  std::ifstream page("proto/README.md");
  std::vector<Vector> vectors;
  for (std::string line; std::getline(page, line);) {
    const std::vector<std::string> sides = absl::StrSplit(line, " -> ");
    std::vector<std::string> words = absl::StrSplit(sides[0], ' ', absl::SkipEmpty());
    if (sides.size() != 2 || words.empty() || words[0] != kind) continue;
    Vector vector{line, {}, sides[1]};
    for (size_t i = 1; i < words.size(); ++i) {
      vector.inputs.insert(std::pair<std::string, std::string>(absl::StrSplit(words[i], '=')));
    }
    vectors.push_back(vector);
  }
  EXPECT_FALSE(vectors.empty()) << "proto/README.md has no vectors of " << kind;
  return vectors;
}

absl::StatusOr<std::unique_ptr<data::Dataset>> MakeDataset(const data::DataConfig& config,
                                                           const params::GptSpec& gpt,
                                                           uint64_t seed) {
  const absl::StatusOr<data::DataSource> source = data::OpenData(config);
  if (!source.ok()) return source.status();
  return lodestar::data::MakeDataset(*source, {.name = "vectors", .architecture = gpt}, seed);
}

// Opens a corpus of files with the lengths of `files`. Byte i of all files together is i mod 251.
// The last `heldout_files` of them are held out.
absl::StatusOr<std::unique_ptr<data::Dataset>> OpenCorpus(const Vector& vector,
                                                          const data::TestFolder& folder) {
  const std::vector<std::string> lengths = absl::StrSplit(vector.Text("files"), ',');
  const uint64_t num_heldout =
      vector.inputs.count("heldout_files") > 0 ? vector.Number("heldout_files") : 0;
  int place = 0;
  for (size_t number = 0; number < lengths.size(); ++number) {
    const std::string& length = lengths[number];
    const bool is_heldout = number + num_heldout >= lengths.size();
    int size = 0;
    EXPECT_TRUE(absl::SimpleAtoi(length, &size)) << vector.line;
    std::string content;
    for (int i = 0; i < size; ++i) content.push_back(static_cast<char>(place++ % 251));
    folder.Write(absl::StrCat(is_heldout ? "heldout/" : "data/", number, ".bin"), content);
  }
  const params::GptSpec gpt{.num_layers = 1,
                            .num_heads = 1,
                            .width = 8,
                            .context = static_cast<int>(vector.Number("context")),
                            .vocabulary = static_cast<int>(vector.Number("vocabulary"))};
  return MakeDataset({.path = folder.Path("data"),
                      .heldout_path = num_heldout > 0 ? folder.Path("heldout") : "",
                      .format = vector.Text("format")},
                     gpt, /*seed=*/1);
}

TEST(ProtocolVectorsTest, Checksum) {
  for (const Vector& vector : VectorsOf("crc32c")) {
    const std::string text = vector.Text("text");
    EXPECT_EQ(absl::StrFormat("%08x", crc32c::Crc32c(text.data(), text.size())), vector.outcome);
  }
}

TEST(ProtocolVectorsTest, ChecksumOfAChunk) {
  for (const Vector& vector : VectorsOf("push_chunk")) {
    const std::string data = vector.Text("data");
    wire::PushChunkHeader header;
    header.worker = WorkerId(static_cast<uint32_t>(vector.Number("worker_id")));
    header.incarnation = Incarnation(vector.Number("incarnation"));
    header.round = Round(vector.Number("round"));
    header.base_version = Version(vector.Number("base_version"));
    header.bucket = static_cast<uint32_t>(vector.Number("bucket"));
    header.offset = vector.Number("offset");
    header.encoding = static_cast<v1::Encoding>(vector.Number("encoding"));
    header.kind = static_cast<v1::ContributionKind>(vector.Number("kind"));
    EXPECT_TRUE(absl::SimpleAtof(vector.Text("scale"), &header.scale)) << vector.line;
    header.num_samples = vector.Number("num_samples");
    header.crc32c = crc32c::Crc32c(data.data(), data.size());
    EXPECT_EQ(absl::StrFormat("%016x", wire::ChecksumOf(header, data.size())), vector.outcome);
  }
}

TEST(ProtocolVectorsTest, Encodings) {
  for (const Vector& vector : VectorsOf("encoding")) {
    const std::string bytes = absl::HexStringToBytes(vector.Text("bytes"));
    const absl::StatusOr<params::Encoding> encoding =
        params::ParseEncodingText("encoding", vector.Text("name"));
    ASSERT_TRUE(encoding.ok()) << encoding.status();
    const std::vector<std::string> wanted = absl::StrSplit(vector.outcome, ' ');
    std::vector<float> values(wanted.size());
    ASSERT_EQ(params::EncodedBytes(*encoding, static_cast<int64_t>(values.size())),
              static_cast<int64_t>(bytes.size()))
        << vector.line;
    codec::CodecOf(*encoding).Decode(reinterpret_cast<const std::byte*>(bytes.data()),
                                     static_cast<int64_t>(values.size()), values.data());
    EXPECT_EQ(absl::StrJoin(values, " "), vector.outcome) << vector.line;
  }
}

TEST(ProtocolVectorsTest, OrderOfSamples) {
  for (const Vector& vector : VectorsOf("sample")) {
    const data::SampleOrder order(vector.Number("seed"), vector.Number("samples"));
    const data::SampleRef sample = order.At(vector.Number("position"));
    EXPECT_EQ(absl::StrCat("epoch=", sample.epoch, " index=", sample.index), vector.outcome)
        << vector.line;
  }
}

TEST(ProtocolVectorsTest, Hash) {
  for (const Vector& vector : VectorsOf("hash")) {
    data::ContentHash hash;
    if (vector.inputs.count("number") > 0) {
      hash.AddNumber(vector.Number("number"));
    } else {
      hash.AddText(vector.Text("text"));
    }
    EXPECT_EQ(hash.Hex(), vector.outcome) << vector.line;
  }
}

TEST(ProtocolVectorsTest, Corpora) {
  for (const Vector& vector : VectorsOf("corpus")) {
    const data::TestFolder folder;
    const auto dataset = OpenCorpus(vector, folder);
    ASSERT_TRUE(dataset.ok()) << dataset.status();
    EXPECT_EQ(absl::StrCat("fingerprint=", (*dataset)->fingerprint(),
                           " train_samples=", (*dataset)->num_train_samples(),
                           " heldout_samples=", (*dataset)->num_heldout_samples()),
              vector.outcome)
        << vector.line;
  }
}

TEST(ProtocolVectorsTest, Windows) {
  for (const Vector& vector : VectorsOf("window")) {
    // Each token is its own position. The last tenth of the tokens is held out.
    std::vector<uint16_t> tokens(vector.Number("train_tokens") * 10 / 9);
    for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<uint16_t>(i);
    const data::TestFolder folder;
    const params::GptSpec gpt{.num_layers = 1,
                              .num_heads = 1,
                              .width = 8,
                              .context = static_cast<int>(vector.Number("context")),
                              .vocabulary = 65536};
    const uint64_t seed = vector.Number("seed");
    const auto dataset = MakeDataset(
        {.path = folder.Write("tokens.bin", data::TokenBytes(tokens)), .format = "tokens"}, gpt,
        seed);
    ASSERT_TRUE(dataset.ok()) << dataset.status();
    const data::SampleOrder order(seed, (*dataset)->num_train_samples());
    const data::SampleRef sample = order.At(vector.Number("position"));
    data::HostBatch batch;
    ASSERT_TRUE((*dataset)->ReadTrain({sample}, &batch).ok());
    EXPECT_EQ(absl::StrCat("epoch=", sample.epoch, " index=", sample.index,
                           " first_token=", batch.tokens[0]),
              vector.outcome)
        << vector.line;
  }
}

}  // namespace
}  // namespace lodestar
