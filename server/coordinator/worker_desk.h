// What the coordinator keeps per worker beside its membership: the grant it holds, how far it is,
// and how fast. Pure data.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/cluster_messages.h"
#include "common/ids.h"
#include "server/coordinator/cluster_snapshot.h"
#include "server/coordinator/divergence_policy.h"
#include "server/coordinator/member_pushes.h"
#include "server/coordinator/rate_meter.h"
#include "server/coordinator/round_patience.h"
#include "server/membership/membership_table.h"
#include "server/sync/cluster_policy.h"

namespace lodestar {

class WorkerDesk {
 public:
  // What was promised, counted or held against the worker. Not what it does at the moment, which it
  // tells again by itself, nor how fast.
  struct Memory {
    uint64_t instance_id = 0;
    int times_not_finite = 0;     // in a row, of this process
    Incarnation not_finite_life;  // that was counted last
    uint64_t finite_reports_then = 0;
    int times_dropped = 0;
    absl::Time rests_until = absl::InfinitePast();
    bool kept_space = false;  // and therefore rests, whatever process comes under its name
    std::string device;
    std::string identity;  // of its certificate; empty: it has none
    bool is_waiting = false;
    bool is_leaving = false;
    std::optional<Grant> grant;
    int64_t last_granted = -1;
    int64_t last_reported = -1;
    int64_t progress = 0;
    uint64_t rounds_completed = 0;
    uint64_t residuals_lost = 0;  // processes that began without it; over all lives
    // When its process began and registered; not set: it has contributed, or nobody knows.
    std::optional<absl::Time> process_began_at;
    std::optional<absl::Time> process_registered_at;
    // From then until it contributed first.
    std::optional<absl::Duration> start_to_contribution;
    std::optional<absl::Duration> registration_to_contribution;
    uint64_t map_version = 0;            // that it registered with
    std::vector<Round> poisoned_rounds;  // the latest, ascending; over all lives
    // Where contributions are deferred: granted in this life and not in all fragments yet, the
    // newest last.
    std::vector<int64_t> samples_in_hand;
    friend bool operator==(const Memory&, const Memory&) = default;
  };

  WorkerDesk() = default;
  // The coordinator's process has ended, and this one goes on: what it has waited for begins anew.
  WorkerDesk(Memory memory, absl::Time now)
      : memory_(std::move(memory)), given_at_(now), idle_since_(now) {}
  const Memory& memory() const { return memory_; }

  // A new life; what was counted over all lives stays.
  void BeginLife(const RegisterCall& call, absl::Time now);
  void EndLife();
  // Its registration is answered.
  void OnRegistered(const std::string& peer, uint64_t map_version) {
    peer_ = peer;
    memory_.map_version = map_version;
  }
  // Whether it knows where the servers are, or learns it by this heartbeat.
  bool Follows(const HeartbeatCall& call, uint64_t map_version) const {
    return call.map_version.has_value() || memory_.map_version == map_version;
  }
  // Of the connection that it was last heard of; empty: not since this process began.
  const std::string& peer() const { return peer_; }
  void OnHeardFrom(const std::string& peer) { peer_ = peer; }
  // By its last heartbeat; zeros if there was none in this life.
  const PathFacts& path() const { return path_; }
  const std::string& identity() const { return memory_.identity; }
  // Returns true if its name has completed a round, in whatever life.
  bool has_completed_round() const { return memory_.rounds_completed > 0; }
  // Others have waited for a life of this name that ended with its round at hand.
  void NoteWaitedFor() { was_waited_for_ = true; }
  // Returns true if that was so since this process began.
  bool was_waited_for() const { return was_waited_for_; }

  void OnHeartbeat(const HeartbeatCall& call, absl::Time now);
  // It has joined; the slowest member has completed so many rounds.
  void BeginMembership(int64_t progress, absl::Time now);
  void Give(const Grant& grant, absl::Time now);
  // The server of a shard has all of the contribution to the grant held. How many have.
  int CountContributed(int shard) {
    contributed_to_.insert(shard);
    return static_cast<int>(contributed_to_.size());
  }
  // Whether the grant held is of this round, and fewer than `num_shards` servers have all of the
  // contribution to it.
  bool AwaitsContribution(Round round, int num_shards) const;
  // The server of a shard has attached and has told where its journal ends.
  void OnServerAttached(int shard) { attached_since_grant_.insert(shard); }
  // Returns true if the grant held is for training in this round, and the server of `shard` has
  // neither told that it has all of the contribution, nor attached since the grant was given.
  bool AwaitsJournal(Round round, int shard) const;
  bool AwaitsJournals(Round round, int num_shards) const;
  // What a report is: of the grant held, of one reported before, or of none (InvalidArgument).
  enum class Match : uint8_t { kCurrent, kRepeat };
  absl::StatusOr<Match> Classify(const RoundReport& report, const JobSpec& job) const;
  // The grant held is done.
  void Complete(const RoundReport& report, const JobSpec& job, absl::Time now);
  // That the contribution to the next round stands for.
  int64_t SamplesInHand() const;
  // Handed out to this life, and no report has told of them yet.
  int64_t UnreportedSamples(const JobSpec& job) const;
  // Whether it computes, or has computed, what the next round is the first to take.
  bool owes_contribution() const {
    return !memory_.samples_in_hand.empty() && memory_.samples_in_hand.back() > 0;
  }
  // Asked for a grant; kept until it gets one or its life ends.
  // Returns whether it had not.
  bool SetWaiting() {
    const bool was_waiting = memory_.is_waiting;
    memory_.is_waiting = !memory_.grant.has_value() && (!memory_.is_leaving || owes_contribution());
    return memory_.is_waiting != was_waiting;
  }
  // Wants no new work in this life.
  void BeginLeave() {
    memory_.is_leaving = true;
    memory_.is_waiting = memory_.is_waiting && owes_contribution();
  }
  bool is_leaving() const { return memory_.is_leaving; }

  // Its numbers in this life are not finite. Counts at most once per life; and as long as nobody
  // else has reported finite ones meanwhile, which may not be this worker's fault, as the same
  // time. `finite_reports`: of all workers so far. False if this life is counted already.
  bool CountNotFinite(Incarnation incarnation, uint64_t finite_reports);
  void CountFinite() { memory_.times_not_finite = 0; }
  // Its last numbers were finite, or are still to come.
  bool is_finite() const { return memory_.times_not_finite == 0; }
  // How often in a row; of the newest process.
  int times_not_finite() const { return memory_.times_not_finite; }
  // The same process has failed so often, while others have not, that it is of no use.
  bool IsSick(uint64_t instance_id, int nonfinite_limit) const {
    return instance_id == memory_.instance_id && memory_.times_not_finite >= nonfinite_limit;
  }

  // What it sent in this round was far longer than what others sent. False if that is counted
  // already. Remembered are those up to kPoisonWindow before the last of them.
  bool CountPoisoned(Round round);
  void ForgetPoisoned() { memory_.poisoned_rounds.clear(); }

  bool is_waiting() const { return memory_.is_waiting; }
  const std::optional<Grant>& grant() const { return memory_.grant; }
  absl::Time given_at() const { return given_at_; }
  // Since when it could have asked for work.
  absl::Time idle_since() const { return idle_since_; }
  const MemberPace& pace() const { return pace_; }
  // Samples per second that it computes, by its reports; 0 before the first one. Of the last few
  // rounds the last one counts half.
  double compute_speed() const {
    return computed_seconds_ > 0.0 ? computed_samples_ / computed_seconds_ : 0.0;
  }
  // Rounds completed in this life, from where the slowest member was when it joined.
  int64_t progress() const { return memory_.progress; }

  // As policies see it. `worker`, `name`: this one's.
  MemberProgress Progress(WorkerId worker, const std::string& name, absl::Time now) const;
  // `newest`: number of the newest round granted to anyone; -1: none.
  WorkerSnapshot Snapshot(const WorkerRecord& record, int64_t newest, absl::Time now) const;

  // By its last heartbeat its contribution has left and is not yet acknowledged.
  bool is_delivering() const { return activity_ == "push"; }
  bool is_pulling() const { return activity_ == "pull"; }
  // Not so while it computes or pulls. Clients of another make may not say what they do.
  bool may_wait_behind_others() const {
    return activity_ != "compute" && activity_ != "pull" && activity_ != "wait";
  }
  // Since when heartbeats say the same: no other activity, and no byte more pushed or pulled.
  absl::Time same_since() const { return same_since_; }
  // When its heartbeats last told of more bytes pushed or pulled.
  absl::Time moved_at() const { return moved_at_; }
  // What servers say of its pushes in this life, whatever its heartbeats say.
  MemberPushes& pushes() { return pushes_; }
  const MemberPushes& pushes() const { return pushes_; }
  // By its last heartbeat it waits for a server to and from which nothing moves.
  struct Still {
    int shard = 0;
    absl::Time since;
  };
  const std::optional<Still>& still() const { return still_; }
  // Has completed work in this life.
  bool has_reported() const { return memory_.last_reported >= 0; }
  // This life is ended because it holds up the others, which have waited for it so long: it rests
  // for as long. The next one has more time for its work, if that is what this one lacked; or else
  // another process under its name rests, too, as it would keep the same space over the same path.
  void OnHeldUp(absl::Duration waited, bool lacks_time, absl::Time now);
  // How often in a row lives of this process were ended so, since one has completed anything.
  int times_dropped() const { return memory_.times_dropped; }
  // Until then others are to go on without it.
  absl::Time rests_until() const { return memory_.rests_until; }

 private:
  void CountSpeed(const Grant& grant, const RoundReport& report);
  void CountTimes(const RoundReport& report);
  void CountStart(absl::Time now);

  Memory memory_;
  std::string peer_;
  bool was_waited_for_ = false;
  std::string activity_;
  std::set<int> contributed_to_;  // shards whose servers have all that is due for the grant held
  std::set<int> attached_since_grant_;  // shards
  absl::Time given_at_ = absl::InfinitePast();
  absl::Time idle_since_ = absl::InfinitePast();
  MemberPace pace_;               // of this process, over all its lives
  int64_t last_num_samples_ = 0;  // of the last round that it reported
  uint64_t bytes_pushed_ = 0;     // by the last heartbeat
  uint64_t bytes_pulled_ = 0;
  PathFacts path_;  // by the last heartbeat, of this life
  absl::Time same_since_ = absl::InfinitePast();
  absl::Time active_since_ = absl::InfinitePast();  // with activity_
  absl::Time moved_at_ = absl::InfinitePast();
  MemberPushes pushes_;
  std::optional<Still> still_;
  RateMeter samples_;
  RateMeter push_bytes_;
  RateMeter pull_bytes_;
  double computed_samples_ = 0.0;  // fading sums over the last rounds without an evaluation
  double computed_seconds_ = 0.0;
  double compute_seconds_ = 0.0;  // fading sums over the last rounds
  double communication_seconds_ = 0.0;
  double wait_seconds_ = 0.0;
  double timed_rounds_ = 0.0;  // that the three are of, faded as they are
};

}  // namespace lodestar
