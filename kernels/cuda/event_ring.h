// SPDX-License-Identifier: Apache-2.0

// The events of a device's streams, which are made once and used in turn. If the event of an id was
// recorded again, a wait for the id waits for the later point of the same stream. So the wait never
// ends too early.
#pragma once

#include <array>
#include <cstdint>
#include <source_location>

#include "kernels/cuda/errors.h"
#include "kernels/cuda/resources.h"

namespace lodestar::cuda {

inline constexpr int kNumStreams = 3;

// One thread at a time may call Next(). Any thread may call Get().
class EventRing {
 public:
  // Makes the events with `flags` of cudaEvent. Errors go to `errors`. Returns false if the ring
  // cannot be used.
  bool Create(unsigned flags, Errors* errors);
  // The event to record next on a stream, and its id in the ring.
  struct Slot {
    cudaEvent_t event;
    int64_t id;
  };
  Slot Next(int stream);
  // Returns the event of an id that Next() has given.
  cudaEvent_t Get(int64_t id) const;
  // Returns true if the event of the id was not recorded again for a later id.
  bool IsCurrent(int64_t id) const;

 private:
  static constexpr int64_t kEventsPerStream = 512;

  std::array<std::array<Event, kEventsPerStream>, kNumStreams> events_;
  std::array<int64_t, kNumStreams> num_recorded_ = {};
};

}  // namespace lodestar::cuda
