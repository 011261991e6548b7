// SPDX-License-Identifier: Apache-2.0

#include "server/shard/norm_exchange.h"

#include <cmath>
#include <utility>

namespace lodestar::shard {

RoundNorm::RoundNorm(int num_buckets, std::shared_ptr<NormExchange> exchange, Note note)
    : num_buckets_(num_buckets), exchange_(std::move(exchange)), note_(std::move(note)) {}

void RoundNorm::Restore(Round round, double total_square_sum) {
  absl::MutexLock lock(&mutex_);
  restored_.emplace(round, total_square_sum);
}

void RoundNorm::Submit(Round round, int bucket, std::vector<double> segment_sums, Done done) {
  std::optional<double> known;
  Collected complete;
  {
    absl::MutexLock lock(&mutex_);
    if (restored_.has_value() && restored_->first == round) {
      known = restored_->second;
    } else {
      Collected& collected = rounds_[round];
      collected.sums.resize(num_buckets_);
      collected.sums[bucket] = std::move(segment_sums);
      collected.done.push_back(std::move(done));
      if (++collected.num_buckets < num_buckets_) return;
      complete = std::move(collected);
      rounds_.erase(round);
    }
  }
  if (known.has_value()) return done(*known);
  std::vector<double> sums;
  for (const std::vector<double>& part : complete.sums) {
    sums.insert(sums.end(), part.begin(), part.end());
  }
  exchange_->Submit(
      round, std::move(sums),
      [all = std::move(complete.done), note = note_, round](absl::StatusOr<double> total) {
        if (total.ok() && std::isfinite(*total) && note != nullptr) note(round, *total);
        for (const Done& one : all) one(total);
      });
}

}  // namespace lodestar::shard
