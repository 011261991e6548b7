// SPDX-License-Identifier: Apache-2.0

// The events of a device's streams. They are created once and reused as a ring. An id stands for
// one recording of an event. If the event was reused since, a wait for the id becomes a wait for
// the event's latest recording, which is later on the same stream. So a wait may end too late, but
// never too early.
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
  // Creates all events with `flags`, as cudaEventCreateWithFlags() takes them. If a call fails,
  // stores the error in `errors` and returns false. The ring must not be used then.
  bool Create(unsigned flags, Errors* errors);
  // The next event to record on a stream, and its id in the ring.
  struct Slot {
    cudaEvent_t event;
    int64_t id;
  };
  Slot Next(int stream);
  // Returns the event of an id that Next() has returned.
  cudaEvent_t Get(int64_t id) const;
  // Returns true if Next() has returned `id` and has not reused its event since.
  bool IsCurrent(int64_t id) const;

 private:
  static constexpr int64_t kEventsPerStream = 512;

  std::array<std::array<Event, kEventsPerStream>, kNumStreams> events_;
  std::array<int64_t, kNumStreams> num_recorded_ = {};
};

}  // namespace lodestar::cuda
