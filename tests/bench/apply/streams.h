// The plainest loops with the memory traffic of an optimizer: what they reach is what the machine's
// memory gives to so many read and write streams.
#pragma once

#include <cstdint>

namespace lodestar {

inline constexpr int kMaxUpdated = 3;

// One part of the vectors of a run.
struct StreamPart {
  const float* read = nullptr;        // only read, as a gradient is
  float* updated[kMaxUpdated] = {};   // read and written in place
  const float* moved_from = nullptr;  // may be null: read and written elsewhere
  float* moved_to = nullptr;          // with moved_from null: only written
  int64_t elements = 0;
};

enum class Stores : uint8_t { kPlain, kNonTemporal };

// y = y / 2 + read for every written vector. `stores` is how `moved_to` is written. The parts start
// on cache lines.
void RunStreams(const StreamPart& part, int num_updated, Stores stores);

}  // namespace lodestar
