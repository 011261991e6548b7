// BucketProtocol decides for one bucket: which contributions count, in which round and order, when
// the update follows, and which call gets which answer. It is a pure state machine: events go in,
// effects and steps come out. It has no lock, thread, clock, callback or page; calls are known by
// the ids that the owner gives them.
//
//   collecting --(the policy says apply)--> committing --> [awaiting norm --> norm known] -->
//   updating --> collecting the next round
//      \---(not finite)--> closed
//
// A bucket that was summed before its process ended is resummed: it waits for the plan of its round
// before it is committing.
//
// A round is an exchange; a version counts updates. A round without any contribution is over
// without an update and makes no version. Where contributions are applied alone, rounds are the
// workers' own: the bucket stays in the round it has begun with and counts versions only.
//
// The owner carries out the effects after every event, in order. Whenever it can work, it asks for
// the next step, carries out the effects of that call first, and takes one step at a time. The
// event that the step's kind names follows the step.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
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

// A CallId names one push, contribution, read or capture until it is answered.
using CallId = uint32_t;

struct BucketEffect {
  enum class Kind : uint8_t {
    kRequestSlot,        // for push `call`, which then is OnSlot(); once more if it is in turn now
    kDiscardPush,        // push `call` may send, but counts nothing: `outcome`
    kRefusePush,         // answer push `call` with `status`
    kAcknowledge,        // contribution `call`: `outcome`; counted at `staleness`
    kRefuse,             // contribution `call` is not counted: `status`
    kRead,               // answer read `call` with the weights
    kRefuseRead,         // ... with `status`
    kCapture,            // answer capture `call` with the state
    kRefuseCapture,      // ... with `status`
    kRefuseReplacement,  // of weights: `status`
    kNotice,             // for the log: `status`
    kFault,              // for the coordinator: `fault`
  };
  Kind kind;
  CallId call = 0;
  bool in_turn = false;  // kRequestSlot: see StagingPool
  PushOutcome outcome = PushOutcome::kCounted;
  int64_t staleness = 0;
  absl::Status status = {};
  WorkerFault fault = {};
};

struct BucketStep {
  enum class Kind : uint8_t {
    kNone,
    kAccumulate,   // the contribution counts in the mean of its round
    kTakeWeights,  // the contribution is the first weights: then OnTaken()
    kApplyAlone,   // update with the contribution: then OnUpdated()
    kSum,          // the mean is finished, and its squares are wanted: then OnNorm()
    kApply,        // the mean is finished; update with it, or with nothing: then OnUpdated()
    kSkip,         // the contribution counts, with weight zero and no numbers
    kReplace,      // other weights take the place of those there are: then OnReplaced()
  };
  Kind kind = Kind::kNone;
  CallId contribution = 0;
  Round round;           // that it belongs to
  int64_t weight = 0;    // kAccumulate: of the contribution in the round's mean
  float factor = 1.0f;   // kAccumulate: see MeanShare; of weights without their scale
  float rescale = 1.0f;  // kSum, kApply: see ContributionMean::Finish()
  // kAccumulate, kApplyAlone: of the contribution, if norms are watched; of weights, that of their
  // change.
  std::optional<double> norm = {};
  // This is what the watch scales by. In kAccumulate and kApplyAlone it scales the contribution;
  // `factor` and `call` have it already. In kSum and kApply it scales the change of their mean, if
  // contributions are weights; otherwise `rescale` has it.
  float clip = 1.0f;
  bool has_update = false;
  optimizer::OptimizerCall call = {};
  // kApplyAlone, where that makes a part of a step: how far the step is after it.
  std::optional<DelayedStep::Memory> delayed = {};
};

class BucketProtocol {
 public:
  struct Config {
    const BucketPolicy* policy = nullptr;
    const JobSpec* job = nullptr;
    bool awaits_norm = false;  // updates wait for the norm of the whole gradient
    FragmentTurn turn = {};    // where rounds have rosters
    // The mean is that of the workers that sent an element, so that a missing worker leaves no gap.
    bool divides_by_senders = false;
    uint32_t bucket = 0;  // for texts
  };
  // Both outlive the object.
  explicit BucketProtocol(const Config& config)
      : config_(config),
        watch_(config.job->norm_limit, config.policy->uses_rosters()
                                           ? NormWatch::kMinContributions
                                           : NormWatch::kMinContributionsAlone) {}

  // Weights come from a client, as contributions of kind kInitialWeights.
  void AwaitClientWeights() { awaits_client_ = true; }
  // There are weights: loaded, or restored with the table of what they hold. The bucket collects
  // `round`, which is the cluster's next.
  void OnWeights(Round round, Version version, const std::vector<CountedWorker>& counted,
                 const UsualNorm& usual_norm = {}, const DelayedStep::Memory& delayed = {});
  // Members or plans have changed.
  void OnRoster(std::shared_ptr<const RosterView> roster);
  const std::shared_ptr<const RosterView>& roster() const { return roster_; }
  // Every call is answered with `status`, those to come too.
  void Close(const absl::Status& status);

  // Repeats a step that was taken before, in a process that has ended. `key` is the key of the
  // step's contribution if it has one. Nothing is decided and no call is answered. Steps are
  // replayed in order, after OnWeights() if there were weights, and before anything else. False
  // means that the weights have the step already. Errors: DataLoss if steps before it are missing.
  absl::StatusOr<bool> Replay(const BucketStep& step, const ContributionKey& key);

  // A worker wants to send a contribution, whose form is right.
  void OnPush(CallId push, const ContributionKey& key);
  // The slot asked for is there: the push is answered, and its id free.
  void OnSlot(CallId push);
  // A contribution is whole and its numbers are fit to be counted. `norm` is set if norms are
  // watched.
  void OnArrived(CallId contribution, const ContributionKey& key, std::optional<double> norm = {});
  // The rounds before `min_round` must be over in the weights that are read.
  void OnRead(CallId read, WorkerId worker, Incarnation incarnation, Round min_round);
  // The state exactly when `round` begins, or as it is.
  void OnCapture(CallId capture, std::optional<Round> round);
  // Weights from elsewhere are to take the place of those that `round` begins with; optimizer state
  // and version stay. One at a time.
  void OnReplacement(Round round);
  // No caller waits for the answer any more; the id is free.
  void ForgetPush(CallId push);
  void ForgetRead(CallId read);
  // Some time has passed. A call that pushes, or waits to read, is held while its worker's life has
  // not been announced. If that lasts for more than kMaxTicks of these ticks, the call is told to
  // try again. Calls beyond kMaxUnannounced, and beyond kMaxUnannouncedOfWorker of one worker, are
  // told so at once.
  void OnTick();

  // Returns what is to be done next. kNone means nothing before the next event.
  BucketStep NextStep();
  // Returns, after OnTick(), whether there is a step.
  bool WantsStep() const { return phase_ == Phase::kCommitting; }
  void OnTaken(CallId contribution, const absl::Status& status);
  void OnReplaced();
  // The sum of squares over all buckets of all shards, finite; or why there is none: then kSum is a
  // step again after the next tick.
  void OnNorm(Round round, const absl::StatusOr<double>& total_square_sum);
  // The numbers after it are finite; otherwise the owner closes the bucket.
  void OnUpdated();

  // Returns the effects since the last call. The owner may keep the vector's space for the next.
  std::vector<BucketEffect>& effects() { return effects_; }

  bool has_weights() const { return has_weights_; }
  bool awaits_client() const { return awaits_client_; }
  // True while weights or state are being written, so that no thread may read them.
  bool is_writing() const { return is_writing_; }
  Round round() const { return round_; }
  Version version() const { return version_; }
  bool has_contributions() const { return !contributed_.empty(); }
  // Rows of the published version.
  std::vector<CountedWorker> counted() const { return counted_.Published(); }
  // Returns the memory after the published version.
  const DelayedStep::Memory& delayed() const { return delayed_.memory(); }
  // Returns the usual norm by the rounds that the published version has.
  const UsualNorm& usual_norm() const { return watch_.usual(); }
  // Returns the workers of the round's roster that are alive and not counted.
  std::vector<WorkerId> Missing() const;
  // Whether the worker's part of the round is here, or none is due, or the round is over without
  // it.
  bool IsSettled(Round round, WorkerId worker) const;
  // Returns a text for people. It is empty if the bucket waits for no worker.
  std::string WaitingFor() const;

 private:
  static constexpr int kMaxTicks = 2;
  static constexpr int kMaxUnannounced = 256;
  static constexpr int kMaxUnannouncedOfWorker = 8;
  // Where contributions are applied alone, norms of so many are compared as if they were a round.
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
    int ticks = 0;  // that its life has not been announced for
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
    int ticks = 0;  // that its life has not been announced for
  };
  struct Capture {
    CallId call;
    std::optional<Round> round;
  };
  // RoundFacts are what the policy is told of a round.
  struct RoundFacts {
    std::shared_ptr<const RoundPlan> plan;
    std::vector<WorkerId> live;
  };

  RoundFacts FactsOf(Round round) const;
  BucketFacts Facts() const;
  // The round that is decided, whose update is under way, is over for them.
  BucketFacts FactsForPush() const;
  Decision Judge(const ContributionKey& key, const BucketFacts& facts) const;
  // Refuses what comes before there are weights, or after.
  absl::Status CheckOpen(const ContributionKey& key) const;

  bool IsUnannounced(WorkerId worker, Incarnation incarnation) const;
  // Unavailable if this life is not announced, and too many such calls are held already.
  absl::Status CheckRoomFor(WorkerId worker, Incarnation incarnation) const;

  // Returns true if the push is answered. A push that has asked for a slot is not answered yet.
  bool AnswerPush(Push& push, const BucketFacts& facts);
  bool AnswerRead(const Read& read);
  bool AnswerCapture(const Capture& capture);
  void Review();
  void Answer(CallId contribution, const absl::StatusOr<PushOutcome>& answer);
  BucketStep StepOfPhase();
  BucketStep StepOfReplacement();
  BucketStep StepOfHeld();
  BucketStep TakeWeights(const Held& held);
  BucketStep Count(const Held& held, const Decision& decision);
  // The rest of a step that applies the contribution alone.
  void ApplyAlone(const ContributionKey& key, int64_t staleness, BucketStep& step);
  BucketStep Skip(const Held& held, const Decision& decision);
  // The policy has decided that the round has all of its contributions.
  void EndCollecting();
  void AddContributor(WorkerId worker, int64_t weight);
  // Whether there is no other contribution to compare one with.
  bool IsAlone() const;
  void EndWatchedRound();
  bool HasReplayed(const BucketStep& step, const ContributionKey& key) const;

  const Config config_;
  std::vector<BucketEffect> effects_;

  absl::Status closed_;
  bool awaits_client_ = false;
  bool has_weights_ = false;
  std::optional<std::pair<WorkerId, Incarnation>> supplier_;
  std::shared_ptr<const RosterView> roster_ = std::make_shared<const RosterView>();

  Phase phase_ = Phase::kCollecting;
  bool is_writing_ = false;
  Round round_;
  Version version_;
  RoundFacts now_;                     // of round_
  RoundFacts next_;                    // of round_ + 1, in phases other than kCollecting
  std::vector<WorkerId> contributed_;  // in this round, ascending
  int64_t arrived_weight_ = 0;
  bool is_rescaled_ = false;  // the sum is the mean of those that came
  float clip_scale_ = 1.0f;
  std::string norm_error_;
  DedupTable counted_;
  DelayedStep delayed_;
  NormWatch watch_;

  std::vector<Push> pushes_;
  std::vector<Held> held_;  // by round, then worker
  std::vector<Read> reads_;
  std::vector<Capture> captures_;
  std::optional<Round> replacement_;  // that new weights are for, until kReplace is a step
  bool needs_review_ = false;         // of pushes_, reads_, captures_
  bool roster_changed_ = false;       // ask OnRosterChange
};

}  // namespace lodestar::shard
