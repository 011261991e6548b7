// ExposedWait measures how long a device's compute stream stood still for transfers. A round would
// be shorter by that time if transfers took none. If operations run inline, that is how long the
// host waited. A card computes on with what it was given while the host waits, and waits for copies
// while the host goes on. On a card its own clock therefore tells the time.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/runtime/clock.h"
#include "kernels/device.h"

namespace lodestar::trainer {

class ExposedWait {
 public:
  // The device and the clock outlive the object.
  ExposedWait(kernels::Device* device, Clock* clock) : device_(device), clock_(clock) {}

  // Between Begin() and End() the host waits for what is to arrive or to leave. It gives the
  // compute stream nothing but waits for that. A Begin() without an End() counts for nothing. Both
  // must be called on the thread that computes.
  void Begin();
  void End();

  // Returns the time of all waits that have ended. Blocks until the device has reached the last of
  // them. Errors: those of the device.
  absl::StatusOr<absl::Duration> Total();

 private:
  struct Span {
    kernels::EventId begin = 0;
    kernels::EventId end = 0;
    absl::Duration host;
  };
  // Returns the host's time if the device has no clock, or does not keep this span's times any
  // more.
  absl::StatusOr<absl::Duration> TimeOf(const Span& span) const;

  kernels::Device* const device_;
  Clock* const clock_;
  kernels::EventId begun_ = 0;
  absl::Time begun_at_;
  std::vector<Span> spans_;  // The spans that total_ does not have yet.
  absl::Duration total_;
};

}  // namespace lodestar::trainer
