// SPDX-License-Identifier: Apache-2.0

#include "worker/trainer/exposed_wait.h"

#include <algorithm>

#include "common/runtime/status_macros.h"

namespace lodestar::trainer {

void ExposedWait::Begin() {
  begun_at_ = clock_->Now();
  begun_ = device_->RecordTimed(kernels::StreamKind::kCompute);
}

void ExposedWait::End() {
  const kernels::EventId ended = device_->RecordTimed(kernels::StreamKind::kCompute);
  spans_.push_back({begun_, ended, clock_->Now() - begun_at_});
}

absl::StatusOr<absl::Duration> ExposedWait::TimeOf(const Span& span) const {
  RETURN_IF_ERROR(device_->Synchronize(span.end));
  const absl::StatusOr<double> seconds = device_->SecondsBetween(span.begin, span.end);
  // The device has already dropped the times of this span. Other errors of the device are not
  // possible here, because Synchronize() has just succeeded.
  if (!seconds.ok()) return span.host;
  return absl::Seconds(std::max(*seconds, 0.0));
}

absl::StatusOr<absl::Duration> ExposedWait::Total() {
  for (const Span& span : spans_) {
    ASSIGN_OR_RETURN(const absl::Duration time, TimeOf(span));
    total_ += time;
  }
  spans_.clear();
  return total_;
}

}  // namespace lodestar::trainer
