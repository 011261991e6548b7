// SPDX-License-Identifier: Apache-2.0

// OverlappedRounds carries out rounds whose exchange runs while the worker computes (local_sgd with
// --fragments, --overlap_steps, --overlap_rounds or --outer_optimizer=easgd). The local steps of a
// grant are a *window*. When round r is granted, the worker
// - contributes the result of earlier windows;
// - begins window r on another thread, and begins to pull the weights after round r;
// - reports round r once the servers have acknowledged the contribution.
// The pulled weights are merged into the worker's own weights (WeightsMerge) during window r, after
// --overlap_steps steps. With --overlap_rounds or easgd they are merged at its end.
//
//   grant r:   | contribute | window r ..... merge of round r ..... |
//              | push ... acknowledged: report r, ask for grant r + 1 | contribute | window r + 1
//              | pull the weights after round r .....|
//
// With fragments, a round exchanges only a part of the parameters (FragmentPlan). A contribution
// has the weights of this part, or their change since they were last merged.
//
// While a window runs, only its thread uses the device. Otherwise only Run() uses the device.
//
// Steps that are not yet contributed are dropped if the life ends, or if a granted round does not
// follow the last one. The next round then begins with all weights from the servers. A lost
// connection drops nothing.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/job/fragment_plan.h"
#include "common/job/job_spec.h"
#include "common/messages/contribution.h"
#include "common/params/layout.h"
#include "worker/data/sample_order.h"
#include "worker/model/device_memory.h"
#include "worker/trainer/exposed_wait.h"
#include "worker/trainer/local_steps.h"
#include "worker/trainer/round_runner.h"
#include "worker/trainer/skipped_contribution.h"
#include "worker/trainer/weights_merge.h"

namespace lodestar::trainer {

class OverlappedRounds final : public RoundRunner {
 public:
  // Errors: ResourceExhausted.
  static absl::StatusOr<std::unique_ptr<OverlappedRounds>> Create(const job::JobSpec& job,
                                                                  const RoundRunnerDeps& deps);
  ~OverlappedRounds() override;

  absl::Status PullWeights(const LifeContext& life, Round min_round) override;
  absl::Status KeepOptimizerState() override;
  void EndLife() override;

 private:
  // The inputs of a window. A window may outlive the life and the call of Run() in which it began.
  struct Window {
    messages::Grant grant;
    uint64_t server_incarnation = 0;
    data::SampleOrder order;
    double clip_norm = 0.0;
    std::function<bool()> is_over;
    // The buckets whose new weights are merged during the window.
    std::vector<uint32_t> due;
  };
  // A contribution that the servers have acknowledged.
  struct Acknowledged {
    // The contribution whose residual must be updated. Null means that nothing was contributed.
    ContributionBytes* contributed = nullptr;
    std::vector<uint32_t> late;  // The buckets that were not counted.
  };
  // The result of a window.
  struct Outcome {
    absl::Status status;
    messages::RoundReport sums;  // Losses and samples.
    // The time that the window took, without `waited`.
    absl::Duration computed;
    // The time in which the device had nothing to compute, because the window waited for servers.
    absl::Duration waited;
    absl::Time begun_at;
    absl::Time ended_at;
  };
  // Says what the worker's own weights belong to: the servers, the life, and the next round.
  struct Progress {
    uint64_t server_incarnation = 0;
    messages::WorkerLife life;
    Round next_round;
  };
  struct Connection {
    std::shared_ptr<const messages::Registration> registration;
    client::ParameterTransport* transport = nullptr;
  };
  class Versions final : public BaseVersions {
   public:
    Version version(uint32_t bucket) override { return versions_[bucket]; }
    void Set(uint32_t bucket, Version version) { versions_[bucket] = version; }
    void Reset(std::vector<Version> versions) { versions_ = std::move(versions); }

   private:
    std::vector<Version> versions_;  // One entry per bucket.
  };

  OverlappedRounds(const job::JobSpec& job, const RoundRunnerDeps& deps)
      : RoundRunner(deps), job_(job), contribution_kind_(messages::RoundContributionKind(job)) {}

  absl::StatusOr<messages::RoundReport> RunRound(const LifeContext& life,
                                                 const messages::Grant& grant) override;
  absl::Status PushKept(const LifeContext& life, const MadeContribution& made) override;
  absl::StatusOr<messages::RoundReport> Evaluate(const LifeContext& life,
                                                 const messages::Grant& grant);

  bool GoesOn(const LifeContext& life, Round round) const;
  // Stops the window, and drops its result and the worker's own weights. If the servers have
  // acknowledged the exchange, updates the residual.
  void Abandon();
  // Does the same as Abandon(), but does not update the residual. Instead returns the
  // acknowledgement that the residual must be updated with, if there is one.
  std::optional<Acknowledged> StopWindow();
  // Pulls all weights from the servers, and starts again from these weights.
  absl::Status Begin(const LifeContext& life, Round min_round, messages::RoundReport* report);
  // If a window runs, waits for its end and adds its result to *report.
  absl::Status EndWindow(messages::RoundReport* report);
  // Evaluates the servers' weights, not the worker's own weights.
  absl::Status EvaluateGlobal(const LifeContext& life, const messages::Grant& grant,
                              messages::RoundReport* report);
  // Pushes the weights of the buckets in `due`, or the change of these weights since they were last
  // merged. Sets `push` to this contribution.
  absl::Status Contribute(const LifeContext& life, const messages::Grant& grant,
                          const std::vector<uint32_t>& due, std::optional<ContributionPush>& push);
  void StartWindow(const LifeContext& life, const messages::Grant& grant,
                   std::vector<uint32_t> due);
  // Stores the acknowledgement. The residual is updated only when the exchange is merged or
  // dropped.
  void OnAcknowledged(Acknowledged acknowledged);
  static void Learn(const Acknowledged& acknowledged);

  // The methods from here to AwaitPull() run on window_thread_.
  void RunWindow(const Window& window);
  absl::Status RunSteps(const Window& window, Outcome& outcome, ExposedWait& exposed);
  absl::Status Merge(const Window& window, ExposedWait& exposed);
  // Blocks until the servers have acknowledged the contribution, and the weights after the round
  // have arrived. Returns their pull. If the connection is lost, waits for the next connection and
  // pulls over it.
  absl::StatusOr<std::shared_ptr<WeightsPull>> AwaitPull(const Window& window);
  std::shared_ptr<WeightsPull> BeginPull(Round round, const std::vector<uint32_t>& due)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SetWaiting(bool waits) ABSL_LOCKS_EXCLUDED(mutex_);

  std::vector<params::ElementRange> RangesOf(const std::vector<uint32_t>& due) const;
  int64_t SamplesInHand() const;

  const job::JobSpec job_;
  const messages::ContributionKind contribution_kind_;
  std::unique_ptr<LocalSteps> steps_;
  model::DeviceMemory global_memory_;
  model::DeviceMemory contributed_memory_;
  kernels::Buf global_;       // WeightsMerge::Vectors::global.
  kernels::Buf contributed_;  // WeightsMerge::Vectors::contributed.
  std::unique_ptr<WeightsMerge> merge_;
  std::optional<SkippedContribution> skipped_;  // Set by Create().

  std::optional<Progress> progress_;
  std::shared_ptr<const messages::Registration>
      registration_;                            // The registration of progress_->life.
  std::optional<job::FragmentPlan> fragments_;  // The fragments of its buckets.
  Versions versions_;                           // The versions of the weights in global_.
  // The numbers of samples of the last windows, at most one window per fragment. A contribution has
  // the steps of all these windows.
  std::deque<int64_t> window_samples_;
  std::thread window_thread_;
  absl::Time last_run_ended_at_ = absl::InfinitePast();

  absl::Mutex mutex_;
  std::optional<Connection> connection_ ABSL_GUARDED_BY(mutex_);
  // The pull of the present exchange.
  std::shared_ptr<WeightsPull> pull_ ABSL_GUARDED_BY(mutex_);
  // The acknowledgement of the present exchange. It is set until the residual is updated.
  std::optional<Acknowledged> acknowledged_ ABSL_GUARDED_BY(mutex_);
  bool is_abandoned_ ABSL_GUARDED_BY(mutex_) = false;
  bool waits_for_servers_ ABSL_GUARDED_BY(mutex_) = false;
  // The result of the last window, once it has ended.
  std::optional<Outcome> outcome_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lodestar::trainer
