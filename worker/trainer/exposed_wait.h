// SPDX-License-Identifier: Apache-2.0

// ExposedWait measures how long a device's compute stream was idle because of transfers. If
// transfers took no time, a round would be shorter by this time. If operations run inline, the idle
// time is the time that the host waited. On a card this is different: it may compute while the host
// waits, and may wait for copies while the host does not. So idle times of a card are measured by
// the card's own clock.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/runtime/clock.h"
#include "kernels/device.h"

namespace lodestar::trainer {

class ExposedWait {
 public:
  // `device` and `clock` must outlive the object.
  ExposedWait(kernels::Device* device, Clock* clock) : device_(device), clock_(clock) {}

  // Must be called at the beginning and at the end of a wait of the host for data to arrive or
  // leave. Between the two calls, only waits for that data may be queued on the compute stream. A
  // Begin() without an End() does not count. Both must be called on the thread that computes.
  void Begin();
  void End();

  // Returns the idle time of all waits that have ended. Blocks until the device has reached the end
  // of the last wait. Errors: those of the device.
  absl::StatusOr<absl::Duration> Total();

 private:
  struct Span {
    kernels::EventId begin = 0;
    kernels::EventId end = 0;
    absl::Duration host;
  };
  // Returns the idle time of one wait. If the device has no clock, or has dropped the times of this
  // span, returns the time that the host waited.
  absl::StatusOr<absl::Duration> TimeOf(const Span& span) const;

  kernels::Device* const device_;
  Clock* const clock_;
  kernels::EventId begun_ = 0;
  absl::Time begun_at_;
  std::vector<Span> spans_;  // Spans that total_ does not include yet.
  absl::Duration total_;
};

}  // namespace lodestar::trainer
