// SPDX-License-Identifier: Apache-2.0

// Has one table of loops for each instruction set that was compiled and that this machine supports.
#pragma once

namespace lodestar::simd {

template <typename Loops>
class InstructionSets {
 public:
  // The arguments are the functions that make the tables, for the widest set first. Every x86-64
  // processor has SSE2.
  InstructionSets(Loops (*avx512)(), Loops (*avx2)(), Loops (*sse2)()) {
    __builtin_cpu_init();
    if (__builtin_cpu_supports("x86-64-v4")) loops_[count_++] = avx512();
    if (__builtin_cpu_supports("x86-64-v3")) loops_[count_++] = avx2();
    loops_[count_++] = sse2();
  }

  const Loops& best() const { return loops_[0]; }
  // Returns null if `index` is not below the number of sets.
  const Loops* at(int index) const { return index < count_ ? &loops_[index] : nullptr; }

 private:
  Loops loops_[3];
  int count_ = 0;
};

}  // namespace lodestar::simd
