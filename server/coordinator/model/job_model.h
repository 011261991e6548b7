// SPDX-License-Identifier: Apache-2.0

// JobModel holds what is known about the model and the settings of a job:
// - the settings in use, those that the operator asks for, and the client that has proposed them;
// - the layout, and which server has which part of it;
// - where the first weights come from;
// - the trial in which the job chooses its exchange settings.
//
// No other code changes the job. When a client registers, JobModel decides what the client may
// propose for the model and the settings. The caller passes facts in, writes the messages and
// carries out the verdicts. Pure: no lock, clock or thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/job/exchange_settings.h"
#include "common/job/job_settings.h"
#include "common/job/job_spec.h"
#include "common/job/proposed_settings.h"
#include "common/messages/cluster_messages.h"
#include "common/params/encoding.h"
#include "common/params/layout.h"
#include "common/runtime/ids.h"
#include "server/coordinator/faults/divergence_policy.h"
#include "server/coordinator/model/client_layout.h"
#include "server/coordinator/model/exchange_tuning.h"
#include "server/coordinator/model/model_refusal.h"
#include "server/coordinator/model/resume_snapshot.h"
#include "server/coordinator/model/weights_supply.h"
#include "server/coordinator/shards/shard_command.h"

namespace lodestar::model {

// The verdict on the model and the settings that a client brings when it registers.
struct Proposal {
  enum class Kind : uint8_t {
    kNone,     // The proposal does not count: the job stays as it is.
    kRefused,  // The proposal is refused: see `refusal`.
    kSame,     // The job stays as it is, and this client counts as its proposer.
    kAnother,  // The job changes, and servers that have loaded start over.
  };
  Kind kind = Kind::kNone;
  ModelRefusal refusal = {};
  job::SettledJob settled = {};   // set for kSame and kAnother
  bool has_other_layout = false;  // for kAnother: true means that the job takes the client's layout
};

// What JobModel starts from in a new incarnation of the servers.
struct RestoredModel {
  std::optional<job::JobSpec> job = std::nullopt;       // see RestoreChoice
  std::optional<params::Layout> layout = std::nullopt;  // see RestoreChoice
  bool is_from_checkpoint = false;
};

class JobModel {
 public:
  struct Config {
    job::JobSpec job;  // job that the operator asks for
    // The four fields below are as in CoordinatorConfig.
    std::set<std::string> given = {};
    job::OpenSettings open_settings = {};
    faults::DivergencePolicy divergence = {};
    ServerRoom room = {};
    // Maximum time until a client calls again after it was told to call again.
    absl::Duration caller_patience = absl::Seconds(6);
  };
  // What survives the coordinator's process.
  struct Memory {
    std::vector<job::JobSetting> settings;
    std::string spec;                                     // ModelSpecToJson()
    std::optional<params::Layout> layout = std::nullopt;  // set for the model `client` only
    std::string layout_hash;  // empty if written by an earlier release that did not keep the hash
    uint64_t map_version = 0;
    bool awaits_settings = false;
    WeightsSupply::Memory supply;
  };

  // Errors: those of BuildLayout(), PlanShards(), PlanBuckets() and FragmentPlan::CheckComplete().
  static absl::StatusOr<JobModel> Create(Config config);
  // Requires: map() != nullptr.
  Memory memory() const;
  // Continues from the memory. `addresses` are those of the servers, by shard. Errors: DataLoss
  // (the layout is missing or is not the model's); those of PlanMap().
  absl::Status Resume(Memory memory, const std::vector<std::string>& addresses, absl::Time now);

  const job::JobSpec& job() const { return job_; }
  // Returns the layout. Not set means that no client has brought a layout yet.
  const std::optional<params::Layout>& layout() const { return layout_; }
  // Returns the cluster map. Null means that PlanMap() was not called.
  const std::shared_ptr<const messages::ClusterMap>& map() const { return map_; }
  const shards::WeightsSource& source() const { return source_; }
  const WeightsSupply& supply() const { return supply_; }
  const ExchangeTuning& tuning() const { return tuning_; }
  const std::optional<ResumeSnapshot>& resumed() const { return resumed_; }
  // Returns true if a client must supply the first weights, and no client has begun to do so.
  bool lacks_supplier() const { return supply_.is_awaited() && !supply_.supplier().has_value(); }

  // The next four functions decide about a client that registers or joins. They change nothing.
  // CheckOffered() and CheckLayoutHash() require that the layout is set.

  // Returns kOtherTensors or kOtherLayout if the client's layout does not fit the job's. Not set
  // means that the layout fits. Requires: the client brings a layout.
  std::optional<ModelRefusal> CheckOffered(const messages::RegisterCall& call) const;
  // Returns kLayoutHash if `hash` is not the hash of the layout. Otherwise returns nothing.
  std::optional<ModelRefusal> CheckLayoutHash(absl::string_view hash) const;
  // Returns kEncoding if the push or pull encoding of the job is not in `known`, the encodings that
  // a client knows. Otherwise returns nothing.
  std::optional<ModelRefusal> CheckEncodings(
      const std::vector<params::Encoding::Kind>& known) const;
  // Decides how a client that registers changes the model and the settings of the job. Call only if
  // the job has no layout or lacks_supplier(). If another client has proposed the present job, it
  // has caller_patience to come back. Until then, this client cannot change the job.
  Proposal Judge(const messages::RegisterCall& call, absl::Time now) const;
  // Changes the job as `proposal` says. From now on, the client has caller_patience to come back
  // with the weights. Requires: the proposal is kSame or kAnother.
  void Take(const messages::RegisterCall& call, const Proposal& proposal, absl::Time now);

  // Makes the worker of this life the supplier of the first weights, if they are awaited and there
  // is no other supplier. Returns true if this life is the supplier.
  bool ClaimSupply(const messages::WorkerLife& life, absl::Time now);
  void OnJoined(const messages::WorkerLife& life) { supply_.OnJoined(life); }
  // Must be called when a life has ended. Returns true if it was to supply the weights. The next
  // client that registers may then change the job.
  bool OnEnded(const messages::WorkerLife& life);

  // The trial of settings. See ExchangeTuning.
  void OnReport(WorkerId worker, const messages::RoundReport& report, int local_steps) {
    tuning_.OnReport(worker, report, local_steps);
  }
  void OnHeartbeat(WorkerId worker, const messages::PathFacts& path) {
    tuning_.OnHeartbeat(worker, path);
  }
  // Returns true if a trial is in progress and its measurements are enough. For this, there must be
  // at least min_workers members. All members must have measured, or `max_roster` of them.
  // `max_roster` is the maximum number of members that a round gives work.
  bool IsTrialOver(const std::vector<WorkerId>& members, int64_t max_roster) const;
  // Ends the trial, and gives the job the settings that follow from it. Errors: those of
  // ExchangeTuning::Choose().
  absl::Status ChooseExchange();

  // Begins an incarnation of the servers with this job. Begins a trial if the operator has left
  // settings open, they are not chosen yet, and the job does not start from a checkpoint. Errors:
  // those of BuildLayout() and TransposedBetween().
  absl::Status Restore(RestoredModel restored);
  // Sets where the weights of the incarnation come from. `resumed` is not set if they do not come
  // from a checkpoint.
  void BeginFrom(shards::WeightsSource source, std::optional<ResumeSnapshot> resumed);
  // Plans which part of the layout each server has, and cuts the parts into buckets. `addresses`
  // are those of the servers, by shard. Errors: those of PlanShards() and PlanBuckets(). Requires:
  // layout() is set.
  absl::Status PlanMap(uint64_t version, const std::vector<std::string>& addresses);
  // Makes a map with other addresses and a higher version. The version is at least the present time
  // in milliseconds, because workers may get the map before it is in the journal. A later process
  // without that record then gives its maps higher versions. Errors: those of PlanMap(). Requires:
  // map() != nullptr.
  absl::Status MoveServers(const std::vector<std::string>& addresses, absl::Time now);

 private:
  // The client that has proposed the job's model and settings.
  struct Proposer {
    std::string name;
    uint64_t instance_id = 0;
    absl::Time until;
  };

  explicit JobModel(Config config);
  bool is_client_model() const;
  // Returns kAnother with the job that results from this client's proposal. Returns kRefused if
  // that job is not valid, or does not fit the layout or the servers.
  Proposal SettleWith(const messages::RegisterCall& call, const params::Layout& layout) const;

  Config config_;
  // The job in use. Its settings may be proposed by a client, stored in a checkpoint, or chosen in
  // a trial.
  job::JobSpec job_;
  // True means that the next client that registers decides on the layout and the settings. Only
  // true if the job has the model `client`.
  bool awaits_settings_;
  // The client that has proposed the job and must come back with the weights. Other clients cannot
  // change the job until proposer_->until. Not set means that no client must come back.
  std::optional<Proposer> proposer_;
  std::optional<params::Layout> layout_;
  std::shared_ptr<const messages::ClusterMap> map_;
  shards::WeightsSource source_;
  WeightsSupply supply_;
  ExchangeTuning tuning_;
  std::optional<ResumeSnapshot> resumed_;
};

// Returns the job of a process that continues from the memory. This is `asked`, but settings that
// the operator has not given come from the memory. A client has proposed them, or the job has
// chosen them in a trial. See Settle() and WithOpenOf().
job::JobSpec JobOf(const JobModel::Memory& memory, const job::JobSpec& asked,
                   const std::set<std::string>& given, const job::OpenSettings& open);
// Returns true if the memory has the layout that an earlier release built for this model, and the
// layout of this release differs.
bool IsOfEarlierLayout(const JobModel::Memory& memory, const job::JobSpec& job);

}  // namespace lodestar::model
