// SPDX-License-Identifier: Apache-2.0

// JournalState is what a server reports about its journal with every sign of life. JournalPlace is
// what it reports when it attaches.
#pragma once

#include <cstdint>
#include <string>

namespace lodestar::shards {

struct JournalState {
  // Bytes written since the newest checkpoint. 0 means that there is no journal.
  int64_t bytes = 0;
  // Message that says why the server can acknowledge nothing at present. Empty means that it can.
  std::string trouble = "";
  // Message about the journal's replica: where it is and which records it has. Empty means that
  // there is no replica.
  std::string replica = "";
  // Number of the last record on disk. 0 means that there is no record.
  uint64_t end = 0;
};

// Identifies a record of the coordinator's journal.
struct CoordinatorRecord {
  uint64_t journal_id = 0;  // random, one per journal; 0 means that there is no journal
  uint64_t number = 0;      // 0 means that the journal has no record
  friend bool operator==(const CoordinatorRecord&, const CoordinatorRecord&) = default;
};

// What a server reports about its journal when it attaches. All zeros mean that it has no journal.
struct JournalPlace {
  // Number of the first segment that this process of the server writes. It is higher than those of
  // earlier processes with this journal.
  uint64_t first_segment = 0;
  uint64_t end = 0;         // last record on disk
  uint64_t process_id = 0;  // random ID of this process; 0 means not known
  // Newest record of the coordinator's journal whose commands this server has carried out.
  CoordinatorRecord follows = {};
  // Highest round of this incarnation of the servers that was opened on this server, or of which
  // this server has a contribution. -1 means none.
  int64_t highest_round = -1;
};

}  // namespace lodestar::shards
