// SPDX-License-Identifier: Apache-2.0

#include "worker/trainer/step_trace.h"

namespace lodestar::trainer {

StepTrace::StepTrace(process::TraceRecorder* trace, DeviceTimeline* timeline,
                     model::WeightsGate* gate, model::GradientSink* sink)
    : trace_(trace != nullptr && trace->is_recording() ? trace : nullptr),
      timeline_(timeline),
      gate_(gate),
      sink_(sink) {
  Open();
}

void StepTrace::Open() {
  if (trace_ == nullptr) return;
  timeline_->Begin(kernels::StreamKind::kCompute);
  opened_at_ = trace_->Now();
}

void StepTrace::Close(absl::string_view name, int block) {
  if (trace_ == nullptr) return;
  timeline_->End(kernels::StreamKind::kCompute, name, {.block = block});
  trace_->Add("training", name, opened_at_, trace_->Now(), {.block = block});
}

absl::Status StepTrace::WaitForBlock(int block) {
  return Wait(block, [&] { return gate_->WaitForBlock(block); });
}

absl::Status StepTrace::WaitForParts(int block, absl::Span<const params::ElementRange> parts) {
  return Wait(block, [&] { return gate_->WaitForParts(block, parts); });
}

absl::Status StepTrace::Wait(int block, absl::FunctionRef<absl::Status()> wait) {
  Close(forward_block_ < 0 ? "upload" : "forward", forward_block_);
  absl::Status status;
  if (gate_ != nullptr) {
    process::TraceSpan span(trace_, "training", "pull wait", {.block = block});
    status = wait();
  }
  forward_block_ = block;
  Open();
  return status;
}

void StepTrace::BackwardBegins() {
  // This span of forward includes the loss. If there are several micro-batches, it also includes
  // forward and backward of all but the last.
  Close("forward", forward_block_);
  Open();
}

absl::Status StepTrace::BlockReady(int block) {
  return HandOver(block, [&] { return sink_->BlockReady(block); });
}

absl::Status StepTrace::PartsReady(int block, absl::Span<const params::ElementRange> parts) {
  return HandOver(block, [&] { return sink_->PartsReady(block, parts); });
}

absl::Status StepTrace::HandOver(int block, absl::FunctionRef<absl::Status()> tell) {
  Close("backward", block);
  absl::Status status;
  if (sink_ != nullptr) {
    process::TraceSpan span(trace_, "training", "hand over", {.block = block});
    status = tell();
  }
  Open();
  return status;
}

}  // namespace lodestar::trainer
