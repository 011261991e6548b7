// SPDX-License-Identifier: Apache-2.0

// Implements pooling, and 3x3 convolution as a matrix product over unfolded patches. Images are
// NCHW.
#include <algorithm>
#include <cstring>

#include "kernels/buffer_checks.h"
#include "kernels/cpu/cpu_device.h"

namespace lodestar::cpu {
namespace {

int64_t Plane(const kernels::ConvShape& s) { return s.height * s.width; }
int64_t Taps(const kernels::ConvShape& s) { return s.in_channels * 9; }
int64_t RoundUp(int64_t n) { return (n + 15) / 16 * 16; }

// Workspace of one range of samples: [patches | gradient of patches | dw | db].
struct RangeWorkspace {
  float* patches;
  float* dpatches;
  float* dw;
  float* db;

  static int64_t Elements(const kernels::ConvShape& s) {
    return 2 * RoundUp(s.workspace_elements()) + RoundUp(s.out_channels * Taps(s)) +
           RoundUp(s.out_channels);
  }
  RangeWorkspace(float* workspace, int64_t part, const kernels::ConvShape& s)
      : patches(workspace + part * Elements(s)),
        dpatches(patches + RoundUp(s.workspace_elements())),
        dw(dpatches + RoundUp(s.workspace_elements())),
        db(dw + RoundUp(s.out_channels * Taps(s))) {}
};

// The columns [begin, end) of an output row for which a tap reads inside the image. The tap reads
// `shift` columns to the right (-1, 0 or 1).
struct Inside {
  int64_t begin, end;
  Inside(int64_t shift, int64_t width)
      : begin(std::min(width, std::max<int64_t>(0, -shift))),
        end(std::max(begin, std::min(width, width - shift))) {}
};

// Sets patches[in * 9 + tap][row * width + column] = x[in][row + tap / 3 - 1][column + tap % 3 -
// 1], which is zero outside the image.
void Unfold(float* patches, const float* x, const kernels::ConvShape& s) {
  for (int64_t in = 0; in < s.in_channels; ++in) {
    for (int64_t tap = 0; tap < 9; ++tap) {
      const Inside columns(tap % 3 - 1, s.width);
      for (int64_t row = 0; row < s.height; ++row) {
        const int64_t from = row + tap / 3 - 1;
        float* to = patches + (in * 9 + tap) * Plane(s) + row * s.width;
        if (from < 0 || from >= s.height) {
          std::memset(to, 0, s.width * sizeof(float));
          continue;
        }
        const float* source = x + in * Plane(s) + from * s.width + tap % 3 - 1;
        for (int64_t i = 0; i < columns.begin; ++i) to[i] = 0.0f;
        for (int64_t i = columns.begin; i < columns.end; ++i) to[i] = source[i];
        for (int64_t i = columns.end; i < s.width; ++i) to[i] = 0.0f;
      }
    }
  }
}

// Computes the adjoint of Unfold(). Sets dx.
void Fold(float* dx, const float* patches, const kernels::ConvShape& s) {
  std::memset(dx, 0, s.in_channels * Plane(s) * sizeof(float));
  for (int64_t in = 0; in < s.in_channels; ++in) {
    for (int64_t tap = 0; tap < 9; ++tap) {
      const Inside columns(tap % 3 - 1, s.width);
      for (int64_t row = 0; row < s.height; ++row) {
        const int64_t to_row = row + tap / 3 - 1;
        if (to_row < 0 || to_row >= s.height) continue;
        const float* from = patches + (in * 9 + tap) * Plane(s) + row * s.width;
        float* to = dx + in * Plane(s) + to_row * s.width + tap % 3 - 1;
        for (int64_t i = columns.begin; i < columns.end; ++i) to[i] += from[i];
      }
    }
  }
}

// Sets dy to 0 where y is 0, and adds the sums of the new dy per channel to db.
void ReluBackward(float* dy, const float* y, float* db, const kernels::ConvShape& s) {
  for (int64_t out = 0; out < s.out_channels; ++out) {
    float sum = 0.0f;
    for (int64_t i = out * Plane(s); i < (out + 1) * Plane(s); ++i) {
      dy[i] = y[i] > 0.0f ? dy[i] : 0.0f;
      sum += dy[i];
    }
    db[out] += sum;
  }
}

int64_t Cost(const kernels::ConvShape& s) {
  return s.samples * s.out_channels * s.workspace_elements() / 8;
}

}  // namespace

int64_t CpuDevice::ConvWorkspaceElements(const kernels::ConvShape& shape) {
  return pool_.num_threads() * RangeWorkspace::Elements(shape);
}

void CpuDevice::ConvReluForward(kernels::Buf y, kernels::Buf x, kernels::Buf w, kernels::Buf bias,
                                kernels::Buf workspace, const kernels::ConvShape& s) {
  kernels::CheckBuf(y, kernels::DType::kF32, s.samples * s.out_channels * Plane(s));
  kernels::CheckBuf(x, kernels::DType::kF32, s.samples * s.in_channels * Plane(s));
  kernels::CheckBuf(w, kernels::DType::kF32, s.out_channels * Taps(s));
  kernels::CheckBuf(bias, kernels::DType::kF32, s.out_channels);
  kernels::CheckBuf(workspace, kernels::DType::kF32, ConvWorkspaceElements(s));
  ForRanges(s.samples, 1, Cost(s), [&](int64_t begin, int64_t end, int64_t part) {
    const RangeWorkspace space(workspace.as<float>(), part, s);
    for (int64_t sample = begin; sample < end; ++sample) {
      float* out = y.as<float>() + sample * s.out_channels * Plane(s);
      Unfold(space.patches, x.as<float>() + sample * s.in_channels * Plane(s), s);
      Gemm({.m = s.out_channels,
            .n = Plane(s),
            .k = Taps(s),
            .lda = Taps(s),
            .ldb = Plane(s),
            .ldc = Plane(s)},
           1.0f, w.as<float>(), space.patches, out, false, part);
      for (int64_t channel = 0; channel < s.out_channels; ++channel) {
        const float b = bias.as<float>()[channel];
        float* row = out + channel * Plane(s);
        for (int64_t i = 0; i < Plane(s); ++i) row[i] = row[i] + b < 0.0f ? 0.0f : row[i] + b;
      }
    }
  });
}

void CpuDevice::ConvReluBackward(kernels::Buf dx, kernels::Buf dw, kernels::Buf db, kernels::Buf dy,
                                 kernels::Buf y, kernels::Buf x, kernels::Buf w,
                                 kernels::Buf workspace, const kernels::ConvShape& s,
                                 kernels::Accumulate weights) {
  const int64_t output = s.out_channels * Plane(s);
  const int64_t input = s.in_channels * Plane(s);
  for (const kernels::Buf& buf : {dy, y})
    kernels::CheckBuf(buf, kernels::DType::kF32, s.samples * output);
  for (const kernels::Buf& buf : {dw, w})
    kernels::CheckBuf(buf, kernels::DType::kF32, s.out_channels * Taps(s));
  kernels::CheckBuf(x, kernels::DType::kF32, s.samples * input);
  kernels::CheckBuf(db, kernels::DType::kF32, s.out_channels);
  kernels::CheckOptionalBuf(dx, kernels::DType::kF32, s.samples * input);
  kernels::CheckBuf(workspace, kernels::DType::kF32, ConvWorkspaceElements(s));
  LODESTAR_CHECK(s.samples > 0);
  ForRanges(s.samples, 1, Cost(s), [&](int64_t begin, int64_t end, int64_t part) {
    const RangeWorkspace space(workspace.as<float>(), part, s);
    std::memset(space.db, 0, s.out_channels * sizeof(float));
    for (int64_t sample = begin; sample < end; ++sample) {
      float* g = dy.as<float>() + sample * output;
      ReluBackward(g, y.as<float>() + sample * output, space.db, s);
      Unfold(space.patches, x.as<float>() + sample * input, s);
      Gemm({.transpose_b = true,
            .m = s.out_channels,
            .n = Taps(s),
            .k = Plane(s),
            .lda = Plane(s),
            .ldb = Plane(s),
            .ldc = Taps(s)},
           1.0f, g, space.patches, space.dw, sample > begin, part);
      if (!dx) continue;
      Gemm({.transpose_a = true,
            .m = Taps(s),
            .n = Plane(s),
            .k = s.out_channels,
            .lda = Taps(s),
            .ldb = Plane(s),
            .ldc = Plane(s)},
           1.0f, w.as<float>(), g, space.dpatches, false, part);
      Fold(dx.as<float>() + sample * input, space.dpatches, s);
    }
  });
  const int64_t parts = NumRanges(s.samples, 1, Cost(s));
  const RangeWorkspace first(workspace.as<float>(), 0, s);
  CombineParts(dw.as<float>(), first.dw, parts, RangeWorkspace::Elements(s),
               s.out_channels * Taps(s), weights);
  CombineParts(db.as<float>(), first.db, parts, RangeWorkspace::Elements(s), s.out_channels,
               weights);
}

void CpuDevice::MaxPoolForward(kernels::Buf y, kernels::Buf argmax, kernels::Buf x, int64_t planes,
                               int64_t height, int64_t width) {
  const int64_t rows = height / 2;
  const int64_t columns = width / 2;
  kernels::CheckBuf(y, kernels::DType::kF32, planes * rows * columns);
  kernels::CheckBuf(argmax, kernels::DType::kU8, planes * rows * columns);
  kernels::CheckBuf(x, kernels::DType::kF32, planes * height * width);
  ForRanges(planes * rows, 1, planes * height * width, [&](int64_t begin, int64_t end, int64_t) {
    for (int64_t line = begin; line < end; ++line) {
      const float* top = x.as<float>() + (line / rows * height + line % rows * 2) * width;
      const float* bottom = top + width;
      for (int64_t column = 0; column < columns; ++column) {
        float best = top[2 * column];
        uint8_t where = 0;
        const float others[3] = {top[2 * column + 1], bottom[2 * column], bottom[2 * column + 1]};
        for (int k = 0; k < 3; ++k) {
          where = others[k] > best ? static_cast<uint8_t>(k + 1) : where;
          best = others[k] > best ? others[k] : best;
        }
        y.as<float>()[line * columns + column] = best;
        argmax.as<uint8_t>()[line * columns + column] = where;
      }
    }
  });
}

void CpuDevice::MaxPoolBackward(kernels::Buf dx, kernels::Buf dy, kernels::Buf argmax,
                                int64_t planes, int64_t height, int64_t width) {
  const int64_t rows = height / 2;
  const int64_t columns = width / 2;
  kernels::CheckBuf(dx, kernels::DType::kF32, planes * height * width);
  kernels::CheckBuf(dy, kernels::DType::kF32, planes * rows * columns);
  kernels::CheckBuf(argmax, kernels::DType::kU8, planes * rows * columns);
  ForRanges(planes, 1, planes * height * width, [&](int64_t begin, int64_t end, int64_t) {
    for (int64_t plane = begin; plane < end; ++plane) {
      float* out = dx.as<float>() + plane * height * width;
      std::memset(out, 0, height * width * sizeof(float));
      for (int64_t i = 0; i < rows * columns; ++i) {
        const int64_t from = plane * rows * columns + i;
        const int64_t k = argmax.as<uint8_t>()[from];
        out[(i / columns * 2 + k / 2) * width + i % columns * 2 + k % 2] = dy.as<float>()[from];
      }
    }
  });
}

}  // namespace lodestar::cpu
