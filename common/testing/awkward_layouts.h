// Layouts that geometry must survive: for the property tests of the plans.
#pragma once

#include <string>
#include <vector>

#include "common/params/layout.h"

namespace lodestar {

struct NamedLayout {
  std::string name;
  Layout layout;
};

// Single elements, primes, blocks of very different sizes, presets.
std::vector<NamedLayout> AwkwardLayouts();

// One tensor per entry; `block_sizes[i]` elements in block i.
Layout LayoutOfBlocks(const std::vector<int64_t>& block_sizes);

}  // namespace lodestar
