// SPDX-License-Identifier: Apache-2.0

// The events of a device's streams. They are created once and reused in turn. If the event of an id
// was recorded again, a wait for the id becomes a wait for a later point of the same stream. So a
// wait never ends too early.
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
  // Creates the events with `flags` of cudaEvent. Errors are stored in `errors`. Returns false if
  // the ring cannot be used.
  bool Create(unsigned flags, Errors* errors);
  // The next event to record on a stream, and its id in the ring.
  struct Slot {
    cudaEvent_t event;
    int64_t id;
  };
  Slot Next(int stream);
  // Returns the event of an id that Next() has returned.
  cudaEvent_t Get(int64_t id) const;
  // Returns true if the event of the id was not recorded again.
  bool IsCurrent(int64_t id) const;

 private:
  static constexpr int64_t kEventsPerStream = 512;

  std::array<std::array<Event, kEventsPerStream>, kNumStreams> events_;
  std::array<int64_t, kNumStreams> num_recorded_ = {};
};

}  // namespace lodestar::cuda
