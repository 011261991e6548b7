// SPDX-License-Identifier: Apache-2.0

// Implements convolution and pooling. Images are NCHW.
#include "kernels/buffer_checks.h"
#include "kernels/oracle/oracle_device.h"

namespace lodestar::oracle {
namespace {

// Calls visit(y index, x index, w index) for every product of the convolution.
template <typename Visit>
void ForEachProduct(const kernels::ConvShape& s, Visit visit) {
  for (int64_t sample = 0; sample < s.samples; ++sample) {
    for (int64_t out = 0; out < s.out_channels; ++out) {
      for (int64_t row = 0; row < s.height; ++row) {
        for (int64_t column = 0; column < s.width; ++column) {
          const int64_t y = ((sample * s.out_channels + out) * s.height + row) * s.width + column;
          for (int64_t in = 0; in < s.in_channels; ++in) {
            for (int64_t tap = 0; tap < 9; ++tap) {
              const int64_t from_row = row + tap / 3 - 1;
              const int64_t from_column = column + tap % 3 - 1;
              if (from_row < 0 || from_row >= s.height) continue;
              if (from_column < 0 || from_column >= s.width) continue;
              const int64_t x =
                  ((sample * s.in_channels + in) * s.height + from_row) * s.width + from_column;
              visit(y, x, (out * s.in_channels + in) * 9 + tap);
            }
          }
        }
      }
    }
  }
}

}  // namespace

int64_t OracleDevice::ConvWorkspaceElements(const kernels::ConvShape& /*shape*/) { return 0; }

void OracleDevice::ConvReluForward(kernels::Buf y, kernels::Buf x, kernels::Buf w,
                                   kernels::Buf bias, kernels::Buf /*workspace*/,
                                   const kernels::ConvShape& s) {
  const int64_t plane = s.height * s.width;
  kernels::CheckBuf(y, kernels::DType::kF64, s.samples * s.out_channels * plane);
  kernels::CheckBuf(x, kernels::DType::kF64, s.samples * s.in_channels * plane);
  kernels::CheckBuf(w, kernels::DType::kF64, s.out_channels * s.in_channels * 9);
  kernels::CheckBuf(bias, kernels::DType::kF64, s.out_channels);
  const int64_t outputs = s.samples * s.out_channels * plane;
  for (int64_t i = 0; i < outputs; ++i) {
    y.as<double>()[i] = bias.as<double>()[i / plane % s.out_channels];
  }
  ForEachProduct(s, [&](int64_t yi, int64_t xi, int64_t wi) {
    y.as<double>()[yi] += x.as<double>()[xi] * w.as<double>()[wi];
  });
  for (int64_t i = 0; i < outputs; ++i) {
    if (y.as<double>()[i] < 0.0) y.as<double>()[i] = 0.0;
  }
}

void OracleDevice::ConvReluBackward(kernels::Buf dx, kernels::Buf dw, kernels::Buf db,
                                    kernels::Buf dy, kernels::Buf y, kernels::Buf x, kernels::Buf w,
                                    kernels::Buf /*workspace*/, const kernels::ConvShape& s,
                                    kernels::Accumulate weights) {
  const int64_t plane = s.height * s.width;
  const int64_t outputs = s.samples * s.out_channels * plane;
  const int64_t inputs = s.samples * s.in_channels * plane;
  for (const kernels::Buf& buf : {dy, y}) kernels::CheckBuf(buf, kernels::DType::kF64, outputs);
  for (const kernels::Buf& buf : {dw, w})
    kernels::CheckBuf(buf, kernels::DType::kF64, s.out_channels * s.in_channels * 9);
  kernels::CheckBuf(x, kernels::DType::kF64, inputs);
  kernels::CheckBuf(db, kernels::DType::kF64, s.out_channels);
  kernels::CheckOptionalBuf(dx, kernels::DType::kF64, inputs);
  if (weights == kernels::Accumulate::kSet) {
    for (int64_t i = 0; i < s.out_channels * s.in_channels * 9; ++i) dw.as<double>()[i] = 0.0;
    for (int64_t i = 0; i < s.out_channels; ++i) db.as<double>()[i] = 0.0;
  }
  if (dx) {
    for (int64_t i = 0; i < inputs; ++i) dx.as<double>()[i] = 0.0;
  }
  for (int64_t i = 0; i < outputs; ++i) {
    if (!(y.as<double>()[i] > 0.0)) dy.as<double>()[i] = 0.0;
    db.as<double>()[i / plane % s.out_channels] += dy.as<double>()[i];
  }
  ForEachProduct(s, [&](int64_t yi, int64_t xi, int64_t wi) {
    dw.as<double>()[wi] += dy.as<double>()[yi] * x.as<double>()[xi];
    if (dx) dx.as<double>()[xi] += dy.as<double>()[yi] * w.as<double>()[wi];
  });
}

void OracleDevice::MaxPoolForward(kernels::Buf y, kernels::Buf argmax, kernels::Buf x,
                                  int64_t planes, int64_t height, int64_t width) {
  const int64_t rows = height / 2;
  const int64_t columns = width / 2;
  kernels::CheckBuf(y, kernels::DType::kF64, planes * rows * columns);
  kernels::CheckBuf(argmax, kernels::DType::kU8, planes * rows * columns);
  kernels::CheckBuf(x, kernels::DType::kF64, planes * height * width);
  for (int64_t i = 0; i < planes * rows * columns; ++i) {
    const int64_t plane = i / (rows * columns);
    const int64_t row = i / columns % rows;
    const int64_t column = i % columns;
    const double* corner = x.as<double>() + (plane * height + 2 * row) * width + 2 * column;
    uint8_t best = 0;
    for (uint8_t k = 1; k < 4; ++k) {
      if (corner[k / 2 * width + k % 2] > corner[best / 2 * width + best % 2]) best = k;
    }
    y.as<double>()[i] = corner[best / 2 * width + best % 2];
    argmax.as<uint8_t>()[i] = best;
  }
}

void OracleDevice::MaxPoolBackward(kernels::Buf dx, kernels::Buf dy, kernels::Buf argmax,
                                   int64_t planes, int64_t height, int64_t width) {
  const int64_t rows = height / 2;
  const int64_t columns = width / 2;
  kernels::CheckBuf(dx, kernels::DType::kF64, planes * height * width);
  kernels::CheckBuf(dy, kernels::DType::kF64, planes * rows * columns);
  kernels::CheckBuf(argmax, kernels::DType::kU8, planes * rows * columns);
  for (int64_t i = 0; i < planes * height * width; ++i) dx.as<double>()[i] = 0.0;
  for (int64_t i = 0; i < planes * rows * columns; ++i) {
    const int64_t plane = i / (rows * columns);
    const int64_t row = i / columns % rows;
    const int64_t column = i % columns;
    const int64_t k = argmax.as<uint8_t>()[i];
    dx.as<double>()[(plane * height + 2 * row + k / 2) * width + 2 * column + k % 2] =
        dy.as<double>()[i];
  }
}

}  // namespace lodestar::oracle
