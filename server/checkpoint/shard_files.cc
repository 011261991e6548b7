// SPDX-License-Identifier: Apache-2.0

#include "server/checkpoint/shard_files.h"

#include <memory>
#include <optional>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/types/span.h"
#include "common/params/model_spec_json.h"
#include "common/params/tensor_slices.h"
#include "common/runtime/file_io.h"
#include "common/runtime/status_macros.h"
#include "common/storage/safetensors.h"

namespace lodestar::checkpoint {
namespace {

// Selects the page of a bucket that is written into the file: the weights or a state vector.
using PageOf = absl::FunctionRef<const shard::Page&(const shard::BucketState&)>;

std::string FileName(const ShardFilesSpec& spec, absl::string_view suffix) {
  return absl::StrFormat("shard-%05d-of-%05d%s.safetensors", spec.shard, spec.num_shards, suffix);
}

storage::SafetensorsMetadata MetadataOf(const ShardFilesSpec& spec, const params::Layout& layout,
                                        const shard::ShardState& state) {
  storage::SafetensorsMetadata metadata = {
      {"format", "pt"},
      {"lodestar.layout_hash", layout.hash()},
      {"lodestar.shard", absl::StrCat(spec.shard, "/", spec.num_shards)},
      {"lodestar.elements", absl::StrCat(state.range.begin, ":", state.range.end)},
  };
  if (!spec.model.empty()) metadata[params::kModelMetadataKey] = spec.model;
  return metadata;
}

// If the disk is full, adds to the error how much space the file needs and how much is free.
absl::Status WithSpace(storage::FileSystem& file_system, const absl::Status& status,
                       const std::string& directory, int64_t wanted_bytes) {
  if (!absl::IsResourceExhausted(status)) return status;
  const std::optional<int64_t> free_bytes = file_system.FreeBytes(directory);
  const std::string free_text =
      free_bytes.has_value() ? absl::StrCat(*free_bytes) : "an unknown number of";
  return absl::ResourceExhaustedError(
      absl::StrCat(status.message(), " (the file needs ", wanted_bytes, " bytes, ", free_text,
                   " are free; make room or give ", "another --checkpoint_dir)"));
}

absl::Status AppendBuckets(storage::SafetensorsWriter& writer, const shard::ShardState& state,
                           PageOf page_of) {
  for (const shard::BucketState& bucket : state.buckets) {
    // Tensors and buckets are both in the order of the parameter space.
    RETURN_IF_ERROR(writer.Append(
        absl::Span<const float>(page_of(bucket).data(), static_cast<size_t>(bucket.range.size()))));
  }
  return absl::OkStatus();
}

absl::StatusOr<checkpoints::CheckpointFile> WriteOne(storage::FileSystem& file_system,
                                                     const ShardFilesSpec& spec,
                                                     const params::Layout& layout,
                                                     const shard::ShardState& state,
                                                     bool is_optimizer) {
  checkpoints::CheckpointFile file;
  file.name = FileName(spec, is_optimizer ? ".optimizer" : "");
  const std::string path = absl::StrCat(spec.directory, "/", file.name);
  const std::vector<std::string> vectors =
      is_optimizer ? state.state_names : std::vector<std::string>{""};
  std::vector<storage::SafetensorsEntry> entries;
  for (const std::string& vector : vectors) {
    for (const params::TensorSlice& slice : params::SlicesOf(layout, state.range, vector)) {
      entries.push_back({slice.name, slice.shape});
    }
  }
  const auto write = [&]() -> absl::StatusOr<storage::WrittenFile> {
    // An earlier save may have left a file or a link at this path. Writing would follow the link.
    RETURN_IF_ERROR(file_system.RemoveAll(path));
    ASSIGN_OR_RETURN(const std::unique_ptr<storage::SafetensorsWriter> writer,
                     storage::SafetensorsWriter::CreateNew(file_system, path, entries,
                                                           MetadataOf(spec, layout, state)));
    for (size_t i = 0; i < vectors.size(); ++i) {
      RETURN_IF_ERROR(AppendBuckets(
          *writer, state, [&](const shard::BucketState& bucket) -> const shard::Page& {
            return is_optimizer ? *bucket.optimizer_state[i] : *bucket.weights;
          }));
    }
    return writer->Finish(/*sync=*/true);
  };
  const absl::StatusOr<storage::WrittenFile> written = write();
  if (!written.ok()) {
    file_system.RemoveAll(path).IgnoreError();
    return WithSpace(file_system, written.status(), spec.directory,
                     static_cast<int64_t>(state.range.size() * sizeof(float) * vectors.size()));
  }
  file.num_bytes = written->num_bytes;
  file.crc32c = written->crc32c;
  return file;
}

}  // namespace

absl::Status CheckShardFileSizes(int shard, const plan::ShardMemory& memory) {
  RETURN_IF_ERROR(CheckFileSize(absl::StrCat("the weights of shard ", shard), memory.weights));
  return CheckFileSize(absl::StrCat("the optimizer states of shard ", shard),
                       memory.optimizer_state);
}

absl::StatusOr<checkpoints::ShardManifest> WriteShardFiles(storage::FileSystem& file_system,
                                                           const ShardFilesSpec& spec,
                                                           const params::Layout& layout,
                                                           const shard::ShardState& state) {
  checkpoints::ShardManifest manifest;
  manifest.shard = spec.shard;
  manifest.range = state.range;
  manifest.state_names = state.state_names;
  for (const shard::BucketState& bucket : state.buckets) {
    checkpoints::BucketManifest& written = manifest.buckets.emplace_back();
    written.range = bucket.range;
    written.version = bucket.version;
    for (const shard::CountedWorker& row : bucket.counted) {
      written.counted.push_back({row.worker, row.last.incarnation, row.last.round});
    }
    written.usual_norm = {bucket.usual_norm.norm, bucket.usual_norm.contributions};
    written.delayed = {bucket.delayed.num_parts, bucket.delayed.arrived,
                       bucket.delayed.planned_weight, bucket.delayed.arrived_weight};
  }
  ASSIGN_OR_RETURN(manifest.weights,
                   WriteOne(file_system, spec, layout, state, /*is_optimizer=*/false));
  if (state.state_names.empty()) return manifest;
  absl::StatusOr<checkpoints::CheckpointFile> optimizer =
      WriteOne(file_system, spec, layout, state, /*is_optimizer=*/true);
  if (!optimizer.ok()) {
    file_system.RemoveAll(absl::StrCat(spec.directory, "/", manifest.weights.name)).IgnoreError();
    return optimizer.status();
  }
  manifest.optimizer = *std::move(optimizer);
  return manifest;
}

}  // namespace lodestar::checkpoint
