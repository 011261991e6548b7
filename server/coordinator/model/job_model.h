// SPDX-License-Identifier: Apache-2.0

// JobModel holds the model and the settings of a job: those in use, those that the operator asks
// for, and which client has proposed them. It also holds the layout, which server has which part of
// it, where the first weights come from, and the trial in which the job chooses its exchange
// settings. No other code changes the job. JobModel decides what a client that registers may bring
// and propose, as far as the model is concerned. The caller passes facts in, writes the messages
// and carries out the verdicts. Pure: no lock, clock or thread.
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

// How the model and the settings of a client that registers change the job.
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

// What a new incarnation of the servers begins with.
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
    // Maximum time until a client that was told to call again does so.
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
  // Returns the layout. Not set means that no client has brought the layout of its model yet.
  const std::optional<params::Layout>& layout() const { return layout_; }
  // Returns the cluster map. Null means that PlanMap() was not called.
  const std::shared_ptr<const messages::ClusterMap>& map() const { return map_; }
  const shards::WeightsSource& source() const { return source_; }
  const WeightsSupply& supply() const { return supply_; }
  const ExchangeTuning& tuning() const { return tuning_; }
  const std::optional<ResumeSnapshot>& resumed() const { return resumed_; }
  // Returns true if a client is to supply the first weights, and no client has claimed the supply
  // yet.
  bool lacks_supplier() const { return supply_.is_awaited() && !supply_.supplier().has_value(); }

  // The next four functions decide about a client that registers or joins. They change nothing.
  // CheckOffered() and CheckLayoutHash() require that the layout is set.

  // Returns kOtherTensors or kOtherLayout if the client's layout does not fit the job's. Not set
  // means that it fits. Requires: the client brings a layout.
  std::optional<ModelRefusal> CheckOffered(const messages::RegisterCall& call) const;
  // Returns kLayoutHash if `hash` is not the hash of the layout. Not set means that it is.
  std::optional<ModelRefusal> CheckLayoutHash(absl::string_view hash) const;
  // Returns kEncoding if `known` lacks an encoding of the job. Not set means that `known` has both
  // encodings.
  std::optional<ModelRefusal> CheckEncodings(
      const std::vector<params::Encoding::Kind>& known) const;
  // Decides how the model and the settings of a client that registers change the job. Call only if
  // the job has no layout or lacks_supplier(). If another client has proposed the job, this
  // client's proposal counts only if the other client has not come back within caller_patience.
  Proposal Judge(const messages::RegisterCall& call, absl::Time now) const;
  // Changes the job as the proposal says. Gives the client caller_patience to come back with the
  // weights. Requires: the proposal is kSame or kAnother.
  void Take(const messages::RegisterCall& call, const Proposal& proposal, absl::Time now);

  // Lets the worker of this life supply the first weights, if they are awaited and no other life is
  // to supply them. Returns true if this life is to supply them.
  bool ClaimSupply(const messages::WorkerLife& life, absl::Time now);
  void OnJoined(const messages::WorkerLife& life) { supply_.OnJoined(life); }
  // Must be called when a life has ended. Returns true if its worker was to supply the weights. The
  // proposal of the next client then counts.
  bool OnEnded(const messages::WorkerLife& life);

  // The trial of settings. See ExchangeTuning.
  void OnReport(WorkerId worker, const messages::RoundReport& report, int local_steps) {
    tuning_.OnReport(worker, report, local_steps);
  }
  void OnHeartbeat(WorkerId worker, const messages::PathFacts& path) {
    tuning_.OnHeartbeat(worker, path);
  }
  // Returns true if a trial runs and enough members have measured: all members, or `max_roster` of
  // them. `max_roster` is the maximum number of members that a round gives work. Returns false if
  // there are fewer members than the job's min_workers.
  bool IsTrialOver(const std::vector<WorkerId>& members, int64_t max_roster) const;
  // Gives the job the settings that follow from the trial. Returns the settings and the reason as a
  // message for operators. Errors: those of ExchangeTuning::Choose().
  absl::StatusOr<std::string> ChooseExchange();

  // Begins an incarnation of the servers with this job. Begins a trial if the job is to choose
  // settings, has not chosen them yet, and does not start from a checkpoint. Errors: those of
  // BuildLayout() and TransposedBetween().
  absl::Status Restore(RestoredModel restored);
  // Sets where the weights of the incarnation come from. `resumed` is not set if they do not come
  // from a checkpoint.
  void BeginFrom(shards::WeightsSource source, std::optional<ResumeSnapshot> resumed);
  // Plans which server has which part of the layout, and cuts the parts into buckets. `addresses`
  // are those of the servers, by shard. Errors: those of PlanShards() and PlanBuckets(). Requires:
  // layout() is set.
  absl::Status PlanMap(uint64_t version, const std::vector<std::string>& addresses);
  // Makes a map with other addresses and a higher version. Workers may hear of the new map by a
  // heartbeat before the journal has it. Therefore the version contains the time. If the process is
  // then started again without that record, it must not give the same version to a map with yet
  // other addresses. Errors: those of PlanMap(). Requires: map() != nullptr.
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
  // Returns the job with what this client proposes, as kAnother. Returns kRefused if this job is
  // not valid, or does not fit the layout or the servers.
  Proposal SettleWith(const messages::RegisterCall& call, const params::Layout& layout) const;
  // Ends the trial without a choice. `kept_by` names what the settings come from beside the flags,
  // such as "journal".
  void EndTrial(absl::string_view kept_by);

  Config config_;
  // The job with the settings that a client has proposed, that a checkpoint has, or that the job
  // has chosen.
  job::JobSpec job_;
  // True means that the model is a client's, and the job takes the layout and the settings of the
  // next client that registers.
  bool awaits_settings_;
  // The client that is expected back with the weights. Until proposer_->until, other clients cannot
  // change the job. Not set means that the client has come back, or that no client is expected.
  std::optional<Proposer> proposer_;
  std::optional<params::Layout> layout_;
  std::shared_ptr<const messages::ClusterMap> map_;
  shards::WeightsSource source_;
  WeightsSupply supply_;
  ExchangeTuning tuning_;
  std::optional<ResumeSnapshot> resumed_;
};

// Returns the job that continues from the memory: `asked`, with settings of the memory where the
// operator has given none. These are the settings that its client has proposed, or that the job has
// chosen by measurement. See Settle() and WithOpenOf().
job::JobSpec JobOf(const JobModel::Memory& memory, const job::JobSpec& asked,
                   const std::set<std::string>& given, const job::OpenSettings& open);
// Returns true if the journals of the memory use the layout that an earlier release built for this
// model, and this release builds another.
bool IsOfEarlierLayout(const JobModel::Memory& memory, const job::JobSpec& job);

}  // namespace lodestar::model
