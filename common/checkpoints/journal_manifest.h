// SPDX-License-Identifier: Apache-2.0

// The part of a checkpoint's manifest about the journals of the servers that wrote it.
#pragma once

#include <cstdint>
#include <vector>

namespace lodestar::checkpoints {

struct JournalManifest {
  // The id of the coordinator's journal. 0 means that the servers kept no journal.
  uint64_t journal_id = 0;
  // The last record of the coordinator's journal that the checkpoint includes.
  uint64_t record = 0;
  // The last record of each shard's journal that the coordinator knew of when the checkpoint was
  // written, indexed by shard.
  std::vector<uint64_t> shard_records;
  // True means that the checkpoint has everything in the journals that was acknowledged. The
  // journals may then be removed.
  bool is_complete = false;
};

}  // namespace lodestar::checkpoints
