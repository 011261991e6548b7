// How a shard learns the norm of a gradient whose other parts lie on other shards.
#pragma once

#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "common/ids.h"

namespace lodestar {

class NormExchange {
 public:
  virtual ~NormExchange() = default;

  // Takes this shard's sums of squares of `round`, one per segment in order of the parameter space
  // (SegmentsOf() in common/shard_plan.h), and calls `done` once, from any thread, with the sum
  // over all shards: a plain left-to-right sum over all segments of the space, so that it is the
  // same to the bit for any number of shards. An error means that there will be no answer.
  virtual void Submit(Round round, std::vector<double> segment_sums,
                      std::function<void(absl::StatusOr<double>)> done) = 0;
};

// For a job with one server.
class SingleShardNormExchange : public NormExchange {
 public:
  void Submit(Round round, std::vector<double> segment_sums,
              std::function<void(absl::StatusOr<double>)> done) override;
};

}  // namespace lodestar
