// The state of a server's journal, which the server tells with every sign of life.
#pragma once

#include <cstdint>
#include <string>

namespace lodestar {

struct JournalState {
  // Bytes written down since the newest checkpoint. 0 means that there is no journal.
  int64_t bytes = 0;
  // Why nothing can be acknowledged at present. Empty means that there is no trouble.
  std::string trouble = "";
  // Where the journal's replica is, and what it has. Empty means that there is none.
  std::string replica = "";
  // Number of the last record that is on disk. 0 means that there is none.
  uint64_t end = 0;
};

// Names a record of the coordinator's journal.
struct CoordinatorRecord {
  uint64_t journal_id = 0;  // Random, one per journal. 0 means that there is no journal.
  uint64_t number = 0;      // 0 means that the journal has no record.
  friend bool operator==(const CoordinatorRecord&, const CoordinatorRecord&) = default;
};

// What a server tells of its journal when it attaches. Zeros mean that it has none.
struct JournalPlace {
  // Number of the first segment that this process writes. It is higher than those of all processes
  // before it that went on with the same journal.
  uint64_t first_segment = 0;
  uint64_t end = 0;         // Last record that is on disk.
  uint64_t process_id = 0;  // Random, of this process. 0 means that it does not tell.
  // Newest record of the coordinator that a command followed from which this server has obeyed.
  CoordinatorRecord follows = {};
  // Highest round that was opened here, or contributed to, in this life of the servers. -1 means
  // none.
  int64_t highest_round = -1;
};

}  // namespace lodestar
