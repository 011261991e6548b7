// SPDX-License-Identifier: Apache-2.0

// CUDA's device language on the host: the qualifiers, built-in variables, barriers, warp exchanges,
// atomics and intrinsics that our kernels use. They are in the global namespace, as in CUDA.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels/cuda/emulator/block.h"
#include "kernels/cuda/emulator/vector_types.h"

// NOLINTBEGIN: the names are CUDA's.
#define __global__
#define __device__
#define __host__
#define __constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __align__(n) alignas(n)
// Blocks run one after the other, so one static variable is enough for all blocks.
#define __shared__ static

inline uint3 threadIdx;
inline uint3 blockIdx;
inline dim3 blockDim;
inline dim3 gridDim;
inline constexpr int warpSize = 32;

// Barriers. It is an error if threads meet at barriers at different places (file and line).
inline void __syncthreads(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  lodestar::emulator::Block::Running().Barrier({file, line});
}
inline int __syncthreads_count(int predicate, const char* file = __builtin_FILE(),
                               int line = __builtin_LINE()) {
  return lodestar::emulator::Block::Running().BarrierSum(predicate != 0, {file, line});
}
inline int __syncthreads_or(int predicate, const char* file = __builtin_FILE(),
                            int line = __builtin_LINE()) {
  return __syncthreads_count(predicate, file, line) != 0;
}
inline int __syncthreads_and(int predicate, const char* file = __builtin_FILE(),
                             int line = __builtin_LINE()) {
  return __syncthreads_count(predicate == 0, file, line) == 0;
}
inline void __syncwarp(unsigned mask = 0xffffffffu, const char* file = __builtin_FILE(),
                       int line = __builtin_LINE()) {
  lodestar::emulator::Block::Running().Exchange(mask, "", 0, {file, line});
}
inline void __threadfence() {}
inline void __threadfence_block() {}
[[noreturn]] inline void __trap() {
  lodestar::emulator::Block::Running().Fail("__trap()");
  __builtin_unreachable();
}

namespace lodestar::emulator {

// The values that the lanes of a mask have passed, by lane number.
template <typename T>
class LaneValues {
 public:
  LaneValues(unsigned mask, const T& value, const char* file, int line)
      : values_(Block::Running().Exchange(mask, &value, sizeof(T), {file, line})) {
    static_assert(std::is_trivially_copyable_v<T>);
  }
  T operator[](int lane) const {
    T value;
    std::memcpy(&value, &values_[lane], sizeof(T));
    return value;
  }

 private:
  const LaneValue* values_;
};

// Returns the value of the lane that a shuffle reads. If that lane is outside of the segment of
// `width` lanes, returns the lane's own value.
template <typename T>
T Shuffle(unsigned mask, T value, int (*source)(int lane, int by, int width), int by, int width,
          const char* file, int line) {
  const LaneValues<T> values(mask, value, file, line);
  const int lane = Block::Running().lane();
  const int from = source(lane, by, width);
  if ((mask >> from & 1) == 0) {
    Block::Running().Fail("a shuffle reads a lane that its mask leaves out");
  }
  return values[from];
}

template <typename T, typename Combine>
T Reduce(unsigned mask, T value, Combine combine, const char* file, int line) {
  const LaneValues<T> values(mask, value, file, line);
  T result = value;
  bool first = true;
  for (int lane = 0; lane < kWarpThreads; ++lane) {
    if ((mask >> lane & 1) == 0) continue;
    result = first ? values[lane] : combine(result, values[lane]);
    first = false;
  }
  return result;
}

// Updates a value in memory. This is atomic, because emulated threads switch only at barriers and
// warp operations.
template <typename T, typename Combine>
T Update(T* address, Combine combine) {
  const T old = *address;
  *address = combine(old);
  return old;
}

}  // namespace lodestar::emulator

#define LODESTAR_PLACE const char *file = __builtin_FILE(), int line = __builtin_LINE()

template <typename T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32, LODESTAR_PLACE) {
  return lodestar::emulator::Shuffle<T>(
      mask, value,
      [](int lane, int by, int segment) { return lane / segment * segment + by % segment; }, source,
      width, file, line);
}
template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = 32, LODESTAR_PLACE) {
  return lodestar::emulator::Shuffle<T>(
      mask, value,
      [](int lane, int by, int segment) {
        return (lane ^ by) / segment <= lane / segment ? (lane ^ by) : lane;
      },
      lanes, width, file, line);
}
template <typename T>
T __shfl_down_sync(unsigned mask, T value, unsigned lanes, int width = 32, LODESTAR_PLACE) {
  return lodestar::emulator::Shuffle<T>(
      mask, value,
      [](int lane, int by, int segment) {
        return lane % segment + by < segment ? lane + by : lane;
      },
      static_cast<int>(lanes), width, file, line);
}
template <typename T>
T __shfl_up_sync(unsigned mask, T value, unsigned lanes, int width = 32, LODESTAR_PLACE) {
  return lodestar::emulator::Shuffle<T>(
      mask, value,
      [](int lane, int by, int segment) { return lane % segment >= by ? lane - by : lane; },
      static_cast<int>(lanes), width, file, line);
}
inline unsigned __ballot_sync(unsigned mask, int predicate, LODESTAR_PLACE) {
  const unsigned own = predicate != 0 ? 1u << lodestar::emulator::Block::Running().lane() : 0u;
  return lodestar::emulator::Reduce(
      mask, own, [](unsigned a, unsigned b) { return a | b; }, file, line);
}
inline int __any_sync(unsigned mask, int predicate, LODESTAR_PLACE) {
  return __ballot_sync(mask, predicate, file, line) != 0;
}
inline int __all_sync(unsigned mask, int predicate, LODESTAR_PLACE) {
  return __ballot_sync(mask, predicate, file, line) == mask;
}
template <typename T>
unsigned __match_any_sync(unsigned mask, T value, LODESTAR_PLACE) {
  const lodestar::emulator::LaneValues<T> values(mask, value, file, line);
  unsigned equal = 0;
  for (int lane = 0; lane < warpSize; ++lane) {
    if ((mask >> lane & 1) != 0 && values[lane] == value) equal |= 1u << lane;
  }
  return equal;
}

#undef LODESTAR_PLACE

template <typename T>
T atomicAdd(T* address, std::type_identity_t<T> value) {
  return lodestar::emulator::Update(address, [&](T old) { return static_cast<T>(old + value); });
}
template <typename T>
T atomicMax(T* address, std::type_identity_t<T> value) {
  return lodestar::emulator::Update(address, [&](T old) { return std::max(old, value); });
}
template <typename T>
T atomicMin(T* address, std::type_identity_t<T> value) {
  return lodestar::emulator::Update(address, [&](T old) { return std::min(old, value); });
}
template <typename T>
T atomicOr(T* address, std::type_identity_t<T> value) {
  return lodestar::emulator::Update(address, [&](T old) { return old | value; });
}
template <typename T>
T atomicExch(T* address, std::type_identity_t<T> value) {
  return lodestar::emulator::Update(address, [&](T) { return value; });
}
template <typename T>
T atomicCAS(T* address, std::type_identity_t<T> expected, std::type_identity_t<T> value) {
  return lodestar::emulator::Update(address, [&](T old) { return old == expected ? value : old; });
}
// NOLINTEND

#include "kernels/cuda/emulator/intrinsics.h"
