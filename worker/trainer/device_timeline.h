// SPDX-License-Identifier: Apache-2.0

// DeviceTimeline records when the streams of a device were busy, in the time of a trace. If
// operations run inline, as on the CPU, it records nothing, because the host's spans show the same.
#pragma once

#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/process/trace_recorder.h"
#include "kernels/device.h"

namespace lodestar::trainer {

class DeviceTimeline {
 public:
  // `device` and `trace` must outlive the timeline. `trace` may be null.
  DeviceTimeline(kernels::Device* device, process::TraceRecorder* trace)
      : device_(device), trace_(trace) {}

  // Must be called when a round begins. If the round is traced, blocks until all work that is
  // queued on the compute stream is done. Then compares the device's clock with the host's. Errors:
  // those of the device.
  absl::Status BeginRound();
  bool is_on() const { return anchor_.has_value(); }

  // Begin() and End() enclose one span: the work that is queued on the stream between the two
  // calls. They do nothing unless is_on().
  void Begin(kernels::StreamKind stream);
  void End(kernels::StreamKind stream, absl::string_view name, const process::TraceTag& tag = {});

  // Adds the spans of the round to the trace. Blocks until the device has executed them. Errors:
  // those of the device.
  absl::Status EndRound();
  // Adds the spans so far to the trace. Must be called from time to time in a round with many
  // spans, because the device stores only the times of the newest events.
  absl::Status Flush();

 private:
  struct Span {
    kernels::StreamKind stream;
    absl::string_view name;
    process::TraceTag tag;
    kernels::EventId begin;
    kernels::EventId end;
  };

  kernels::Device* const device_;
  process::TraceRecorder* const trace_;
  // An event, and the time at which it happened by the host's clock. Not set means that nothing is
  // recorded.
  std::optional<kernels::EventId> anchor_;
  absl::Time anchor_time_;
  kernels::EventId begun_[3] = {};  // One entry per stream.
  std::vector<Span> spans_;
};

// Records the work that is queued on a stream during the object's lifetime as one span of the
// timeline. `timeline` may be null.
class DeviceSpan {
 public:
  DeviceSpan(DeviceTimeline* timeline, kernels::StreamKind stream, absl::string_view name,
             const process::TraceTag& tag = {})
      : timeline_(timeline), stream_(stream), name_(name), tag_(tag) {
    if (timeline_ != nullptr) timeline_->Begin(stream_);
  }
  ~DeviceSpan() {
    if (timeline_ != nullptr) timeline_->End(stream_, name_, tag_);
  }
  DeviceSpan(const DeviceSpan&) = delete;
  DeviceSpan& operator=(const DeviceSpan&) = delete;

 private:
  DeviceTimeline* const timeline_;
  const kernels::StreamKind stream_;
  const absl::string_view name_;
  const process::TraceTag tag_;
};

}  // namespace lodestar::trainer
