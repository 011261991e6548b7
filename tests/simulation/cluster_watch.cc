// SPDX-License-Identifier: Apache-2.0

#include "tests/simulation/cluster_watch.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace lodestar::simulation {
namespace {

// Maximum time from the last fault until a round is committed, from one round to the next, and
// until the job is over.
constexpr absl::Duration kLongestPause = absl::Seconds(60);
// Maximum time, beyond its own patience, that a server may take to exit after it was told to stop.
constexpr absl::Duration kStopSlack = absl::Seconds(5);
// Maximum time, beside two leases, from the last fault until a job that an operator has stopped is
// over.
constexpr absl::Duration kLongestEnding = absl::Seconds(15);
// Time in which an uplink leaves the servers upstream.
constexpr absl::Duration kGoodbye = absl::Seconds(10);
// Maximum time, beside a lease, that the others may be held up beyond the round_timeout of each
// hanging worker.
constexpr absl::Duration kHoldSlack = absl::Seconds(5);

}  // namespace

void ClusterWatch::Look(const Peace& peace) {
  CheckHolds(peace);
  CheckStopping(peace);
  CheckReasons();
}

void ClusterWatch::OnJobStopped() {
  stopped_process_ = &cluster_.servers[0]->process();
  stopped_life_ = stopped_process_->life();
  job_stopped_at_ = now();
}

bool ClusterWatch::IsJobStopped() const {
  const Process& coordinator = cluster_.servers[0]->process();
  return coordinator.is_alive() && &coordinator == stopped_process_ &&
         coordinator.life() == stopped_life_;
}

void ClusterWatch::BeginCalm() { progress_at_ = now(); }

bool ClusterWatch::AnyAwaitsDisk() const {
  return std::any_of(cluster_.servers.begin(), cluster_.servers.end(),
                     [](const auto& server) { return server->awaits_disk(); });
}

void ClusterWatch::CheckHolds(const Peace& peace) {
  const absl::Time now = this->now();
  const bool goes_on =
      std::exchange(rounds_then_, audit().rounds_committed()) != audit().rounds_committed();
  coordinator::Coordinator* const coordinator = cluster_.servers[0]->coordinator();
  bool is_anyone_waiting = false;
  if (coordinator != nullptr && coordinator->phase() == coordinator::CoordinatorPhase::kRunning) {
    for (const coordinator::WorkerSnapshot& worker : coordinator->Snapshot(now).workers) {
      is_anyone_waiting |= worker.state == "member" && worker.activity == "wait";
    }
  }
  const int before = std::exchange(
      num_hanging_, static_cast<int>(std::count_if(cluster_.workers.begin(), cluster_.workers.end(),
                                                   [](const auto& w) { return w->is_hanging(); })));
  // If one worker has stopped hanging, the next worker gets its full time.
  if (goes_on || !is_anyone_waiting || peace.unbroken_since == absl::InfiniteFuture() ||
      num_hanging_ < before) {
    holds_since_.clear();
  }
  // Each worker that reports a push may only be waiting for the worker before it.
  const absl::Duration longest =
      num_hanging_ * cluster_.config().round_timeout + cluster_.config().lease + kHoldSlack;
  for (const auto& worker : cluster_.workers) {
    if (!worker->is_hanging() || !is_anyone_waiting) {
      holds_since_.erase(worker.get());
      continue;
    }
    const absl::Time since = holds_since_.try_emplace(worker.get(), now).first->second;
    if (now - since <= longest) continue;
    audit().Fail(worker->process().name(), " hangs, and the others have waited for it for ",
                 absl::FormatDuration(now - since), "; allowed are ", absl::FormatDuration(longest),
                 ": ", coordinator->Snapshot(now).waiting_for);
  }
}

absl::Duration ClusterWatch::LongestStop() const {
  const absl::Duration patience = cluster_.config().stop_timeout;
  // A site needs this time four times: for steps that fit into it, for the last steps, whose
  // workers may hang, for the servers upstream, and for the last checkpoint.
  return cluster_.is_site() ? 4 * patience + kGoodbye + kStopSlack : patience + kStopSlack;
}

// Checks that servers that were told to stop, and a job that an operator has stopped, end in time.
void ClusterWatch::CheckStopping(const Peace& peace) {
  for (const auto& server : cluster_.servers) {
    absl::Duration& time = stopping_for_[server.get()];
    if (!server->is_stopping()) {
      time = absl::ZeroDuration();
    } else if (!server->process().is_frozen()) {
      time += kInterval;
    }
    if (time > LongestStop()) {
      audit().Fail(server->process().name(), " was told to stop and has not exited after ",
                   absl::FormatDuration(time));
    }
  }
  // If the coordinator itself was told to stop, only its own time limit counts, which is checked
  // above.
  if (!IsJobStopped() || cluster_.servers[0]->is_stopping()) return;
  const absl::Time since = std::max(job_stopped_at_, peace.settled_since);
  const absl::Duration longest = kLongestEnding + 2 * cluster_.config().lease;
  const absl::Duration longest_with_hangs = longest + cluster_.config().stop_timeout;
  if (now() - std::max(job_stopped_at_, peace.unbroken_since) > longest_with_hangs) {
    audit().Fail("an operator has stopped the job, and it is not over after ",
                 absl::FormatDuration(longest_with_hangs), ", though nothing but workers hang");
  }
  if (now() - since > longest) {
    const coordinator::ClusterSnapshot snapshot =
        cluster_.servers[0]->coordinator()->Snapshot(now());
    audit().Fail("nothing is broken, an operator has stopped the job, and it is not over after ",
                 absl::FormatDuration(longest), ": ", snapshot.state, ", ", snapshot.waiting_for);
  }
}

void ClusterWatch::CheckReasons() {
  const absl::Time now = this->now();
  coordinator::Coordinator* const coordinator = cluster_.servers[0]->coordinator();
  if (coordinator == nullptr || cluster_.servers[0]->process().is_frozen()) {
    told_at_ = now;
    return;
  }
  const coordinator::ClusterSnapshot snapshot = cluster_.servers[0]->Snapshot();
  const bool goes_on =
      std::exchange(rounds_told_, audit().rounds_committed()) != audit().rounds_committed();
  if (goes_on) {
    longest_round_ = std::max(longest_round_, now - committed_at_);
    committed_at_ = now;
  }
  // A worker that comes for work may be about to deliver a round.
  const bool has_come = std::exchange(work_told_, snapshot.round) != snapshot.round;
  if (goes_on || has_come || !snapshot.waiting_for.empty() || AnyAwaitsDisk()) told_at_ = now;
  // A round may take as long as the longest round so far, so a reason is expected only later.
  const absl::Duration patience =
      std::max(cluster_.config().lease, 2 * longest_round_) + absl::Seconds(2);
  audit().OnSnapshot(snapshot, now - told_at_ > patience);
}

void ClusterWatch::CheckProgress(bool anybody_hangs, absl::Duration slack) {
  const absl::Time now = this->now();
  if (anybody_hangs || audit().rounds_committed() != rounds_seen_) {
    rounds_seen_ = audit().rounds_committed();
    progress_at_ = now;
  }
  const absl::Duration longest = kLongestPause + 6 * cluster_.config().lease + slack;
  if (now - progress_at_ < longest) return;
  std::string reason = "the coordinator is not there";
  if (coordinator::Coordinator* const coordinator = cluster_.servers[0]->coordinator();
      coordinator != nullptr) {
    const coordinator::ClusterSnapshot snapshot = coordinator->Snapshot(now);
    reason = absl::StrCat(snapshot.state, ", ", snapshot.waiting_for);
  }
  for (const auto& server : cluster_.servers) {
    absl::StrAppend(&reason, "; ", server->process().name(), ": ", server->ShardWaitsFor());
  }
  audit().Fail("nothing is broken, and no round was committed for ", absl::FormatDuration(longest),
               ": ", reason);
}

}  // namespace lodestar::simulation
