// SPDX-License-Identifier: Apache-2.0

// BucketProtocol decides for one bucket: which contributions count, in which round and order, when
// the update follows, and how each call is answered. It is a pure state machine: events go in,
// effects and steps come out. It has no lock, thread, clock, callback or page. The owner gives each
// call an id.
//
//   collecting --(the policy says apply)--> committing --> [awaiting norm --> norm known] -->
//   updating --> collecting the next round
//      \---(not finite)--> closed
//
// If a bucket was summed before its process ended, it is "resummed" after the restart: it waits for
// the plan of its round before it is committing.
//
// A version counts the updates of the bucket. It can differ from the round:
// - If no contribution to a round has a weight above 0, there is no update and no new version.
// - If contributions are applied one by one, each worker counts its own rounds. Then the bucket
//   stays in the round that it began with, and only its version grows.
//
// After every event the owner carries out the effects, in order. Whenever the owner can work, it
// calls NextStep(), carries out the effects of that call, and then the step. It takes one step at a
// time. After the step it calls the method that is named in the comment of the step's kind.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/job/fragment_plan.h"
#include "common/job/job_spec.h"
#include "common/runtime/ids.h"
#include "server/optimizer/optimizer.h"
#include "server/shard/contribution.h"
#include "server/shard/dedup_table.h"
#include "server/shard/delayed_step.h"
#include "server/shard/norm_watch.h"
#include "server/shard/shard_roster.h"
#include "server/sync/bucket_policy.h"
#include "server/sync/worker_fault.h"

namespace lodestar::shard {

// A CallId names one push, contribution, read or capture until that call is answered.
using CallId = uint32_t;

struct BucketEffect {
  enum class Kind : uint8_t {
    kRequestSlot,        // request a slot for push `call`, then OnSlot()
    kDiscardPush,        // tell push `call` to send, and drop what it sends
    kRefusePush,         // answer push `call` with `status`
    kAcknowledge,        // answer contribution `call` with `outcome`
    kRefuse,             // answer contribution `call` with `status`
    kRead,               // answer read `call` with the weights
    kRefuseRead,         // answer read `call` with `status`
    kCapture,            // answer capture `call` with the state
    kRefuseCapture,      // answer capture `call` with `status`
    kRefuseReplacement,  // answer the replacement of weights with `status`
    kNotice,             // write `status` to the log
    kFault,              // report `fault` to the coordinator
  };
  Kind kind;
  CallId call = 0;
  bool in_turn = false;  // kRequestSlot: see StagingPool
  PushOutcome outcome = PushOutcome::kCounted;
  int64_t staleness = 0;
  absl::Status status = {};
  sync::WorkerFault fault = {};
};

struct BucketStep {
  enum class Kind : uint8_t {
    kNone,
    kAccumulate,   // add the contribution to the mean of its round
    kTakeWeights,  // take the contribution as the first weights, then OnTaken()
    kApplyAlone,   // update with the contribution, then OnUpdated()
    kSum,          // finish the mean and take the sum of its squares, then OnNorm()
    kApply,        // finish the mean and update with it if there is one, then OnUpdated()
    kSkip,         // the contribution counts with weight zero; it has no numbers
    kReplace,      // replace the weights by other weights, then OnReplaced()
  };
  Kind kind = Kind::kNone;
  CallId contribution = 0;
  Round round;           // round that the step belongs to
  int64_t weight = 0;    // kAccumulate: weight of the contribution in the round's mean
  float factor = 1.0f;   // kAccumulate: see MeanShare; for weights it does not include their scale
  float rescale = 1.0f;  // kSum, kApply: see ContributionMean::Finish()
  // kAccumulate, kApplyAlone: norm of the contribution, or of its change if it is weights. Set if
  // norms are watched.
  std::optional<double> norm = {};
  // Factor by which NormWatch scales. 1 means that it leaves the norm as it is.
  // - kAccumulate: it scales the contribution. `factor` includes it, unless the contribution is
  //   weights.
  // - kApplyAlone: it scales the contribution. `call` includes it.
  // - kSum, kApply: it scales the change of the mean if contributions are weights. For other
  //   contributions `rescale` includes it instead.
  float clip = 1.0f;
  bool has_update = false;
  optimizer::OptimizerCall call = {};
  // kApplyAlone: state of the delayed step after this contribution. Not set means that the
  // contribution is a whole step.
  std::optional<DelayedStep::Memory> delayed = {};
};

class BucketProtocol {
 public:
  struct Config {
    const sync::BucketPolicy* policy = nullptr;
    const job::JobSpec* job = nullptr;
    bool awaits_norm = false;     // updates wait for the norm of the whole gradient
    job::FragmentTurn turn = {};  // rounds in which the bucket takes part, if rounds have rosters
    // True: an element's mean is over the workers that sent the element, not over all workers.
    bool divides_by_senders = false;
    uint32_t bucket = 0;  // number of the bucket, for messages
  };
  // The job and the policy in `config` must outlive the object.
  explicit BucketProtocol(const Config& config)
      : config_(config),
        watch_(config.job->norm_limit, config.policy->uses_rosters()
                                           ? NormWatch::kMinContributions
                                           : NormWatch::kMinContributionsAlone) {}

  // Makes the bucket wait for first weights from a client, sent as contributions of kind
  // kInitialWeights.
  void AwaitClientWeights() { awaits_client_ = true; }
  // Must be called when the bucket has weights. They were loaded, or restored with the table of
  // counted contributions. The bucket collects `round`, which is the cluster's next round.
  void OnWeights(Round round, Version version, const std::vector<CountedWorker>& counted,
                 const UsualNorm& usual_norm = {}, const DelayedStep::Memory& delayed = {});
  // Must be called with the roster when its members or round plans have changed.
  void OnRoster(std::shared_ptr<const RosterView> roster);
  const std::shared_ptr<const RosterView>& roster() const { return roster_; }
  // Closes the bucket: all calls, and all later ones, are answered with `status`.
  void Close(const absl::Status& status);

  // Repeats a step that an earlier process took before it ended. `key` is the key of the step's
  // contribution if it has one. Decides nothing and answers no call. Steps are replayed in order,
  // after OnWeights() if there were weights, and before any other event. Returns false if the
  // weights already include the step. Errors: DataLoss if steps before it are missing.
  absl::StatusOr<bool> Replay(const BucketStep& step, const ContributionKey& key);

  // Handles a call of a worker that wants to send a contribution. The form of `key` is checked
  // already.
  void OnPush(CallId push, const ContributionKey& key);
  // Must be called when the push has got the slot that it requested. This answers the push, and its
  // id is free.
  void OnSlot(CallId push);
  // Must be called when a contribution has arrived completely and its numbers may be counted.
  // `norm` is set if norms are watched.
  void OnArrived(CallId contribution, const ContributionKey& key, std::optional<double> norm = {});
  // Handles a read. The weights that are read must include all rounds before `min_round`.
  void OnRead(CallId read, WorkerId worker, Incarnation incarnation, Round min_round);
  // Handles a capture of the state exactly when `round` begins. If `round` is not set, the current
  // state is captured.
  void OnCapture(CallId capture, std::optional<Round> round);
  // Handles a request to replace the weights that `round` begins with. Optimizer state and version
  // stay. Only one replacement may wait at a time.
  void OnReplacement(Round round);
  // These two methods forget a call that no caller waits for any more. Its id is free.
  void ForgetPush(CallId push);
  void ForgetRead(CallId read);
  // Must be called now and then. Pushes and waiting reads of incarnations that are not announced
  // yet are held:
  // - A call that is held for more than kMaxTicks ticks is told to try again.
  // - At most kMaxUnannounced calls are held in all, and kMaxUnannouncedOfWorker of one worker.
  //   Further calls are told to try again at once.
  void OnTick();

  // Returns the step to do next. kNone means that there is no step before the next event.
  BucketStep NextStep();
  // Returns true if NextStep() would return a step. Call after OnTick().
  bool WantsStep() const { return phase_ == Phase::kCommitting; }
  // Must be called when the contribution `key` is taken. If it is weights, the bucket begins with
  // them, at version key.base_version.
  void OnTaken(CallId contribution, const ContributionKey& key, const absl::Status& status);
  void OnReplaced();
  // Must be called with the result of kSum: the sum of squares over all buckets of all shards,
  // which is finite, or an error. After an error, kSum is a step again after the next tick.
  void OnNorm(Round round, const absl::StatusOr<double>& total_square_sum);
  // Must be called when the update is done, if all numbers are finite after it. If they are not,
  // the owner closes the bucket instead.
  void OnUpdated();

  // Returns the effects that the caller has not taken yet. The caller empties the vector. If it
  // does so by clear(), the vector keeps its memory for later effects.
  std::vector<BucketEffect>& effects() { return effects_; }

  bool has_weights() const { return has_weights_; }
  bool awaits_client() const { return awaits_client_; }
  // Returns true while weights or state are being written, so that no thread may read them.
  bool is_writing() const { return is_writing_; }
  Round round() const { return round_; }
  Version version() const { return version_; }
  bool has_contributions() const { return !contributed_.empty(); }
  // Returns the table of counted contributions of the published version.
  std::vector<CountedWorker> counted() const { return counted_.Published(); }
  // Returns the state of the delayed step after the published version.
  const DelayedStep::Memory& delayed() const { return delayed_.memory(); }
  // Returns the usual norm, computed from the rounds that the published version includes.
  const UsualNorm& usual_norm() const { return watch_.usual(); }
  // Returns the workers of the round's roster that are alive and not counted.
  std::vector<WorkerId> Missing() const;
  // Returns true if the bucket needs nothing more from the worker for this round:
  // - The bucket has counted the worker's contribution.
  // - The bucket no longer collects the round.
  // - The bucket takes no part in the round, or is closed.
  bool IsSettled(Round round, WorkerId worker) const;
  // Returns a message for operators that says which workers the bucket waits for. It is empty if
  // the bucket waits for no worker.
  std::string WaitingFor() const;

 private:
  static constexpr int kMaxTicks = 2;
  static constexpr int kMaxUnannounced = 256;
  static constexpr int kMaxUnannouncedOfWorker = 8;
  // If contributions are applied one by one, the norms of this number of contributions are compared
  // as if they were one round.
  static constexpr int kWatchedTogether = 8;
  enum class Phase : uint8_t {
    kCollecting,
    kResummed,
    kCommitting,
    kAwaitingNorm,
    kNormKnown,
    kUpdating,
  };

  struct Push {
    CallId call;
    ContributionKey key;
    bool has_request = false;
    int ticks = 0;  // number of ticks during which the worker's incarnation was unannounced
  };
  struct Held {
    CallId call;
    ContributionKey key;
    std::optional<double> norm = {};
    int ticks = 0;
  };
  struct Read {
    CallId call;
    WorkerId worker;
    Incarnation incarnation;
    Round min_round;
    int ticks = 0;  // number of ticks during which the worker's incarnation was unannounced
  };
  struct Capture {
    CallId call;
    std::optional<Round> round;
  };
  // RoundFacts are what the policy is told about a round.
  struct RoundFacts {
    std::shared_ptr<const sync::RoundPlan> plan;
    std::vector<WorkerId> live;
  };

  RoundFacts FactsOf(Round round) const;
  sync::BucketFacts Facts() const;
  // Returns the facts for a push. If the policy has ended the present round, the facts are those of
  // the next round, even before the update is done.
  sync::BucketFacts FactsForPush() const;
  sync::Decision Judge(const ContributionKey& key, const sync::BucketFacts& facts) const;
  // Checks that the bucket accepts this contribution now. First weights are accepted only while
  // there are no weights, and all other contributions only when there are weights.
  absl::Status CheckOpen(const ContributionKey& key) const;

  bool IsUnannounced(WorkerId worker, Incarnation incarnation) const;
  // Checks that another call of this incarnation may be held. Errors: Unavailable (the incarnation
  // is not announced, and too many calls of such incarnations are held already).
  absl::Status CheckRoomFor(WorkerId worker, Incarnation incarnation) const;

  // Returns true if the push is answered. A push that has requested a slot is not answered yet.
  bool AnswerPush(Push& push, const sync::BucketFacts& facts);
  bool AnswerRead(const Read& read);
  bool AnswerCapture(const Capture& capture);
  void Review();
  void Answer(CallId contribution, const absl::StatusOr<PushOutcome>& answer);
  BucketStep StepOfPhase();
  BucketStep StepOfReplacement();
  BucketStep StepOfHeld();
  BucketStep TakeWeights(const Held& held);
  BucketStep Count(const Held& held, const sync::Decision& decision);
  // Checks that the program's rate is that of the round's earlier contributions. Errors:
  // FailedPrecondition with both rates.
  absl::Status CheckRate(const ContributionKey& key) const;
  // Checks that the contribution has a weight of its program if, and only if, the round's earlier
  // contributions have one. Errors: FailedPrecondition.
  absl::Status CheckWeight(const ContributionKey& key) const;
  // Remembers what the later contributions of the round are compared with.
  void RememberProgram(const ContributionKey& key);
  // Returns the sum of the weights that the round is expected to have. If programs give the
  // weights, all are expected to equal the first, so that equal contributions have equal factors.
  int64_t PlannedWeight() const;
  // Returns the rate of the round's step.
  double LearningRate() const;
  // Completes a step that applies the contribution alone.
  void ApplyAlone(const ContributionKey& key, int64_t staleness, BucketStep& step);
  BucketStep Skip(const Held& held, const sync::Decision& decision);
  // Ends collecting: the policy has decided that the round has all its contributions.
  void EndCollecting();
  void AddContributor(WorkerId worker, int64_t weight);
  // Returns true if the job has no other contributions to compare the norm of a contribution with.
  bool IsAlone() const;
  void EndWatchedRound();
  bool HasReplayed(const BucketStep& step, const ContributionKey& key) const;

  const Config config_;
  std::vector<BucketEffect> effects_;

  absl::Status closed_;
  bool awaits_client_ = false;
  bool has_weights_ = false;
  std::optional<std::pair<WorkerId, Incarnation>> supplier_;
  std::set<uint32_t> supplied_;  // ContributionKey::state_vector of what supplier_ has supplied
  std::shared_ptr<const RosterView> roster_ = std::make_shared<const RosterView>();

  Phase phase_ = Phase::kCollecting;
  bool is_writing_ = false;
  Round round_;
  Version version_;
  RoundFacts now_;                     // facts of round_
  RoundFacts next_;                    // facts of round_ + 1, in phases other than kCollecting
  std::vector<WorkerId> contributed_;  // workers that contributed to this round, ascending
  int64_t arrived_weight_ = 0;
  // Learning rate of the round's first contribution that has one. The round's step uses it.
  std::optional<double> program_rate_;
  // Weight that the program of the round's first contribution has given it, or null if the program
  // has given none. Not set before the first contribution.
  std::optional<std::optional<int64_t>> first_weight_;
  bool is_rescaled_ = false;  // `rescale` was applied to this round already
  float clip_scale_ = 1.0f;
  std::string norm_error_;
  DedupTable counted_;
  DelayedStep delayed_;
  NormWatch watch_;

  std::vector<Push> pushes_;
  std::vector<Held> held_;  // held contributions, by round, then worker
  std::vector<Read> reads_;
  std::vector<Capture> captures_;
  std::optional<Round> replacement_;  // round of OnReplacement(), while it waits
  bool needs_review_ = false;         // pushes_, reads_ and captures_ must be reviewed
  bool roster_changed_ = false;       // the policy must be asked again
};

}  // namespace lodestar::shard
