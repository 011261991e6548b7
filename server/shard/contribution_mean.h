// SPDX-License-Identifier: Apache-2.0

// ContributionMean computes the mean of a round's contributions to one bucket, in the way that the
// job wants. It knows nothing of rounds and workers.
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

// A MeanShare says how one contribution counts in the mean.
struct MeanShare {
  float scale = 1.0f;   // factor for the contribution's elements
  int64_t weight = 1;   // weight relative to the other contributions
  float factor = 1.0f;  // scale * weight / the weight of all contributions that were to come
  uint32_t order = 0;   // differs for all contributions of a round
};

// Number of elements of a part, if a mean is computed part by part. A part, with the numbers it is
// computed from and the numbers it goes to, fits into a second-level cache. It is a multiple of
// whole blocks in every encoding.
constexpr int64_t kMeanPartElements = 4 * params::kWholeBlocks;

// The last contribution of a round. `values` is [num_elements] in the encoding.
struct LastContribution {
  params::Encoding encoding;
  const std::byte* values;
  MeanShare share;
};

// The class is not thread-safe. If the system gives no page for a contribution, the mean is formed
// without that contribution, and the pool has reported it.
class ContributionMean {
 public:
  explicit ContributionMean(int64_t num_elements) : num_elements_(num_elements) {}
  virtual ~ContributionMean() = default;

  virtual void Add(params::Encoding encoding, const std::byte* values, const MeanShare& share) = 0;
  // Returns true if the mean may keep a page of this size and encoding, instead of copying it to
  // another page. It may do so if Add() would need another page now, and if this page is not much
  // larger than needed.
  virtual bool CanAdopt(params::Encoding encoding, int64_t page_elements) const = 0;
  // Adds elements as Add() does, but keeps their page instead of a copy.
  virtual void Adopt(std::shared_ptr<Page> values, params::Encoding encoding,
                     const MeanShare& share) = 0;
  // Ends the round, so that mean() returns the mean of the contributions that came. `rescale` is
  // the weight of all contributions that were expected, divided by the weight of those that came. A
  // second call multiplies the finished mean by `rescale`.
  virtual void Finish(float rescale) = 0;
  // Does Add() of `last`, if it is set, and Finish(), for a caller that needs the mean once. Calls
  // `use` with the mean part by part, in order. If possible, each part is computed just before it
  // is used, so that it stays in the cache. `use` is not called if nothing was added. Clear() must
  // follow.
  using UsePart = absl::FunctionRef<void(int64_t begin, absl::Span<const float> part)>;
  virtual void FinishInParts(const std::optional<LastContribution>& last, float rescale,
                             UsePart use);
  // Replaces the mean by share * mean + (1 - share) * base. Must follow Finish(). Only a mean of
  // weights needs this. Does nothing for robust means, in which a single contribution has a bounded
  // effect anyway.
  virtual void Approach(const float* base, float share) = 0;
  // Returns the mean. Must follow Finish(). Null means that nothing was added.
  virtual const Page* mean() const = 0;
  // Makes the object ready for the next round.
  virtual void Clear() = 0;

 protected:
  const int64_t num_elements_;
};

struct MeanKind {
  job::RobustMean robust = {};
  // True: the mean of an element is over the contributions that sent the element. Must be false for
  // a robust mean.
  bool divides_by_senders = false;
  // Within each of these ranges directions and lengths are averaged separately. Outside of the
  // ranges, elements are averaged. The ranges are relative to the vector's start, ascending and
  // disjoint. Must be empty for a robust mean.
  std::vector<params::ElementRange> directions = {};
};

// Returns the mean for `kind`. No other code depends on the kind. `pages` must outlive the result.
std::unique_ptr<ContributionMean> MakeContributionMean(const MeanKind& kind, int64_t num_elements,
                                                       PagePool& pages);

}  // namespace lodestar::shard
