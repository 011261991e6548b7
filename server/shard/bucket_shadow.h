// BucketShadow is the shadow of one bucket's weights: what the workers have of them where weights
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

// The class is not thread-safe. An advance may run without the owner's lock if nothing is lent
// meanwhile.
class BucketShadow {
 public:
  struct Config {
    Encoding encoding = Encoding::kInt8;
    // With error feedback, what encoding loses of one change is part of the next. Without it that
    // is lost, and the shadow wanders away from the weights.
    bool error_feedback = true;
    uint64_t seed = 0;  // of stochastic rounding
  };

  // `pages` outlives the shadow.
  BucketShadow(const Config& config, ElementRange range, PagePool& pages);

  // Pages for Reset(); false if there is no memory for them.
  bool Allocate();
  // Must follow Allocate(). The weights do not come from an update of those before, so all workers
  // start from them anew.
  void Reset(const Page& weights, Version version);
  // Does as Reset(), for all workers that have the shadow of that version. `elements` are the
  // shadow's own, in fp32.
  void Restore(const std::byte* elements, const Page& weights, Version version);
  // Must follow Reset(). An update leads to `version`. Its weights come part by part, in order and
  // each from a multiple of kWholeBlocks, so that they are encoded while they are in the cache.
  // With the last part the change is there. If there is no memory for the change, the shadow stays.
  // What it lacks is then part of the next change, or lost without error feedback.
  void BeginAdvance(Version version);
  void AdvancePart(int64_t begin, absl::Span<const float> weights);
  void EndAdvance();

  // The changes since the version held, if there are few enough, else the shadow.
  PublishedBucket Lend(std::optional<Version> held) const;

 private:
  // Makes `page` one that may be written to; false if there is no memory for another.
  bool MakeWritable(std::shared_ptr<Page>& page);

  const Config config_;
  const ElementRange range_;
  PagePool& pages_;
  std::shared_ptr<Page> shadow_;
  std::shared_ptr<Page> last_weights_;               // without error feedback
  std::deque<std::shared_ptr<const Page>> changes_;  // encoded; the newest leads to version_
  std::shared_ptr<Page> next_change_;                // of the advance under way, if it has one
  Version version_;
};

}  // namespace lodestar::shard
