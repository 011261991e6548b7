// SPDX-License-Identifier: Apache-2.0

#include "server/site/served_site.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/runtime/status_macros.h"

namespace lodestar::site {
namespace {

// Interval at which a waiting call checks whether it was interrupted.
constexpr absl::Duration kLook = absl::Milliseconds(50);

absl::Status Stopping() { return absl::CancelledError("this site is stopping"); }

}  // namespace

template <typename Result>
absl::StatusOr<Result> ServedSite::Await(std::function<std::optional<absl::StatusOr<Result>>(
                                             const coordinator::Coordinator&, absl::Time)>
                                             find,
                                         absl::FunctionRef<std::optional<absl::Status>()> give_up) {
  // The result is shared with `attempt`, which may run after this function has returned.
  struct Answer {
    absl::Mutex mutex;
    absl::StatusOr<Result> result ABSL_GUARDED_BY(mutex) = Stopping();
    bool is_there ABSL_GUARDED_BY(mutex) = false;
  };
  const auto answer = std::make_shared<Answer>();
  const auto attempt =
      [answer, find = std::move(find)](
          coordinator::Coordinator& coordinator, absl::Time now,
          rpc::CoordinatorStrand::Occasion occasion) -> rpc::CoordinatorStrand::Delivery {
    std::optional<absl::StatusOr<Result>> found = find(coordinator, now);
    if (!found.has_value() && occasion == rpc::CoordinatorStrand::Occasion::kChange) return nullptr;
    absl::StatusOr<Result> result = found.has_value() ? *std::move(found) : Stopping();
    return [answer, result = std::move(result)](const absl::Status&) {
      absl::MutexLock lock(&answer->mutex);
      answer->result = result;
      answer->is_there = true;
    };
  };
  strand_->Await(/*key=*/0, absl::InfiniteDuration(), attempt);
  while (true) {
    {
      absl::MutexLock lock(&answer->mutex);
      if (clock_->Await(answer->mutex, absl::Condition(&answer->is_there), kLook)) {
        return answer->result;
      }
    }
    if (const std::optional<absl::Status> end = give_up(); end.has_value()) return *end;
  }
}

absl::StatusOr<messages::DatasetInfo> ServedSite::AwaitData(const Interrupted& is_interrupted) {
  return Await<messages::DatasetInfo>(
      [](const coordinator::Coordinator& coordinator,
         absl::Time now) -> std::optional<absl::StatusOr<messages::DatasetInfo>> {
        if (auto data = coordinator.SiteData(now); data.has_value()) return *data;
        return std::nullopt;
      },
      [&]() -> std::optional<absl::Status> {
        if (!is_interrupted()) return std::nullopt;
        return absl::CancelledError(
            "this site was stopped on request before its workers had joined");
      });
}

int ServedSite::StepsOfOrder() {
  return strand_->Run([](coordinator::Coordinator& coordinator, absl::Time) {
    return coordinator.job().local_steps;
  });
}

absl::Status ServedSite::PutWeights(absl::Span<const float> weights) {
  const absl::StatusOr<Round> round = Await<Round>(
      [](const coordinator::Coordinator& coordinator,
         absl::Time) -> std::optional<absl::StatusOr<Round>> {
        if (!coordinator.is_between_rounds()) return std::nullopt;
        return coordinator.committed_round();
      },
      [] { return std::optional<absl::Status>(); });
  RETURN_IF_ERROR(round.status());
  absl::Mutex mutex;
  std::optional<absl::Status> outcome;
  host_->ReplaceWeights(*round, weights, [&](const absl::Status& status) {
    absl::MutexLock lock(&mutex);
    outcome = status;
  });
  const auto is_done = [&] { return outcome.has_value(); };
  absl::MutexLock lock(&mutex);
  clock_->Await(mutex, absl::Condition(&is_done), absl::InfiniteDuration());
  has_new_weights_ = true;
  return *outcome;
}

absl::Status ServedSite::GetWeights(absl::Span<float> weights) {
  ASSIGN_OR_RETURN(const std::shared_ptr<shard::ParameterShard> shard, host_->shard());
  const auto [map, round] = strand_->Run([](coordinator::Coordinator& coordinator, absl::Time) {
    return std::pair(coordinator.map(), coordinator.committed_round());
  });
  absl::Mutex mutex;
  absl::Status first_error;
  size_t remaining = map->buckets.size();
  for (const params::Bucket& bucket : map->buckets) {
    shard->ReadBucket(
        WorkerId(), Incarnation(), bucket.index, round,
        [&, range = bucket.range](const absl::StatusOr<shard::PublishedBucket>& published) {
          if (published.ok()) {
            const absl::Span<const float> data = published->data();
            std::copy(data.begin(), data.end(), weights.begin() + range.begin);
          }
          absl::MutexLock lock(&mutex);
          first_error.Update(published.status());
          --remaining;
        });
  }
  const auto is_done = [&] { return remaining == 0; };
  absl::MutexLock lock(&mutex);
  clock_->Await(mutex, absl::Condition(&is_done), absl::InfiniteDuration());
  return first_error;
}

absl::StatusOr<rounds::SiteOutcome> ServedSite::CarryOut(const rounds::SiteOrder& order,
                                                         const Interrupted& is_interrupted) {
  rounds::SiteOrder whole = order;
  whole.has_new_weights = std::exchange(has_new_weights_, false);
  const uint64_t number = strand_->Run([&](coordinator::Coordinator& coordinator, absl::Time now) {
    return coordinator.TakeOrder(whole, now);
  });
  absl::Duration waited;  // time since the interruption
  return Await<rounds::SiteOutcome>(
      [number](const coordinator::Coordinator& coordinator, absl::Time) {
        return coordinator.OrderOutcome(number);
      },
      [&]() -> std::optional<absl::Status> {
        if (!is_interrupted()) return std::nullopt;
        const bool is_withdrawn =
            strand_->Run([&](coordinator::Coordinator& coordinator, absl::Time) {
              return coordinator.WithdrawUnlessBegun(number);
            });
        if (is_withdrawn)
          return absl::CancelledError(
              "this site was stopped on request before its workers began their next step");
        waited += kLook;
        if (waited < patience_) return std::nullopt;
        return absl::CancelledError(
            "this site was stopped on request, but its workers did not deliver their last steps in "
            "time; these steps are lost");
      });
}

void ServedSite::TellUpstream(absl::string_view words) {
  strand_->Report([&](coordinator::Coordinator& coordinator, absl::Time now) {
    coordinator.TellUpstream(words, now);
  });
}

void ServedSite::OnUpstreamEnd(const absl::Status& outcome) {
  strand_->Report([&](coordinator::Coordinator& coordinator, absl::Time now) {
    coordinator.OnUpstreamEnd(outcome, now);
  });
}

}  // namespace lodestar::site
