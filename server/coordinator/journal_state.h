// What a server says of its journal with every sign of life.
#pragma once

#include <cstdint>
#include <string>

namespace lodestar {

struct JournalState {
  int64_t bytes = 0;         // written down since the newest checkpoint; 0: there is no journal
  std::string trouble = "";  // why nothing can be acknowledged at present; empty: it can
  std::string replica = "";  // where it is, and what it has; empty: there is none
};

}  // namespace lodestar
