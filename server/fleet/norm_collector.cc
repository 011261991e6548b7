#include "server/fleet/norm_collector.h"

#include <utility>

namespace lodestar {
namespace {

// A shard is at most one round behind another, so a repeat asks for one of the last two.
constexpr size_t kKeptTotals = 4;

}  // namespace

NormCollector::~NormCollector() { Close(absl::AbortedError("the server stops")); }

void NormCollector::Submit(Round round, int shard, std::vector<double> segment_sums,
                           DoneCallback done) {
  std::vector<DoneCallback> ready;
  DoneCallback replaced;
  absl::StatusOr<double> answer = 0.0;
  {
    absl::MutexLock lock(&mutex_);
    if (!closed_.ok()) {
      answer = closed_;
      ready.push_back(std::move(done));
    } else if (const auto known = totals_.find(round); known != totals_.end()) {
      answer = known->second;
      ready.push_back(std::move(done));
    } else {
      Submission& submission = open_[round][shard];
      replaced = std::move(submission.done);
      submission = {std::move(segment_sums), std::move(done)};
      OpenRound& open = open_[round];
      if (static_cast<int>(open.size()) == num_shards_) {
        double total = 0.0;
        for (auto& [index, part] : open) {
          for (const double sum : part.sums) total += sum;
          ready.push_back(std::move(part.done));
        }
        open_.erase(round);
        totals_[round] = total;
        answer = total;
        if (totals_.size() > kKeptTotals) totals_.erase(totals_.begin());
      }
    }
  }
  if (replaced) replaced(absl::AbortedError("replaced by a newer submission"));
  for (DoneCallback& callback : ready) callback(answer);
}

void NormCollector::Close(const absl::Status& status) {
  {
    absl::MutexLock lock(&mutex_);
    closed_ = status;
  }
  Reset(status);
}

void NormCollector::Reset(const absl::Status& status) {
  std::map<Round, OpenRound> open;
  {
    absl::MutexLock lock(&mutex_);
    open.swap(open_);
    totals_.clear();
  }
  for (auto& [round, shards] : open) {
    for (auto& [shard, submission] : shards) submission.done(status);
  }
}

}  // namespace lodestar
