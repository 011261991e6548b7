// SPDX-License-Identifier: Apache-2.0

// Functions that write files for tests, such as a minimal checkpoint.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "common/checkpoints/journal_manifest.h"
#include "common/storage/file_system.h"

namespace lodestar {

// Writes a file, replacing an existing one. An error fails the test.
void WriteFile(storage::FileSystem& file_system, const std::string& path, absl::string_view bytes);

// Writes a checkpoint of one shard. The content of its weights file, "weights", is `bytes`. Nothing
// is synced.
void WriteCheckpoint(storage::FileSystem& file_system, const std::string& path, int64_t round,
                     const std::string& bytes, const checkpoints::JournalManifest& journal = {});

}  // namespace lodestar
