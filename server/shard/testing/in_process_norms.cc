// SPDX-License-Identifier: Apache-2.0

#include "server/shard/testing/in_process_norms.h"

#include <utility>

namespace lodestar::shard {

class InProcessNorms::Port : public NormExchange {
 public:
  Port(InProcessNorms* norms, int shard) : norms_(norms), shard_(shard) {}
  void Submit(Round round, std::vector<double> sums,
              std::function<void(absl::StatusOr<double>)> done) override {
    norms_->Submit(shard_, round, std::move(sums), std::move(done));
  }

 private:
  InProcessNorms* const norms_;
  const int shard_;
};

std::unique_ptr<NormExchange> InProcessNorms::ForShard(int shard) {
  return std::make_unique<Port>(this, shard);
}

void InProcessNorms::Submit(int shard, Round round, std::vector<double> sums,
                            std::function<void(absl::StatusOr<double>)> done) {
  Collected complete;
  {
    absl::MutexLock lock(&mutex_);
    Collected& collected = rounds_[round];
    collected.sums[shard] = std::move(sums);
    collected.done.push_back(std::move(done));
    if (static_cast<int>(collected.done.size()) < num_shards_) return;
    complete = std::move(collected);
    rounds_.erase(round);
  }
  double total = 0.0;
  for (const auto& [index, part] : complete.sums) {
    for (double sum : part) total += sum;
  }
  for (const auto& one : complete.done) one(total);
}

}  // namespace lodestar::shard
