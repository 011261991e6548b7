// SPDX-License-Identifier: Apache-2.0

#include "kernels/simd/tables.h"

#define LODESTAR_NAME_OF(isa) LODESTAR_NAME_OF_INNER(isa)
#define LODESTAR_NAME_OF_INNER(isa) #isa

namespace lodestar::simd::LODESTAR_ISA {

Loops MakeLoops() {
  Loops loops = {};
  loops.name = LODESTAR_NAME_OF(LODESTAR_ISA);
  AddActivation(&loops);
  AddElementwise(&loops);
  AddGemm(&loops);
  AddNorm(&loops);
  AddSoftmax(&loops);
  AddTrimmed(&loops);
  return loops;
}

}  // namespace lodestar::simd::LODESTAR_ISA
