// SPDX-License-Identifier: Apache-2.0

// Audit checks what must hold at every moment of a simulated run. It sees all contributions that
// workers make, all answers that shards give, all weights that shards publish and all that workers
// pull. From the answers alone it computes, in fp64, what the weights have to be.
//
// The rules are:
//   a contribution that was answered "counted" is in the weights exactly once, in the round that it
//   was made for, and nothing else is: so no repeat counts, and no divisor is wrong;
//   a contribution is computed once, however often it is sent;
//   versions go back only with a new incarnation of the servers, and then to the weights of a
//   checkpoint that has exactly what was counted until it was taken;
//   a worker pulls what was published, with all rounds that it was promised;
//   only one process at a time counts for a shard of one incarnation of the servers;
//   no checkpoint that was reported as published is missing when the job continues, or at its end;
//   rounds are rolled back only if a server has ended;
//   a coordinator that continues from its journal knows all that any worker, server or operator was
//   told: incarnations, grants and reports that were acknowledged; and no coordinator begins anew
//   that should continue;
//   if a server or a job that was told to stop reports that all is saved, nothing else was counted,
//   and the job continues from exactly there; while nothing is broken, all is saved;
//   while nothing is broken, only a worker itself ends its incarnation;
//   no two workers hold one index at the same time;
//   no worker is granted a round that is further ahead of the slowest than the job allows;
//   summaries of rounds say what was reported, and no sample is handed out twice: WorkAudit;
//   a worker that is listed as waited for has not reported, and if nothing moves, a reason is
//   given;
//   what counts in a site was computed on the last weights from the servers upstream.
// AuditedSite checks what must hold between a site and those servers.
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

// A version of a bucket.
struct BucketSnapshot {
  // The last round whose contributions are in the weights. -1 means none.
  Round round;
  std::vector<float> weights;
  std::vector<double> momentum;
  std::vector<float> shadow;  // what workers have of the weights, if weights travel as changes
  // true if seen; false if computed, because it was the newest only shortly
  bool is_exact = true;
};

// A bucket that a worker has pulled, and the purpose.
struct PulledVersion {
  uint64_t server_incarnation = 0;
  Incarnation incarnation;  // the worker's incarnation
  uint32_t bucket = 0;
  Version version;
  Round min_round;
};

// Audits a bucket during one incarnation of the servers.
class BucketAudit {
 public:
  // The bucket has no versions until OnLoaded().
  BucketAudit(Audit* audit, uint64_t server_incarnation, const params::Bucket& bucket);

  // Called when the shard has loaded the bucket. `candidates` are the incarnations that may have
  // written the loaded weights.
  void OnLoaded(Version version, absl::Span<const float> weights, absl::Span<const float> shadow,
                std::optional<Round> next_round, const std::vector<const BucketAudit*>& candidates);
  void OnAnswered(const shard::ContributionKey& key, shard::PushOutcome outcome);
  void OnPublished(Version version, absl::Span<const float> weights,
                   absl::Span<const float> shadow);
  void OnPulled(const PulledVersion& pulled, absl::Span<const float> elements, bool is_shadow);
  // Other weights replace the newest version, at any moment from now on or already.
  void OnReplacing(absl::Span<const float> weights) {
    replacement_.emplace(weights.begin(), weights.end());
  }
  void OnReplaced();
  // Returns how often weights had been replaced before the version that this worker incarnation has
  // pulled last.
  int64_t ReplacementsBefore(Incarnation incarnation) const;
  // Checks that `weights` are the newest. Checks that, since the last replacement, they have
  // exactly the rounds of `rounds`; other rounds are allowed only if `is_lost` returns true for
  // them.
  void CheckWeights(absl::Span<const float> weights, const std::set<Round>& rounds,
                    const std::function<bool(Round)>& is_lost, absl::string_view who);
  bool HasCounted(Incarnation incarnation, Round round) const {
    return counted_.contains({incarnation, round});
  }
  // Returns the round after the last one that was counted. 0 means that none was.
  Round counted_until() const { return counted_until_; }
  bool has_news() const { return !answered_.empty(); }
  bool is_loaded() const { return is_loaded_; }

 private:
  // Takes the contributions of the next version out of answered_.
  std::vector<shard::ContributionKey> NextGroup();
  BucketSnapshot Apply(const BucketSnapshot& before, Version version,
                       const std::vector<shard::ContributionKey>& group);
  // Checks each member of the round's roster that is not in the round's update: it has skipped the
  // round, or is not alive any more, or a quorum continues without it.
  void CheckRoster(const std::vector<shard::ContributionKey>& group) const;
  // Returns the weights of the contributions in their mean.
  std::vector<int64_t> WeightsOf(const std::vector<shard::ContributionKey>& group) const;
  // Checks that all contributions of a round have a weight of their own, or none has.
  void CheckWeightsOf(const std::vector<shard::ContributionKey>& group) const;
  // Drops the contributions of the next round, if it is over and none of them has a weight.
  // Returns false otherwise.
  bool SkipWeightless();
  // Returns the mean of the contributions. If contributions are weights, `origin` makes it the mean
  // of their changes from `origin`. Null means that contributions are taken as they are.
  std::vector<double> MeanOf(const std::vector<shard::ContributionKey>& group,
                             const std::vector<float>* origin = nullptr) const;
  bool IsNear(absl::Span<const float> seen, const BucketSnapshot& expected) const;
  template <typename... Pieces>
  void Fail(const Pieces&... pieces) const;
  // Returns the snapshot of a version, or null if it is not kept.
  const BucketSnapshot* Find(Version version) const;
  // Returns a snapshot of the version that has these weights. A version has several snapshots if
  // its weights were replaced. Null means that there is none.
  const BucketSnapshot* FindNear(Version version, absl::Span<const float> weights) const;

  Audit* const audit_;
  const uint64_t server_incarnation_;
  const params::Bucket bucket_;
  bool IsReplacement(absl::Span<const float> weights) const;
  // Makes the replacement the newest version.
  void TakeReplacement();
  // Checks that a counted contribution has the weight that it was made with.
  void CheckWeight(const shard::ContributionKey& key) const;
  // Checks that a counted contribution was computed on the weights of the last replacement.
  void CheckReplacements(const shard::ContributionKey& key) const;

  bool is_loaded_ = false;
  Version first_;  // version of history_.front()
  std::vector<std::shared_ptr<const BucketSnapshot>> history_;
  std::optional<std::vector<float>> replacement_;  // weights that may replace the newest
  // Snapshots of versions before their weights were replaced. A checkpoint, or a worker whose round
  // is over, may still have such weights.
  std::multimap<Version, std::shared_ptr<const BucketSnapshot>> replaced_;
  Version replaced_at_;  // version of the last replacement
  int64_t num_replacements_ = 0;
  // number of replacements that each worker has pulled; 0 if absent
  std::map<Incarnation, int64_t> replacements_before_;
  // counted contributions, with the version that has them
  std::map<std::pair<Incarnation, Round>, Version> counted_;
  std::deque<shard::ContributionKey> answered_;  // counted, but not yet published
  std::set<Round> weightless_;                   // rounds that made no version
  // The round after the last one that was counted in this incarnation of the servers.
  Round counted_until_;
  Round promised_;  // Workers have pulled weights that must include all rounds before this one.
};

// Audits one shard in one process, during one incarnation of the servers.
class ShardAudit {
 public:
  ShardAudit(Audit* audit, uint64_t server_incarnation, int shard, std::string process)
      : audit_(audit),
        server_incarnation_(server_incarnation),
        shard_(shard),
        process_(std::move(process)) {}

  void OnAnswered(const shard::ContributionKey& key, uint32_t bucket, shard::PushOutcome outcome);
  // The process has replayed a step that the process before it has written down.
  void OnReplayed(const shard::StepRecord& record);
  // Checks buckets for which something was counted since the last call. `all` means every bucket.
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

  // `is_site` means that rounds are ordered by servers upstream. `extends_grants` means that
  // workers get more samples for grants that they have.
  Audit(job::JobSpec job, bool is_site, bool extends_grants, Story story);

  const job::JobSpec& job() const { return job_; }
  bool uses_rosters() const { return uses_rosters_; }

  // Returns the first violation that was found. Empty means that there is none.
  const std::string& violation() const { return violation_; }
  template <typename... Pieces>
  void Fail(const Pieces&... pieces) {
    if (violation_.empty()) violation_ = absl::StrCat(pieces...);
  }

  // Says whether nothing has been broken for so long that every part of the cluster must reach the
  // others.
  void SetQuiet(bool is_quiet) { is_quiet_ = is_quiet; }
  // Says whether a server must be able to save: nothing is broken that could prevent it.
  void SetMustSave(bool must_save) { must_save_ = must_save; }

  // These report events of the coordinator.
  void OnCommand(const shards::ShardCommand& command);
  void OnTask(const coordinator::CheckpointTask& task);
  void OnPublished(const checkpoints::PublishedCheckpoint& published);
  // The newest checkpoint is damaged. `left` is the round of the newest checkpoint that is left.
  // `is_copied` means that the damaged one may be repaired from a copy.
  void OnDamaged(const std::string& path, Round left, bool is_copied);
  bool IsDamaged(const std::string& path) const;
  // A server has ended, and what only that server had is lost.
  void OnServerEnded() {
    ++num_server_ends_;
    if (!lives_.empty()) lives_.rbegin()->second.has_lost_memory = true;
  }
  // A server or job that was told to stop ends. `saved` is the outcome of the last checkpoint.
  void OnStopped(absl::string_view who,
                 const absl::StatusOr<checkpoints::PublishedCheckpoint>& saved);
  // The answer to a registration is sent.
  void OnRegistered(const messages::Registration& registration, absl::string_view name);
  // The worker becomes a member. The answer may follow later.
  void OnJoined(WorkerId worker);
  // The answer to a worker's request for work is sent. If the worker has sent a report, the report
  // is acknowledged.
  void OnAnswered(const messages::WorkerLife& life,
                  const std::optional<messages::RoundReport>& report,
                  const coordinator::GrantAnswer& answer);
  // The coordinator has judged a worker's request for more samples in `round`. The answer may
  // follow later.
  void OnExtensionJudged(const messages::WorkerLife& life, Round round,
                         const absl::StatusOr<messages::Grant>& more);
  // The answer with more samples is sent.
  void OnExtended(const messages::WorkerLife& life, const messages::Grant& more) {
    work_.OnExtended(life, more);
  }
  // The incarnation asks for grants without samples.
  void OnAsksWithoutSamples(Incarnation incarnation) { work_.OnAsksWithoutSamples(incarnation); }
  // A report is accepted, perhaps not for the first time.
  void OnReported(const messages::WorkerLife& life, const messages::RoundReport& report);
  // The coordinator does not expect a report of this round from the incarnation any more.
  void OnReportTaken(Incarnation incarnation, Round round) {
    work_.OnReportTaken(incarnation, round);
  }
  // A server whose folders another server has taken over has accepted a report. The report counts
  // if its record reached the journal before the other server read the journal.
  void OnReportedToReplaced(const messages::WorkerLife& life, const messages::RoundReport& report) {
    work_.OnReportedToReplaced(life, report);
  }
  // A coordinator continues from its journal. `memory` must have all that any worker, server or
  // operator was told.
  void OnResumed(const coordinator::CoordinatorMemory& memory);
  // A coordinator begins with a journal that has nothing to continue from.
  void OnBegunAnew();
  // Checks now and then what operators see. `is_stuck` means that no round was committed for a
  // while.
  void OnSnapshot(const coordinator::ClusterSnapshot& snapshot, bool is_stuck);
  void OnAnnouncement(const coordinator::Announcement& announcement);

  // OnLoaded() reports that a shard has loaded. OnRecovered() reports that a process continues with
  // what another process has written down, in the same incarnation of the servers. Both results
  // stay valid until the end.
  ShardAudit* OnRecovered(uint64_t server_incarnation, int shard, const std::string& process,
                          shard::ParameterShard& recovered);
  ShardAudit* OnLoaded(uint64_t server_incarnation, int shard, std::string process,
                       shard::ParameterShard& loaded);

  // These report calls of workers. `elements` are what the servers will decode.
  void OnMade(uint64_t server_incarnation, Incarnation incarnation, Round round, uint32_t bucket,
              std::vector<float> elements, int64_t num_samples, std::optional<int64_t> weight);
  // The servers have refused the contribution of a worker to a round, because its weight does not
  // fit those of the others.
  void OnWeightRefused(uint64_t server_incarnation, Incarnation incarnation, Round round);
  void OnDelivered(uint64_t server_incarnation, Incarnation incarnation, Round round,
                   absl::Span<const uint32_t> late);
  void OnPulled(const PulledVersion& pulled, absl::Span<const float> elements, bool is_shadow);

  // These are for a site. The uplink replaces the weights of the servers: the servers begin to do
  // so, and have done so.
  void OnReplacing(absl::Span<const float> weights);
  void OnReplaced();
  void OnOrdered(const rounds::SiteOrder& order) { work_.OnOrdered(order); }
  void OnOrderAbandoned() { work_.OnAbandoned(); }
  CarriedOutOrder OrderCarriedOut() const { return work_.OrderCarriedOut(); }
  // Returns true if all servers have counted the contribution.
  bool HasCounted(Incarnation incarnation, Round round) const;
  // Does BucketAudit::CheckWeights() for the whole model.
  void CheckWeights(absl::Span<const float> weights, const std::vector<Round>& rounds,
                    absl::string_view who) const;

  int64_t rounds_committed() const { return rounds_committed_; }
  int64_t num_restores() const { return num_restores_; }
  int64_t num_resumes() const { return num_resumes_; }
  // Returns how many restores undid committed rounds.
  int64_t times_gone_back() const { return times_gone_back_; }
  int64_t num_server_ends() const { return num_server_ends_; }
  int64_t num_counted() const { return num_counted_; }
  // Return where the cluster continued last, the newest checkpoint, and how many rounds came since.
  Round next_round() const { return next_round_; }
  Round published() const { return published_; }
  int64_t rounds_since_restore() const { return rounds_since_restore_; }

 private:
  friend class BucketAudit;
  friend class ShardAudit;

  struct Made {
    std::vector<float> elements;
    int64_t num_samples = 0;
    std::optional<int64_t> weight;  // not set means by num_samples
    // number of replacements in the weights that it was computed on
    int64_t replacements_before = 0;
  };
  using MadeKey = std::pair<Incarnation, uint32_t>;  // incarnation and bucket
  // Data of one incarnation of the servers.
  struct ServersLife {
    std::shared_ptr<const messages::ClusterMap> map;
    shards::WeightsSource source;
    std::optional<Round> next_round;  // the round that it began with
    bool has_lost_memory = false;
    std::map<Round, sync::RoundPlan> plans;
    std::map<Round, std::map<MadeKey, Made>> made;
    std::vector<std::unique_ptr<BucketAudit>> buckets;
    std::map<int, std::string> owners;                        // process that counts for each shard
    std::map<Round, std::map<uint32_t, double>> square_sums;  // square sums of means, by bucket
    std::map<Round, double> clip_scales;                      // factors that were seen
  };

  ServersLife* Find(uint64_t server_incarnation);
  // Returns the round after the last one that was counted in the last incarnation of the servers.
  // There must be one.
  Round CountedUntil() const;
  void ForgetOldLives();
  void CheckClip(ServersLife& life, Round round, uint32_t bucket, double square_sum, double scale);

  // The progress of a member.
  struct Progress {
    // Number of reported rounds. A worker that joins begins with the number of the slowest member.
    int64_t rounds = 0;
    Round last_reported = Round(-1);
  };
  // The worker gets a grant, perhaps not for the first time.
  void OnGranted(const messages::WorkerLife& life, const messages::Grant& grant);
  // Returns the number of rounds of the slowest member other than `except`. 0 means that there is
  // no other member.
  int64_t SlowestBut(WorkerId except) const;

  const job::JobSpec job_;
  const bool uses_rosters_;
  const bool is_site_;
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
  std::set<Incarnation> ended_;  // incarnations that have ended
  // Incarnations whose end a restarted coordinator has read. A power failure may still remove that
  // record, until the coordinator continues.
  std::set<Incarnation> ended_in_memory_;
  std::map<WorkerId, Incarnation> begun_;  // last incarnation of each worker
  // The worker incarnation that was last told each index.
  std::map<uint32_t, Incarnation> index_holders_;
  std::map<Incarnation, Round> acknowledged_;  // last acknowledged report of each incarnation
  // True if a worker has work that no coordinator has taken back. The next coordinator must
  // continue from there.
  bool must_resume_ = false;
  std::map<std::string, std::set<uint64_t>> writers_;  // writers of checkpoints, by path
  Round published_ = Round(-1);                        // round of the newest checkpoint
  std::set<std::string> damaged_;                      // damaged checkpoints, by PublishedAs()
  // Round that the servers must continue from next. The server or job that stopped has promised it.
  std::optional<Round> goes_on_from_;
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
