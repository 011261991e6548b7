// SPDX-License-Identifier: Apache-2.0

#include "common/testing/awkward_layouts.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/runtime/check.h"

namespace lodestar {

params::Layout LayoutOfBlocks(const std::vector<int64_t>& block_sizes) {
  std::vector<params::TensorSpec> tensors;
  for (int64_t size : block_sizes) {
    params::TensorSpec tensor;
    tensor.name = absl::StrCat("t", tensors.size());
    tensor.shape = {size};
    tensor.block = static_cast<int>(tensors.size());
    tensors.push_back(std::move(tensor));
  }
  absl::StatusOr<params::Layout> layout = params::Layout::FromTensors(std::move(tensors));
  LODESTAR_CHECK(layout.ok()) << layout.status();
  return *std::move(layout);
}

std::vector<NamedLayout> AwkwardLayouts() {
  std::vector<NamedLayout> layouts = {
      {"one element", LayoutOfBlocks({1})},
      {"single elements", LayoutOfBlocks(std::vector<int64_t>(100, 1))},
      {"primes", LayoutOfBlocks({2, 3, 5, 7, 11, 13, 10007, 17, 19, 104729, 23})},
      {"one large prime block", LayoutOfBlocks({15485863})},
      {"tiny among large", LayoutOfBlocks({1, 3'000'017, 1, 1, 2'000'003, 1})},
      {"just below a segment", LayoutOfBlocks({5119, 5121, 10239})},
  };
  for (const char* preset : {"mlp", "cnn", "gpt-nano", "gpt-mini", "gpt2-124m"}) {
    layouts.push_back({preset, *params::BuildLayout(*params::ModelPreset(preset))});
  }
  return layouts;
}

}  // namespace lodestar
