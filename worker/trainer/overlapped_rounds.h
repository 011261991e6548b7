// Rounds whose exchange is under way while the worker computes (local_sgd with --fragments,
// --overlap_steps, --overlap_rounds or --outer_optimizer=easgd). A grant's local steps are a
// *window*. On the grant of a round the worker contributes what it has computed in the windows
// before. It begins the grant's window, and reports once the servers have acknowledged. Meanwhile
// the weights after the round come. After --overlap_steps steps of the window they are merged into
// the worker's own (WeightsMerge).
//
//   grant r:   | contribute | window r ..... merge of round r ..... |
//              | push ... acknowledged: report r, ask for grant r + 1 | contribute | window r + 1
//              | pull the weights after round r .....|
//
// With fragments a round exchanges a part of the parameters (FragmentPlan). Its contribution is the
// change since that part was merged last.
//
// The windows run on a thread of their own. While a window runs, only that thread uses the device.
// While none runs, only Run() uses it. A life that ends, or a round that is not the next one, voids
// what is in hand, and the next round begins with all weights anew. A connection that is lost voids
// nothing.
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
  static absl::StatusOr<std::unique_ptr<OverlappedRounds>> Create(const JobSpec& job,
                                                                  const RoundRunnerDeps& deps);
  ~OverlappedRounds() override;

  absl::Status PullWeights(const LifeContext& life, Round min_round) override;
  absl::Status KeepOptimizerState() override;
  void EndLife() override;

 private:
  // What a window is computed with. It outlives the life and the Run() that have begun it.
  struct Window {
    Grant grant;
    uint64_t server_incarnation = 0;
    data::SampleOrder order;
    double clip_norm = 0.0;
    std::function<bool()> is_over;
    std::vector<uint32_t> due;  // The buckets of the exchange that is merged in the window.
  };
  // A contribution that the servers have.
  struct Acknowledged {
    // Its residual is to learn of the acknowledgement. Null means that nothing was contributed.
    ContributionBytes* contributed = nullptr;
    std::vector<uint32_t> late;  // The buckets that were not counted.
  };
  // The outcome of a window.
  struct Outcome {
    absl::Status status;
    RoundReport sums;         // The losses and samples.
    absl::Duration computed;  // It lacks the time that the window waited for the servers.
    // The time that the window waited for the servers, with nothing to compute.
    absl::Duration waited;
    absl::Time begun_at;
    absl::Time ended_at;
  };
  // The life that the worker's own weights belong to.
  struct Progress {
    uint64_t server_incarnation = 0;
    WorkerLife life;
    Round next_round;
  };
  struct Connection {
    std::shared_ptr<const Registration> registration;
    client::ParameterTransport* transport = nullptr;
  };
  class Versions final : public BaseVersions {
   public:
    Version version(uint32_t bucket) override { return versions_[bucket]; }
    void Set(uint32_t bucket, Version version) { versions_[bucket] = version; }
    void Reset(std::vector<Version> versions) { versions_ = std::move(versions); }

   private:
    std::vector<Version> versions_;  // by bucket
  };

  OverlappedRounds(const JobSpec& job, const RoundRunnerDeps& deps)
      : RoundRunner(deps), job_(job), contribution_kind_(RoundContributionKind(job)) {}

  absl::StatusOr<RoundReport> RunRound(const LifeContext& life, const Grant& grant) override;
  absl::Status PushKept(const LifeContext& life, const MadeContribution& made) override;
  absl::StatusOr<RoundReport> Evaluate(const LifeContext& life, const Grant& grant);

  bool GoesOn(const LifeContext& life, Round round) const;
  // Ends the window under way, whatever it has, and forgets the worker's own weights.
  void Abandon();
  // Does the same as Abandon(), but does not tell the residual. Returns what the residual has not
  // learned of yet.
  std::optional<Acknowledged> StopWindow();
  // Takes all weights from the servers.
  absl::Status Begin(const LifeContext& life, Round min_round, RoundReport* report);
  // Waits for the end of the window, if one is under way. Adds what the window has computed to
  // *report.
  absl::Status EndWindow(RoundReport* report);
  // Evaluates with the weights that the servers have, not with the worker's own.
  absl::Status EvaluateGlobal(const LifeContext& life, const Grant& grant, RoundReport* report);
  // Puts what is in hand of these buckets into `push`.
  absl::Status Contribute(const LifeContext& life, const Grant& grant,
                          const std::vector<uint32_t>& due, std::optional<ContributionPush>& push);
  void StartWindow(const LifeContext& life, const Grant& grant, std::vector<uint32_t> due);
  // Keeps the acknowledgement. The residual learns of it when the exchange is merged, or given up.
  void OnAcknowledged(Acknowledged acknowledged);
  static void Learn(const Acknowledged& acknowledged);

  // The methods from here to AwaitPull() run on the thread of the window.
  void RunWindow(const Window& window);
  absl::Status RunSteps(const Window& window, Outcome& outcome, ExposedWait& exposed);
  absl::Status Merge(const Window& window, ExposedWait& exposed);
  // Returns the weights after the round. It waits for them over as many connections as it takes.
  absl::StatusOr<std::shared_ptr<WeightsPull>> AwaitPull(const Window& window);
  std::shared_ptr<WeightsPull> BeginPull(Round round, const std::vector<uint32_t>& due)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SetWaiting(bool waits) ABSL_LOCKS_EXCLUDED(mutex_);

  std::vector<ElementRange> RangesOf(const std::vector<uint32_t>& due) const;
  int64_t SamplesInHand() const;

  const JobSpec job_;
  const ContributionKind contribution_kind_;
  std::unique_ptr<LocalSteps> steps_;
  model::DeviceMemory global_memory_;
  model::DeviceMemory contributed_memory_;
  kernels::Buf global_;       // See WeightsMerge.
  kernels::Buf contributed_;  // See WeightsMerge.
  std::unique_ptr<WeightsMerge> merge_;
  std::optional<SkippedContribution> skipped_;  // It is set once.

  std::optional<Progress> progress_;
  std::shared_ptr<const Registration> registration_;  // The registration of that life.
  std::optional<FragmentPlan> fragments_;             // The fragments of its buckets.
  Versions versions_;                                 // The versions of what global_ has.
  std::deque<int64_t> window_samples_;  // The samples of windows that are not in all fragments yet.
  std::thread window_thread_;
  absl::Time last_run_ended_at_ = absl::InfinitePast();

  absl::Mutex mutex_;
  std::optional<Connection> connection_ ABSL_GUARDED_BY(mutex_);
  // The pull of the exchange under way.
  std::shared_ptr<WeightsPull> pull_ ABSL_GUARDED_BY(mutex_);
  // The acknowledgement of the exchange under way. Its residual has not learned of it yet.
  std::optional<Acknowledged> acknowledged_ ABSL_GUARDED_BY(mutex_);
  bool is_abandoned_ ABSL_GUARDED_BY(mutex_) = false;
  bool waits_for_servers_ ABSL_GUARDED_BY(mutex_) = false;
  // The outcome of the window that has ended.
  std::optional<Outcome> outcome_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lodestar::trainer
