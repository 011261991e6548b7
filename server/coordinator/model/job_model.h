// The model and the settings of a job: the job as it is and as the operator asks for it, whose
// model and settings count, the layout and which server has which part of it, where the first
// weights come from, and the trial by which the job chooses its exchange. JobModel is the one place
// that writes the job. It decides what a client that registers may bring and propose, as far as
// that concerns the model alone. The caller passes facts in, and words and carries out the
// verdicts. Pure: no lock, clock or thread.
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

namespace lodestar {

// What the model and the settings of a client that registers make of the job.
struct Proposal {
  enum class Kind : uint8_t {
    kNone,     // They do not count: the job has its own.
    kRefused,  // See `refusal`.
    kSame,     // The job stays as it is, and is this client's.
    kAnother,  // The job is another one, and servers that have loaded start over.
  };
  Kind kind = Kind::kNone;
  ModelRefusal refusal = {};
  SettledJob settled = {};        // of kSame and kAnother
  bool has_other_layout = false;  // of kAnother: the layout of the client is the job's
};

// What the servers begin an incarnation with.
struct RestoredModel {
  std::optional<JobSpec> job = std::nullopt;    // see RestoreChoice
  std::optional<Layout> layout = std::nullopt;  // see RestoreChoice
  bool is_from_checkpoint = false;
};

class JobModel {
 public:
  struct Config {
    JobSpec job;  // that the operator asks for
    // These are as in CoordinatorConfig.
    std::set<std::string> given = {};
    OpenSettings open_settings = {};
    DivergencePolicy divergence = {};
    ServerRoom room = {};
    // Within this time a client that was told to call again has called.
    absl::Duration caller_patience = absl::Seconds(6);
  };
  // What outlives the coordinator's process.
  struct Memory {
    std::vector<JobSetting> settings;
    std::string spec;                             // ModelSpecToJson()
    std::optional<Layout> layout = std::nullopt;  // of the model `client`: nothing else tells it
    std::string layout_hash;  // empty if written by a release before it was kept
    uint64_t map_version = 0;
    bool awaits_settings = false;
    WeightsSupply::Memory supply;
  };

  // Errors: those of BuildLayout(), PlanShards(), PlanBuckets() and FragmentPlan::CheckComplete().
  static absl::StatusOr<JobModel> Create(Config config);
  // Requires: map() != nullptr.
  Memory memory() const;
  // `addresses`: of the servers, by shard. Errors: DataLoss for a layout that is not the model's;
  // those of PlanMap().
  absl::Status Resume(Memory memory, const std::vector<std::string>& addresses, absl::Time now);

  const JobSpec& job() const { return job_; }
  // Not set means that no client has brought the layout of its model yet.
  const std::optional<Layout>& layout() const { return layout_; }
  // Null means that PlanMap() was not called.
  const std::shared_ptr<const ClusterMap>& map() const { return map_; }
  const WeightsSource& source() const { return source_; }
  const WeightsSupply& supply() const { return supply_; }
  const ExchangeTuning& tuning() const { return tuning_; }
  const std::optional<ResumeSnapshot>& resumed() const { return resumed_; }
  // Returns true if a client is to supply the first weights, and none has come forward.
  bool lacks_supplier() const { return supply_.is_awaited() && !supply_.supplier().has_value(); }

  // These functions decide about a client that registers or joins, and change nothing. The first
  // two require that the layout is set.

  // Returns kOtherTensors or kOtherLayout. Requires: the client brings a layout.
  std::optional<ModelRefusal> CheckOffered(const RegisterCall& call) const;
  // Returns kLayoutHash if `hash` is not that of the layout.
  std::optional<ModelRefusal> CheckLayoutHash(absl::string_view hash) const;
  // Returns kEncoding.
  std::optional<ModelRefusal> CheckEncodings(const std::vector<Encoding::Kind>& known) const;
  // Decides about what a client brings and proposes. Call while the job has no layout, or
  // lacks_supplier(). The model of a client that may be the one to supply the weights counts, if
  // that of another does not count any more.
  Proposal Judge(const RegisterCall& call, absl::Time now) const;
  // Makes the job what the proposal says, and gives this client time to come back with the weights.
  // Requires: kSame or kAnother.
  void Take(const RegisterCall& call, const Proposal& proposal, absl::Time now);

  // Returns true if this life is to supply the first weights.
  bool ClaimSupply(const WorkerLife& life, absl::Time now);
  void OnJoined(const WorkerLife& life) { supply_.OnJoined(life); }
  // Returns true if this life was to supply the weights. The model of the next client counts then.
  bool OnEnded(const WorkerLife& life);

  // The trial of settings: see ExchangeTuning.
  void OnReport(WorkerId worker, const RoundReport& report, int local_steps) {
    tuning_.OnReport(worker, report, local_steps);
  }
  void OnHeartbeat(WorkerId worker, const PathFacts& path) { tuning_.OnHeartbeat(worker, path); }
  // Returns whether so many members have measured as can have work. `max_roster`: members that a
  // round gives work at most.
  bool IsTrialOver(const std::vector<WorkerId>& members, int64_t max_roster) const;
  // Gives the job the settings that its trial says. Returns what was chosen, and why. Errors: those
  // of ExchangeTuning::Choose().
  absl::StatusOr<std::string> ChooseExchange();

  // Begins an incarnation of the servers with this job, and with a trial if the job still has no
  // settings of its own. Errors: those of BuildLayout() and TransposedBetween().
  absl::Status Restore(RestoredModel restored);
  // Takes the weights of the incarnation from there.
  void BeginFrom(WeightsSource source, std::optional<ResumeSnapshot> resumed);
  // Plans which server has which part of the layout, and which buckets. `addresses`: of the
  // servers, by shard. Errors: those of PlanShards() and PlanBuckets(). Requires: layout().
  absl::Status PlanMap(uint64_t version, const std::vector<std::string>& addresses);
  // Makes a map with other addresses and a higher version. A heartbeat tells of it before the
  // journal has it. Therefore the version contains the time: a process that is started again
  // without that record must not give the same version to a map with yet another address.
  // Errors: those of PlanMap(). Requires: map() != nullptr.
  absl::Status MoveServers(const std::vector<std::string>& addresses, absl::Time now);

 private:
  // The client whose model the job has.
  struct Proposer {
    std::string name;
    uint64_t instance_id = 0;
    absl::Time until;
  };

  explicit JobModel(Config config);
  bool is_client_model() const;
  // Returns the job with what this client proposes, as kAnother, if it could be a job of the
  // layout.
  Proposal SettleWith(const RegisterCall& call, const Layout& layout) const;
  // `kept_by`: what has the settings, beside the flags.
  void EndTrial(absl::string_view kept_by);

  Config config_;
  JobSpec job_;  // with what a client has proposed, a checkpoint has, or the job has chosen
  // The model is a client's, and layout and settings of the next one that registers count.
  bool awaits_settings_;
  // Set as long as that client is given time to come back with the weights. The models of other
  // clients do not count meanwhile. Not set means that the client has come, or that there is none.
  std::optional<Proposer> proposer_;
  std::optional<Layout> layout_;
  std::shared_ptr<const ClusterMap> map_;
  WeightsSource source_;
  WeightsSupply supply_;
  ExchangeTuning tuning_;
  std::optional<ResumeSnapshot> resumed_;
};

// Returns the job that goes on from the memory: the one asked for, with what its client had
// proposed, or what the job had chosen by measurement, where the operator gives nothing. See
// Settle() and WithOpenOf().
JobSpec JobOf(const JobModel::Memory& memory, const JobSpec& asked,
              const std::set<std::string>& given, const OpenSettings& open);
// Returns whether the journals of the memory are of a layout that the model has no more.
bool IsOfEarlierLayout(const JobModel::Memory& memory, const JobSpec& job);

}  // namespace lodestar
