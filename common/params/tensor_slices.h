// How tensors of the layout are cut and named in the files of one shard.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/params/layout.h"

namespace lodestar {

// The part of one tensor that lies in a shard.
struct TensorSlice {
  std::string name;            // see checkpoint_manifest.h
  std::string tensor;          // the name of the tensor itself
  std::vector<int64_t> shape;  // of the tensor if it is whole, else flat
  ElementRange range;          // elements of the parameter space
};

// In order, covering `range` exactly. `state_name` is empty for weights.
std::vector<TensorSlice> SlicesOf(const Layout& layout, ElementRange range,
                                  absl::string_view state_name);

}  // namespace lodestar
