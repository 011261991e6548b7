// SPDX-License-Identifier: Apache-2.0

// Cuts and names the tensors of the layout for the files of one shard.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/params/layout.h"

namespace lodestar::params {

// The part of one tensor that lies in a shard.
struct TensorSlice {
  std::string name;    // name in the file; see checkpoint_manifest.h
  std::string tensor;  // name of the tensor itself
  // Shape of the tensor if the slice is the whole tensor. Otherwise {number of elements of the
  // slice}.
  std::vector<int64_t> shape;
  ElementRange range;  // elements of the parameter space
};

// Returns the slices in order. They cover `range` exactly. `state_name` is empty for weights.
std::vector<TensorSlice> SlicesOf(const Layout& layout, ElementRange range,
                                  absl::string_view state_name);

}  // namespace lodestar::params
