// SPDX-License-Identifier: Apache-2.0

// Strong integer types for every identity and count that is passed between components, so that a
// round cannot be passed where a version is wanted. Arithmetic is limited to what counting needs.
#pragma once

#include <compare>
#include <cstdint>
#include <ostream>
#include <utility>

namespace lodestar {

template <typename Tag, typename Rep>
class StrongInt {
 public:
  using rep = Rep;
  constexpr StrongInt() = default;
  constexpr explicit StrongInt(Rep value) : value_(value) {}
  constexpr Rep value() const { return value_; }

  friend constexpr auto operator<=>(StrongInt, StrongInt) = default;
  constexpr StrongInt& operator++() {
    ++value_;
    return *this;
  }
  friend constexpr StrongInt operator+(StrongInt a, Rep count) {
    return StrongInt(static_cast<Rep>(a.value_ + count));
  }
  friend constexpr Rep operator-(StrongInt a, StrongInt b) {
    return static_cast<Rep>(a.value_ - b.value_);
  }

  template <typename H>
  friend H AbslHashValue(H state, StrongInt id) {
    return H::combine(std::move(state), id.value_);
  }
  friend std::ostream& operator<<(std::ostream& out, StrongInt id) { return out << +id.value_; }

 private:
  Rep value_ = 0;
};

// Stable identity of a worker within a job. The coordinator assigns an id to each worker name.
// Never 0.
using WorkerId = StrongInt<struct WorkerIdTag, uint32_t>;
// One life of a worker. Each new life of the worker has a higher number. Never 0.
using Incarnation = StrongInt<struct IncarnationTag, uint64_t>;
// Number of a round: one exchange, in which all contributions that are due become one update. The
// first round is 0.
using Round = StrongInt<struct RoundTag, int64_t>;
// Number of updates that a bucket has had.
using Version = StrongInt<struct VersionTag, int64_t>;
// Number of a membership view. Every change of the membership raises the number.
using ViewId = StrongInt<struct ViewIdTag, uint64_t>;

}  // namespace lodestar
