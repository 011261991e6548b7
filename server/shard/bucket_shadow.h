// SPDX-License-Identifier: Apache-2.0

// BucketShadow is the shadow of one bucket's weights: the values that workers have if weights
// travel as encoded changes. See ParameterService.Pull in proto/parameter_service.proto.
//
// It takes one page for the shadow, and at most one page's worth of encoded changes (ChangesKept()
// of common/params/encoding.h). Without error feedback it takes another page. Older pages live as
// long as a reader holds them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>

#include "absl/types/span.h"
#include "common/params/encoding.h"
#include "common/params/layout.h"
#include "common/runtime/ids.h"
#include "server/shard/bucket_handles.h"
#include "server/shard/page.h"

namespace lodestar::shard {

// The class is not thread-safe. An advance may run without the owner's lock if Lend() is not called
// meanwhile.
class BucketShadow {
 public:
  struct Config {
    params::Encoding encoding = params::Encoding::kInt8;
    // With error feedback, what encoding loses of a change is part of the next change. Without
    // error feedback the loss stays, and the shadow drifts away from the weights.
    bool error_feedback = true;
    uint64_t seed = 0;  // seed of stochastic rounding
  };

  // `pages` must outlive the shadow.
  BucketShadow(const Config& config, params::ElementRange range, PagePool& pages);

  // Allocates pages for Reset(). Returns false if there is no memory for them.
  bool Allocate();
  // Sets the shadow to `weights`. Call after weights were set without an update. Every worker must
  // then fetch the whole shadow again. Must follow Allocate().
  void Reset(const Page& weights, Version version);
  // Does the same as Reset(), but sets the shadow to `elements`, in fp32: the shadow that was saved
  // with `version`.
  void Restore(const std::byte* elements, const Page& weights, Version version);
  // These three methods advance the shadow by one update, which leads to `version`. Must follow
  // Reset().
  // - AdvancePart() gets the new weights in parts, in order, while they are in the cache. Each part
  //   begins at a multiple of kWholeBlocks.
  // - EndAdvance() must follow the last part.
  // - If there is no memory for the change, the shadow stays as it is. With error feedback, the
  //   next change includes what is missing. Without error feedback it is lost.
  void BeginAdvance(Version version);
  void AdvancePart(int64_t begin, absl::Span<const float> weights);
  void EndAdvance();

  // Returns the changes since version `held` if they are few enough, else the shadow.
  PublishedBucket Lend(std::optional<Version> held) const;

 private:
  // Makes `page` writable, by a copy if it is lent. Returns false if there is no memory for a copy.
  bool MakeWritable(std::shared_ptr<Page>& page);

  const Config config_;
  const params::ElementRange range_;
  PagePool& pages_;
  std::shared_ptr<Page> shadow_;
  std::shared_ptr<Page> last_weights_;               // former weights; null with error feedback
  std::deque<std::shared_ptr<const Page>> changes_;  // encoded; the newest leads to version_
  std::shared_ptr<Page> next_change_;                // change of the advance under way, or null
  Version version_;
};

}  // namespace lodestar::shard
