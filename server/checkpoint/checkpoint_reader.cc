// SPDX-License-Identifier: Apache-2.0

#include "server/checkpoint/checkpoint_reader.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/checkpoints/checkpoint_directory.h"
#include "common/params/tensor_slices.h"
#include "common/runtime/status_macros.h"
#include "common/storage/safetensors.h"

namespace lodestar::checkpoint {
namespace {

int64_t Overlap(params::ElementRange a, params::ElementRange b) {
  return std::min(a.end, b.end) - std::max(a.begin, b.begin);
}

// Returns the state of a new bucket that covers `range`. `written` is where the elements of `range`
// were written. Of the written buckets that overlap `written`, the new bucket gets the lowest
// version, and the counted rows that all of them have.
checkpoints::BucketManifest CommonOf(const checkpoints::Manifest& manifest,
                                     params::ElementRange range, params::ElementRange written) {
  checkpoints::BucketManifest common;
  common.range = range;
  bool is_first = true;
  for (const checkpoints::ShardManifest& shard : manifest.shards) {
    for (const checkpoints::BucketManifest& bucket : shard.buckets) {
      if (Overlap(bucket.range, written) <= 0) continue;
      if (std::exchange(is_first, false)) {
        common.version = bucket.version;
        common.counted = bucket.counted;
        // Only a bucket with the same range as before has a usual norm and a delayed step. For any
        // other bucket the norm is unknown, and the delayed step is over.
        if (bucket.range == range && written == range) {
          common.usual_norm = bucket.usual_norm;
          common.delayed = bucket.delayed;
        }
        continue;
      }
      common.version = std::min(common.version, bucket.version);
      std::erase_if(common.counted, [&](checkpoints::CountedRow& row) {
        const auto other = std::find_if(bucket.counted.begin(), bucket.counted.end(),
                                        [&](const checkpoints::CountedRow& candidate) {
                                          return candidate.worker == row.worker &&
                                                 candidate.incarnation == row.incarnation;
                                        });
        if (other == bucket.counted.end()) return true;
        row.round = std::min(row.round, other->round);
        return false;
      });
    }
  }
  return common;
}

}  // namespace

absl::Status UnreadCheckpoint(absl::string_view path, const absl::Status& why) {
  return absl::Status(
      why.code(),
      absl::StrCat(
          "checkpoint ", path, " cannot be read: ", why.message(),
          ". The job does not continue from an older checkpoint, because rounds would be lost. ",
          absl::IsUnimplemented(why) ? "Start the release that wrote this checkpoint"
                                     : "Let this process read the checkpoint",
          ". Or move the checkpoint away to continue without it"));
}

absl::StatusOr<std::optional<FoundCheckpoint>> FindNewestCheckpoint(
    storage::FileSystem& file_system, const std::string& root,
    absl::Span<const std::string> passed_over) {
  ASSIGN_OR_RETURN(std::vector<checkpoints::CheckpointEntry> entries,
                   checkpoints::ListWholeCheckpoints(file_system, root));
  std::erase_if(entries, [&](const checkpoints::CheckpointEntry& entry) {
    return std::any_of(passed_over.begin(), passed_over.end(), [&](const std::string& path) {
      return file_system.AreSame(entry.path, path);
    });
  });
  std::vector<std::string> alarms;
  for (const checkpoints::CheckpointEntry& entry :
       checkpoints::TakeOutOvertaken(file_system, entries)) {
    alarms.push_back(absl::StrCat("CHECKPOINT ", entry.path,
                                  " IS NOT USED: a former leader wrote it after another server had "
                                  "taken the leader lease; remove it"));
  }
  const auto misnamed = std::stable_partition(
      entries.begin(), entries.end(), [&](const checkpoints::CheckpointEntry& entry) {
        return entry.round == checkpoints::WrittenRound(file_system, entry);
      });
  for (auto entry = misnamed; entry != entries.end(); ++entry) {
    entry->round = checkpoints::WrittenRound(file_system, *entry);
    alarms.push_back(absl::StrCat("CHECKPOINT ", entry->path, " IS MISNAMED: its ",
                                  checkpoints::kManifestName, " says round ", entry->round.value(),
                                  ", and the server uses that round"));
  }
  // The sort is stable: if two checkpoints have the same round, the one with the correct name stays
  // first.
  std::stable_sort(entries.begin(), entries.end(),
                   [](const checkpoints::CheckpointEntry& a,
                      const checkpoints::CheckpointEntry& b) { return a.round > b.round; });
  for (const checkpoints::CheckpointEntry& entry : entries) {
    absl::StatusOr<checkpoints::Manifest> manifest =
        checkpoints::VerifyCheckpoint(file_system, entry.path);
    if (manifest.ok()) {
      return FoundCheckpoint{entry.path, *std::move(manifest), std::move(alarms)};
    }
    if (checkpoints::MayBeWhole(manifest.status()))
      return UnreadCheckpoint(entry.path, manifest.status());
    alarms.push_back(absl::StrCat("CHECKPOINT ", entry.path,
                                  " IS DAMAGED and is not used: ", manifest.status().message()));
  }
  if (entries.empty()) return std::nullopt;
  return absl::DataLossError(absl::StrCat(
      "all checkpoints in ", root,
      " are damaged; restore one from a copy, or move them away to start from the beginning: ",
      absl::StrJoin(alarms, "; ")));
}

struct CheckpointReader::ShardData {
  params::ElementRange range;
  std::unique_ptr<storage::SafetensorsReader> weights;
  std::unique_ptr<storage::SafetensorsReader> optimizer;  // null if there is no state
};

CheckpointReader::CheckpointReader(std::string directory, checkpoints::Manifest manifest)
    : directory_(std::move(directory)), manifest_(std::move(manifest)) {}

CheckpointReader::~CheckpointReader() = default;

absl::StatusOr<std::unique_ptr<CheckpointReader>> CheckpointReader::Open(
    storage::FileSystem& file_system, const std::string& directory) {
  ASSIGN_OR_RETURN(checkpoints::Manifest manifest,
                   checkpoints::ReadManifest(file_system, directory));
  std::unique_ptr<CheckpointReader> reader(new CheckpointReader(directory, std::move(manifest)));
  for (const checkpoints::ShardManifest& shard : reader->manifest_.shards) {
    auto data = std::make_unique<ShardData>();
    data->range = shard.range;
    ASSIGN_OR_RETURN(data->weights,
                     storage::SafetensorsReader::Open(
                         file_system, absl::StrCat(directory, "/", shard.weights.name)));
    if (!shard.optimizer.name.empty()) {
      ASSIGN_OR_RETURN(data->optimizer,
                       storage::SafetensorsReader::Open(
                           file_system, absl::StrCat(directory, "/", shard.optimizer.name)));
    }
    reader->shards_.push_back(std::move(data));
  }
  return reader;
}

absl::Status CheckpointReader::ReadAs(const params::Layout& layout) {
  ASSIGN_OR_RETURN(transposed_,
                   params::TransposedBetween(layout, "the job", manifest_.layout, directory_));
  return absl::OkStatus();
}

params::ElementRange CheckpointReader::WrittenRange(params::ElementRange range) const {
  for (const params::TransposedMatrix& matrix : transposed_) {
    if (Overlap(matrix.range, range) <= 0) continue;
    range = {std::min(range.begin, matrix.range.begin), std::max(range.end, matrix.range.end)};
  }
  return range;
}

absl::Status CheckpointReader::ReadVector(const std::string& state_name, params::ElementRange range,
                                          absl::Span<float> out) const {
  RETURN_IF_ERROR(ReadWritten(state_name, range, out));
  for (const params::TransposedMatrix& matrix : transposed_) {
    const params::ElementRange part = {std::max(matrix.range.begin, range.begin),
                                       std::min(matrix.range.end, range.end)};
    if (part.begin >= part.end) continue;
    std::vector<float> written(matrix.range.size());
    RETURN_IF_ERROR(ReadWritten(state_name, matrix.range, absl::MakeSpan(written)));
    for (int64_t i = part.begin; i < part.end; ++i) {
      out[i - range.begin] = written[matrix.WrittenAt(i) - matrix.range.begin];
    }
  }
  return absl::OkStatus();
}

absl::Status CheckpointReader::ReadWritten(const std::string& state_name,
                                           params::ElementRange range,
                                           absl::Span<float> out) const {
  if (range.begin < 0 || range.end > manifest_.layout.num_elements() ||
      range.size() != static_cast<int64_t>(out.size())) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot read elements ", range.begin, " to ", range.end, " of checkpoint ",
                     directory_, ": there is space for ", out.size(),
                     " elements, and the checkpoint has ", manifest_.layout.num_elements()));
  }
  for (const std::unique_ptr<ShardData>& shard : shards_) {
    if (Overlap(shard->range, range) <= 0) continue;
    const storage::SafetensorsReader* const file =
        state_name.empty() ? shard->weights.get() : shard->optimizer.get();
    if (file == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat(
          directory_, " has no optimizer state, but the job needs ", state_name,
          ". Resume another checkpoint, or start only from the weights of this one (--init_from)"));
    }
    for (const params::TensorSlice& slice :
         params::SlicesOf(manifest_.layout, shard->range, state_name)) {
      const params::ElementRange part = {std::max(slice.range.begin, range.begin),
                                         std::min(slice.range.end, range.end)};
      if (part.begin >= part.end) continue;
      ASSIGN_OR_RETURN(const absl::Span<const float> values, file->Floats(slice.name));
      if (static_cast<int64_t>(values.size()) != slice.range.size()) {
        return absl::DataLossError(absl::StrCat(file->path(), ": ", slice.name, " has ",
                                                values.size(), " elements, but the layout says ",
                                                slice.range.size(), "; the file is damaged"));
      }
      std::memcpy(out.data() + (part.begin - range.begin),
                  values.data() + (part.begin - slice.range.begin), part.size() * sizeof(float));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckpointReader::CheckStateNames(const std::vector<std::string>& state_names) const {
  for (const checkpoints::ShardManifest& shard : manifest_.shards) {
    if (shard.state_names != state_names) {
      return absl::InvalidArgumentError(
          absl::StrCat(directory_, " has optimizer state {", absl::StrJoin(shard.state_names, ", "),
                       "}, but this job's optimizer has {", absl::StrJoin(state_names, ", "),
                       "}. Resume with the optimizer of the checkpoint, or start only from its "
                       "weights (--init_from)"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<const shard::Page>> CheckpointReader::ReadPage(
    const std::string& state_name, params::ElementRange range) const {
  std::shared_ptr<shard::Page> page = shard::Page::Create(range.size());
  if (page == nullptr) {
    return absl::ResourceExhaustedError(
        absl::StrCat("out of memory while reading ", range.size(), " elements of ", directory_));
  }
  RETURN_IF_ERROR(ReadVector(state_name, range, page->mutable_span()));
  return page;
}

absl::StatusOr<shard::BucketState> CheckpointReader::ReadBucket(
    params::ElementRange range, const std::vector<std::string>& state_names) const {
  const checkpoints::BucketManifest common = CommonOf(manifest_, range, WrittenRange(range));
  shard::BucketState state;
  state.range = range;
  state.version = common.version;
  for (const checkpoints::CountedRow& row : common.counted) {
    state.counted.push_back({row.worker, {row.incarnation, row.round}});
  }
  state.usual_norm = {common.usual_norm.norm, common.usual_norm.contributions};
  state.delayed = {common.delayed.num_parts, common.delayed.arrived, common.delayed.planned_weight,
                   common.delayed.arrived_weight};
  ASSIGN_OR_RETURN(state.weights, ReadPage("", range));
  for (const std::string& name : state_names) {
    ASSIGN_OR_RETURN(state.optimizer_state.emplace_back(), ReadPage(name, range));
  }
  return state;
}

}  // namespace lodestar::checkpoint
