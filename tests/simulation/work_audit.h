// WorkAudit: what the numbers of rounds have to be. From the grants that workers get and the
// reports that are taken from them it adds up by itself whose samples come next and what each
// round's summary has to say.
//
// It holds:
//   the samples of a life of the servers follow one another without a gap and without an overlap,
//   whichever workers get them, from where they were when the checkpoint was taken that it began
//   with;
//   the samples of a round of a site are those of its order, also one after the other;
//   a grant that is given again is the same to the bit;
//   a round's summary has exactly the workers, samples and losses that were reported, each once,
//   and says whether a member of its roster is missing.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/messages/cluster_messages.h"
#include "common/runtime/ids.h"
#include "server/coordinator/announcement.h"
#include "server/coordinator/checkpoint_task.h"
#include "server/coordinator/coordinator_memory.h"
#include "server/coordinator/rounds/site_order.h"
#include "server/coordinator/shards/shard_command.h"
#include "server/sync/round_plan.h"

namespace lodestar::simulation {

// The path that a checkpoint was published at, which another one of its round may have replaced.
std::string PublishedAs(const std::string& directory);

// What a site has done of an order.
struct CarriedOutOrder {
  std::optional<Round> round;                        // of the site, the last one; not set if none
  std::vector<Incarnation> members;                  // that have reported it
  RoundReport sums;                                  // of what they have
  std::vector<std::pair<int64_t, int64_t>> samples;  // those: first, and the one after the last
};

class WorkAudit {
 public:
  using Fail = std::function<void(const std::string& violation)>;

  // `sizes_vary` means that what is handed out with a round follows neither from its plan nor from
  // its number. `is_site`: see Audit. `samples_per_grant` is for jobs without rosters.
  WorkAudit(bool uses_rosters, bool sizes_vary, bool is_site, int64_t samples_per_grant, Fail fail)
      : uses_rosters_(uses_rosters),
        sizes_vary_(sizes_vary),
        is_site_(is_site),
        samples_per_grant_(samples_per_grant),
        fail_(std::move(fail)) {}

  void OnRestored(const RestoredPoint& point);
  // A coordinator goes on with this: what was not told of it comes again.
  void OnResumed(const CoordinatorMemory& memory);
  // The servers were told what to restore from.
  void OnAssigned(const WeightsSource& source);
  void OnOpened(const RoundPlan& plan);
  // `round` is the round at whose beginning the checkpoint is taken, which may be open. Not set
  // means now.
  void OnSaveBegun(const std::string& directory, std::optional<Round> round);
  void OnRecord(const CheckpointRecord& record);

  // The worker gets the grant, perhaps not for the first time.
  void OnGranted(const WorkerLife& life, const Grant& grant);
  // A report is taken, perhaps not for the first time.
  void OnReported(const WorkerLife& life, const RoundReport& report);
  void OnReportedToReplaced(const WorkerLife& life, const RoundReport& report) {
    unrecorded_[report.round].try_emplace(life.incarnation, report);
  }
  void OnSummary(const RoundSummary& summary);

  // A site gets this order in the place of the order before.
  void OnOrdered(const SiteOrder& order);
  CarriedOutOrder OrderCarriedOut() const;
  // The uplink does not wait for the order any more, whatever the workers have done of it.
  void OnAbandoned();
  // Returns true if the round is in no outcome: no worker has reported it, or its order was
  // abandoned.
  bool IsLost(Round round) const;

 private:
  // The progress of a job, or since a life of the servers began.
  struct Progress {
    int64_t handed_out = 0;  // samples
    int64_t reported = 0;    // those of rounds that are over
  };
  struct Share {
    Incarnation incarnation;
    int64_t first = 0;  // sample, from the beginning of this life on
    int64_t count = 0;
  };

  // Checks that what a site hands out is a part of the order.
  void CheckPart(const WorkerLife& life, const Grant& grant, const Share& share);
  void CheckHeldoutPart(const WorkerLife& life, const Grant& grant);
  // The first sample of a round, as Share has it.
  int64_t FirstOf(Round round) const;
  // Checks that what is handed out is not handed out to another worker.
  void OnHandedOut(const WorkerLife& life, const Grant& grant);
  // Leaves only those beginnings that may be; there must be one.
  template <typename MayBe>
  void Narrow(const MayBe& may_be, const std::string& violation);

  const bool uses_rosters_;
  const bool sizes_vary_;
  const bool is_site_;
  const int64_t samples_per_grant_;
  const Fail fail_;
  // The progress of checkpoints by directory: of those that are being written, and of those that
  // are written. There is more than one if a round was saved again after the servers had gone back.
  std::map<std::string, Progress> begun_;
  std::map<std::string, std::vector<Progress>> kept_;

  SiteOrder order_;                  // of a site, the last one
  std::vector<Round> order_rounds_;  // opened for it

  // The members below are for the present life of the servers.
  RestoredPoint restored_;
  std::vector<Progress> beginnings_ = {{}};  // where it may have begun
  Progress since_;
  std::map<Round, Progress> before_opening_;  // since_, before the rounds were opened
  // The progress of the whole job, as far as grants and summaries have told of it.
  Progress told_;
  std::map<int64_t, int64_t> handed_out_;  // sizes_vary_: since the servers began; to ends
  std::map<Round, std::map<WorkerId, Share>> shares_;
  std::set<Round> abandoned_;
  std::map<Round, SiteOrder> orders_;  // of a site: what rounds were opened for
  std::map<Incarnation, Grant> last_grants_;
  std::map<Round, std::map<Incarnation, RoundReport>> reports_;  // since the servers began
  // Those that the journal did not have when a coordinator went on from it.
  std::map<Round, std::map<Incarnation, RoundReport>> unrecorded_;
};

}  // namespace lodestar::simulation
