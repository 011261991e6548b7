// SPDX-License-Identifier: Apache-2.0

// Tests that elementwise kernels give the same bits if a vector is divided in two.
#include <cstring>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cuda/activation.h"
#include "kernels/cuda/dropout.h"
#include "kernels/cuda/elementwise.h"
#include "kernels/cuda/optimizer.h"
#include "kernels/cuda/reduce.h"
#include "kernels/cuda/testing/kernel_test_rig.h"
#include "kernels/vectors/optimizer_factors.h"

namespace lodestar::cuda {
namespace {

constexpr int64_t kSize = 2059;  // has whole vectors of every type, whole blocks and a tail

// Divides the vectors in two at several places, and runs operation(stream, vectors, offset, n) on
// each part. Expects that vector 0, which has the result, is the same for each division.
template <typename T, typename Operation>
void ExpectCutsDoNotShow(const std::string& name, Operation operation) {
  std::vector<std::vector<T>> results;
  for (int64_t cut : {int64_t{0}, int64_t{1}, int64_t{1029}, kSize}) {
    results.push_back(InBothOrders([&](KernelTestRig& rig) {
      T* vectors[4];
      for (int64_t i = 0; i < 4; ++i) vectors[i] = rig.Upload(Noises<T>(kSize, i));
      EXPECT_EQ(operation(rig.stream(), vectors, 0, cut), cudaSuccess);
      EXPECT_EQ(operation(rig.stream(), vectors, cut, kSize - cut), cudaSuccess);
      return rig.Download(vectors[0], kSize);
    }));
  }
  for (const std::vector<T>& result : results) {
    EXPECT_EQ(std::memcmp(result.data(), results[0].data(), kSize * sizeof(T)), 0) << name;
  }
}

template <typename T>
void ExpectComputeTypeOperationsIgnoreCuts() {
  for (kernels::Activation activation :
       {kernels::Activation::kNone, kernels::Activation::kRelu, kernels::Activation::kGeluTanh}) {
    ExpectCutsDoNotShow<T>("activate", [&](cudaStream_t stream, T** v, int64_t at, int64_t n) {
      return Activate(v[0] + at, v[1] + at, n, activation, stream);
    });
    ExpectCutsDoNotShow<T>("activation backward",
                           [&](cudaStream_t stream, T** v, int64_t at, int64_t n) {
                             return ActivationBackward(v[0] + at, v[1] + at, n, activation, stream);
                           });
  }
  ExpectCutsDoNotShow<T>("dropout", [](cudaStream_t stream, T** v, int64_t at, int64_t n) {
    return Dropout(v[0] + at, v[1] + at, n,
                   {.rate = 0.3, .key = 5, .stream = 6, .first_element = 8 + at}, stream);
  });
  ExpectCutsDoNotShow<T>("fill", [](cudaStream_t stream, T** v, int64_t at, int64_t n) {
    return Fill(v[0] + at, 0.3, n, stream);
  });
  ExpectCutsDoNotShow<T>("cast", [](cudaStream_t stream, T** v, int64_t at, int64_t n) {
    return Cast(v[0] + at, v[1] + at, 0.3, n, stream);
  });
}

TEST(VectorKernelsTest, CutsDoNotShowInTheComputeTypes) {
  ExpectComputeTypeOperationsIgnoreCuts<float>();
  ExpectComputeTypeOperationsIgnoreCuts<__nv_bfloat16>();
}

TEST(VectorKernelsTest, CutsDoNotShowInSumsAndOptimizers) {
  ExpectCutsDoNotShow<float>("add", [](cudaStream_t stream, float** v, int64_t at, int64_t n) {
    return AddScaled(v[0] + at, v[1] + at, 0.3, n, stream);
  });
  ExpectCutsDoNotShow<float>("subtract", [](cudaStream_t stream, float** v, int64_t at, int64_t n) {
    return Subtract(v[0] + at, v[0] + at, v[1] + at, n, stream);
  });
  ExpectCutsDoNotShow<float>("momentum", [](cudaStream_t stream, float** v, int64_t at, int64_t n) {
    return Momentum(
        v[0] + at, v[1] + at, v[2] + at, static_cast<float*>(nullptr), n,
        vectors::MomentumFactorsOf({.learning_rate = 0.1, .momentum = 0.9, .weight_decay = 0.1}),
        stream);
  });
  // v[0] is both the second moment and the narrow weights. The kernel writes the narrow weights
  // last, so the test compares these.
  ExpectCutsDoNotShow<float>("adamw", [](cudaStream_t stream, float** v, int64_t at, int64_t n) {
    return AdamW(v[1] + at, v[2] + at, v[3] + at, v[0] + at, v[0] + at, n,
                 vectors::AdamWFactorsOf({.learning_rate = 0.1,
                                          .beta1 = 0.9,
                                          .beta2 = 0.95,
                                          .epsilon = 1e-8,
                                          .weight_decay = 0.1}),
                 stream);
  });
}

// Expects errors of at most `tolerance`, which is half a unit of the narrower type for values below
// 1.
template <typename To, typename From>
void ExpectCast(float tolerance) {
  const std::vector<From> x = Noises<From>(kSize);
  const std::vector<To> got = InBothOrders([&](KernelTestRig& rig) {
    To* y = rig.Allocate<To>(kSize);
    EXPECT_EQ(Cast(y, rig.Upload(x), 0.75, kSize, rig.stream()), cudaSuccess);
    return rig.Download(y, kSize);
  });
  for (int64_t i = 0; i < kSize; ++i) {
    ASSERT_NEAR(AsFloat(got[i]), 0.75f * AsFloat(x[i]), tolerance) << i;
  }
}

TEST(VectorKernelsTest, CastsBetweenAllTypes) {
  constexpr float kBf16 = 0x1p-9f;
  constexpr float kHalf = 0x1p-12f;
  constexpr float kFloat = 0x1p-25f;
  ExpectCast<float, float>(0.0f);
  ExpectCast<float, double>(kFloat);
  ExpectCast<float, __nv_bfloat16>(0.0f);
  ExpectCast<float, __half>(0.0f);
  ExpectCast<double, float>(kFloat);
  ExpectCast<double, double>(kFloat);
  ExpectCast<double, __nv_bfloat16>(0.0f);
  ExpectCast<double, __half>(0.0f);
  ExpectCast<__nv_bfloat16, float>(kBf16);
  ExpectCast<__nv_bfloat16, double>(kBf16);
  ExpectCast<__nv_bfloat16, __nv_bfloat16>(kBf16);
  ExpectCast<__nv_bfloat16, __half>(kBf16);
  ExpectCast<__half, float>(kHalf);
  ExpectCast<__half, double>(kHalf);
  ExpectCast<__half, __nv_bfloat16>(kHalf);
  ExpectCast<__half, __half>(kHalf);
}

// --recompute relies on this: recomputed activations must have the same bits.
TEST(VectorKernelsTest, ActivatingThePreActivationGivesTheForwardBits) {
  constexpr int64_t kRows = 7;
  for (int64_t columns : {33, 64}) {
    for (kernels::Activation activation :
         {kernels::Activation::kRelu, kernels::Activation::kGeluTanh}) {
      KernelTestRig rig(emulator::ThreadOrder::kForward);
      __nv_bfloat16* y = rig.Upload(Noises<__nv_bfloat16>(kRows * columns, 1));
      __nv_bfloat16* pre = rig.Allocate<__nv_bfloat16>(kRows * columns);
      __nv_bfloat16* again = rig.Allocate<__nv_bfloat16>(kRows * columns);
      const __nv_bfloat16* bias = rig.Upload(Noises<__nv_bfloat16>(columns, 2));
      ASSERT_EQ(BiasActivation(y, pre, bias, kRows, columns, activation, rig.stream()),
                cudaSuccess);
      ASSERT_EQ(Activate(again, pre, kRows * columns, activation, rig.stream()), cudaSuccess);
      const std::vector<__nv_bfloat16> forward = rig.Download(y, kRows * columns);
      const std::vector<__nv_bfloat16> recomputed = rig.Download(again, kRows * columns);
      EXPECT_EQ(std::memcmp(forward.data(), recomputed.data(), forward.size() * 2), 0);
    }
  }
}

// Returns dy, then the sums. All sums are 0.5 before the call.
template <typename T>
std::vector<float> GradientAndSums(int64_t rows, int64_t columns, kernels::Activation activation,
                                   bool at_once) {
  return InBothOrders([&](KernelTestRig& rig) {
    const int64_t n = rows * columns;
    T* dy = rig.Upload(Noises<T>(n, 1));
    const T* pre = rig.Upload(Noises<T>(n, 2));
    float* sums = rig.Upload(std::vector<float>(columns, 0.5f));
    void* workspace = rig.Allocate<char>(ColumnSumsWorkspaceBytes(rows, columns));
    if (at_once) {
      EXPECT_EQ(ActivationBackwardWithSums(dy, sums, pre, rows, columns, activation, true,
                                           workspace, rig.stream()),
                cudaSuccess);
    } else {
      EXPECT_EQ(ActivationBackward(dy, pre, n, activation, rig.stream()), cudaSuccess);
      EXPECT_EQ(ColumnSums(sums, dy, rows, columns, true, workspace, rig.stream()), cudaSuccess);
    }
    std::vector<float> result;
    for (T value : rig.Download(dy, n)) result.push_back(AsFloat(value));
    for (float value : rig.Download(sums, columns)) result.push_back(value);
    return result;
  });
}

TEST(VectorKernelsTest, SumsOfTheGradientInOnePassAreThoseInTwo) {
  for (kernels::Activation activation :
       {kernels::Activation::kRelu, kernels::Activation::kGeluTanh}) {
    for (int64_t rows : {0, 1, 67, 300}) {
      for (int64_t columns : {1, 33, 96}) {
        EXPECT_EQ(GradientAndSums<float>(rows, columns, activation, true),
                  GradientAndSums<float>(rows, columns, activation, false));
        EXPECT_EQ(GradientAndSums<__nv_bfloat16>(rows, columns, activation, true),
                  GradientAndSums<__nv_bfloat16>(rows, columns, activation, false));
      }
    }
  }
}

}  // namespace
}  // namespace lodestar::cuda
