// The work that a worker holds, waits for and has done. Pure data.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <vector>

#include "absl/time/time.h"
#include "common/job/job_spec.h"
#include "common/messages/cluster_messages.h"
#include "common/runtime/ids.h"
#include "server/coordinator/stragglers/rate_meter.h"

namespace lodestar {

// What a report is of, or why it is refused.
struct ReportVerdict {
  enum class Kind : uint8_t {
    kCurrent,             // It is of the grant held.
    kRepeat,              // It is of a grant that was reported before.
    kTooManyPredictions,  // It has more than `allowed`, or more right ones than there are.
    kTooManySamples,      // It has more than `allowed`, or numbers below zero.
    kNotGranted,          // It is of another round than `granted`, and of none before.
  };
  Kind kind = Kind::kCurrent;
  int64_t allowed = 0;
  std::optional<Round> granted = std::nullopt;  // Not set means that the worker holds no grant.
  friend bool operator==(const ReportVerdict&, const ReportVerdict&) = default;
};

class WorkerAssignment {
 public:
  // What outlives the coordinator's process.
  struct Memory {
    bool is_waiting = false;
    bool is_leaving = false;
    std::optional<Grant> grant;
    int64_t last_granted = -1;
    int64_t last_reported = -1;
    int64_t progress = 0;
    uint64_t rounds_completed = 0;
    uint64_t residuals_lost = 0;  // processes that began without it; over all lives
    // When the worker's process began and registered. Not set means that it has contributed, or
    // that the time is not known.
    std::optional<absl::Time> process_began_at;
    std::optional<absl::Time> process_registered_at;
    // The times from then until the process contributed first.
    std::optional<absl::Duration> start_to_contribution;
    std::optional<absl::Duration> registration_to_contribution;
    // Where contributions are deferred: granted in this life and not in all fragments yet, the
    // newest last.
    std::vector<int64_t> samples_in_hand;
    friend bool operator==(const Memory&, const Memory&) = default;
  };
  // What the worker did lately with its time, by its reports.
  struct Rates {
    double samples_per_second = 0.0;
    double compute_share = 0.0;
    double communication_share = 0.0;  // exposed; see RoundReport
    double wait_share = 0.0;
    absl::Duration exposed_per_round;  // a mean
  };

  WorkerAssignment() = default;
  // The coordinator's process has ended, and this one goes on: what it has waited for begins anew.
  WorkerAssignment(Memory memory, absl::Time now);
  const Memory& memory() const { return memory_; }

  // Counts over all lives stay; those of the process, if it is the same one.
  void BeginLife(const RegisterCall& call, bool is_same_process, absl::Time now);
  void EndLife();
  // The worker has joined. The slowest member has completed `progress` rounds.
  void BeginMembership(int64_t progress, absl::Time now);

  // The worker asks for a grant, and waits until it gets one or its life ends. Returns whether it
  // had not waited.
  bool SetWaiting() {
    const bool was_waiting = memory_.is_waiting;
    memory_.is_waiting = !memory_.grant.has_value() && (!memory_.is_leaving || owes_contribution());
    return memory_.is_waiting != was_waiting;
  }
  // The worker wants no new work in this life.
  void BeginLeave() {
    memory_.is_leaving = true;
    memory_.is_waiting = memory_.is_waiting && owes_contribution();
  }
  bool is_waiting() const { return memory_.is_waiting; }
  bool is_leaving() const { return memory_.is_leaving; }
  void Give(const Grant& grant, absl::Time now);
  const std::optional<Grant>& grant() const { return memory_.grant; }
  absl::Time given_at() const { return given_at_; }
  // Since when the worker could have asked for work.
  absl::Time idle_since() const { return idle_since_; }

  // The server of a shard has all of the contribution to the grant held.
  void OnContributed(int shard) { contributed_to_.insert(shard); }
  // Whether the grant held is of this round, and fewer than `num_shards` servers have all of the
  // contribution to it.
  bool AwaitsContribution(Round round, int num_shards) const;
  // The server of a shard has attached and has told where its journal ends.
  void OnServerAttached(int shard) { attached_since_grant_.insert(shard); }
  // Returns true if the grant held is for training in this round, and the server of `shard` has
  // neither told that it has all of the contribution, nor attached since the grant was given.
  bool AwaitsJournal(Round round, int shard) const;
  bool AwaitsJournals(Round round, int num_shards) const;

  ReportVerdict Classify(const RoundReport& report, const JobSpec& job) const;
  // The grant held is done.
  void Complete(const RoundReport& report, const JobSpec& job, absl::Time now);
  // Samples that the contribution to the next round stands for.
  int64_t SamplesInHand() const;
  // Samples that were handed out to this life, and no report has told of yet.
  int64_t UnreportedSamples(const JobSpec& job) const;
  // Whether the worker computes, or has computed, what the next round is the first to take.
  bool owes_contribution() const {
    return !memory_.samples_in_hand.empty() && memory_.samples_in_hand.back() > 0;
  }
  // Returns true if the name has completed a round, in whatever life.
  bool has_completed_round() const { return memory_.rounds_completed > 0; }
  // Whether work was completed in this life.
  bool has_reported() const { return memory_.last_reported >= 0; }
  // Rounds completed in this life, from where the slowest member was when the worker joined.
  int64_t progress() const { return memory_.progress; }
  // Samples per second that the worker computes, by its reports. 0 before the first one. Of the
  // last few rounds the last one counts half.
  double compute_speed() const {
    return computed_seconds_ > 0.0 ? computed_samples_ / computed_seconds_ : 0.0;
  }

  Rates RatesAt(absl::Time now) const;

 private:
  void CountSpeed(const Grant& grant, const RoundReport& report);
  void CountTimes(const RoundReport& report);
  void CountStart(absl::Time now);

  Memory memory_;
  std::set<int> contributed_to_;  // shards whose servers have all that is due for the grant held
  std::set<int> attached_since_grant_;  // shards
  absl::Time given_at_ = absl::InfinitePast();
  absl::Time idle_since_ = absl::InfinitePast();
  RateMeter samples_;
  double computed_samples_ = 0.0;  // fading sums over the last rounds without an evaluation
  double computed_seconds_ = 0.0;
  double compute_seconds_ = 0.0;  // fading sums over the last rounds
  double communication_seconds_ = 0.0;
  double wait_seconds_ = 0.0;
  double timed_rounds_ = 0.0;  // rounds that the three are of, faded as they are
};

}  // namespace lodestar
