// SPDX-License-Identifier: Apache-2.0

#include "worker/trainer/device_timeline.h"

#include "common/runtime/status_macros.h"

namespace lodestar::trainer {
namespace {

absl::string_view LaneOf(kernels::StreamKind stream) {
  switch (stream) {
    case kernels::StreamKind::kCompute:
      return "device: compute";
    case kernels::StreamKind::kDeviceToHost:
      return "device: copy to host";
    case kernels::StreamKind::kHostToDevice:
      return "device: copy from host";
  }
  return "device";
}

}  // namespace

absl::Status DeviceTimeline::BeginRound() {
  anchor_.reset();
  spans_.clear();
  if (trace_ == nullptr || !trace_->is_recording()) return absl::OkStatus();
  const kernels::EventId anchor = device_->RecordTimed(kernels::StreamKind::kCompute);
  RETURN_IF_ERROR(device_->Synchronize(anchor));
  const absl::Time now = trace_->Now();
  const absl::StatusOr<double> zero = device_->SecondsBetween(anchor, anchor);
  if (absl::IsUnimplemented(zero.status())) return absl::OkStatus();
  RETURN_IF_ERROR(zero.status());
  anchor_ = anchor;
  anchor_time_ = now;
  return absl::OkStatus();
}

void DeviceTimeline::Begin(kernels::StreamKind stream) {
  if (is_on()) begun_[static_cast<int>(stream)] = device_->RecordTimed(stream);
}

void DeviceTimeline::End(kernels::StreamKind stream, absl::string_view name,
                         const process::TraceTag& tag) {
  if (!is_on()) return;
  spans_.push_back(
      {stream, name, tag, begun_[static_cast<int>(stream)], device_->RecordTimed(stream)});
}

absl::Status DeviceTimeline::EndRound() {
  if (!is_on()) return absl::OkStatus();
  for (const Span& span : spans_) {
    RETURN_IF_ERROR(device_->Synchronize(span.end));
    const absl::StatusOr<double> begin = device_->SecondsBetween(*anchor_, span.begin);
    const absl::StatusOr<double> end = device_->SecondsBetween(*anchor_, span.end);
    // The device stores only the times of the newest events. A span without times is left out, and
    // the round does not fail.
    if (!begin.ok() || !end.ok()) continue;
    trace_->Add(LaneOf(span.stream), span.name, anchor_time_ + absl::Seconds(*begin),
                anchor_time_ + absl::Seconds(*end), span.tag);
  }
  anchor_.reset();
  return absl::OkStatus();
}

absl::Status DeviceTimeline::Flush() {
  if (!is_on()) return absl::OkStatus();
  RETURN_IF_ERROR(EndRound());
  return BeginRound();
}

}  // namespace lodestar::trainer
