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
#include "common/job/robust_mean.h"
#include "common/params/encoding.h"
#include "common/params/layout.h"
#include "server/shard/page.h"

namespace lodestar::shard {

// A MeanShare is what one contribution is in the mean.
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

// The class is not thread-safe. If the system gives no page for a contribution, the mean is formed
// without it; the pool has told of it then.
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
  // All that comes is there, and becomes mean(). `rescale` is the weight of all that were to come,
  // divided by the weight of those that came. A second call multiplies by `rescale` what is the
  // mean already.
  virtual void Finish(float rescale) = 0;
  // Does Add() of `last`, if there is one, and Finish(), for a caller that wants the mean once.
  // `use` is given the mean part by part, in order. A mean that can do so forms each part when it
  // is used, so that the part stays in the cache. `use` is not called if nothing was added. Clear()
  // follows.
  using UsePart = absl::FunctionRef<void(int64_t begin, absl::Span<const float> part)>;
  virtual void FinishInParts(const std::optional<LastContribution>& last, float rescale,
                             UsePart use);
  // Must follow Finish(). Takes `share` of the mean, and of `base` what is left of 1. Does nothing
  // where single contributions lead the mean nowhere anyway.
  virtual void Approach(const float* base, float share) = 0;
  // Returns the mean after Finish(). Null means that nothing was added.
  virtual const Page* mean() const = 0;
  // Makes it ready for the next round.
  virtual void Clear() = 0;

 protected:
  const int64_t num_elements_;
};

struct MeanKind {
  RobustMean robust = {};
  // An element's mean is that of the contributions in which it travelled. A robust mean has none of
  // this.
  bool divides_by_senders = false;
  // Within each of these ranges directions and lengths are averaged apart; outside of them elements
  // are. The ranges are relative to the vector's start, ascending and disjoint. A robust mean has
  // none of this.
  std::vector<ElementRange> directions = {};
};

// The only switch on the kind. `pages` outlives the result.
std::unique_ptr<ContributionMean> MakeContributionMean(const MeanKind& kind, int64_t num_elements,
                                                       PagePool& pages);

}  // namespace lodestar::shard
