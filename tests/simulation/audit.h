// Audit: what must hold at every moment of a simulated run. It sees all contributions that workers
// make, all answers that shards give, all weights that shards publish and all that workers pull,
// and computes by itself, in fp64 and from the answers alone, what the weights have to be.
//
// It holds:
//   each contribution that was answered "counted" is in the weights exactly once, in the round it
//   was made for, and nothing else is: so no repeat counts, and no divisor is wrong;
//   a contribution is computed once, however often it is sent;
//   versions go back only with a new life of the servers, and then to the weights of a checkpoint
//   that has exactly what was counted until it was taken;
//   what a worker pulls is what was published, and has all rounds that it was promised;
//   one process at a time counts for a shard of one life of the servers;
//   no checkpoint that was said to be published is missing when the job goes on, or at its end;
//   rounds are gone back only when a server has ended;
//   a coordinator that goes on from its journal knows all that any worker, server or operator was
//   told: lives, grants and reports that were acknowledged; and none begins anew that should go on;
//   when a server or a job that was told to stop says that all is saved, then nothing else was
//   counted, and the job goes on from exactly there; while nothing is broken, all is saved;
//   while nothing is broken, no life of a worker is ended but by the worker;
//   no worker is granted a round that is further ahead of the slowest than the job allows;
//   what is said of rounds is what was reported, and no sample is handed out twice: WorkAudit;
//   a worker that is said to be waited for has not reported, and if nothing goes on, something is
//   said;
//   what counts in a site was computed on the weights that the servers upstream have given it last.
//   What holds between a site and those servers: AuditedSite.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/job/job_spec.h"
#include "common/messages/cluster_messages.h"
#include "common/params/bucket_plan.h"
#include "common/runtime/ids.h"
#include "server/coordinator/announcement.h"
#include "server/coordinator/checkpoint_task.h"
#include "server/coordinator/cluster_snapshot.h"
#include "server/coordinator/coordinator.h"
#include "server/coordinator/coordinator_memory.h"
#include "server/coordinator/shards/shard_command.h"
#include "server/shard/contribution.h"
#include "server/shard/parameter_shard.h"
#include "server/shard/shard_journal.h"
#include "tests/simulation/work_audit.h"

namespace lodestar::simulation {

class Audit;

// One version of a bucket.
struct BucketSnapshot {
  // The last round whose contributions it has. -1 means none.
  Round round;
  std::vector<float> weights;
  std::vector<double> momentum;
  std::vector<float> shadow;  // what workers have of it, where weights travel as changes
  bool is_exact = true;       // seen; else computed, because it was not the newest for long
};

// What a worker gets of a bucket, and what for.
struct PulledVersion {
  uint64_t server_incarnation = 0;
  Incarnation incarnation;  // of the worker
  uint32_t bucket = 0;
  Version version;
  Round min_round;
};

// One bucket during one life of the servers.
class BucketAudit {
 public:
  // The bucket has no versions until OnLoaded().
  BucketAudit(Audit* audit, uint64_t server_incarnation, const Bucket& bucket);

  // The shard has loaded it. `candidates`: lives that may have written what was loaded.
  void OnLoaded(Version version, absl::Span<const float> weights, absl::Span<const float> shadow,
                std::optional<Round> next_round, const std::vector<const BucketAudit*>& candidates);
  void OnAnswered(const shard::ContributionKey& key, shard::PushOutcome outcome);
  void OnPublished(Version version, absl::Span<const float> weights,
                   absl::Span<const float> shadow);
  void OnPulled(const PulledVersion& pulled, absl::Span<const float> elements, bool is_shadow);
  // Other weights take the place of the newest, at any moment from now on, or have done so.
  void OnReplacing(absl::Span<const float> weights) {
    replacement_.emplace(weights.begin(), weights.end());
  }
  void OnReplaced();
  // Returns how often weights were replaced before the version that this life of a worker has
  // pulled last.
  int64_t ReplacementsBefore(Incarnation incarnation) const;
  // Checks that the weights are the newest, and that since others took their place they have
  // exactly the rounds of `rounds`, and no others but those that `is_lost` says are lost.
  void CheckWeights(absl::Span<const float> weights, const std::set<Round>& rounds,
                    const std::function<bool(Round)>& is_lost, absl::string_view who) const;
  bool HasCounted(Incarnation incarnation, Round round) const {
    return counted_.contains({incarnation, round});
  }
  // The round after the last one that was counted. 0 means that none was.
  Round counted_until() const { return counted_until_; }
  bool has_news() const { return !answered_.empty(); }
  bool is_loaded() const { return is_loaded_; }

 private:
  // Takes those of the next version out of answered_.
  std::vector<shard::ContributionKey> NextGroup();
  BucketSnapshot Apply(const BucketSnapshot& before, Version version,
                       const std::vector<shard::ContributionKey>& group);
  // Checks each member of the round's roster that is not in its update: it has skipped the round,
  // or is not alive any more, or a quorum goes on without it.
  void CheckRoster(const std::vector<shard::ContributionKey>& group) const;
  // `origin` is given if contributions are weights, whose changes from it are wanted. Null means
  // that contributions count as they are.
  std::vector<double> MeanOf(const std::vector<shard::ContributionKey>& group,
                             const std::vector<float>* origin = nullptr) const;
  bool IsNear(absl::Span<const float> seen, const BucketSnapshot& expected) const;
  template <typename... Pieces>
  void Fail(const Pieces&... pieces) const;
  // Returns the snapshot of a version, or null if it is not kept.
  const BucketSnapshot* Find(Version version) const;
  // Returns one of the snapshots that the version has had that has these weights. Null means that
  // there is none.
  const BucketSnapshot* FindNear(Version version, absl::Span<const float> weights) const;

  Audit* const audit_;
  const uint64_t server_incarnation_;
  const Bucket bucket_;
  bool IsReplacement(absl::Span<const float> weights) const;
  // It has taken the place of the newest version.
  void TakeReplacement();
  // What counts was computed on the weights that took the place of others last.
  void CheckReplacements(const shard::ContributionKey& key) const;

  bool is_loaded_ = false;
  Version first_;  // of history_
  std::vector<std::shared_ptr<const BucketSnapshot>> history_;
  std::optional<std::vector<float>> replacement_;  // that may take place
  // What versions were before that: a checkpoint, or a worker whose round is over, may have it.
  std::multimap<Version, std::shared_ptr<const BucketSnapshot>> replaced_;
  Version replaced_at_;  // the last one
  int64_t num_replacements_ = 0;
  std::map<Incarnation, int64_t> replacements_before_;  // what workers have pulled; 0 if not in it
  std::map<std::pair<Incarnation, Round>, Version> counted_;  // and the version that has it
  std::deque<shard::ContributionKey> answered_;               // counted, and not published yet
  Round counted_until_;                                       // in this life
  Round promised_;  // the rounds before it are over in what a worker has pulled
};

// One shard as one process has it, during one life of the servers.
class ShardAudit {
 public:
  ShardAudit(Audit* audit, uint64_t server_incarnation, int shard, std::string process)
      : audit_(audit),
        server_incarnation_(server_incarnation),
        shard_(shard),
        process_(std::move(process)) {}

  void OnAnswered(const shard::ContributionKey& key, uint32_t bucket, shard::PushOutcome outcome);
  // A step that the process before this one has written down.
  void OnReplayed(const shard::StepRecord& record);
  // Looks at buckets that something was counted in since it was last called; `all`: at every one.
  void Inspect(shard::ParameterShard& shard, bool all = false);
  uint64_t server_incarnation() const { return server_incarnation_; }

 private:
  friend class Audit;

  Audit* const audit_;
  const uint64_t server_incarnation_;
  const int shard_;
  const std::string process_;
};

class Audit {
 public:
  using Story = std::function<void(const std::string&)>;

  // `is_site`: rounds are what servers upstream order.
  Audit(JobSpec job, bool is_site, Story story);

  const JobSpec& job() const { return job_; }
  bool uses_rosters() const { return uses_rosters_; }

  // The first violation that was found. Empty means that there is none.
  const std::string& violation() const { return violation_; }
  template <typename... Pieces>
  void Fail(const Pieces&... pieces) {
    if (violation_.empty()) violation_ = absl::StrCat(pieces...);
  }

  // Says whether nothing has been broken for so long that no part of the cluster has a reason to
  // miss another.
  void SetQuiet(bool is_quiet) { is_quiet_ = is_quiet; }
  // Says whether nothing is broken that could keep a server from saving what it has.
  void SetMustSave(bool must_save) { must_save_ = must_save; }

  // The coordinator.
  void OnCommand(const ShardCommand& command);
  void OnTask(const CheckpointTask& task);
  void OnPublished(const PublishedCheckpoint& published);
  // The newest checkpoint is damaged. `left` is the round of the checkpoint that is the newest
  // then. `is_copied` means that the damaged one may be mended from a copy.
  void OnDamaged(const std::string& path, Round left, bool is_copied);
  bool IsDamaged(const std::string& path) const { return damaged_.contains(path); }
  // A server has ended, and with it what only that server had.
  void OnServerEnded() {
    ++num_server_ends_;
    if (!lives_.empty()) lives_.rbegin()->second.has_lost_memory = true;
  }
  // A server or a job that was told to stop ends. `saved` says what became of the last checkpoint.
  void OnStopped(absl::string_view who, const absl::StatusOr<PublishedCheckpoint>& saved);
  // The answer to a registration leaves.
  void OnRegistered(const WorkerLife& life, absl::string_view name);
  // The worker is taken in. The answer may follow later.
  void OnJoined(WorkerId worker);
  // The answer to a worker leaves that has asked for work, and has handed in a report, if it had
  // one.
  void OnAnswered(const WorkerLife& life, const std::optional<RoundReport>& report,
                  const GrantAnswer& answer);
  // A report is taken, perhaps not for the first time.
  void OnReported(const WorkerLife& life, const RoundReport& report);
  // A server that another has taken the folders over from has taken a report. The report counts if
  // its record reached the journal before the other server read it.
  void OnReportedToReplaced(const WorkerLife& life, const RoundReport& report) {
    work_.OnReportedToReplaced(life, report);
  }
  // A coordinator goes on from its journal, with all that any worker, server or operator was told.
  void OnResumed(const CoordinatorMemory& memory);
  // Another coordinator has a journal, with nothing in it to go on from.
  void OnBegunAnew();
  // Checks what people are told, now and then. `is_stuck` means that no round was committed for a
  // while.
  void OnSnapshot(const ClusterSnapshot& snapshot, bool is_stuck);
  void OnAnnouncement(const Announcement& announcement);

  // OnLoaded() says that a shard has loaded. OnRecovered() says that a process goes on with what
  // another one has written down, in the same life of the servers. Both results are there until the
  // end.
  ShardAudit* OnRecovered(uint64_t server_incarnation, int shard, const std::string& process,
                          shard::ParameterShard& recovered);
  ShardAudit* OnLoaded(uint64_t server_incarnation, int shard, std::string process,
                       shard::ParameterShard& loaded);

  // The calls of workers. `elements` are what the servers will decode.
  void OnMade(uint64_t server_incarnation, Incarnation incarnation, Round round, uint32_t bucket,
              std::vector<float> elements, int64_t num_samples);
  void OnDelivered(uint64_t server_incarnation, Incarnation incarnation, Round round,
                   absl::Span<const uint32_t> late);
  void OnPulled(const PulledVersion& pulled, absl::Span<const float> elements, bool is_shadow);

  // For a site. The uplink has weights put in the place of those that the servers have: the servers
  // begin to do so, and have done so.
  void OnReplacing(absl::Span<const float> weights);
  void OnReplaced();
  void OnOrdered(const SiteOrder& order) { work_.OnOrdered(order); }
  void OnOrderAbandoned() { work_.OnAbandoned(); }
  CarriedOutOrder OrderCarriedOut() const { return work_.OrderCarriedOut(); }
  // Returns true if all servers have counted it.
  bool HasCounted(Incarnation incarnation, Round round) const;
  // As BucketAudit::CheckWeights(), for the whole model.
  void CheckWeights(absl::Span<const float> weights, const std::vector<Round>& rounds,
                    absl::string_view who) const;

  int64_t rounds_committed() const { return rounds_committed_; }
  int64_t num_restores() const { return num_restores_; }
  int64_t num_resumes() const { return num_resumes_; }
  // Restores that rounds had been committed before.
  int64_t times_gone_back() const { return times_gone_back_; }
  int64_t num_server_ends() const { return num_server_ends_; }
  int64_t num_counted() const { return num_counted_; }
  // Where the cluster went on from when it last did, and how many rounds came then.
  Round next_round() const { return next_round_; }
  Round published() const { return published_; }
  int64_t rounds_since_restore() const { return rounds_since_restore_; }

 private:
  friend class BucketAudit;
  friend class ShardAudit;

  struct Made {
    std::vector<float> elements;
    int64_t num_samples = 0;
    int64_t replacements_before = 0;  // the weights that it was computed on
  };
  using MadeKey = std::pair<Incarnation, uint32_t>;  // and bucket
  // One life of the servers.
  struct ServersLife {
    std::shared_ptr<const ClusterMap> map;
    WeightsSource source;
    std::optional<Round> next_round;  // that it began with
    bool has_lost_memory = false;
    std::map<Round, RoundPlan> plans;
    std::map<Round, std::map<MadeKey, Made>> made;
    std::vector<std::unique_ptr<BucketAudit>> buckets;
    std::map<int, std::string> owners;                        // of shards
    std::map<Round, std::map<uint32_t, double>> square_sums;  // of means, by bucket
    std::map<Round, double> clip_scales;                      // that were seen
  };

  ServersLife* Find(uint64_t server_incarnation);
  // The round after the last that was counted in this life of the servers, of which there is one.
  Round CountedUntil() const;
  void ForgetOldLives();
  void CheckClip(ServersLife& life, Round round, uint32_t bucket, double square_sum, double scale);

  // The progress of a member.
  struct Progress {
    int64_t rounds = 0;  // reported; a worker that joins begins where the slowest is
    Round last_reported = Round(-1);
  };
  // The worker gets work, perhaps not for the first time.
  void OnGranted(const WorkerLife& life, const Grant& grant);
  // Returns the rounds of the slowest member but for `except`, or 0 if there is none.
  int64_t SlowestBut(WorkerId except) const;

  const JobSpec job_;
  const bool uses_rosters_;
  std::set<Incarnation> dropped_;
  const Story story_;
  std::string violation_;
  WorkAudit work_;
  bool is_quiet_ = false;
  bool must_save_ = false;
  std::map<uint64_t, ServersLife> lives_;
  std::vector<std::unique_ptr<ShardAudit>> shards_;
  std::map<std::string, WorkerId> names_;
  std::map<WorkerId, Progress> members_;
  std::set<Incarnation> ended_;  // lives
  // Lives whose end a restarted coordinator has read. A power failure may still take that record,
  // until the coordinator goes on.
  std::set<Incarnation> ended_in_memory_;
  std::map<WorkerId, Incarnation> begun_;      // lives, the last of each worker
  std::map<Incarnation, Round> acknowledged_;  // reports, the last of each life
  // A worker has work that no coordinator has taken back: the next coordinator has to go on from
  // there.
  bool must_resume_ = false;
  std::map<std::string, std::set<uint64_t>> writers_;  // of checkpoints, by path
  Round published_ = Round(-1);                        // of the newest checkpoint
  std::set<std::string> damaged_;                      // checkpoints, by path
  std::optional<Round> goes_on_from_;  // next; the server or job that stopped said so
  Round next_round_;
  int64_t rounds_committed_ = 0;
  int64_t rounds_since_restore_ = 0;
  int64_t num_restores_ = 0;
  int64_t num_resumes_ = 0;
  int64_t times_gone_back_ = 0;
  int64_t num_server_ends_ = 0;
  int64_t num_counted_ = 0;
};

}  // namespace lodestar::simulation
