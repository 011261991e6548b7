// SPDX-License-Identifier: Apache-2.0

// Implements the functions of kernels/cuda/compiler_seam.h in software. That file describes them.
#pragma once

#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>
#include <cstring>

namespace lodestar::emulator {

inline constexpr unsigned kWholeWarp = 0xffffffffu;

struct TensorOperands {
  uint32_t a[4];
  uint32_t b[2];
};

struct MatrixRow {
  uint16_t elements[8];
};

inline float Bf16Half(uint32_t pair, int half) {
  return __uint_as_float(half == 0 ? pair << 16 : pair & 0xffff0000u);
}

// Returns one element of A B: the product of row `row` of A and column `column` of B. Adds up the
// terms in order. As on a card, products of two bf16 are exact in fp32 and are not rounded to bf16.
inline float DotRowColumn(const LaneValues<TensorOperands>& values, int row, int column) {
  double sum = 0.0;
  for (int k = 0; k < 16; ++k) {
    const int member = k % 8 / 2;
    const uint32_t a = values[row % 8 * 4 + member].a[row / 8 + k / 8 * 2];
    const uint32_t b = values[column * 4 + member].b[k / 8];
    sum += double{Bf16Half(a, k % 2)} * double{Bf16Half(b, k % 2)};
  }
  return static_cast<float>(sum);
}

inline void LoadMatrixX4(uint32_t (&r)[4], const void* row, bool transposed, const char* file,
                         int line) {
  if (reinterpret_cast<uintptr_t>(row) % sizeof(MatrixRow) != 0) {
    Block::Running().Fail("ldmatrix: a row is not 16-byte aligned");
  }
  MatrixRow own;
  std::memcpy(&own, row, sizeof(own));
  const LaneValues<MatrixRow> rows(kWholeWarp, own, file, line);
  const int lane = Block::Running().lane();
  const int group = lane / 4;
  const int pair = lane % 4 * 2;
  for (int i = 0; i < 4; ++i) {
    const auto element = [&](int row_index, int column) {
      return uint32_t{rows[8 * i + row_index].elements[column]};
    };
    r[i] = transposed ? element(pair, group) | element(pair + 1, group) << 16
                      : element(group, pair) | element(group, pair + 1) << 16;
  }
}

}  // namespace lodestar::emulator

namespace lodestar::cuda {

template <typename T>
T* DynamicShared() {
  return reinterpret_cast<T*>(emulator::Block::Running().dynamic_shared());
}

inline int Opaque(int x) { return x; }

inline float Exp2(float x) {
  const float y = std::exp2(x);
  return y < 0x1p-126f ? 0.0f : y;
}

inline void MultiplyAdd(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                        const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  emulator::TensorOperands own;
  std::memcpy(own.a, a, sizeof(own.a));
  std::memcpy(own.b, b, sizeof(own.b));
  const emulator::LaneValues<emulator::TensorOperands> values(emulator::kWholeWarp, own, file,
                                                              line);
  const int lane = emulator::Block::Running().lane();
  for (int i = 0; i < 4; ++i) {
    c[i] += emulator::DotRowColumn(values, lane / 4 + i / 2 * 8, lane % 4 * 2 + i % 2);
  }
}

inline void LoadMatrixX4(uint32_t (&r)[4], const void* row, const char* file = __builtin_FILE(),
                         int line = __builtin_LINE()) {
  emulator::LoadMatrixX4(r, row, false, file, line);
}
inline void LoadMatrixX4Transposed(uint32_t (&r)[4], const void* row,
                                   const char* file = __builtin_FILE(),
                                   int line = __builtin_LINE()) {
  emulator::LoadMatrixX4(r, row, true, file, line);
}

inline void CopyAsync16(void* shared, const void* global, bool valid = true) {
  constexpr size_t kBytes = 16;
  if (reinterpret_cast<uintptr_t>(shared) % kBytes != 0 ||
      (valid && reinterpret_cast<uintptr_t>(global) % kBytes != 0)) {
    emulator::Block::Running().Fail("cp.async: an address is not 16-byte aligned");
  }
  emulator::Block::Running().BeginCopy(shared, valid ? global : nullptr, kBytes);
}
inline void CopyAsyncCommit() { emulator::Block::Running().CommitCopies(); }
template <int kGroupsLeft>
void CopyAsyncWait() {
  emulator::Block::Running().WaitCopies(kGroupsLeft);
}

}  // namespace lodestar::cuda
