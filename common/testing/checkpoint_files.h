// WriteCheckpoint: a checkpoint as small as can be.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "common/checkpoints/journal_manifest.h"
#include "common/storage/file_system.h"

namespace lodestar {

// Replaces what is there. Fails the test if the disk refuses.
void WriteFile(FileSystem& file_system, const std::string& path, absl::string_view bytes);

// Writes a checkpoint of one shard whose file of weights, "weights", is `bytes`. Nothing is synced.
void WriteCheckpoint(FileSystem& file_system, const std::string& path, int64_t round,
                     const std::string& bytes, const JournalManifest& journal = {});

}  // namespace lodestar
