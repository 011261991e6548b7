// SPDX-License-Identifier: Apache-2.0

#include "common/params/tensor_slices.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace lodestar::params {

std::vector<TensorSlice> SlicesOf(const Layout& layout, ElementRange range,
                                  absl::string_view state_name) {
  std::vector<TensorSlice> slices;
  for (const TensorSpec& tensor : layout.tensors()) {
    const int64_t tensor_end = tensor.offset + tensor.num_elements();
    const ElementRange part = {std::max(tensor.offset, range.begin),
                               std::min(tensor_end, range.end)};
    if (part.begin >= part.end) continue;
    TensorSlice slice = {
        .name = tensor.name, .tensor = tensor.name, .shape = tensor.shape, .range = part};
    if (part.size() < tensor.num_elements()) {
      absl::StrAppend(&slice.name, "@", part.begin - tensor.offset, ":", part.end - tensor.offset);
      slice.shape = {part.size()};
    }
    if (!state_name.empty()) slice.name = absl::StrCat(state_name, "/", slice.name);
    slices.push_back(std::move(slice));
  }
  return slices;
}

}  // namespace lodestar::params
