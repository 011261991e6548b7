// SPDX-License-Identifier: Apache-2.0

// Philox4x32-10, the counter-based generator of Salmon et al., "Parallel Random Numbers: As Easy as
// 1, 2, 3", SC 2011. A value is a pure function of (key, counter), so any part of a sequence can be
// computed anywhere, in any order.
#pragma once

#include <array>
#include <cstdint>

namespace lodestar {

using PhiloxBlock = std::array<uint32_t, 4>;

PhiloxBlock Philox(uint64_t key, const PhiloxBlock& counter);
// Returns block `index` of the sequence `stream` of `key`.
PhiloxBlock Philox(uint64_t key, uint64_t stream, uint64_t index);

// Returns a uniform value in (0, 1), never 0 or 1.
double UniformFrom(uint32_t bits);

// Returns four independent standard normal values made from one block (Box and Muller 1958).
std::array<double, 4> NormalsFrom(const PhiloxBlock& block);

}  // namespace lodestar
