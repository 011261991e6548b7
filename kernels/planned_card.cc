// SPDX-License-Identifier: Apache-2.0

#include "kernels/planned_card.h"

#include "common/runtime/check.h"
#include "kernels/card_workspace.h"

namespace lodestar::kernels {
namespace {

void NotThere() { LODESTAR_CHECK(false) << "a planned card computes nothing"; }

absl::Status NoMemory() {
  return absl::UnimplementedError("a planned card is not there: nothing is allocated on it");
}

}  // namespace

PlannedCard::PlannedCard(DType compute, size_t memory_bytes)
    : capabilities_({.name = "a card",
                     .compute = compute,
                     .has_bf16 = true,
                     .memory_is_host = false,
                     .memory_bytes = memory_bytes}) {}

absl::StatusOr<void*> PlannedCard::Allocate(size_t) { return NoMemory(); }
absl::StatusOr<void*> PlannedCard::AllocateHost(size_t) { return NoMemory(); }
void PlannedCard::Release(void*) { NotThere(); }
void PlannedCard::ReleaseHost(void*) { NotThere(); }

EventId PlannedCard::Record(StreamKind) { return 0; }
void PlannedCard::Wait(StreamKind, EventId) {}
absl::Status PlannedCard::Synchronize(EventId) { return absl::OkStatus(); }

void PlannedCard::Copy(void*, const void*, size_t, StreamKind) { NotThere(); }
void PlannedCard::Fill(Buf, double) { NotThere(); }
void PlannedCard::Cast(Buf, Buf, double, StreamKind) { NotThere(); }
void PlannedCard::AddScaled(Buf, Buf, double) { NotThere(); }
void PlannedCard::Subtract(Buf, Buf, Buf) { NotThere(); }
void PlannedCard::SumOfSquares(Buf, Buf) { NotThere(); }
void PlannedCard::Encode(params::Encoding, void*, Buf, float, Buf, const Rounding&, StreamKind) {
  NotThere();
}
void PlannedCard::UpdateResidual(params::Encoding, Buf, Buf, float, const void*, float,
                                 StreamKind) {
  NotThere();
}
void PlannedCard::Activate(Buf, Buf, Activation) { NotThere(); }
void PlannedCard::Dropout(Buf, Buf, const DropoutMask&) { NotThere(); }
void PlannedCard::MatMul(const MatMulShape&, Buf, Buf, Buf, Accumulate) { NotThere(); }
void PlannedCard::LinearForward(Buf, Buf, Buf, Buf, Buf, int64_t, int64_t, int64_t, Activation,
                                WeightOrder) {
  NotThere();
}
void PlannedCard::LinearBackward(Buf, Buf, Buf, Buf, Buf, Buf, Buf, int64_t, int64_t, int64_t,
                                 Activation, WeightOrder, Accumulate) {
  NotThere();
}
void PlannedCard::LinearBackwardInput(Buf, Buf, Buf, Buf, Buf, int64_t, int64_t, int64_t,
                                      Activation, WeightOrder, Accumulate) {
  NotThere();
}
void PlannedCard::ResidualNormForward(Buf, Buf, Buf, Buf, Buf, Buf, Buf, Buf, int64_t, int64_t) {
  NotThere();
}
void PlannedCard::NormBackward(Buf, Buf, Buf, Buf, Buf, Buf, Buf, Buf, int64_t, int64_t, Accumulate,
                               Accumulate) {
  NotThere();
}
int64_t PlannedCard::AttentionWorkspaceElements(const AttentionShape& shape) {
  return CardAttentionWorkspaceElements(shape, capabilities_.compute);
}
void PlannedCard::AttentionForward(Buf, Buf, Buf, Buf, const AttentionShape&) { NotThere(); }
void PlannedCard::AttentionBackward(Buf, Buf, Buf, Buf, Buf, Buf, const AttentionShape&) {
  NotThere();
}
void PlannedCard::EmbedForward(Buf, Buf, Buf, Buf, int64_t, int64_t, int64_t) { NotThere(); }
void PlannedCard::EmbedBackward(Buf, Buf, Buf, Buf, int64_t, int64_t, int64_t, int64_t) {
  NotThere();
}
void PlannedCard::SoftmaxCrossEntropy(Buf, Buf, Buf, Buf, int64_t, int64_t, int64_t, double) {
  NotThere();
}
int64_t PlannedCard::ConvWorkspaceElements(const ConvShape& shape) {
  return CardConvWorkspaceElements(shape);
}
void PlannedCard::ConvReluForward(Buf, Buf, Buf, Buf, Buf, const ConvShape&) { NotThere(); }
void PlannedCard::ConvReluBackward(Buf, Buf, Buf, Buf, Buf, Buf, Buf, Buf, const ConvShape&,
                                   Accumulate) {
  NotThere();
}
void PlannedCard::MaxPoolForward(Buf, Buf, Buf, int64_t, int64_t, int64_t) { NotThere(); }
void PlannedCard::MaxPoolBackward(Buf, Buf, Buf, int64_t, int64_t, int64_t) { NotThere(); }
void PlannedCard::MomentumUpdate(Buf, Buf, Buf, Buf, const MomentumStep&) { NotThere(); }
void PlannedCard::AdamWUpdate(Buf, Buf, Buf, Buf, Buf, const AdamWStep&) { NotThere(); }

}  // namespace lodestar::kernels
