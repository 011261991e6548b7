// SPDX-License-Identifier: Apache-2.0

// WorkAudit checks the numbers of rounds. From the grants that workers get and from the reports
// that are accepted, it computes which samples come next and what each round's summary must say.
//
// The rules are:
//   the samples of an incarnation of the servers follow one another without gap or overlap,
//   whichever workers get them. They begin where they were when the checkpoint was taken with which
//   the incarnation began;
//   the samples of a round of a site are those of its order, also one after the other;
//   a grant that is given again is the same to the bit;
//   more samples of a grant follow those that were handed out before, and are given only to the
//   worker that has the grant, until it has reported;
//   a round's summary has exactly the workers, samples and losses that were reported, each once,
//   and says whether a member of its roster is missing.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
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

// Returns the path that a checkpoint was published at. Another checkpoint of the same round may
// have replaced it.
std::string PublishedAs(const std::string& directory);

// What a site has done of an order.
struct CarriedOutOrder {
  std::optional<Round> round;        // last round of the site; not set means none
  std::vector<Incarnation> members;  // members that have reported the round
  messages::RoundReport sums;        // sums of their reports
  // Ranges of their samples: the first one, and the one after the last.
  std::vector<std::pair<int64_t, int64_t>> samples;
};

class WorkAudit {
 public:
  using Fail = std::function<void(const std::string& violation)>;

  // `sizes_vary` means that the samples of a round follow neither from its plan nor from its
  // number. Audit explains `is_site`. `samples_per_grant` is for jobs without rosters.
  WorkAudit(bool uses_rosters, bool sizes_vary, bool is_site, int64_t samples_per_grant, Fail fail)
      : uses_rosters_(uses_rosters),
        sizes_vary_(sizes_vary),
        is_site_(is_site),
        samples_per_grant_(samples_per_grant),
        fail_(std::move(fail)) {}

  void OnRestored(const coordinator::RestoredPoint& point);
  // A coordinator continues with this memory. Events that were not announced before come again.
  void OnResumed(const coordinator::CoordinatorMemory& memory);
  // The servers were told what to restore from.
  void OnAssigned(const shards::WeightsSource& source);
  void OnOpened(const sync::RoundPlan& plan);
  // A checkpoint is begun. It is taken at the beginning of `round`, which may be open. Not set
  // means now.
  void OnSaveBegun(const std::string& directory, std::optional<Round> round);
  void OnRecord(const checkpoints::CheckpointRecord& record);

  // The worker gets the grant, perhaps not for the first time.
  void OnGranted(const messages::WorkerLife& life, const messages::Grant& grant);
  // The coordinator has decided to hand out more samples of a grant. The answer may follow later.
  void OnExtending(const messages::WorkerLife& life, Round round, const messages::Grant& more);
  // The worker gets them.
  void OnExtended(const messages::WorkerLife& life, const messages::Grant& more);
  // The incarnation asks for grants without samples, from its first request on.
  void OnAsksWithoutSamples(Incarnation incarnation) { without_samples_.insert(incarnation); }
  // The coordinator expects no further report of this round from the incarnation, because it has
  // accepted or ignored the report. OnReported() is only called for accepted reports.
  void OnReportTaken(Incarnation incarnation, Round round) {
    Round& taken = taken_.try_emplace(incarnation, round).first->second;
    taken = std::max(taken, round);
  }
  // Returns true if the incarnation has a grant of training of this round, as far as grants and
  // reports have shown.
  bool HoldsTraining(Incarnation incarnation, Round round) const;
  // A report is accepted, perhaps not for the first time.
  void OnReported(const messages::WorkerLife& life, const messages::RoundReport& report);
  void OnReportedToReplaced(const messages::WorkerLife& life, const messages::RoundReport& report) {
    unrecorded_[report.round].try_emplace(life.incarnation, report);
  }
  void OnSummary(const rounds::RoundSummary& summary);

  // A site gets this order, which replaces the order before.
  void OnOrdered(const rounds::SiteOrder& order);
  CarriedOutOrder OrderCarriedOut() const;
  // The uplink stops waiting for the order, whatever the workers have done of it.
  void OnAbandoned();
  // Returns true if the round is in no outcome: no worker has reported it, or its order was
  // abandoned.
  bool IsLost(Round round) const;

 private:
  // Progress of a job, either in all or since an incarnation of the servers began.
  struct Progress {
    int64_t handed_out = 0;  // samples that were handed out
    int64_t reported = 0;    // samples of rounds that are over
  };
  struct Share {
    Incarnation incarnation;
    int64_t first = 0;  // sample, counted from the beginning of this incarnation of the servers
    int64_t count = 0;
  };

  bool HasReported(Incarnation incarnation, Round round) const;
  // Moves the cursor over those samples in extending_ that come next.
  void TakeExtending();
  // Checks that the samples that a site hands out are a part of the order.
  void CheckPart(const messages::WorkerLife& life, const messages::Grant& grant,
                 const Share& share);
  void CheckHeldoutPart(const messages::WorkerLife& life, const messages::Grant& grant);
  // Returns the first sample of a round, counted as in Share.
  int64_t FirstOf(Round round) const;
  // Checks that no sample is handed out to two workers.
  void OnHandedOut(const messages::WorkerLife& life, const messages::Grant& grant);
  // Keeps only those beginnings for which `may_be` returns true. At least one must be left.
  template <typename MayBe>
  void Narrow(const MayBe& may_be, const std::string& violation);

  const bool uses_rosters_;
  const bool sizes_vary_;
  const bool is_site_;
  const int64_t samples_per_grant_;
  const Fail fail_;
  // Progress of checkpoints by directory: begun_ has those that are being written, kept_ those that
  // are written. A directory has several if its round was saved again after the servers had gone
  // back.
  std::map<std::string, Progress> begun_;
  std::map<std::string, std::vector<Progress>> kept_;

  rounds::SiteOrder order_;          // last order of a site
  std::vector<Round> order_rounds_;  // rounds opened for it

  // The members below are for the current incarnation of the servers.
  coordinator::RestoredPoint restored_;
  std::vector<Progress> beginnings_ = {{}};  // possible progress at its beginning
  Progress since_;
  std::map<Round, Progress> before_opening_;  // since_ before each round was opened
  // Ranges of samples that were handed out for open grants, beyond the cursor of since_. They are
  // in the order of the coordinator's decisions. The audit hears of some later events before it
  // hears of these.
  std::deque<std::pair<int64_t, int64_t>> extending_;
  std::set<Incarnation> without_samples_;
  std::map<Incarnation, Round> taken_;  // last report that was taken of each incarnation
  // Progress of the whole job, as far as grants and summaries have shown it.
  Progress told_;
  // If sizes_vary_: ranges of samples since the servers began, from begin to end.
  std::map<int64_t, int64_t> handed_out_;
  std::map<Round, std::map<WorkerId, Share>> shares_;
  std::set<Round> abandoned_;
  std::map<Round, rounds::SiteOrder> orders_;  // orders of a site, by the rounds opened for them
  std::map<Incarnation, messages::Grant> last_grants_;
  std::map<Round, std::map<Incarnation, messages::RoundReport>>
      reports_;  // Reports since the servers began.
  // Reports that the journal did not have when a coordinator continued from it.
  std::map<Round, std::map<Incarnation, messages::RoundReport>> unrecorded_;
};

}  // namespace lodestar::simulation
