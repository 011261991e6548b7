// The mean of a round's contributions to one bucket, as the job wants it formed. Knows nothing of
// rounds and workers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "common/encoding.h"
#include "common/layout.h"
#include "common/robust_mean.h"
#include "server/shard/page.h"

namespace lodestar {

// What one contribution is in the mean.
struct MeanShare {
  float scale = 1.0f;   // its elements are multiplied by it
  int64_t weight = 1;   // against those of the others
  float factor = 1.0f;  // scale * weight / the weight of all that were to come
  uint32_t order = 0;   // no two of a round have the same
};

// Elements of a part of a mean that is formed part by part: with what it is formed of and what it
// goes to, less than a second-level cache has. Whole blocks of any encoding.
constexpr int64_t kMeanPartElements = 4 * kWholeBlocks;

// The last contribution of a round, [num_elements] in its encoding.
struct LastContribution {
  Encoding encoding;
  const std::byte* values;
  MeanShare share;
};

// Not thread-safe. Where the system gives no page for a contribution, the mean is formed without
// it; the pool has told of it then.
class ContributionMean {
 public:
  explicit ContributionMean(int64_t num_elements) : num_elements_(num_elements) {}
  virtual ~ContributionMean() = default;

  virtual void Add(Encoding encoding, const std::byte* values, const MeanShare& share) = 0;
  // Whether a page of this size with elements in this encoding may be kept as it is, in place of
  // one that Add() would take: it is of use now, and is not much larger than that.
  virtual bool CanAdopt(Encoding encoding, int64_t page_elements) const = 0;
  // Add() of elements that lie in a page already.
  virtual void Adopt(std::shared_ptr<Page> values, Encoding encoding, const MeanShare& share) = 0;
  // All that comes is there, and becomes mean(). `rescale`: the weight of all that were to come, by
  // the weight of those that came. Once more: what is the mean already is multiplied by `rescale`.
  virtual void Finish(float rescale) = 0;
  // Add() of `last`, where there is one, and Finish(), for who wants the mean once: `use` is given
  // it part by part, in order, and whoever can forms each part when it is used, so that it stays in
  // the cache. Not called if nothing was added. Clear() follows.
  using UsePart = absl::FunctionRef<void(int64_t begin, absl::Span<const float> part)>;
  virtual void FinishInParts(const std::optional<LastContribution>& last, float rescale,
                             UsePart use);
  // After Finish(): `share` of the mean, and of `base` what is left of 1. Not where single
  // contributions lead the mean nowhere anyway.
  virtual void Approach(const float* base, float share) = 0;
  // After Finish(). Null: nothing was added.
  virtual const Page* mean() const = 0;
  // For the next round.
  virtual void Clear() = 0;

 protected:
  const int64_t num_elements_;
};

struct MeanKind {
  RobustMean robust = {};
  // Not of a robust one: an element's mean is that of the contributions in which it travelled.
  bool divides_by_senders = false;
  // Not of a robust one: within each of these, relative to the vector's start, ascending and
  // disjoint, directions and lengths are averaged apart; outside of them elements.
  std::vector<ElementRange> directions = {};
};

// The only switch on the kind. `pages` outlives the result.
std::unique_ptr<ContributionMean> MakeContributionMean(const MeanKind& kind, int64_t num_elements,
                                                       PagePool& pages);

}  // namespace lodestar
