// SPDX-License-Identifier: Apache-2.0

// Fuzzes files that servers, workers and users write to disks and other programs read: checkpoints,
// weights, journals, models. What is accepted is written again, and must read as the same.

#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/checkpoints/checkpoint_manifest.h"
#include "common/checkpoints/hugging_face.h"
#include "common/crc32c/crc32c.h"
#include "common/params/model_spec_json.h"
#include "common/runtime/json.h"
#include "common/runtime/status_macros.h"
#include "common/storage/safetensors.h"
#include "common/testing/simulated_file_system.h"
#include "proto/model_file.h"
#include "server/coordinator/coordinator_memory_json.h"
#include "server/coordinator/coordinator_state_json.h"
#include "server/durability/journal/journal_reader.h"
#include "server/durability/journal/journal_record.h"
#include "server/durability/journal/journal_segments.h"
#include "server/durability/lease/leader_claim.h"
#include "tests/fuzz/fuzz_target.h"
#include "worker/model/tokenizer_files.h"

namespace lodestar::fuzz {
namespace {

using Seeds = std::vector<std::string>;

void WriteFile(storage::FileSystem& disk, const std::string& path, absl::string_view bytes) {
  absl::StatusOr<storage::SequentialFileWriter> file =
      storage::SequentialFileWriter::Create(disk, path);
  LODESTAR_CHECK(file.ok()) << file.status();
  LODESTAR_CHECK(file->Append(bytes).ok() && file->Finish(/*sync=*/true).ok());
}

void ReadManifestText(absl::string_view bytes) {
  CheckText(
      bytes, [](const std::string& text) { return checkpoints::ParseManifest(text); },
      checkpoints::FormatManifest);
}

void ReadShardManifest(absl::string_view bytes) {
  CheckText(
      bytes, [](const std::string& text) { return checkpoints::ParseShardManifest(text); },
      checkpoints::FormatShardManifest);
}

void ReadJson(absl::string_view bytes) {
  CheckText(
      bytes, [](const std::string& text) { return ParseJson(text); },
      [](const Json& json) { return FormatJson(json); });
}

absl::Status CheckTensor(const storage::SafetensorsReader& reader,
                         const storage::SafetensorsTensor& tensor) {
  // Touches every byte that the reader offers.
  static_cast<void>(crc32c::Crc32c(reader.Bytes(tensor).data(), reader.Bytes(tensor).size()));
  const absl::StatusOr<absl::Span<const float>> floats = reader.Floats(tensor.name);
  if (!floats.ok()) return floats.status();
  LODESTAR_CHECK(static_cast<int64_t>(floats->size()) == tensor.num_elements);
  return absl::OkStatus();
}

void ReadSafetensors(absl::string_view bytes) {
  SimulatedFileSystem disk;
  WriteFile(disk, "/weights", bytes);
  const auto reader = storage::SafetensorsReader::Open(disk, "/weights");
  if (!reader.ok()) return Refuse(reader.status());
  Accept();
  std::vector<storage::SafetensorsEntry> entries;
  std::string data;
  for (const storage::SafetensorsTensor& tensor : (*reader)->tensors()) {
    if (const absl::Status status = CheckTensor(**reader, tensor); !status.ok()) Refuse(status);
    const absl::Span<const uint8_t> tensor_bytes = (*reader)->Bytes(tensor);
    data.append(reinterpret_cast<const char*>(tensor_bytes.data()), tensor_bytes.size());
    entries.push_back({tensor.name, tensor.shape, tensor.dtype});
  }
  const auto header = storage::FormatSafetensorsHeader("/again", entries, (*reader)->metadata());
  LODESTAR_CHECK(header.ok()) << header.status();
  LODESTAR_CHECK(header->data_bytes == static_cast<int64_t>(data.size()));
  WriteFile(disk, "/again", absl::StrCat(header->bytes, data));
  const auto again = storage::SafetensorsReader::Open(disk, "/again");
  LODESTAR_CHECK(again.ok()) << again.status();
  LODESTAR_CHECK((*again)->metadata() == (*reader)->metadata());
  for (const storage::SafetensorsEntry& entry : entries) {
    const storage::SafetensorsTensor* const tensor = (*again)->Find(entry.name);
    LODESTAR_CHECK(tensor != nullptr && tensor->shape == entry.shape) << entry.name;
    LODESTAR_CHECK((*again)->Bytes(*tensor) == (*reader)->Bytes(*(*reader)->Find(entry.name)));
  }
}

std::string BytesOf(const journal::JournalRecord& record) {
  return absl::StrCat(journal::FormatJournalHead(record),
                      absl::string_view(reinterpret_cast<const char*>(record.payload.data()),
                                        record.payload.size()),
                      journal::JournalPadding(record));
}

std::string BytesOf(uint64_t sequence, uint64_t durable, absl::string_view text,
                    absl::string_view payload) {
  return BytesOf({sequence,
                  durable,
                  text,
                  {reinterpret_cast<const std::byte*>(payload.data()), payload.size()}});
}

// Returns the records as bytes again. Sets the number of sound bytes and the durable sequence
// number.
std::string ParseSegment(absl::string_view bytes, size_t block_bytes, int64_t* sound_bytes,
                         uint64_t* durable) {
  journal::JournalParser parser;
  std::string records;
  while (!bytes.empty()) {
    const absl::Status status =
        parser.Feed(bytes.substr(0, block_bytes), [&](const journal::JournalRecord& record) {
          records += BytesOf(record);
          return absl::OkStatus();
        });
    LODESTAR_CHECK(status.ok()) << status;
    bytes.remove_prefix(std::min(block_bytes, bytes.size()));
  }
  *sound_bytes = parser.sound_bytes();
  *durable = parser.durable();
  return records;
}

// Input: [size of the blocks | segment]
void ReadSegment(absl::string_view bytes) {
  const size_t block_bytes = size_t{1} + TakeByte(bytes);
  int64_t sound_bytes = 0;
  uint64_t durable = 0;
  const std::string records = ParseSegment(bytes, block_bytes, &sound_bytes, &durable);
  if (!records.empty()) Accept();
  LODESTAR_CHECK(sound_bytes >= 0 && sound_bytes <= static_cast<int64_t>(bytes.size()));
  LODESTAR_CHECK(sound_bytes <= static_cast<int64_t>(records.size()));
  int64_t sound_bytes_at_once = 0;
  uint64_t durable_at_once = 0;
  LODESTAR_CHECK(ParseSegment(bytes, bytes.size(), &sound_bytes_at_once, &durable_at_once) ==
                 records);
  LODESTAR_CHECK(sound_bytes_at_once == sound_bytes && durable_at_once == durable);
  int64_t sound_bytes_again = 0;
  uint64_t durable_again = 0;
  LODESTAR_CHECK(ParseSegment(records, block_bytes, &sound_bytes_again, &durable_again) == records);
  LODESTAR_CHECK(sound_bytes_again == static_cast<int64_t>(records.size()));
}

// Returns `bytes` with valid checksums in the heads, as an attacker would make them.
std::string WithMendedHeads(std::string bytes) {
  const std::string magic = BytesOf(1, 0, "", "").substr(0, 4);
  const auto set = [&bytes](size_t at, uint32_t value) { memcpy(&bytes[at], &value, 4); };
  for (size_t at = bytes.find(magic); at != std::string::npos; at = bytes.find(magic, at + 1)) {
    if (at + journal::kJournalHeadBytes > bytes.size()) break;
    uint32_t text_bytes = 0;
    uint64_t payload_bytes = 0;
    memcpy(&text_bytes, &bytes[at + 24], sizeof(text_bytes));
    memcpy(&payload_bytes, &bytes[at + 32], sizeof(payload_bytes));
    const size_t left = bytes.size() - at - journal::kJournalHeadBytes;
    if (text_bytes <= left && payload_bytes <= left - text_bytes) {
      set(at + 28,
          crc32c::Crc32c(&bytes[at] + journal::kJournalHeadBytes, text_bytes + payload_bytes));
    }
    set(at + 4, crc32c::Crc32c(&bytes[at + 8], journal::kJournalHeadBytes - 8));
  }
  return bytes;
}

void ReadMendedSegment(absl::string_view bytes) {
  ReadSegment(WithMendedHeads(std::string(bytes)));
}

// Input: [first segment | watermark | second segment], whose heads get valid checksums
void ReadFolder(absl::string_view bytes) {
  constexpr char kFolder[] = "/journal";
  SimulatedFileSystem disk;
  LODESTAR_CHECK(disk.CreateDirectories(kFolder).ok());
  WriteFile(disk, journal::JournalSegmentPath(kFolder, 1),
            WithMendedHeads(std::string(TakePiece(bytes))));
  const std::string watermark = WithMendedHeads(std::string(TakePiece(bytes)));
  WriteFile(disk, journal::JournalWatermarkPath(kFolder), watermark);
  if (!bytes.empty()) {
    WriteFile(disk, journal::JournalSegmentPath(kFolder, 2), WithMendedHeads(std::string(bytes)));
  }
  uint64_t last = 0;
  const absl::StatusOr<journal::JournalEnd> end =
      journal::ReadJournal(disk, kFolder, [&last](const journal::JournalRecord& record) {
        last = record.sequence;
        return absl::OkStatus();
      });
  if (!end.ok()) return Refuse(end.status());
  Accept();
  LODESTAR_CHECK(end->last_sequence == last) << end->last_sequence << " " << last;
  LODESTAR_CHECK(end->last_sequence >= journal::DurableByWatermark(watermark));
}

// Input: records, one on each line.
void ReadCoordinatorMemory(absl::string_view bytes) {
  const absl::Time now = absl::FromUnixSeconds(1'700'000'000);
  CheckText(
      bytes,
      [now](const std::string& text) {
        const std::vector<std::string> records = absl::StrSplit(text, '\n');
        return coordinator::CoordinatorMemoryFromRecords(records, now);
      },
      [now](const std::optional<coordinator::CoordinatorMemory>& memory) {
        return coordinator::CoordinatorMemoryToJson(memory, now);
      });
}

void ReadCoordinatorState(absl::string_view bytes) {
  CheckText(
      bytes, [](const std::string& text) { return coordinator::CoordinatorStateFromJson(text); },
      coordinator::CoordinatorStateToJson);
}

// The claim in etcd was written by another process. Reading may shorten its texts for operators.
void ReadLeaderClaim(absl::string_view bytes) {
  const absl::StatusOr<lease::LeaderClaim> claim = lease::ParseLeaderClaim(bytes);
  if (!claim.ok()) return Refuse(claim.status());
  Accept();
  const absl::StatusOr<lease::LeaderClaim> back =
      lease::ParseLeaderClaim(lease::FormatLeaderClaim(*claim));
  LODESTAR_CHECK(back.ok()) << back.status();
  LODESTAR_CHECK(back->machine == claim->machine && back->process == claim->process &&
                 back->id == claim->id && back->role == claim->role);
}

void ReadModelFile(absl::string_view bytes) {
  CheckText(
      bytes, [](const std::string& text) { return wire::ParseModelSpec(text, "model"); },
      params::ModelSpecToModelFile);
}

void ReadModelJson(absl::string_view bytes) {
  CheckText(
      bytes, [](const std::string& text) { return params::ModelSpecFromJson(text); },
      params::ModelSpecToJson);
}

params::Layout SomeLayout() { return *params::BuildLayout({"small", params::MlpSpec{{4, 3, 2}}}); }

checkpoints::ShardManifest SomeShard() {
  const int64_t all = SomeLayout().num_elements();
  checkpoints::ShardManifest shard;
  shard.range = {0, all};
  shard.weights = {"shard-00000-of-00001.safetensors", 1000, 0xdeadbeef};
  shard.optimizer = {"shard-00000-of-00001.optimizer.safetensors", 2000, 7};
  shard.state_names = {"exp_avg", "exp_avg_sq"};
  const std::vector<checkpoints::CountedRow> counted = {{WorkerId(1), Incarnation(2), Round(3)}};
  shard.buckets = {{{0, 15}, Version(3), counted}, {{15, all}, Version(4), counted}};
  return shard;
}

// Input: a config.json, or the index of a model with several files of weights.
void ReadHuggingFace(absl::string_view bytes) {
  if (const auto files = checkpoints::FilesOfHuggingFaceIndex(bytes); !files.ok())
    Refuse(files.status());
  CheckText(
      bytes, [](const std::string& text) { return checkpoints::ModelSpecFromHuggingFace(text); },
      [](const params::ModelSpec& spec) {
        return checkpoints::HuggingFaceFiles(spec)->front().text;
      });
}

// Input: [tokenizer.json | text]
void ReadTokenizer(absl::string_view bytes) {
  const auto config = model::ParseTokenizerJson(TakePiece(bytes));
  if (!config.ok()) return Refuse(config.status());
  const auto tokenizer = model::BytePairTokenizer::Create(*config);
  if (!tokenizer.ok()) return Refuse(tokenizer.status());
  Accept();
  std::string text;
  for (const int32_t token : (*tokenizer)->Encode(bytes)) {
    LODESTAR_CHECK(token >= 0 && token < (*tokenizer)->vocabulary());
    absl::StrAppend(&text, (*tokenizer)->BytesOf(token));
  }
  if (config->adds_space || !config->added.empty()) return;
  LODESTAR_CHECK(text == bytes) << text;
}

Seeds ManifestSeeds() {
  checkpoints::Manifest manifest;
  manifest.round = Round(3);
  manifest.layout = SomeLayout();
  manifest.shards = {SomeShard()};
  manifest.coordinator["cursor"] = 7;
  manifest.settings["mode"] = "sync";
  manifest.model = params::ModelSpecToJson({"small", params::MlpSpec{{4, 3, 2}}});
  return {checkpoints::FormatManifest(manifest)};
}

Seeds ShardManifestSeeds() { return {checkpoints::FormatShardManifest(SomeShard())}; }

Seeds JsonSeeds() { return {R"({"a": [1, -2.5e3, true, null, "\u20ac"], "b": {}})"}; }

Seeds SafetensorsSeeds() {
  const auto header = storage::FormatSafetensorsHeader(
      "weights", {{"w", {2, 3}, "F32"}, {"b", {2}, "BF16"}, {"s", {}, "I64"}}, {{"format", "pt"}});
  return {absl::StrCat(header->bytes, std::string(header->data_bytes, 'x'))};
}

std::string SomeRecords(uint64_t first) {
  return absl::StrCat(BytesOf(first, first - 1, "a", "payload"), BytesOf(first + 1, first, "", ""),
                      BytesOf(first + 2, first, R"({"kind": "norm"})", "0123456789"));
}

Seeds SegmentSeeds() { return {"\x07" + SomeRecords(1), "\xff" + SomeRecords(100)}; }

Seeds FolderSeeds() {
  return {absl::StrCat(Piece(SomeRecords(1)), Piece(BytesOf(3, 2, "", "")), SomeRecords(4)),
          absl::StrCat(Piece(SomeRecords(1)), Piece(""), SomeRecords(3))};
}

// Returns the memory of a job that an early release has recorded. Returns nothing if the working
// directory is not the checkout.
Seeds CoordinatorMemorySeeds() {
  std::ifstream file("tests/compatibility/0.1.0/checkpoints/journal/coordinator/00000001.journal",
                     std::ios::binary);
  const std::string bytes = {std::istreambuf_iterator<char>(file), {}};
  std::string last;
  journal::JournalParser parser;
  const absl::Status status = parser.Feed(bytes, [&last](const journal::JournalRecord& record) {
    last = std::string(record.text);
    return absl::OkStatus();
  });
  LODESTAR_CHECK(status.ok() && !last.empty()) << "write the corpus in the checkout";
  const absl::Time now = absl::FromUnixSeconds(1'700'000'000);
  std::optional<coordinator::CoordinatorMemory> memory =
      *coordinator::CoordinatorMemoryFromRecords({last}, now);
  LODESTAR_CHECK(memory.has_value());
  coordinator::MemoryRecords records;
  const std::string whole = records.Next(memory, now, /*journal_id=*/7, true).text;
  memory->desks[WorkerId(900)].connection.device = "cpu";
  memory->membership.table.ended.push_back(WorkerId(900));
  memory->membership.table.workers.pop_back();
  memory->ending.stop_reason = "an operator";
  ++memory->rounds.ledger.state.next_round;
  const absl::Time later = now + absl::Seconds(3);
  const std::string change = records.Next(memory, later, /*journal_id=*/7, false).text;
  return {last, absl::StrCat(whole, "\n", change)};
}

Seeds CoordinatorStateSeeds() {
  checkpoints::CoordinatorState state;
  state.server_incarnation = 117664014450036251;
  state.ledger.next_round = 7;
  state.ledger.data_sets = {{{"0af3", 100, 10, 1, true}, 42, "a"}};
  state.membership.names = {{"a", WorkerId(1), true}, {"b", WorkerId(3), false}};
  state.membership.last_id = WorkerId(3);
  state.membership.last_incarnation = Incarnation(9);
  state.progress.loss.train = 0.5;
  return {coordinator::CoordinatorStateToJson({}), coordinator::CoordinatorStateToJson(state)};
}

Seeds LeaderClaimSeeds() {
  return {lease::FormatLeaderClaim({{"boot", "host", 12, "2026-11-21", 0xabc}, "shard 0 of 1"})};
}

Seeds ModelFileSeeds() {
  return {params::ModelSpecToModelFile(*params::ModelPreset("gpt-nano")),
          "name: \"mine\"  # a comment\nmlp {\n  widths: [784, 32, 10]\n}\n"};
}

Seeds ModelJsonSeeds() {
  return {params::ModelSpecToJson(*params::ModelPreset("gpt-nano")),
          params::ModelSpecToJson({"small", params::MlpSpec{{4, 3, 2}}})};
}

Seeds HuggingFaceSeeds() {
  return {
      checkpoints::HuggingFaceFiles({"small", params::GptSpec{2, 4, 32, 8, 300}})->front().text};
}

Seeds TokenizerSeeds() {
  const std::vector<checkpoints::NamedText> files =
      *checkpoints::HuggingFaceFiles(*params::ModelPreset("gpt-nano"));
  for (const checkpoints::NamedText& file : files) {
    if (file.name != "tokenizer.json") continue;
    Json json = *ParseJson(file.text);
    json["model"]["vocab"]["he"] = 256;
    json["model"]["merges"] = Json::array({"h e"});
    json["pre_tokenizer"]["use_regex"] = true;
    const std::string without = FormatJson(json);
    json["added_tokens"] = Json::array({{{"id", 257}, {"content", "<|endoftext|>"}}});
    return {absl::StrCat(Piece(without), "he's\xff  12 h\u00e9!"),
            absl::StrCat(Piece(FormatJson(json)), "he<|endoftext|>he")};
  }
  return {};
}

}  // namespace

absl::Span<const Case> Cases() {
  static constexpr Case kCases[] = {
      {"manifest", ReadManifestText, ManifestSeeds},
      {"shard_manifest", ReadShardManifest, ShardManifestSeeds},
      {"json", ReadJson, JsonSeeds},
      {"safetensors", ReadSafetensors, SafetensorsSeeds},
      {"segment", ReadSegment, SegmentSeeds},
      {"mended_segment", ReadMendedSegment, SegmentSeeds},
      {"folder", ReadFolder, FolderSeeds},
      {"coordinator_memory", ReadCoordinatorMemory, CoordinatorMemorySeeds},
      {"model_file", ReadModelFile, ModelFileSeeds},
      {"model_json", ReadModelJson, ModelJsonSeeds},
      {"coordinator_state", ReadCoordinatorState, CoordinatorStateSeeds},
      {"leader_claim", ReadLeaderClaim, LeaderClaimSeeds},
      {"hugging_face", ReadHuggingFace, HuggingFaceSeeds},
      {"tokenizer", ReadTokenizer, TokenizerSeeds},
  };
  return kCases;
}

}  // namespace lodestar::fuzz
