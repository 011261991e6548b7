// What a checkpoint's manifest says of the journals of the servers that have written it.
#pragma once

#include <cstdint>
#include <vector>

namespace lodestar {

struct JournalManifest {
  // The id of the coordinator's journal. 0 means that the servers kept no journal.
  uint64_t journal_id = 0;
  uint64_t record = 0;  // The last record of the coordinator that the checkpoint follows from.
  // The last record of each shard's journal that the coordinator knew of then, by shard.
  std::vector<uint64_t> shard_records;
  // Everything is in the checkpoint that was acknowledged by the journals, so that they may go.
  bool is_complete = false;
};

}  // namespace lodestar
