// ExposedWait: how long a device's compute stream stood still for transfers, which is what a round
// would be shorter by if they took no time. Where operations run inline, that is how long the host
// waited. A card computes on with what it was given while the host waits, and waits for copies
// while the host goes on: there its own clock tells.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "kernels/device.h"

namespace lodestar {

class ExposedWait {
 public:
  // Both outlive the object.
  ExposedWait(Device* device, Clock* clock) : device_(device), clock_(clock) {}

  // Between the two the host waits for what is to arrive or to leave, and gives the compute stream
  // nothing but waits for it. A Begin() without an End() counts for nothing. On the thread that
  // computes.
  void Begin();
  void End();

  // Of all that has ended; blocks until the device has reached the last of it. Errors: those of the
  // device.
  absl::StatusOr<absl::Duration> Total();

 private:
  struct Span {
    EventId begin = 0;
    EventId end = 0;
    absl::Duration host;
  };
  // The host's, where the device has no clock or keeps this span's times no more.
  absl::StatusOr<absl::Duration> TimeOf(const Span& span) const;

  Device* const device_;
  Clock* const clock_;
  EventId begun_ = 0;
  absl::Time begun_at_;
  std::vector<Span> spans_;  // that total_ does not have
  absl::Duration total_;
};

}  // namespace lodestar
