// SPDX-License-Identifier: Apache-2.0

// Runs single kernels on the emulated card, in both orders of threads.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cuda/emulator/emulator.h"

namespace lodestar::cuda {

// The stream and the device memory of one test. Each allocation has exactly the requested size, so
// that the emulator reports a write after its end.
class KernelTestRig {
 public:
  explicit KernelTestRig(emulator::ThreadOrder order) {
    emulator::Configure({.threads = order});
    EXPECT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess);
  }
  ~KernelTestRig() {
    for (void* memory : memory_) EXPECT_EQ(cudaFree(memory), cudaSuccess);
    EXPECT_EQ(cudaStreamDestroy(stream_), cudaSuccess);
  }
  KernelTestRig(const KernelTestRig&) = delete;
  KernelTestRig& operator=(const KernelTestRig&) = delete;

  cudaStream_t stream() const { return stream_; }

  // Allocates memory and fills it with bytes that are NaN in all floating types.
  template <typename T>
  T* Allocate(size_t n) {
    void* memory = nullptr;
    EXPECT_EQ(cudaMalloc(&memory, n * sizeof(T)), cudaSuccess);
    memory_.push_back(memory);
    return static_cast<T*>(memory);
  }
  template <typename T>
  T* Upload(const std::vector<T>& values) {
    T* memory = Allocate<T>(values.size());
    std::copy(values.begin(), values.end(), memory);
    return memory;
  }
  template <typename T>
  std::vector<T> Download(const T* memory, size_t n) {
    EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess) << emulator::KernelFailure();
    return std::vector<T>(memory, memory + n);
  }

 private:
  cudaStream_t stream_ = nullptr;
  std::vector<void*> memory_;
};

// Calls `run(rig)` once for each order of threads. Expects that both results have the same bits,
// and returns the result, which is a vector.
template <typename Run>
auto InBothOrders(Run run) {
  KernelTestRig forward(emulator::ThreadOrder::kForward);
  const auto result = run(forward);
  KernelTestRig reversed(emulator::ThreadOrder::kReversed);
  const auto again = run(reversed);
  EXPECT_EQ(result.size(), again.size());
  EXPECT_EQ(std::memcmp(result.data(), again.data(), result.size() * sizeof(result[0])), 0)
      << "the order of threads shows in the result";
  return result;
}

// Returns a value in [-1, 1) that looks random.
inline float Noise(int64_t i) {
  uint64_t bits = static_cast<uint64_t>(i + 1) * 0x9e3779b97f4a7c15u;
  bits = (bits ^ bits >> 30) * 0xbf58476d1ce4e5b9u;
  bits = (bits ^ bits >> 27) * 0x94d049bb133111ebu;
  return static_cast<float>(static_cast<int32_t>(bits >> 32)) * 0x1p-31f;
}

inline float AsFloat(float x) { return x; }
inline float AsFloat(double x) { return static_cast<float>(x); }
inline float AsFloat(__half x) { return __half2float(x); }
inline float AsFloat(__nv_bfloat16 x) { return __bfloat162float(x); }

template <typename T>
T RoundedTo(float x) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    return __float2bfloat16_rn(x);
  } else if constexpr (std::is_same_v<T, __half>) {
    return __float2half_rn(x);
  } else {
    return x;
  }
}

template <typename T>
std::vector<T> Noises(int64_t n, int64_t seed = 0) {
  std::vector<T> values(n);
  for (int64_t i = 0; i < n; ++i) values[i] = RoundedTo<T>(Noise(seed * 1'000'003 + i));
  return values;
}

// Largest relative rounding error of T.
template <typename T>
inline constexpr float kUnit = sizeof(T) == 2 ? 0x1p-8f : 0x1p-24f;

}  // namespace lodestar::cuda
