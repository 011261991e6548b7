// SPDX-License-Identifier: Apache-2.0

// Declares the functions that fill the table of loops of one instruction set. Each source of
// //kernels/simd:loops_* defines the function that adds its own loops.
#pragma once

#include "kernels/simd/loops.h"

namespace lodestar::simd {

namespace LODESTAR_ISA {
void AddActivation(Loops* loops);
void AddElementwise(Loops* loops);
void AddGemm(Loops* loops);
void AddNorm(Loops* loops);
void AddSoftmax(Loops* loops);
void AddTrimmed(Loops* loops);
Loops MakeLoops();
}  // namespace LODESTAR_ISA

}  // namespace lodestar::simd
