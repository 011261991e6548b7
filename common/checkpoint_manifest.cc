#include "common/checkpoint_manifest.h"

#include <map>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/crc32c.h"
#include "common/peer_text.h"
#include "common/status_macros.h"

namespace lodestar {
namespace {

constexpr char kFormatName[] = "lodestar-checkpoint";
constexpr char kChecksumKey[] = "crc32c";
// The largest that JSON with a row for every bucket and tensor of a large model comes to.
constexpr int64_t kMaxManifestBytes = 100'000'000;

std::string ChecksumText(uint32_t crc32c) { return absl::StrFormat("%08x", crc32c); }

absl::StatusOr<uint32_t> GetChecksum(const Json& object) {
  ASSIGN_OR_RETURN(const std::string text, GetString(object, kChecksumKey));
  uint32_t crc32c = 0;
  if (text.size() != 8 || !absl::SimpleHexAtoi(text, &crc32c)) {
    return absl::InvalidArgumentError(
        absl::StrCat(kChecksumKey, " \"", PeerText(text), "\" is not 8 hexadecimal digits"));
  }
  return crc32c;
}

Json FileJson(const CheckpointFile& file) {
  return {
      {"name", file.name}, {"bytes", file.num_bytes}, {kChecksumKey, ChecksumText(file.crc32c)}};
}

absl::StatusOr<CheckpointFile> FileFrom(const Json& json) {
  CheckpointFile file;
  ASSIGN_OR_RETURN(file.name, GetString(json, "name"));
  ASSIGN_OR_RETURN(file.num_bytes, GetInt64(json, "bytes"));
  ASSIGN_OR_RETURN(file.crc32c, GetChecksum(json));
  if (file.name.empty() || file.name[0] == '.' || file.name.find('/') != std::string::npos) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", PeerText(file.name), "\" is not the name of a file of the checkpoint"));
  }
  return file;
}

Json CountedJson(const std::vector<CountedRow>& counted) {
  Json table = Json::array();
  for (const CountedRow& row : counted) {
    table.push_back({row.worker.value(), row.incarnation.value(), row.round.value()});
  }
  return table;
}

absl::StatusOr<std::vector<CountedRow>> CountedFrom(const Json& table) {
  std::vector<CountedRow> counted;
  for (const Json& row : table) {
    if (!row.is_array() || row.size() != 3) {
      return absl::InvalidArgumentError(
          "a row of counted_tables is not [worker, incarnation, round]");
    }
    ASSIGN_OR_RETURN(const uint64_t worker, AsUint64(row[0], "worker in counted_tables"));
    ASSIGN_OR_RETURN(const uint64_t incarnation, AsUint64(row[1], "incarnation in counted_tables"));
    ASSIGN_OR_RETURN(const int64_t round, AsInt64(row[2], "round in counted_tables"));
    counted.push_back(
        {WorkerId(static_cast<uint32_t>(worker)), Incarnation(incarnation), Round(round)});
  }
  return counted;
}

// [norm, contributions] for each bucket; empty if none is known.
Json NormsJson(const std::vector<BucketManifest>& buckets) {
  Json norms = Json::array();
  bool has_any = false;
  for (const BucketManifest& bucket : buckets) {
    norms.push_back({bucket.usual_norm.norm, bucket.usual_norm.contributions});
    has_any = has_any || bucket.usual_norm.contributions > 0;
  }
  return has_any ? norms : Json::array();
}

absl::Status ReadNorms(const Json& json, std::vector<BucketManifest>& buckets) {
  // Earlier releases have none.
  if (!json.contains("norms")) return absl::OkStatus();
  ASSIGN_OR_RETURN(const Json* norms, GetArray(json, "norms"));
  if (norms->size() != buckets.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("norms are of ", norms->size(), " buckets, and there are ", buckets.size()));
  }
  for (size_t i = 0; i < buckets.size(); ++i) {
    const Json& row = (*norms)[i];
    if (!row.is_array() || row.size() != 2 || !row[0].is_number()) {
      return absl::InvalidArgumentError("a row of norms is not [norm, contributions]");
    }
    buckets[i].usual_norm.norm = row[0].get<double>();
    ASSIGN_OR_RETURN(buckets[i].usual_norm.contributions,
                     AsInt64(row[1], "contributions in norms"));
  }
  return absl::OkStatus();
}

// [num_parts, arrived, planned_weight, arrived_weight] for each bucket; empty if none has begun a
// step.
Json DelayedJson(const std::vector<BucketManifest>& buckets) {
  Json rows = Json::array();
  bool has_any = false;
  for (const BucketManifest& bucket : buckets) {
    const DelayedStepRow& row = bucket.delayed;
    rows.push_back({row.num_parts, row.arrived, row.planned_weight, row.arrived_weight});
    has_any = has_any || row.num_parts > 0;
  }
  return has_any ? rows : Json::array();
}

absl::Status ReadDelayed(const Json& json, std::vector<BucketManifest>& buckets) {
  if (!json.contains("delayed_steps")) return absl::OkStatus();
  ASSIGN_OR_RETURN(const Json* rows, GetArray(json, "delayed_steps"));
  if (rows->size() != buckets.size()) {
    return absl::InvalidArgumentError(absl::StrCat("delayed_steps are of ", rows->size(),
                                                   " buckets, and there are ", buckets.size()));
  }
  for (size_t i = 0; i < buckets.size(); ++i) {
    const Json& row = (*rows)[i];
    if (!row.is_array() || row.size() != 4) {
      return absl::InvalidArgumentError(
          "a row of delayed_steps is not [num_parts, arrived, planned_weight, arrived_weight]");
    }
    DelayedStepRow& delayed = buckets[i].delayed;
    int64_t* const fields[] = {&delayed.num_parts, &delayed.arrived, &delayed.planned_weight,
                               &delayed.arrived_weight};
    for (size_t field = 0; field < std::size(fields); ++field) {
      ASSIGN_OR_RETURN(*fields[field], AsInt64(row[field], "a row of delayed_steps"));
    }
    const bool is_whole = delayed.num_parts > 0
                              ? delayed.arrived > 0 && delayed.arrived < delayed.num_parts &&
                                    delayed.planned_weight > 0 && delayed.arrived_weight > 0
                              : delayed.num_parts == 0 && delayed.arrived == 0;
    if (!is_whole) {
      return absl::InvalidArgumentError(
          absl::StrCat("a row of delayed_steps has ", delayed.arrived, " of ", delayed.num_parts,
                       " parts, weights ", delayed.arrived_weight, " of ", delayed.planned_weight));
    }
  }
  return absl::OkStatus();
}

Json ShardJson(const ShardManifest& shard) {
  Json json = {{"shard", shard.shard},
               {"begin", shard.range.begin},
               {"end", shard.range.end},
               {"weights", FileJson(shard.weights)}};
  if (!shard.optimizer.name.empty()) json["optimizer"] = FileJson(shard.optimizer);
  json["state_names"] = shard.state_names;
  Json tables = Json::array();
  Json buckets = Json::array();
  std::map<std::string, size_t> known_tables;
  for (const BucketManifest& bucket : shard.buckets) {
    Json table = CountedJson(bucket.counted);
    const auto [known, is_new] = known_tables.emplace(FormatJson(table), tables.size());
    if (is_new) tables.push_back(std::move(table));
    buckets.push_back(
        {bucket.range.begin, bucket.range.end, bucket.version.value(), known->second});
  }
  json["counted_tables"] = std::move(tables);  // [[worker, incarnation, round], ...] each
  json["buckets"] = std::move(buckets);        // [begin, end, version, index of its table]
  if (Json norms = NormsJson(shard.buckets); !norms.empty()) json["norms"] = std::move(norms);
  if (Json rows = DelayedJson(shard.buckets); !rows.empty()) {
    json["delayed_steps"] = std::move(rows);
  }
  return json;
}

absl::StatusOr<BucketManifest> BucketFrom(const Json& row, int64_t begin,
                                          const std::vector<std::vector<CountedRow>>& tables) {
  if (!row.is_array() || row.size() != 4) {
    return absl::InvalidArgumentError("a bucket is not [begin, end, version, table]");
  }
  BucketManifest bucket;
  ASSIGN_OR_RETURN(bucket.range.begin, AsInt64(row[0], "begin of a bucket"));
  ASSIGN_OR_RETURN(bucket.range.end, AsInt64(row[1], "end of a bucket"));
  ASSIGN_OR_RETURN(const int64_t version, AsInt64(row[2], "version of a bucket"));
  ASSIGN_OR_RETURN(const int64_t table, AsInt64(row[3], "table of a bucket"));
  if (bucket.range.begin != begin || bucket.range.end <= begin || version < 0 || table < 0 ||
      table >= static_cast<int64_t>(tables.size())) {
    return absl::InvalidArgumentError(absl::StrCat("bucket ", PeerText(FormatJson(row)),
                                                   ": expected one that ", "begins at ", begin,
                                                   " and a table below ", tables.size()));
  }
  bucket.version = Version(version);
  bucket.counted = tables[table];
  return bucket;
}

absl::StatusOr<ShardManifest> ShardFrom(const Json& json) {
  ShardManifest shard;
  ASSIGN_OR_RETURN(const int64_t index, GetInt64(json, "shard"));
  shard.shard = static_cast<int>(index);
  ASSIGN_OR_RETURN(shard.range.begin, GetInt64(json, "begin"));
  ASSIGN_OR_RETURN(shard.range.end, GetInt64(json, "end"));
  ASSIGN_OR_RETURN(const Json* weights, GetObject(json, "weights"));
  ASSIGN_OR_RETURN(shard.weights, FileFrom(*weights));
  ASSIGN_OR_RETURN(const Json* names, GetArray(json, "state_names"));
  for (const Json& name : *names) {
    if (!name.is_string()) return absl::InvalidArgumentError("state_names has what is no string");
    shard.state_names.push_back(name.get<std::string>());
  }
  if (!shard.state_names.empty()) {
    ASSIGN_OR_RETURN(const Json* optimizer, GetObject(json, "optimizer"));
    ASSIGN_OR_RETURN(shard.optimizer, FileFrom(*optimizer));
  }
  std::vector<std::vector<CountedRow>> tables;
  ASSIGN_OR_RETURN(const Json* table_list, GetArray(json, "counted_tables"));
  for (const Json& table : *table_list) {
    ASSIGN_OR_RETURN(tables.emplace_back(), CountedFrom(table));
  }
  ASSIGN_OR_RETURN(const Json* buckets, GetArray(json, "buckets"));
  int64_t end = shard.range.begin;
  for (const Json& row : *buckets) {
    ASSIGN_OR_RETURN(shard.buckets.emplace_back(), BucketFrom(row, end, tables));
    end = shard.buckets.back().range.end;
  }
  RETURN_IF_ERROR(ReadNorms(json, shard.buckets));
  RETURN_IF_ERROR(ReadDelayed(json, shard.buckets));
  if (end == shard.range.end && end > shard.range.begin) return shard;
  return absl::InvalidArgumentError(absl::StrCat("the buckets of shard ", index, " end at ", end,
                                                 ", the shard at ", shard.range.end));
}

Json LayoutJson(const Layout& layout) {
  Json tensors = Json::array();
  for (const TensorSpec& tensor : layout.tensors()) {
    Json& entry = tensors.emplace_back(Json{{"name", tensor.name},
                                            {"shape", tensor.shape},
                                            {"block", tensor.block},
                                            {"decay", tensor.decay}});
    if (tensor.averaged) entry["averaged"] = true;
    if (tensor.embedding) entry["embedding"] = true;
  }
  return tensors;
}

absl::StatusOr<Layout> LayoutFrom(const Json& json) {
  std::vector<TensorSpec> tensors;
  for (const Json& entry : json) {
    TensorSpec tensor;
    ASSIGN_OR_RETURN(tensor.name, GetString(entry, "name"));
    ASSIGN_OR_RETURN(const Json* shape, GetArray(entry, "shape"));
    for (const Json& dimension : *shape) {
      ASSIGN_OR_RETURN(tensor.shape.emplace_back(),
                       AsInt64(dimension, absl::StrCat("shape of ", PeerText(tensor.name))));
    }
    ASSIGN_OR_RETURN(const int64_t block, GetInt64(entry, "block"));
    tensor.block = static_cast<int>(block);
    ASSIGN_OR_RETURN(tensor.decay, GetBool(entry, "decay"));
    if (entry.contains("averaged")) {
      ASSIGN_OR_RETURN(tensor.averaged, GetBool(entry, "averaged"));
    }
    if (entry.contains("embedding")) {
      ASSIGN_OR_RETURN(tensor.embedding, GetBool(entry, "embedding"));
    }
    tensors.push_back(std::move(tensor));
  }
  return Layout::FromTensors(std::move(tensors));
}

Json JournalJson(const JournalManifest& journal) {
  return {{"id", journal.journal_id},
          {"record", journal.record},
          {"shard_records", journal.shard_records},
          {"complete", journal.is_complete}};
}

absl::StatusOr<JournalManifest> JournalFrom(const Json& json) {
  JournalManifest journal;
  ASSIGN_OR_RETURN(journal.journal_id, GetUint64(json, "id"));
  ASSIGN_OR_RETURN(journal.record, GetUint64(json, "record"));
  ASSIGN_OR_RETURN(const Json* shard_records, GetArray(json, "shard_records"));
  for (const Json& record : *shard_records) {
    ASSIGN_OR_RETURN(journal.shard_records.emplace_back(), AsUint64(record, "shard_records"));
  }
  ASSIGN_OR_RETURN(journal.is_complete, GetBool(json, "complete"));
  return journal;
}

absl::Status CheckCover(const Manifest& manifest) {
  int64_t end = 0;
  for (size_t i = 0; i < manifest.shards.size(); ++i) {
    const ShardManifest& shard = manifest.shards[i];
    if (shard.shard != static_cast<int>(i) || shard.range.begin != end) {
      return absl::InvalidArgumentError(absl::StrCat("shard ", shard.shard, " begins at ",
                                                     shard.range.begin, ", expected is shard ", i,
                                                     " from ", end));
    }
    end = shard.range.end;
  }
  if (end == manifest.layout.num_elements()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the shards end at ", end, ", the layout at ", manifest.layout.num_elements()));
}

}  // namespace

std::string FormatShardManifest(const ShardManifest& shard) { return FormatJson(ShardJson(shard)); }

absl::StatusOr<ShardManifest> ParseShardManifest(absl::string_view text) {
  ASSIGN_OR_RETURN(const Json json, ParseJson(text));
  return ShardFrom(json);
}

bool IsOvertaken(const Manifest& manifest, const Manifest& other) {
  return manifest.lease_revision > 0 && other.lease_revision > manifest.lease_revision &&
         other.round <= manifest.round;
}

std::string FormatManifest(const Manifest& manifest) {
  Json json = {{"format", kFormatName},
               {"format_version", kCheckpointFormatVersion},
               {"round", manifest.round.value()},
               {"model", manifest.model},
               {"layout_hash", manifest.layout.hash()},
               {"settings", manifest.settings},
               {"coordinator", manifest.coordinator}};
  if (manifest.lease_revision > 0) json["lease_revision"] = manifest.lease_revision;
  Json shards = Json::array();
  for (const ShardManifest& shard : manifest.shards) shards.push_back(ShardJson(shard));
  json["shards"] = std::move(shards);
  json["layout"] = LayoutJson(manifest.layout);
  if (manifest.journal.journal_id != 0) json["journal"] = JournalJson(manifest.journal);
  // Over the compact text of all the rest, so that a damaged manifest is not believed.
  const std::string rest = FormatJson(json);
  json[kChecksumKey] = ChecksumText(Crc32c(rest.data(), rest.size()));
  return FormatJson(json, /*indent=*/1);
}

absl::StatusOr<Manifest> ParseManifest(absl::string_view text) {
  ASSIGN_OR_RETURN(Json json, ParseJson(text));
  ASSIGN_OR_RETURN(const std::string format, GetString(json, "format"));
  ASSIGN_OR_RETURN(const int64_t version, GetInt64(json, "format_version"));
  if (format != kFormatName || version < 1) {
    return absl::InvalidArgumentError(absl::StrCat("format \"", PeerText(format), "\" version ",
                                                   version, "; this program reads \"", kFormatName,
                                                   "\" version ", kCheckpointFormatVersion));
  }
  ASSIGN_OR_RETURN(const uint32_t expected, GetChecksum(json));
  json.erase(kChecksumKey);
  const std::string rest = FormatJson(json);
  if (const uint32_t actual = Crc32c(rest.data(), rest.size()); actual != expected) {
    return absl::InvalidArgumentError(absl::StrCat("its checksum is ", ChecksumText(actual),
                                                   ", written was ", ChecksumText(expected)));
  }
  // After the checksum, which every version has so: a number that is damaged is no other version.
  if (version > kCheckpointFormatVersion) {
    return absl::UnimplementedError(absl::StrCat(
        "a later release has written it: format version ", version, ", and this release reads ",
        kCheckpointFormatVersion,
        ". Start that release, or move this checkpoint away to go on from an older one"));
  }
  Manifest manifest;
  ASSIGN_OR_RETURN(const int64_t round, GetInt64(json, "round"));
  manifest.round = Round(round);
  ASSIGN_OR_RETURN(manifest.model, GetString(json, "model"));
  ASSIGN_OR_RETURN(const Json* settings, GetObject(json, "settings"));
  manifest.settings = *settings;
  ASSIGN_OR_RETURN(const Json* coordinator, GetObject(json, "coordinator"));
  manifest.coordinator = *coordinator;
  ASSIGN_OR_RETURN(const Json* layout, GetArray(json, "layout"));
  ASSIGN_OR_RETURN(manifest.layout, LayoutFrom(*layout));
  ASSIGN_OR_RETURN(const Json* shards, GetArray(json, "shards"));
  for (const Json& shard : *shards) {
    ASSIGN_OR_RETURN(manifest.shards.emplace_back(), ShardFrom(shard));
  }
  if (json.contains("lease_revision")) {
    ASSIGN_OR_RETURN(manifest.lease_revision, GetInt64(json, "lease_revision"));
  }
  // Earlier releases, and servers without a journal, write none.
  if (json.contains("journal")) {
    ASSIGN_OR_RETURN(const Json* journal, GetObject(json, "journal"));
    ASSIGN_OR_RETURN(manifest.journal, JournalFrom(*journal));
  }
  RETURN_IF_ERROR(CheckCover(manifest));
  return manifest;
}

absl::Status MarkComplete(FileSystem& file_system, const std::string& directory, bool is_complete) {
  ASSIGN_OR_RETURN(Manifest manifest, ReadManifest(file_system, directory));
  const JournalManifest& journal = manifest.journal;
  if (journal.journal_id == 0 || journal.is_complete == is_complete) return absl::OkStatus();
  manifest.journal.is_complete = is_complete;
  const std::string path = absl::StrCat(directory, "/", kManifestName);
  const std::string unfinished = absl::StrCat(path, ".tmp");
  ASSIGN_OR_RETURN(SequentialFileWriter file,
                   SequentialFileWriter::Create(file_system, unfinished));
  RETURN_IF_ERROR(file.Append(FormatManifest(manifest)));
  RETURN_IF_ERROR(file.Finish(/*sync=*/true));
  RETURN_IF_ERROR(file_system.Rename(unfinished, path));
  return file_system.SyncDirectory(directory);
}

absl::StatusOr<Manifest> ReadManifest(FileSystem& file_system, const std::string& directory) {
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

absl::Status VerifyCheckpointFile(FileSystem& file_system, const std::string& directory,
                                  const CheckpointFile& file) {
  const std::string path = absl::StrCat(directory, "/", file.name);
  int64_t num_bytes = 0;
  uint32_t crc32c = 0;
  // Read, not mapped: a server that is out of memory still verifies the last that it saves.
  const absl::Status read = file_system.Read(path, [&](absl::string_view block) {
    crc32c = Crc32c(block.data(), block.size(), crc32c);
    num_bytes += static_cast<int64_t>(block.size());
    return absl::OkStatus();
  });
  if (absl::IsCancelled(read) || MayBeWhole(read)) return read;
  if (!read.ok()) return absl::DataLossError(read.message());
  if (num_bytes != file.num_bytes) {
    return absl::DataLossError(absl::StrCat(path, " has ", num_bytes, " bytes, ", kManifestName,
                                            " says ", file.num_bytes));
  }
  if (crc32c == file.crc32c) return absl::OkStatus();
  return absl::DataLossError(absl::StrFormat("%s has crc32c %08x, %s says %08x", path, crc32c,
                                             kManifestName, file.crc32c));
}

absl::StatusOr<Manifest> VerifyCheckpoint(FileSystem& file_system, const std::string& directory) {
  ASSIGN_OR_RETURN(Manifest manifest, ReadManifest(file_system, directory));
  for (const ShardManifest& shard : manifest.shards) {
    RETURN_IF_ERROR(VerifyCheckpointFile(file_system, directory, shard.weights));
    if (!shard.optimizer.name.empty()) {
      RETURN_IF_ERROR(VerifyCheckpointFile(file_system, directory, shard.optimizer));
    }
  }
  return manifest;
}

}  // namespace lodestar
