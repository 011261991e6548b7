// SPDX-License-Identifier: Apache-2.0

// Layouts with unusual sizes, for tests of the code that plans shards, buckets and fragments.
#pragma once

#include <string>
#include <vector>

#include "common/params/layout.h"

namespace lodestar {

struct NamedLayout {
  std::string name;
  params::Layout layout;
};

// Returns layouts with single elements, prime sizes, blocks of very different sizes, and presets.
std::vector<NamedLayout> AwkwardLayouts();

// Returns a layout with one tensor per entry: block i has `block_sizes[i]` elements.
params::Layout LayoutOfBlocks(const std::vector<int64_t>& block_sizes);

}  // namespace lodestar
