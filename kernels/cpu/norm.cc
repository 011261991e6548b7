// Layer normalisation with the residual sum before it.
#include "kernels/buffer_checks.h"
#include "kernels/cpu/cpu_device.h"

namespace lodestar {

void CpuDevice::ResidualNormForward(Buf y, Buf sum, Buf mean, Buf rstd, Buf a, Buf b, Buf gamma,
                                    Buf beta, int64_t rows, int64_t width) {
  for (const Buf& buf : {y, sum, a}) CheckBuf(buf, DType::kF32, rows * width);
  for (const Buf& buf : {gamma, beta}) CheckBuf(buf, DType::kF32, width);
  for (const Buf& buf : {mean, rstd}) CheckBuf(buf, DType::kF32, rows);
  CheckOptionalBuf(b, DType::kF32, rows * width);
  ForRanges(rows, 1, rows * width, [&](int64_t begin, int64_t end, int64_t) {
    const int64_t at = begin * width;
    loops_.norm_forward(y.as<float>() + at, sum.as<float>() + at, mean.as<float>() + begin,
                        rstd.as<float>() + begin, a.as<float>() + at,
                        b ? b.as<float>() + at : nullptr, gamma.as<float>(), beta.as<float>(),
                        end - begin, width);
  });
}

void CpuDevice::NormBackward(Buf dx, Buf dgamma, Buf dbeta, Buf dy, Buf sum, Buf mean, Buf rstd,
                             Buf gamma, int64_t rows, int64_t width, Accumulate input,
                             Accumulate weights) {
  for (const Buf& buf : {dx, dy, sum}) CheckBuf(buf, DType::kF32, rows * width);
  for (const Buf& buf : {dgamma, dbeta, gamma}) CheckBuf(buf, DType::kF32, width);
  for (const Buf& buf : {mean, rstd}) CheckBuf(buf, DType::kF32, rows);
  const int64_t cost = 2 * rows * width;
  const int64_t parts = NumRanges(rows, 1, cost);
  float* sums = Scratch(parts * 2 * width);  // per part: [dgamma | dbeta]
  ForRanges(rows, 1, cost, [&](int64_t begin, int64_t end, int64_t part) {
    const int64_t at = begin * width;
    float* part_sums = sums + part * 2 * width;
    loops_.norm_backward(dx.as<float>() + at, part_sums, part_sums + width, dy.as<float>() + at,
                         sum.as<float>() + at, mean.as<float>() + begin, rstd.as<float>() + begin,
                         gamma.as<float>(), end - begin, width, input == Accumulate::kAdd);
  });
  CombineParts(dgamma.as<float>(), sums, parts, 2 * width, width, weights);
  CombineParts(dbeta.as<float>(), sums + width, parts, 2 * width, width, weights);
}

}  // namespace lodestar
