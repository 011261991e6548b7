// SPDX-License-Identifier: Apache-2.0

#include "common/checkpoints/checkpoint_manifest.h"

#include <map>
#include <tuple>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/archive/json_archive.h"
#include "common/crc32c/crc32c.h"
#include "common/runtime/peer_text.h"
#include "common/runtime/status_macros.h"

namespace lodestar::checkpoints {
namespace {

constexpr char kFormatName[] = "lodestar-checkpoint";
constexpr char kChecksumKey[] = "crc32c";
// Maximum size of a manifest. The manifest of a large model, with a row for every bucket and
// tensor, is smaller.
constexpr int64_t kMaxManifestBytes = 100'000'000;

std::string ChecksumText(uint32_t crc32c) { return absl::StrFormat("%08x", crc32c); }

struct ChecksumForm {
  static std::string Store(uint32_t crc32c) { return ChecksumText(crc32c); }
  static absl::Status Load(const std::string& text, uint32_t& crc32c) {
    if (text.size() == 8 && absl::SimpleHexAtoi(text, &crc32c)) return absl::OkStatus();
    return archive::NotA("8 hexadecimal digits");
  }
};

struct FileNameForm {
  static std::string Store(const std::string& name) { return name; }
  static absl::Status Load(const std::string& text, std::string& name) {
    if (text.empty() || text[0] == '.' || text.find('/') != std::string::npos) {
      return archive::NotA("a file name: it must not be empty, begin with '.' or contain '/'");
    }
    name = text;
    return absl::OkStatus();
  }
};

using CountedTable = std::vector<std::tuple<WorkerId, Incarnation, Round>>;

// The stored form of a ShardManifest. Each bucket is a row. Buckets with equal lists of CountedRow
// share one table.
struct StoredShard {
  int shard = 0;
  params::ElementRange range;
  CheckpointFile weights;
  CheckpointFile optimizer;
  std::vector<std::string> state_names;
  std::vector<CountedTable> counted_tables = {};
  // For each bucket: begin, end, version, and the index of its table in counted_tables.
  std::vector<std::tuple<int64_t, int64_t, Version, uint64_t>> buckets = {};
  // For each bucket: the fields of a NormRow. Empty means that no norm is known.
  std::vector<std::tuple<double, int64_t>> norms = {};
  // For each bucket: the fields of a DelayedStepRow. Empty means that no bucket has begun a step.
  std::vector<std::tuple<int64_t, int64_t, int64_t, int64_t>> delayed_steps = {};
};

// A tensor of the layout in its stored form.
struct StoredTensor {
  params::TensorSpec tensor;
};

template <typename Archive>
void Describe(Archive& archive, StoredTensor& stored) {
  archive("name", stored.tensor.name);
  archive("shape", stored.tensor.shape);
  archive("block", stored.tensor.block);
  archive("decay", stored.tensor.decay);
  archive.Sparse("averaged", stored.tensor.averaged);
  archive.Sparse("embedding", stored.tensor.embedding);
}

struct InManifest {
  static StoredShard Store(const ShardManifest& shard);
  static absl::Status Load(const StoredShard& stored, ShardManifest& shard);

  static std::vector<StoredTensor> Store(const params::Layout& layout) {
    std::vector<StoredTensor> stored;
    for (const params::TensorSpec& tensor : layout.tensors()) stored.push_back({tensor});
    return stored;
  }
  static absl::Status Load(const std::vector<StoredTensor>& stored, params::Layout& layout) {
    std::vector<params::TensorSpec> tensors;
    for (const StoredTensor& one : stored) tensors.push_back(one.tensor);
    absl::StatusOr<params::Layout> made = params::Layout::FromTensors(std::move(tensors));
    if (!made.ok()) return archive::NotA(absl::StrCat("a layout: ", made.status().message()));
    layout = *std::move(made);
    return absl::OkStatus();
  }

  template <typename Archive>
  static void Fields(Archive& archive, CheckpointFile& file) {
    archive("name", archive::As<FileNameForm>(file.name));
    archive("bytes", file.num_bytes);
    archive(kChecksumKey, archive::As<ChecksumForm>(file.crc32c));
  }

  template <typename Archive>
  static void Fields(Archive& archive, JournalManifest& journal) {
    archive("id", journal.journal_id);
    archive("record", journal.record);
    archive("shard_records", journal.shard_records);
    archive("complete", journal.is_complete);
  }

  template <typename Archive>
  static void Fields(Archive& archive, Manifest& manifest) {
    archive.Note("format", std::string(kFormatName));
    archive.Note("format_version", kCheckpointFormatVersion);
    archive("round", manifest.round);
    archive("model", manifest.model);
    archive.Note("layout_hash", manifest.layout.hash());
    archive("settings", manifest.settings);
    archive("coordinator", manifest.coordinator);
    archive.Sparse("lease_revision", manifest.lease_revision);
    archive.Sparse("run_folder", manifest.run_folder);
    archive("shards", archive::As<InManifest>(manifest.shards));
    archive("layout", archive::As<InManifest>(manifest.layout));
    // Earlier releases, and servers without a journal, do not write this key.
    if (archive.Has("journal", manifest.journal.journal_id != 0)) {
      archive("journal", archive::As<InManifest>(manifest.journal));
    }
  }
};

template <typename Archive>
void Describe(Archive& archive, StoredShard& shard) {
  archive("shard", shard.shard);
  archive("begin", shard.range.begin);
  archive("end", shard.range.end);
  archive("weights", archive::As<InManifest>(shard.weights));
  if (archive.Has("optimizer", !shard.optimizer.name.empty())) {
    archive("optimizer", archive::As<InManifest>(shard.optimizer));
  }
  archive("state_names", shard.state_names);
  archive("counted_tables", shard.counted_tables);
  archive("buckets", shard.buckets);
  archive.Sparse("norms", shard.norms);
  archive.Sparse("delayed_steps", shard.delayed_steps);
}

StoredShard InManifest::Store(const ShardManifest& shard) {
  StoredShard stored = {.shard = shard.shard,
                        .range = shard.range,
                        .weights = shard.weights,
                        .optimizer = shard.optimizer,
                        .state_names = shard.state_names};
  std::map<CountedTable, uint64_t> known_tables;
  bool has_norms = false;
  bool has_delayed = false;
  for (const BucketManifest& bucket : shard.buckets) {
    CountedTable table;
    for (const CountedRow& row : bucket.counted) {
      table.push_back({row.worker, row.incarnation, row.round});
    }
    const auto [known, is_new] = known_tables.emplace(std::move(table), known_tables.size());
    if (is_new) stored.counted_tables.push_back(known->first);
    stored.buckets.push_back({bucket.range.begin, bucket.range.end, bucket.version, known->second});
    stored.norms.push_back({bucket.usual_norm.norm, bucket.usual_norm.contributions});
    has_norms = has_norms || bucket.usual_norm.contributions > 0;
    const DelayedStepRow& delayed = bucket.delayed;
    stored.delayed_steps.push_back(
        {delayed.num_parts, delayed.arrived, delayed.planned_weight, delayed.arrived_weight});
    has_delayed = has_delayed || delayed.num_parts > 0;
  }
  if (!has_norms) stored.norms.clear();
  if (!has_delayed) stored.delayed_steps.clear();
  return stored;
}

// Reads `rows`, one per bucket, into `buckets`. Errors: NotA().
absl::Status TakeDelayed(const std::vector<std::tuple<int64_t, int64_t, int64_t, int64_t>>& rows,
                         std::vector<BucketManifest>& buckets) {
  for (size_t i = 0; i < rows.size(); ++i) {
    DelayedStepRow& row = buckets[i].delayed;
    std::tie(row.num_parts, row.arrived, row.planned_weight, row.arrived_weight) = rows[i];
    const bool is_whole = row.num_parts > 0 ? row.arrived > 0 && row.arrived < row.num_parts &&
                                                  row.planned_weight > 0 && row.arrived_weight > 0
                                            : row.num_parts == 0 && row.arrived == 0;
    if (is_whole) continue;
    return archive::NotA(absl::StrCat("valid: a row of delayed_steps says that ", row.arrived,
                                      " of ", row.num_parts, " parts have arrived, with weight ",
                                      row.arrived_weight, " of ", row.planned_weight,
                                      ". At least one part must have arrived, at least one must be "
                                      "missing, and both weights must be above 0"));
  }
  return absl::OkStatus();
}

absl::Status InManifest::Load(const StoredShard& stored, ShardManifest& shard) {
  const bool has_state = !stored.state_names.empty();
  if (has_state && stored.optimizer.name.empty())
    return archive::NotA(
        "complete: state_names has entries, and the name of their optimizer is missing");
  shard = {.shard = stored.shard,
           .range = stored.range,
           .weights = stored.weights,
           .optimizer = has_state ? stored.optimizer : CheckpointFile{},
           .state_names = stored.state_names,
           .buckets = {}};
  int64_t end = shard.range.begin;
  for (const auto& [bucket_begin, bucket_end, version, table] : stored.buckets) {
    if (bucket_begin != end || bucket_end <= bucket_begin || version < Version(0) ||
        table >= stored.counted_tables.size()) {
      return archive::NotA(absl::StrCat(
          "valid: a bucket is [begin ", bucket_begin, ", end ", bucket_end, ", version ",
          version.value(), ", table ", table, "], but begin must be ", end,
          ", end above begin, version at least 0, and table below ", stored.counted_tables.size()));
    }
    BucketManifest bucket = {
        .range = {bucket_begin, bucket_end}, .version = version, .counted = {}};
    for (const auto& [worker, incarnation, round] : stored.counted_tables[table]) {
      bucket.counted.push_back({worker, incarnation, round});
    }
    shard.buckets.push_back(std::move(bucket));
    end = bucket_end;
  }
  if (end != shard.range.end || end == shard.range.begin) {
    return archive::NotA(absl::StrCat("complete: its buckets end at element ", end, ", but shard ",
                                      shard.shard, " ends at element ", shard.range.end));
  }
  for (const size_t num_rows : {stored.norms.size(), stored.delayed_steps.size()}) {
    if (num_rows == 0 || num_rows == shard.buckets.size()) continue;
    return archive::NotA(absl::StrCat("valid: norms or delayed_steps have rows for ", num_rows,
                                      " buckets, but the shard has ", shard.buckets.size(),
                                      " buckets"));
  }
  for (size_t i = 0; i < stored.norms.size(); ++i) {
    NormRow& norm = shard.buckets[i].usual_norm;
    std::tie(norm.norm, norm.contributions) = stored.norms[i];
  }
  return TakeDelayed(stored.delayed_steps, shard.buckets);
}

absl::Status CheckCover(const Manifest& manifest) {
  int64_t end = 0;
  for (size_t i = 0; i < manifest.shards.size(); ++i) {
    const ShardManifest& shard = manifest.shards[i];
    if (shard.shard != static_cast<int>(i) || shard.range.begin != end) {
      return absl::InvalidArgumentError(
          absl::StrCat("shard ", shard.shard, " begins at element ", shard.range.begin,
                       ", but the next shard must be shard ", i, " and begin at element ", end));
    }
    end = shard.range.end;
  }
  if (end == manifest.layout.num_elements()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the shards end at element ", end,
                                                 ", but the layout ends at element ",
                                                 manifest.layout.num_elements()));
}

}  // namespace

std::string FormatShardManifest(const ShardManifest& shard) {
  return FormatJson(archive::RecordToJsonAs<InManifest>(shard));
}

absl::StatusOr<ShardManifest> ParseShardManifest(absl::string_view text) {
  ASSIGN_OR_RETURN(const Json json, ParseJson(text));
  ShardManifest shard;
  RETURN_IF_ERROR(archive::ReadRecord(json, archive::As<InManifest>(shard)));
  return shard;
}

bool IsOvertaken(const Manifest& manifest, const Manifest& other) {
  return manifest.lease_revision > 0 && other.lease_revision > manifest.lease_revision &&
         other.round <= manifest.round;
}

std::string FormatManifest(const Manifest& manifest) {
  Json json = archive::RecordToJsonAs<InManifest>(manifest);
  // The checksum is of the compact text of all other fields, so that damage is detected.
  const std::string rest = FormatJson(json);
  json[kChecksumKey] = ChecksumText(crc32c::Crc32c(rest.data(), rest.size()));
  return FormatJson(json, /*indent=*/1);
}

absl::StatusOr<Manifest> ParseManifest(absl::string_view text) {
  ASSIGN_OR_RETURN(Json json, ParseJson(text));
  ASSIGN_OR_RETURN(const std::string format, GetString(json, "format"));
  ASSIGN_OR_RETURN(const int64_t version, GetInt64(json, "format_version"));
  if (format != kFormatName || version < 1) {
    return absl::InvalidArgumentError(absl::StrCat("its format is \"", PeerText(format),
                                                   "\", version ", version,
                                                   ", but this program reads only \"", kFormatName,
                                                   "\", versions 1 to ", kCheckpointFormatVersion));
  }
  ASSIGN_OR_RETURN(const std::string checksum, GetString(json, kChecksumKey));
  uint32_t expected = 0;
  RETURN_IF_ERROR(archive::InField(kChecksumKey, ChecksumForm::Load(checksum, expected)));
  json.erase(kChecksumKey);
  const std::string rest = FormatJson(json);
  if (const uint32_t actual = crc32c::Crc32c(rest.data(), rest.size()); actual != expected) {
    return absl::InvalidArgumentError(
        absl::StrCat("the checksum of its content is ", ChecksumText(actual),
                     ", but the file states ", ChecksumText(expected), ": the file is damaged"));
  }
  // Every version has the checksum, so the checksum is checked before the version. Otherwise a
  // damaged number would look like a later version.
  if (version > kCheckpointFormatVersion) {
    return absl::UnimplementedError(
        absl::StrCat("a later release wrote this checkpoint: it has format version ", version,
                     ", but this release reads versions up to ", kCheckpointFormatVersion,
                     ". Use the later release. Or move this checkpoint away, to continue from an "
                     "older checkpoint"));
  }
  Manifest manifest;
  RETURN_IF_ERROR(archive::ReadRecord(json, archive::As<InManifest>(manifest)));
  if (!manifest.settings.is_object() || !manifest.coordinator.is_object()) {
    return absl::InvalidArgumentError(
        "its field settings or its field coordinator is not a JSON object");
  }
  RETURN_IF_ERROR(CheckCover(manifest));
  return manifest;
}

namespace {

absl::Status ReplaceManifest(storage::FileSystem& file_system, const std::string& directory,
                             const Manifest& manifest) {
  const std::string path = absl::StrCat(directory, "/", kManifestName);
  const std::string unfinished = absl::StrCat(path, ".tmp");
  ASSIGN_OR_RETURN(storage::SequentialFileWriter file,
                   storage::SequentialFileWriter::Create(file_system, unfinished));
  RETURN_IF_ERROR(file.Append(FormatManifest(manifest)));
  RETURN_IF_ERROR(file.Finish(/*sync=*/true));
  RETURN_IF_ERROR(file_system.Rename(unfinished, path));
  return file_system.SyncDirectory(directory);
}

}  // namespace

absl::Status MarkComplete(storage::FileSystem& file_system, const std::string& directory) {
  ASSIGN_OR_RETURN(Manifest manifest, ReadManifest(file_system, directory));
  if (manifest.journal.journal_id == 0 || manifest.journal.is_complete) return absl::OkStatus();
  manifest.journal.is_complete = true;
  return ReplaceManifest(file_system, directory, manifest);
}

absl::Status MarkIncomplete(storage::FileSystem& file_system, const std::string& directory,
                            uint64_t journal_id, uint64_t record) {
  ASSIGN_OR_RETURN(Manifest manifest, ReadManifest(file_system, directory));
  if (!manifest.journal.is_complete) return absl::OkStatus();
  manifest.journal.is_complete = false;
  manifest.journal.journal_id = journal_id;
  manifest.journal.record = record;
  return ReplaceManifest(file_system, directory, manifest);
}

absl::StatusOr<Manifest> ReadManifest(storage::FileSystem& file_system,
                                      const std::string& directory) {
  const std::string path = absl::StrCat(directory, "/", kManifestName);
  ASSIGN_OR_RETURN(const std::string text, file_system.ReadWholeFile(path, kMaxManifestBytes));
  absl::StatusOr<Manifest> manifest = ParseManifest(text);
  if (manifest.ok()) return manifest;
  const bool is_later = absl::IsUnimplemented(manifest.status());
  return absl::Status(is_later ? absl::StatusCode::kUnimplemented : absl::StatusCode::kDataLoss,
                      absl::StrCat(path, ": ", manifest.status().message()));
}

bool MayBeWhole(const absl::Status& status) {
  return absl::IsUnimplemented(status) || absl::IsPermissionDenied(status) ||
         absl::IsResourceExhausted(status) || absl::IsUnavailable(status);
}

absl::Status VerifyCheckpointFile(storage::FileSystem& file_system, const std::string& directory,
                                  const CheckpointFile& file) {
  const std::string path = absl::StrCat(directory, "/", file.name);
  int64_t num_bytes = 0;
  uint32_t crc32c = 0;
  // The file is read, not mapped, so that a server that is short of memory can still verify its
  // last checkpoint.
  const absl::Status read = file_system.Read(path, [&](absl::string_view block) {
    crc32c = crc32c::Crc32c(block.data(), block.size(), crc32c);
    num_bytes += static_cast<int64_t>(block.size());
    return absl::OkStatus();
  });
  if (absl::IsCancelled(read) || MayBeWhole(read)) return read;
  if (!read.ok()) return absl::DataLossError(read.message());
  if (num_bytes != file.num_bytes) {
    return absl::DataLossError(absl::StrCat(path, " is damaged: it has ", num_bytes, " bytes, but ",
                                            kManifestName, " says ", file.num_bytes, " bytes"));
  }
  if (crc32c == file.crc32c) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrFormat("%s is damaged: its content has crc32c %08x, but %s says %08x", path, crc32c,
                      kManifestName, file.crc32c));
}

absl::StatusOr<Manifest> VerifyCheckpoint(storage::FileSystem& file_system,
                                          const std::string& directory) {
  ASSIGN_OR_RETURN(Manifest manifest, ReadManifest(file_system, directory));
  for (const ShardManifest& shard : manifest.shards) {
    RETURN_IF_ERROR(VerifyCheckpointFile(file_system, directory, shard.weights));
    if (!shard.optimizer.name.empty()) {
      RETURN_IF_ERROR(VerifyCheckpointFile(file_system, directory, shard.optimizer));
    }
  }
  return manifest;
}

}  // namespace lodestar::checkpoints
