// SPDX-License-Identifier: Apache-2.0

#include "common/testing/checkpoint_files.h"

#include "absl/strings/str_cat.h"
#include "common/checkpoints/checkpoint_manifest.h"
#include "common/crc32c/crc32c.h"
#include "common/testing/status_matchers.h"
#include "gtest/gtest.h"

namespace lodestar {

void WriteFile(storage::FileSystem& file_system, const std::string& path, absl::string_view bytes) {
  auto file = file_system.Create(path, storage::FileSystem::IfExists::kTruncate);
  ASSERT_OK(file.status());
  ASSERT_OK((*file)->Append(bytes));
  ASSERT_OK((*file)->Close());
}

void WriteCheckpoint(storage::FileSystem& file_system, const std::string& path, int64_t round,
                     const std::string& bytes, const checkpoints::JournalManifest& journal) {
  ASSERT_OK(file_system.CreateDirectories(path));
  checkpoints::Manifest manifest;
  manifest.round = Round(round);
  manifest.journal = journal;
  params::TensorSpec tensor;
  tensor.name = "w";
  tensor.shape = {2};
  manifest.layout = *params::Layout::FromTensors({tensor});
  checkpoints::ShardManifest shard;
  shard.range = {0, 2};
  shard.weights = {"weights", static_cast<int64_t>(bytes.size()),
                   crc32c::Crc32c(bytes.data(), bytes.size())};
  shard.buckets.push_back({{0, 2}, Version(round), {}});
  manifest.shards.push_back(shard);
  WriteFile(file_system, absl::StrCat(path, "/weights"), bytes);
  WriteFile(file_system, absl::StrCat(path, "/", checkpoints::kManifestName),
            checkpoints::FormatManifest(manifest));
}

}  // namespace lodestar
