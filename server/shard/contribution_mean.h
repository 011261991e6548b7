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

// Number of elements of a range, if FinishInParts() computes the mean range by range. Such a range
// and the numbers that it is computed from fit into a second-level cache. In no encoding does a
// range end within an encoded block.
constexpr int64_t kMeanPartElements = 4 * params::kWholeBlocks;

// The last contribution of a round. `values` is [num_elements] in the encoding.
struct LastContribution {
  params::Encoding encoding;
  const std::byte* values;
  MeanShare share;
};

// The class is not thread-safe. If the PagePool has no page for a contribution, that contribution
// is left out of the mean. The pool reports the shortage of memory.
class ContributionMean {
 public:
  explicit ContributionMean(int64_t num_elements) : num_elements_(num_elements) {}
  virtual ~ContributionMean() = default;

  virtual void Add(params::Encoding encoding, const std::byte* values, const MeanShare& share) = 0;
  // Returns true if Adopt() may be called with a page of this size and encoding. The conditions
  // are: Add() would otherwise need another page, and this page is not much larger than needed.
  virtual bool CanAdopt(params::Encoding encoding, int64_t page_elements) const = 0;
  // Adds elements as Add() does, but keeps their page instead of a copy.
  virtual void Adopt(std::shared_ptr<Page> values, params::Encoding encoding,
                     const MeanShare& share) = 0;
  // Ends the round, so that mean() returns the mean of the contributions that came. `rescale` is
  // the weight of all contributions that were expected, divided by the weight of those that came. A
  // second call multiplies the finished mean by `rescale`.
  virtual void Finish(float rescale) = 0;
  // Calls Add() with `last`, if it is set, and then Finish(). Passes the mean to `use`, range by
  // range and in order. If possible, each range is computed just before `use` is called, so that it
  // is still in the cache. If nothing was added, `use` is not called. Clear() must be called
  // afterwards.
  using UsePart = absl::FunctionRef<void(int64_t begin, absl::Span<const float> part)>;
  virtual void FinishInParts(const std::optional<LastContribution>& last, float rescale,
                             UsePart use);
  // Replaces the mean by share * mean + (1 - share) * base. Must follow Finish(). Does nothing
  // unless the mean is a plain mean: only rounds of weights with a plain mean need it.
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
  // True: each element of the mean is a mean over only those contributions that have sent this
  // element (with top-k encodings). Must be false for a robust mean.
  bool divides_by_senders = false;
  // Within each of these ranges, the mean of the directions is multiplied by the mean of the
  // lengths. For elements outside of the ranges, the plain mean is computed. The ranges are
  // relative to the start of the vector, ascending and disjoint. The list must be empty for a
  // robust mean.
  std::vector<params::ElementRange> directions = {};
};

// Returns the mean for `kind`. No other code depends on the kind. `pages` must outlive the result.
std::unique_ptr<ContributionMean> MakeContributionMean(const MeanKind& kind, int64_t num_elements,
                                                       PagePool& pages);

}  // namespace lodestar::shard
