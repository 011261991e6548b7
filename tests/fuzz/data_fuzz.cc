// SPDX-License-Identifier: Apache-2.0

// Fuzzes data sets of users (worker/data): text, tokens, IDX and CIFAR-10, compressed or not. A
// data set that opens is read completely, as a worker does.

#include <stdlib.h>
#include <zlib.h>

#include <array>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "common/params/model_spec.h"
#include "tests/fuzz/fuzz_target.h"
#include "worker/data/dataset_factory.h"
#include "worker/data/format_detection.h"

namespace lodestar::fuzz {
namespace {

using Seeds = std::vector<std::string>;

// A folder that lasts as long as the process.
class Folder {
 public:
  Folder() {
    const char* parent = getenv("TEST_TMPDIR");
    std::string pattern = absl::StrCat(parent != nullptr ? parent : "/tmp", "/fuzz.XXXXXX");
    LODESTAR_CHECK(mkdtemp(pattern.data()) != nullptr) << pattern;
    path_ = pattern;
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  std::string Path(absl::string_view name) const { return absl::StrCat(path_, "/", name); }
  std::string Write(absl::string_view name, absl::string_view bytes) const {
    std::filesystem::create_directories(std::filesystem::path(Path(name)).parent_path());
    std::ofstream file(Path(name), std::ios::binary);
    file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    LODESTAR_CHECK(file.good()) << Path(name);
    return Path(name);
  }

 private:
  std::string path_;
};

const Folder& Scratch() {
  static const Folder folder;
  return folder;
}

params::ModelSpec TextModel() {
  return {"text",
          params::GptSpec{
              .num_layers = 1, .num_heads = 1, .width = 4, .context = 4, .vocabulary = 256}};
}
params::ModelSpec TokensModel() {
  return {"tokens",
          params::GptSpec{
              .num_layers = 1, .num_heads = 1, .width = 4, .context = 4, .vocabulary = 50257}};
}
params::ModelSpec DigitsModel() { return {"digits", params::MlpSpec{{4, 3, 10}}}; }
params::ModelSpec PhotosModel() { return {"photos", params::MlpSpec{{3072, 3, 10}}}; }

void ReadSamples(const data::Dataset& dataset) {
  data::HostBatch batch;
  LODESTAR_CHECK(dataset.num_train_samples() > 0 && !dataset.Describe().empty());
  const std::array<data::SampleRef, 3> train = {data::SampleRef{0, 0},
                                                {0, dataset.num_train_samples() - 1},
                                                {1, dataset.num_train_samples() - 1}};
  const absl::Status read = dataset.ReadTrain(train, &batch);
  LODESTAR_CHECK(read.ok() && batch.num_samples == 3) << read;
  if (dataset.num_heldout_samples() == 0) return;
  const std::array<int64_t, 2> heldout = {0, dataset.num_heldout_samples() - 1};
  const absl::Status read_heldout = dataset.ReadHeldout(heldout, &batch);
  LODESTAR_CHECK(read_heldout.ok() && batch.num_samples == 2) << read_heldout;
}

void ReadData(const data::DataConfig& config, const params::ModelSpec& model) {
  if (const absl::StatusOr<data::DataFormat> format = data::DetectDataFormat(config.path);
      !format.ok()) {
    Refuse(format.status());
  }
  const absl::StatusOr<data::DataSource> source = data::OpenData(config);
  if (!source.ok()) return Refuse(source.status());
  const auto dataset = data::MakeDataset(*source, model, /*seed=*/1);
  if (!dataset.ok()) return Refuse(dataset.status());
  Accept();
  ReadSamples(**dataset);
}

void ReadText(absl::string_view bytes) {
  data::DataConfig config;
  config.path = Scratch().Write("text/input.txt", bytes);
  ReadData(config, TextModel());
}

void ReadGuessed(absl::string_view bytes) {
  data::DataConfig config;
  config.path = Scratch().Write("guessed/input.bin", bytes);
  ReadData(config, TokensModel());
}

// Input: [bytes per token, 0 for unknown | file]
void ReadTokens(absl::string_view bytes) {
  data::DataConfig config;
  config.format = "tokens";
  constexpr std::array<int, 3> kWidths = {0, 2, 4};
  config.token_bytes = kWidths[TakeByte(bytes) % kWidths.size()];
  config.path = Scratch().Write("tokens/input.bin", bytes);
  ReadData(config, TokensModel());
}

// Input: [compressed or not, a bit for each file | training images | their labels | held-out images
// | labels]
void ReadIdx(absl::string_view bytes) {
  constexpr std::array<const char*, 4> kNames = {
      "train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte",
      "t10k-labels-idx1-ubyte"};
  const int compressed = TakeByte(bytes);
  for (size_t i = 0; i < kNames.size(); ++i) {
    const std::string plain = absl::StrCat("idx/", kNames[i]);
    const std::string packed = absl::StrCat(plain, ".gz");
    const bool is_packed = (compressed >> i & 1) != 0;
    std::filesystem::remove(Scratch().Path(is_packed ? plain : packed));
    Scratch().Write(is_packed ? packed : plain, TakePiece(bytes));
  }
  data::DataConfig config;
  config.path = Scratch().Path("idx");
  ReadData(config, DigitsModel());
}

// All files have the same content: some records of zeros, whose number is the input's first byte,
// and then the input. The test batch has one record more, because a test batch that equals the
// training data is refused.
void ReadCifar10(absl::string_view bytes) {
  constexpr size_t kRecordBytes = 1 + 3 * 32 * 32;
  std::string content(TakeByte(bytes) % 3 * kRecordBytes, '\0');
  absl::StrAppend(&content, bytes);
  for (const char* name : {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
                           "data_batch_4.bin", "data_batch_5.bin"}) {
    Scratch().Write(absl::StrCat("cifar10/", name), content);
  }
  Scratch().Write("cifar10/test_batch.bin", std::string(kRecordBytes, '\0') + content);
  data::DataConfig config;
  config.path = Scratch().Path("cifar10");
  ReadData(config, PhotosModel());
}

std::string LittleEndian(uint64_t value, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text.push_back(static_cast<char>(value >> (8 * i)));
  return text;
}
std::string BigEndian(const std::vector<uint32_t>& words) {
  std::string text;
  for (const uint32_t word : words) {
    for (const int shift : {24, 16, 8, 0}) text.push_back(static_cast<char>(word >> shift));
  }
  return text;
}

std::string SomeTokens(int width, int count) {
  std::string tokens;
  for (int i = 0; i < count; ++i) tokens += LittleEndian(40000 + 7 * i, width);
  return tokens;
}

Seeds TextSeeds() {
  const std::string verse = "Full fathom five thy father lies; of his bones are coral made.\n";
  return {verse + verse};
}

// Returns a header of llm.c or NeMo: magic number, version, number of tokens, and for NeMo the
// bytes per token.
std::string WithHeader(uint64_t magic, uint64_t version, int width, int count) {
  std::string file = LittleEndian(magic, 4) + LittleEndian(version, 4) + LittleEndian(count, 4) +
                     LittleEndian(width, 4);
  file.resize(1024, '\0');
  return file + SomeTokens(width, count);
}

Seeds TokensSeeds() {
  return {std::string(1, '\1') + SomeTokens(2, 100), std::string(1, '\2') + SomeTokens(4, 100),
          std::string(1, '\0') + WithHeader(20240520, 1, 2, 100),
          std::string(1, '\0') + WithHeader(278895051, 1, 4, 100)};
}

// Returns tokens with a header as numpy.save() writes it.
std::string WithNumpyHeader(int count) {
  std::string text =
      absl::StrCat("{'descr': '<u2', 'fortran_order': False, 'shape': (", count, ",), }");
  text.resize(117, ' ');
  return absl::StrCat("\x93NUMPY", LittleEndian(1, 2), LittleEndian(118, 2), text, "\n",
                      SomeTokens(2, count));
}

Seeds GuessedSeeds() {
  return {SomeTokens(2, 100), WithHeader(20240520, 1, 2, 100), WithNumpyHeader(100)};
}

std::string Gzip(const std::string& bytes) {
  constexpr int kGzipWindowBits = 15 + 16;
  constexpr int kMemoryLevel = 8;
  z_stream stream = {};
  LODESTAR_CHECK(deflateInit2(&stream, Z_BEST_COMPRESSION, Z_DEFLATED, kGzipWindowBits,
                              kMemoryLevel, Z_DEFAULT_STRATEGY) == Z_OK);
  std::string packed(bytes.size() + 100, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  LODESTAR_CHECK(deflate(&stream, Z_FINISH) == Z_STREAM_END);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

Seeds IdxSeeds() {
  const std::string images = BigEndian({0x803, 3, 2, 2}) + "abcdefghijkl";
  const std::string heldout = BigEndian({0x803, 3, 2, 2}) + "mnopqrstuvwx";
  const std::string labels = BigEndian({0x801, 3}) + std::string("\0\1\2", 3);
  return {absl::StrCat(std::string(1, '\0'), Piece(images), Piece(labels), Piece(heldout),
                       Piece(labels)),
          absl::StrCat("\x0f", Piece(Gzip(images)), Piece(Gzip(labels)), Piece(Gzip(heldout)),
                       Piece(Gzip(labels)))};
}

Seeds Cifar10Seeds() { return {"\1", "\2"}; }

}  // namespace

absl::Span<const Case> Cases() {
  static constexpr Case kCases[] = {
      {"text", ReadText, TextSeeds},          {"tokens", ReadTokens, TokensSeeds},
      {"guessed", ReadGuessed, GuessedSeeds}, {"idx", ReadIdx, IdxSeeds},
      {"cifar10", ReadCifar10, Cifar10Seeds},
  };
  return kCases;
}

}  // namespace lodestar::fuzz
