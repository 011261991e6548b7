// SPDX-License-Identifier: Apache-2.0

#include "worker/model/table_rows.h"

#include <algorithm>

namespace lodestar::model {

TableRows::TableRows(int64_t begin, int64_t rows, int64_t width)
    : begin_(begin), rows_(rows), width_(width) {
  while (((rows - 1) >> shift_) >= kMostGroups) ++shift_;
  is_used_.resize(((rows - 1) >> shift_) + 1);
}

void TableRows::Note(absl::Span<const int32_t> indices) {
  for (const int32_t index : indices) is_used_[index >> shift_] = true;
}

std::vector<params::ElementRange> TableRows::RangesOf(bool is_used) const {
  std::vector<params::ElementRange> ranges;
  for (size_t group = 0; group < is_used_.size(); ++group) {
    if (is_used_[group] != is_used) continue;
    const auto first = static_cast<int64_t>(group) << shift_;
    const int64_t last = std::min(first + (int64_t{1} << shift_), rows_);
    const params::ElementRange range = {begin_ + first * width_, begin_ + last * width_};
    if (!ranges.empty() && ranges.back().end == range.begin) {
      ranges.back().end = range.end;
    } else {
      ranges.push_back(range);
    }
  }
  return ranges;
}

}  // namespace lodestar::model
