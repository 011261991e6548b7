// SPDX-License-Identifier: Apache-2.0

// The work that a worker holds, waits for or has done. Pure data.
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

namespace lodestar::rounds {

// Which grant a report is of, or why the report is refused.
struct ReportVerdict {
  enum class Kind : uint8_t {
    kCurrent,             // The report is of the grant that the worker holds.
    kRepeat,              // The report is of a grant that was reported before.
    kTooManyPredictions,  // More predictions than `allowed`, or more right ones than predictions.
    kTooManySamples,      // More samples than `allowed`, or a negative count.
    kNotGranted,          // The round of the report is not `granted`, and was not reported before.
  };
  Kind kind = Kind::kCurrent;
  int64_t allowed = 0;
  std::optional<Round> granted = std::nullopt;  // Not set means that the worker holds no grant.
  friend bool operator==(const ReportVerdict&, const ReportVerdict&) = default;
};

class WorkerAssignment {
 public:
  // What survives the coordinator's process.
  struct Memory {
    bool is_waiting = false;
    bool is_leaving = false;
    std::optional<messages::Grant> grant;
    // Number of samples that were handed out for `grant`, minus its num_samples. Grows with
    // OnExtended(). Negative means that the grant itself has no samples.
    int64_t num_extra_samples = 0;
    bool wants_no_samples = false;  // as the worker last asked
    int64_t last_granted = -1;
    int64_t last_reported = -1;
    int64_t progress = 0;
    uint64_t rounds_completed = 0;
    uint64_t residuals_lost = 0;  // processes that began without a residual, over all lives
    // Times when the worker's process began and when it registered. Not set means that the process
    // has contributed, or that the time is not known.
    std::optional<absl::Time> process_began_at;
    std::optional<absl::Time> process_registered_at;
    // Times from the start and from the registration of the process to its first contribution.
    std::optional<absl::Duration> start_to_contribution;
    std::optional<absl::Duration> registration_to_contribution;
    // Used with DefersContributions(). Has an entry for each grant of this life whose contribution
    // is not in all fragments yet: the number of its samples. The newest grant is last.
    std::vector<int64_t> samples_in_hand;
    friend bool operator==(const Memory&, const Memory&) = default;
  };
  // Speed of the worker in recent rounds, and how it spent its time, by its reports.
  struct Rates {
    double samples_per_second = 0.0;
    double compute_share = 0.0;
    double communication_share = 0.0;  // exposed; see RoundReport
    double wait_share = 0.0;
    absl::Duration exposed_per_round;  // exposed communication per round, a mean
  };

  WorkerAssignment() = default;
  // Continues from the memory of an earlier process of the coordinator. given_at() and idle_since()
  // are then `now`.
  WorkerAssignment(Memory memory, absl::Time now);
  const Memory& memory() const { return memory_; }

  // Begins a life. Resets everything except the counts over all lives. If `is_same_process`, does
  // not reset the times and the speed of the process.
  void BeginLife(const messages::RegisterCall& call, bool is_same_process, absl::Time now);
  void EndLife();
  // Records that the worker has joined. `progress` is the progress() of the slowest member.
  void BeginMembership(int64_t progress, absl::Time now);

  // Records that the worker asks for a grant. It then waits until it gets a grant or its life ends.
  // It does not wait in these cases:
  // - It holds a grant.
  // - It leaves and owes no contribution.
  // Returns true if the wait begins with this call.
  // `without_samples` means that it wants no samples with that grant.
  bool SetWaiting(bool without_samples = false) {
    memory_.wants_no_samples = without_samples;
    const bool was_waiting = memory_.is_waiting;
    memory_.is_waiting = !memory_.grant.has_value() && (!memory_.is_leaving || owes_contribution());
    return memory_.is_waiting != was_waiting;
  }
  // Records that the worker wants no new work in this life. It stops waiting for a grant, unless it
  // owes a contribution.
  void BeginLeave() {
    memory_.is_leaving = true;
    memory_.is_waiting = memory_.is_waiting && owes_contribution();
  }
  bool is_waiting() const { return memory_.is_waiting; }
  bool wants_no_samples() const { return memory_.wants_no_samples; }
  bool is_leaving() const { return memory_.is_leaving; }
  // `without_samples` means that no samples were handed out for the grant.
  void Give(const messages::Grant& grant, absl::Time now, bool without_samples = false);
  // Records that the worker got more samples for the grant that it holds.
  void OnExtended(int64_t num_samples) { memory_.num_extra_samples += num_samples; }
  const std::optional<messages::Grant>& grant() const { return memory_.grant; }
  absl::Time given_at() const { return given_at_; }
  // Returns the time since which the worker could have asked for work.
  absl::Time idle_since() const { return idle_since_; }

  // Records that the server of `shard` has the whole contribution to the grant that the worker
  // holds.
  void OnContributed(int shard) { contributed_to_.insert(shard); }
  // Returns true if the worker holds a grant of this round, and some of the `num_shards` servers
  // lack its whole contribution.
  bool AwaitsContribution(Round round, int num_shards) const;
  // Records that the server of `shard` has attached and has said where its journal ends.
  void OnServerAttached(int shard) { attached_since_grant_.insert(shard); }
  // Returns true if the report of this round must wait for the server of `shard`. This is so if the
  // worker holds a grant of this round for training, and since the grant the server has done
  // neither of the following:
  // - It has attached.
  // - It has reported that it has the whole contribution.
  bool AwaitsJournal(Round round, int shard) const;
  bool AwaitsJournals(Round round, int num_shards) const;

  ReportVerdict Classify(const messages::RoundReport& report, const job::JobSpec& job) const;
  // Completes the grant that the worker holds, as `report` says.
  void Complete(const messages::RoundReport& report, const job::JobSpec& job, absl::Time now);
  // Returns the number of samples that were used for the worker's contribution to the next round.
  int64_t SamplesInHand() const;
  // Returns the number of samples that the worker got in this life and has not reported yet.
  int64_t UnreportedSamples(const job::JobSpec& job) const;
  // Returns true if the worker has computed steps that no round has taken yet.
  bool owes_contribution() const {
    return !memory_.samples_in_hand.empty() && memory_.samples_in_hand.back() > 0;
  }
  // Returns true if a worker of this name has completed a round, in any life.
  bool has_completed_round() const { return memory_.rounds_completed > 0; }
  // Returns true if the worker has completed work in this life.
  bool has_reported() const { return memory_.last_reported >= 0; }
  // Returns the progress of the worker: the number of rounds that it has completed in this life,
  // plus the progress of the slowest member when it joined.
  int64_t progress() const { return memory_.progress; }
  // Returns the speed of the worker in samples per second, by its reports. The last round has half
  // of the weight. 0 means that it is not known yet.
  double compute_speed() const {
    return computed_seconds_ > 0.0 ? computed_samples_ / computed_seconds_ : 0.0;
  }

  Rates RatesAt(absl::Time now) const;

 private:
  void CountSpeed(const messages::Grant& grant, const messages::RoundReport& report);
  void CountTimes(const messages::RoundReport& report);
  void CountStart(absl::Time now);

  Memory memory_;
  std::set<int> contributed_to_;        // shards whose servers have all of the contribution
  std::set<int> attached_since_grant_;  // shards whose servers have attached
  absl::Time given_at_ = absl::InfinitePast();
  absl::Time idle_since_ = absl::InfinitePast();
  stragglers::RateMeter samples_;
  double computed_samples_ = 0.0;  // fading sums, without rounds that evaluate
  double computed_seconds_ = 0.0;
  double compute_seconds_ = 0.0;  // fading sums over the last rounds
  double communication_seconds_ = 0.0;
  double wait_seconds_ = 0.0;
  // Number of rounds in the three sums above, with the same weights.
  double timed_rounds_ = 0.0;
};

}  // namespace lodestar::rounds
