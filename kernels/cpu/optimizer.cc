#include "absl/types/span.h"
#include "kernels/buffer_checks.h"
#include "kernels/cpu/cpu_device.h"
#include "kernels/optimizer_step.h"

namespace lodestar {
namespace {

absl::Span<float> Part(const Buf& buf, int64_t begin, int64_t end) {
  return buf ? absl::MakeSpan(buf.as<float>() + begin, end - begin) : absl::Span<float>();
}

}  // namespace

void CpuDevice::MomentumUpdate(Buf weights, Buf state, Buf gradient, Buf shadow,
                               const MomentumStep& step) {
  const int64_t n = gradient.num_elements;
  for (const Buf& buf : {weights, gradient}) CheckBuf(buf, DType::kF32, n);
  CheckOptionalBuf(state, DType::kF32, n);
  ForRanges(n, 16, n, [&](int64_t begin, int64_t end, int64_t) {
    const absl::Span<float> w = Part(weights, begin, end);
    SgdMomentumStep(w, w, Part(state, begin, end), Part(gradient, begin, end), step);
  });
  if (shadow) Cast(shadow, weights.Slice(0, n), 1.0, StreamKind::kCompute);
}

void CpuDevice::AdamWUpdate(Buf weights, Buf first_moment, Buf second_moment, Buf gradient,
                            Buf shadow, const AdamWStep& step) {
  const int64_t n = gradient.num_elements;
  for (const Buf& buf : {weights, first_moment, second_moment, gradient}) {
    CheckBuf(buf, DType::kF32, n);
  }
  ForRanges(n, 16, n, [&](int64_t begin, int64_t end, int64_t) {
    const absl::Span<float> w = Part(weights, begin, end);
    AdamWStepCpu(w, w, Part(first_moment, begin, end), Part(second_moment, begin, end),
                 Part(gradient, begin, end), step);
  });
  if (shadow) Cast(shadow, weights.Slice(0, n), 1.0, StreamKind::kCompute);
}

}  // namespace lodestar
