// SPDX-License-Identifier: Apache-2.0

// Implements CudaDevice's convolutions and pooling. A convolution is a matrix product over unfolded
// patches of some samples at a time.
#include <algorithm>

#include "kernels/buffer_checks.h"
#include "kernels/card_workspace.h"
#include "kernels/cuda/conv.h"
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/dispatch.h"
#include "kernels/cuda/pool.h"
#include "kernels/cuda/reduce.h"

namespace lodestar::cuda {
namespace {

constexpr int64_t kTaps = 9;

// One pass: its samples, and its workspace [patches | products].
struct ConvPass {
  kernels::ConvShape shape;
  int64_t first_sample;
  int64_t columns;        // pixels of all samples of the pass
  kernels::Buf patches;   // [in_channels * 9, columns]
  kernels::Buf products;  // [out_channels, columns]

  ConvPass(const kernels::ConvShape& all, int64_t first, const kernels::Buf& workspace)
      : shape(all), first_sample(first) {
    shape.samples = std::min(ConvSamplesPerPass(all), all.samples - first);
    columns = shape.samples * all.height * all.width;
    patches = workspace.Slice(0, all.in_channels * kTaps * columns);
    products = workspace.Slice(ConvPatchElements(all), all.out_channels * columns);
  }
  // Returns the part of an image tensor with the samples of the pass.
  kernels::Buf Images(const kernels::Buf& all, int64_t channels) const {
    const int64_t elements = channels * shape.height * shape.width;
    return all.Slice(first_sample * elements, shape.samples * elements);
  }
};

}  // namespace

int64_t CudaDevice::ConvWorkspaceElements(const kernels::ConvShape& shape) {
  return kernels::CardConvWorkspaceElements(shape);
}

void CudaDevice::ConvReluForward(kernels::Buf y, kernels::Buf x, kernels::Buf w, kernels::Buf bias,
                                 kernels::Buf workspace, const kernels::ConvShape& s) {
  const int64_t plane = s.height * s.width;
  kernels::CheckBuf(y, compute_, s.samples * s.out_channels * plane);
  kernels::CheckBuf(x, compute_, s.samples * s.in_channels * plane);
  kernels::CheckBuf(w, compute_, s.out_channels * s.in_channels * kTaps);
  kernels::CheckBuf(bias, compute_, s.out_channels);
  kernels::CheckBuf(workspace, compute_, ConvWorkspaceElements(s));
  for (int64_t first = 0; first < s.samples; first += ConvSamplesPerPass(s)) {
    const ConvPass pass(s, first, workspace);
    WithComputeType(compute_, [&]<typename T>() {
      Check(Unfold(pass.patches.as<T>(), pass.Images(x, s.in_channels).as<const T>(), pass.shape,
                   Compute()),
            "Unfold");
      Multiply({.shape = {.m = s.out_channels, .n = pass.columns, .k = s.in_channels * kTaps},
                .c = pass.products,
                .a = w,
                .b = pass.patches});
      Check(AddBiasRelu(pass.Images(y, s.out_channels).as<T>(), pass.products.as<const T>(),
                        bias.as<const T>(), pass.shape, Compute()),
            "AddBiasRelu");
    });
  }
}

void CudaDevice::ConvReluBackward(kernels::Buf dx, kernels::Buf dw, kernels::Buf db,
                                  kernels::Buf dy, kernels::Buf y, kernels::Buf x, kernels::Buf w,
                                  kernels::Buf workspace, const kernels::ConvShape& s,
                                  kernels::Accumulate weights) {
  const int64_t plane = s.height * s.width;
  const int64_t taps = s.in_channels * kTaps;
  for (const kernels::Buf& buf : {dy, y})
    kernels::CheckBuf(buf, compute_, s.samples * s.out_channels * plane);
  kernels::CheckBuf(x, compute_, s.samples * s.in_channels * plane);
  kernels::CheckOptionalBuf(dx, compute_, s.samples * s.in_channels * plane);
  kernels::CheckBuf(w, compute_, s.out_channels * taps);
  kernels::CheckBuf(dw, kernels::DType::kF32, s.out_channels * taps);
  kernels::CheckBuf(db, kernels::DType::kF32, s.out_channels);
  kernels::CheckBuf(workspace, compute_, ConvWorkspaceElements(s));
  LODESTAR_CHECK(s.samples > 0);
  for (int64_t first = 0; first < s.samples; first += ConvSamplesPerPass(s)) {
    const ConvPass pass(s, first, workspace);
    const kernels::Accumulate accumulate = first == 0 ? weights : kernels::Accumulate::kAdd;
    void* scratch = Scratch(RowSumsWorkspaceBytes(s.out_channels, pass.columns));
    if (scratch == nullptr) return;
    WithComputeType(compute_, [&]<typename T>() {
      Check(ReluGradient(pass.products.as<T>(), pass.Images(dy, s.out_channels).as<T>(),
                         pass.Images(y, s.out_channels).as<const T>(), pass.shape, Compute()),
            "ReluGradient");
      Check(RowSums(db.as<float>(), pass.products.as<const T>(), s.out_channels, pass.columns,
                    accumulate == kernels::Accumulate::kAdd, scratch, Compute()),
            "RowSums");
      Check(Unfold(pass.patches.as<T>(), pass.Images(x, s.in_channels).as<const T>(), pass.shape,
                   Compute()),
            "Unfold");
      Multiply({.shape = {.transpose_b = true, .m = s.out_channels, .n = taps, .k = pass.columns},
                .c = dw,
                .a = pass.products,
                .b = pass.patches,
                .accumulate = accumulate});
      if (!dx) return;
      Multiply({.shape = {.transpose_a = true, .m = taps, .n = pass.columns, .k = s.out_channels},
                .c = pass.patches,
                .a = w,
                .b = pass.products});
      Check(Fold(pass.Images(dx, s.in_channels).as<T>(), pass.patches.as<const T>(), pass.shape,
                 Compute()),
            "Fold");
    });
  }
}

void CudaDevice::MaxPoolForward(kernels::Buf y, kernels::Buf argmax, kernels::Buf x, int64_t planes,
                                int64_t height, int64_t width) {
  const int64_t outputs = planes * (height / 2) * (width / 2);
  kernels::CheckBuf(y, compute_, outputs);
  kernels::CheckBuf(argmax, kernels::DType::kU8, outputs);
  kernels::CheckBuf(x, compute_, planes * height * width);
  WithComputeType(compute_, [&]<typename T>() {
    Check(cuda::MaxPoolForward(y.as<T>(), argmax.as<uint8_t>(), x.as<const T>(), planes, height,
                               width, Compute()),
          "MaxPoolForward");
  });
}

void CudaDevice::MaxPoolBackward(kernels::Buf dx, kernels::Buf dy, kernels::Buf argmax,
                                 int64_t planes, int64_t height, int64_t width) {
  const int64_t outputs = planes * (height / 2) * (width / 2);
  kernels::CheckBuf(dx, compute_, planes * height * width);
  kernels::CheckBuf(dy, compute_, outputs);
  kernels::CheckBuf(argmax, kernels::DType::kU8, outputs);
  WithComputeType(compute_, [&]<typename T>() {
    Check(cuda::MaxPoolBackward(dx.as<T>(), dy.as<const T>(), argmax.as<const uint8_t>(), planes,
                                height, width, Compute()),
          "MaxPoolBackward");
  });
}

}  // namespace lodestar::cuda
