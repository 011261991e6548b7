// SPDX-License-Identifier: Apache-2.0

#include "kernels/simd/loops.h"

#include "kernels/simd/instruction_sets.h"

namespace lodestar::simd {

namespace avx512 {
Loops MakeLoops();
}
namespace avx2 {
Loops MakeLoops();
}
namespace sse2 {
Loops MakeLoops();
}

namespace {

const InstructionSets<Loops>& AllSets() {
  static const InstructionSets<Loops> sets(avx512::MakeLoops, avx2::MakeLoops, sse2::MakeLoops);
  return sets;
}

}  // namespace

const Loops& BestLoops() { return AllSets().best(); }

const Loops* SupportedLoops(int index) { return AllSets().at(index); }

}  // namespace lodestar::simd
