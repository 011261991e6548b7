#include "server/checkpoint/checkpoint_reader.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/crc32c.h"
#include "common/file_io.h"
#include "common/safetensors.h"
#include "common/status_macros.h"
#include "server/checkpoint/checkpoint_directory.h"
#include "server/checkpoint/tensor_slices.h"

namespace lodestar {
namespace {

// The largest that JSON with a row for every bucket and tensor of a large model comes to.
constexpr int64_t kMaxManifestBytes = 100'000'000;

absl::StatusOr<Manifest> ReadManifest(const std::string& directory) {
  const std::string path = absl::StrCat(directory, "/", kManifestName);
  ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(path, kMaxManifestBytes));
  absl::StatusOr<Manifest> manifest = ParseManifest(text);
  if (manifest.ok()) return manifest;
  return absl::DataLossError(absl::StrCat(path, ": ", manifest.status().message()));
}

absl::Status VerifyFile(const std::string& directory, const CheckpointFile& file) {
  const std::string path = absl::StrCat(directory, "/", file.name);
  absl::StatusOr<MappedFile> mapped = MappedFile::Open(path);
  if (!mapped.ok()) return absl::DataLossError(mapped.status().message());
  const auto num_bytes = static_cast<int64_t>(mapped->bytes().size());
  if (num_bytes != file.num_bytes) {
    return absl::DataLossError(absl::StrCat(path, " has ", num_bytes, " bytes, ", kManifestName,
                                            " says ", file.num_bytes));
  }
  mapped->AdviseSequential();
  const uint32_t crc32c = Crc32c(mapped->bytes());
  if (crc32c == file.crc32c) return absl::OkStatus();
  return absl::DataLossError(absl::StrFormat("%s has crc32c %08x, %s says %08x", path, crc32c,
                                             kManifestName, file.crc32c));
}

int64_t Overlap(ElementRange a, ElementRange b) {
  return std::min(a.end, b.end) - std::max(a.begin, b.begin);
}

// What holds for all of the written buckets that `range` overlaps.
BucketManifest CommonOf(const Manifest& manifest, ElementRange range) {
  BucketManifest common;
  common.range = range;
  bool is_first = true;
  for (const ShardManifest& shard : manifest.shards) {
    for (const BucketManifest& bucket : shard.buckets) {
      if (Overlap(bucket.range, range) <= 0) continue;
      if (std::exchange(is_first, false)) {
        common.version = bucket.version;
        common.counted = bucket.counted;
        continue;
      }
      common.version = std::min(common.version, bucket.version);
      std::erase_if(common.counted, [&](CountedWorker& row) {
        const auto other = std::find_if(bucket.counted.begin(), bucket.counted.end(),
                                        [&](const CountedWorker& candidate) {
                                          return candidate.worker == row.worker &&
                                                 candidate.last.incarnation == row.last.incarnation;
                                        });
        if (other == bucket.counted.end()) return true;
        row.last.round = std::min(row.last.round, other->last.round);
        return false;
      });
    }
  }
  return common;
}

}  // namespace

absl::StatusOr<Manifest> VerifyCheckpoint(const std::string& directory) {
  ASSIGN_OR_RETURN(Manifest manifest, ReadManifest(directory));
  for (const ShardManifest& shard : manifest.shards) {
    RETURN_IF_ERROR(VerifyFile(directory, shard.weights));
    if (!shard.optimizer.name.empty()) RETURN_IF_ERROR(VerifyFile(directory, shard.optimizer));
  }
  return manifest;
}

absl::StatusOr<std::optional<FoundCheckpoint>> FindNewestCheckpoint(const std::string& root) {
  ASSIGN_OR_RETURN(const std::vector<CheckpointEntry> entries, ListCheckpoints(root));
  std::vector<std::string> alarms;
  for (const CheckpointEntry& entry : entries) {
    if (!entry.suffix.empty() && entry.suffix != kReplacedSuffix) continue;
    absl::StatusOr<Manifest> manifest = VerifyCheckpoint(entry.path);
    if (manifest.ok()) {
      return FoundCheckpoint{entry.path, *std::move(manifest), std::move(alarms)};
    }
    alarms.push_back(absl::StrCat("CHECKPOINT ", entry.path,
                                  " IS DAMAGED and is not used: ", manifest.status().message()));
  }
  if (alarms.empty()) return std::nullopt;
  return absl::DataLossError(
      absl::StrCat("no checkpoint below ", root,
                   " verifies; move them away to start anew, or restore them from a copy: ",
                   absl::StrJoin(alarms, "; ")));
}

struct CheckpointReader::ShardData {
  ElementRange range;
  std::unique_ptr<SafetensorsReader> weights;
  std::unique_ptr<SafetensorsReader> optimizer;  // null if there is no state
};

CheckpointReader::CheckpointReader(std::string directory, Manifest manifest)
    : directory_(std::move(directory)), manifest_(std::move(manifest)) {}

CheckpointReader::~CheckpointReader() = default;

absl::StatusOr<std::unique_ptr<CheckpointReader>> CheckpointReader::Open(
    const std::string& directory) {
  ASSIGN_OR_RETURN(Manifest manifest, ReadManifest(directory));
  std::unique_ptr<CheckpointReader> reader(new CheckpointReader(directory, std::move(manifest)));
  for (const ShardManifest& shard : reader->manifest_.shards) {
    auto data = std::make_unique<ShardData>();
    data->range = shard.range;
    ASSIGN_OR_RETURN(data->weights,
                     SafetensorsReader::Open(absl::StrCat(directory, "/", shard.weights.name)));
    if (!shard.optimizer.name.empty()) {
      ASSIGN_OR_RETURN(data->optimizer,
                       SafetensorsReader::Open(absl::StrCat(directory, "/", shard.optimizer.name)));
    }
    reader->shards_.push_back(std::move(data));
  }
  return reader;
}

absl::Status CheckpointReader::ReadVector(const std::string& state_name, ElementRange range,
                                          absl::Span<float> out) const {
  if (range.begin < 0 || range.end > manifest_.layout.num_elements() ||
      range.size() != static_cast<int64_t>(out.size())) {
    return absl::InvalidArgumentError(
        absl::StrCat("elements ", range.begin, " to ", range.end, " into ", out.size(),
                     " floats; the checkpoint has ", manifest_.layout.num_elements()));
  }
  for (const std::unique_ptr<ShardData>& shard : shards_) {
    if (Overlap(shard->range, range) <= 0) continue;
    const SafetensorsReader* const file =
        state_name.empty() ? shard->weights.get() : shard->optimizer.get();
    if (file == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat(directory_, " holds no optimizer state, wanted is ", state_name));
    }
    for (const TensorSlice& slice : SlicesOf(manifest_.layout, shard->range, state_name)) {
      const ElementRange part = {std::max(slice.range.begin, range.begin),
                                 std::min(slice.range.end, range.end)};
      if (part.begin >= part.end) continue;
      ASSIGN_OR_RETURN(const absl::Span<const float> values, file->Floats(slice.name));
      if (static_cast<int64_t>(values.size()) != slice.range.size()) {
        return absl::DataLossError(absl::StrCat(file->path(), ": ", slice.name, " has ",
                                                values.size(), " elements, the layout says ",
                                                slice.range.size()));
      }
      std::memcpy(out.data() + (part.begin - range.begin),
                  values.data() + (part.begin - slice.range.begin), part.size() * sizeof(float));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckpointReader::ReadWeights(ElementRange range, absl::Span<float> weights) const {
  return ReadVector("", range, weights);
}

absl::StatusOr<ShardState> CheckpointReader::ReadShard(
    ElementRange range, const std::vector<Bucket>& buckets,
    const std::vector<std::string>& state_names) const {
  for (const ShardManifest& shard : manifest_.shards) {
    if (shard.state_names != state_names) {
      return absl::InvalidArgumentError(absl::StrCat(
          directory_, " holds optimizer state {", absl::StrJoin(shard.state_names, ", "),
          "}, this job's optimizer has {", absl::StrJoin(state_names, ", "),
          "}; resume with the optimizer it was written with, or start from its weights only"));
    }
  }
  ShardState state;
  state.range = range;
  state.state_names = state_names;
  for (const Bucket& bucket : buckets) {
    BucketManifest common = CommonOf(manifest_, bucket.range);
    BucketState& restored = state.buckets.emplace_back();
    restored.range = bucket.range;
    restored.version = common.version;
    restored.counted = std::move(common.counted);
    auto weights = std::make_shared<Page>(bucket.range.size());
    RETURN_IF_ERROR(ReadVector("", bucket.range, weights->mutable_span()));
    restored.weights = std::move(weights);
    for (const std::string& name : state_names) {
      auto page = std::make_shared<Page>(bucket.range.size());
      RETURN_IF_ERROR(ReadVector(name, bucket.range, page->mutable_span()));
      restored.optimizer_state.push_back(std::move(page));
    }
  }
  return state;
}

}  // namespace lodestar
