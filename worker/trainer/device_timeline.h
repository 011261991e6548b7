// DeviceTimeline records when the streams of a device were busy, on the clock of a trace. If
// operations run inline, as on the CPU, it records nothing: the spans of the host say it all.
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
  // `device` outlives the timeline; so does `trace`, which may be null.
  DeviceTimeline(kernels::Device* device, TraceRecorder* trace) : device_(device), trace_(trace) {}

  // Must be called when a round begins. In rounds that are traced it waits once for the device, to
  // tie its clock to the host's. Errors: those of the device.
  absl::Status BeginRound();
  bool is_on() const { return anchor_.has_value(); }

  // What the stream is given between Begin() and End() is one span. Nothing happens unless is_on().
  void Begin(kernels::StreamKind stream);
  void End(kernels::StreamKind stream, absl::string_view name, const TraceTag& tag = {});

  // Hands the spans to the trace. The device must be done with them, or is waited for. Errors:
  // those of the device.
  absl::Status EndRound();
  // Hands over spans in the middle of a round that has more spans than a device keeps the times of.
  absl::Status Flush();

 private:
  struct Span {
    kernels::StreamKind stream;
    absl::string_view name;
    TraceTag tag;
    kernels::EventId begin;
    kernels::EventId end;
  };

  kernels::Device* const device_;
  TraceRecorder* const trace_;
  std::optional<kernels::EventId> anchor_;  // An event, whose time is anchor_time_.
  absl::Time anchor_time_;
  kernels::EventId begun_[3] = {};  // by stream
  std::vector<Span> spans_;
};

// What a stream is given during its life is one span of the timeline, which may be null.
class DeviceSpan {
 public:
  DeviceSpan(DeviceTimeline* timeline, kernels::StreamKind stream, absl::string_view name,
             const TraceTag& tag = {})
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
  const TraceTag tag_;
};

}  // namespace lodestar::trainer
