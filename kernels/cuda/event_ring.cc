// SPDX-License-Identifier: Apache-2.0

#include "kernels/cuda/event_ring.h"

#include "common/runtime/check.h"

namespace lodestar::cuda {

bool EventRing::Create(unsigned flags, Errors* errors) {
  for (auto& ring : events_) {
    for (Event& event : ring) {
      const cudaError_t error = Make(
          &event, [&](cudaEvent_t* handle) { return cudaEventCreateWithFlags(handle, flags); });
      if (!errors->Check(error, "cudaEventCreateWithFlags")) return false;
    }
  }
  return true;
}

EventRing::Slot EventRing::Next(int stream) {
  const int64_t count = num_recorded_[stream]++;
  return {events_[stream][count % kEventsPerStream].get(), count * kNumStreams + stream};
}

cudaEvent_t EventRing::Get(int64_t id) const {
  LODESTAR_CHECK(id >= 0);
  return events_[id % kNumStreams][id / kNumStreams % kEventsPerStream].get();
}

bool EventRing::IsCurrent(int64_t id) const {
  return id >= 0 && id / kNumStreams < num_recorded_[id % kNumStreams] &&
         id / kNumStreams + kEventsPerStream >= num_recorded_[id % kNumStreams];
}

}  // namespace lodestar::cuda
