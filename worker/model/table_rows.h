// Which rows of a table inputs have looked up: the others' weights need not be there for a lookup,
// and its backward leaves their gradient as it is.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "common/layout.h"

namespace lodestar {

// Rows are told apart in at most kMostGroups groups of neighbours, so that what comes out is few
// ranges.
class TableRows {
 public:
  static constexpr int64_t kMostGroups = 256;

  // Of a table [rows, width] whose first element is `begin` of the parameter space.
  TableRows(int64_t begin, int64_t rows, int64_t width);

  // Indices of rows, each in [0, rows).
  void Note(absl::Span<const int32_t> indices);

  // Elements of the parameter space, in order and as few ranges as there are: of the groups of
  // which a row has been noted, and of the other groups.
  std::vector<ElementRange> used() const { return RangesOf(true); }
  std::vector<ElementRange> unused() const { return RangesOf(false); }
  std::vector<ElementRange> all() const { return {{begin_, begin_ + rows_ * width_}}; }

 private:
  std::vector<ElementRange> RangesOf(bool is_used) const;

  const int64_t begin_;
  const int64_t rows_;
  const int64_t width_;
  int shift_ = 0;              // a group has 1 << shift_ rows
  std::vector<bool> is_used_;  // by group
};

}  // namespace lodestar
