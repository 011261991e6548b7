// SPDX-License-Identifier: Apache-2.0

// StepTrace is placed between a model and its gate and sink. It records in a trace when forward and
// backward of each block ran. Without a trace it only passes the calls on.
#pragma once

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/params/layout.h"
#include "common/process/trace_recorder.h"
#include "worker/model/model.h"
#include "worker/trainer/device_timeline.h"

namespace lodestar::trainer {

class StepTrace final : public model::WeightsGate, public model::GradientSink {
 public:
  // Begins the record of a step. All pointers must outlive the object. `trace`, `gate` and `sink`
  // may be null.
  StepTrace(process::TraceRecorder* trace, DeviceTimeline* timeline, model::WeightsGate* gate,
            model::GradientSink* sink);

  absl::Status WaitForBlock(int block) override;
  absl::Status WaitForParts(int block, absl::Span<const params::ElementRange> parts) override;
  void BackwardBegins() override;
  absl::Status BlockReady(int block) override;
  absl::Status PartsReady(int block, absl::Span<const params::ElementRange> parts) override;

 private:
  // Call the gate or the sink, and record the time of the call. The span of forward or backward
  // ends before the call, and the next span begins after it.
  absl::Status Wait(int block, absl::FunctionRef<absl::Status()> wait);
  absl::Status HandOver(int block, absl::FunctionRef<absl::Status()> tell);
  // Records the time since Open() as a span named `name`.
  void Close(absl::string_view name, int block);
  void Open();

  process::TraceRecorder* const trace_;
  DeviceTimeline* const timeline_;
  model::WeightsGate* const gate_;
  model::GradientSink* const sink_;
  // The block whose forward runs now. -1 means that no forward has begun.
  int forward_block_ = -1;
  absl::Time opened_at_;
};

}  // namespace lodestar::trainer
