// TableRows tells which rows of a table inputs have looked up. The weights of the other rows need
// not be there for a lookup, and a lookup's backward leaves the gradient of these rows as it is.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "common/params/layout.h"

namespace lodestar::model {

// Neighbouring rows form at most kMostGroups groups, so that there are few ranges.
class TableRows {
 public:
  static constexpr int64_t kMostGroups = 256;

  // The table is [rows, width], and its first element is element `begin` of the parameter space.
  TableRows(int64_t begin, int64_t rows, int64_t width);

  // Notes that inputs look up the rows with these indices, each in [0, rows).
  void Note(absl::Span<const int32_t> indices);

  // The functions below return elements of the parameter space, in order and in as few ranges as
  // possible. used() returns those of the groups of which a row has been noted, and unused() those
  // of the other groups.
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

}  // namespace lodestar::model
