// SPDX-License-Identifier: Apache-2.0

// TableRows records which rows of a table were looked up. A lookup needs the weights of these rows
// only, and its backward changes the gradient of these rows only.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "common/params/layout.h"

namespace lodestar::model {

// Divides the rows into at most kMostGroups groups of neighbours, so that the number of ranges is
// small.
class TableRows {
 public:
  static constexpr int64_t kMostGroups = 256;

  // The table is [rows, width]. Its first element is element `begin` of the parameter space.
  TableRows(int64_t begin, int64_t rows, int64_t width);

  // Must be called when the rows with these indices are looked up. Each index must be in [0, rows).
  void Note(absl::Span<const int32_t> indices);

  // Return ranges of the parameter space, in order, and as few ranges as possible. used() has the
  // groups of which at least one row was looked up, and unused() has all other groups.
  std::vector<params::ElementRange> used() const { return RangesOf(true); }
  std::vector<params::ElementRange> unused() const { return RangesOf(false); }
  std::vector<params::ElementRange> all() const { return {{begin_, begin_ + rows_ * width_}}; }

 private:
  std::vector<params::ElementRange> RangesOf(bool is_used) const;

  const int64_t begin_;
  const int64_t rows_;
  const int64_t width_;
  int shift_ = 0;              // A group has 1 << shift_ rows.
  std::vector<bool> is_used_;  // One entry per group.
};

}  // namespace lodestar::model
