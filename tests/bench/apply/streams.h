// SPDX-License-Identifier: Apache-2.0

// The simplest loops that have the memory traffic of an optimizer. Their speed is what the
// machine's memory allows for that number of read and write streams.
#pragma once

#include <cstdint>

namespace lodestar {

inline constexpr int kMaxUpdated = 3;

// One part of the vectors of a run.
struct StreamPart {
  const float* read = nullptr;        // read only, like a gradient
  float* updated[kMaxUpdated] = {};   // read and written in place
  const float* moved_from = nullptr;  // read, and written to moved_to; may be null
  float* moved_to = nullptr;          // written, without reading if moved_from is null
  int64_t elements = 0;
};

enum class Stores : uint8_t { kPlain, kNonTemporal };

// Computes y = y / 2 + read for every written vector. `stores` says how `moved_to` is written. The
// parts must begin on cache lines.
void RunStreams(const StreamPart& part, int num_updated, Stores stores);

}  // namespace lodestar
