// What a server says of its journal with every sign of life.
#pragma once

#include <cstdint>
#include <string>

namespace lodestar {

struct JournalState {
  int64_t bytes = 0;         // written down since the newest checkpoint; 0: there is no journal
  std::string trouble = "";  // why nothing can be acknowledged at present; empty: it can
  std::string replica = "";  // where it is, and what it has; empty: there is none
  uint64_t end = 0;          // the last record that is on disk; 0: there is none
};

// What tells the processes apart that go on with one journal, one after the other. Zeros: there is
// no journal.
struct JournalPlace {
  uint64_t first_segment = 0;  // that this process writes: higher than all of those before it
  uint64_t end = 0;            // the last record that is on disk
};

}  // namespace lodestar
