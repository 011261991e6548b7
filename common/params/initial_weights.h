// SPDX-License-Identifier: Apache-2.0

// Computes initial weights as a pure function of seed, tensor name and element index.
#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "common/params/layout.h"

namespace lodestar::params {

// Writes elements [begin_in_tensor, begin_in_tensor + out.size()) of the tensor. The values do not
// depend on how a tensor is cut into parts, which process fills a part, or the other tensors of the
// layout. Machines whose log, sin and cos round alike compute the same bits. Thread-safe.
void FillInitial(const TensorSpec& tensor, uint64_t seed, int64_t begin_in_tensor,
                 absl::Span<float> out);

// Fills a range of the parameter space like FillInitial(). `out` holds range.size() elements.
void FillInitialRange(const Layout& layout, uint64_t seed, ElementRange range,
                      absl::Span<float> out);

}  // namespace lodestar::params
