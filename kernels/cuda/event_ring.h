// The events of a device's streams, made once and used in turn. An id whose event has been taken
// again stands for the later point of the same stream: a wait for it is long enough.
#pragma once

#include <array>
#include <cstdint>
#include <source_location>

#include "kernels/cuda/errors.h"
#include "kernels/cuda/resources.h"

namespace lodestar::cuda {

inline constexpr int kNumStreams = 3;

// Recording is for one thread at a time, Get() for any.
class EventRing {
 public:
  // cudaEvent flags. Errors go to `errors`; false: not usable.
  bool Create(unsigned flags, Errors* errors);
  // The event to be recorded next on a stream, and its id within the ring.
  struct Slot {
    cudaEvent_t event;
    int64_t id;
  };
  Slot Next(int stream);
  // `id` of Next().
  cudaEvent_t Get(int64_t id) const;
  // Whether the event has not been taken again since.
  bool IsCurrent(int64_t id) const;

 private:
  static constexpr int64_t kEventsPerStream = 512;

  std::array<std::array<Event, kEventsPerStream>, kNumStreams> events_;
  std::array<int64_t, kNumStreams> num_recorded_ = {};
};

}  // namespace lodestar::cuda
