// SPDX-License-Identifier: Apache-2.0

// CheckpointTracker follows the checkpoint under way, at most one at a time: its requests, its
// writing by the shards, its publication and its outcome. Pure; the coordinator acts on its
// answers.
//
//   idle --Begin--> writing --all shards saved--> publishing --Finish--> idle
//                      \---- a shard failed, or Abort ----------^
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/runtime/ids.h"
#include "server/coordinator/checkpoints/checkpoint_record.h"
#include "server/coordinator/checkpoints/coordinator_state.h"

namespace lodestar::checkpoints {

class CheckpointTracker {
 public:
  using Outcome = absl::StatusOr<PublishedCheckpoint>;
  static constexpr size_t kMaxOutcomes = 16;

  // The state that outlives the process. Requests for checkpoints are not part of this state,
  // because the calls that made them end with the process.
  struct Memory {
    uint64_t next_ticket = 1;
    std::string active_directory = {};  // of the checkpoint under way; empty means none
    std::optional<PublishedCheckpoint> last;
    LedgerState last_ledger;
    StandingOrders last_orders;
    absl::Time last_at;
    absl::Duration last_write_time;
    friend bool operator==(const Memory&, const Memory&) = default;
  };

  explicit CheckpointTracker(int num_shards) : num_shards_(num_shards) {}
  Memory memory() const;
  // Continues from `memory`. Gives up the checkpoint that was under way.
  void Resume(const Memory& memory);

  bool is_active() const { return active_.has_value(); }
  bool is_requested() const { return requested_at_.has_value(); }
  // Returns the time of the oldest unanswered request. Not set means that all requests are
  // answered.
  std::optional<absl::Time> requested_at() const;
  // Returns true if all shards have saved their parts of the checkpoint under way, and only its
  // publication on disk is awaited.
  bool is_publishing() const;
  // Returns the temporary directory of the checkpoint under way. Empty means that none is under
  // way.
  absl::string_view active_directory() const;

  // Requests a checkpoint. Returns the ticket of the checkpoint that will be begun next.
  uint64_t Request(absl::Time now);
  // Begins a checkpoint that answers all requests made so far. Returns its temporary directory,
  // below `folder`. Requires: !is_active().
  std::string Begin(absl::string_view folder, Round round, const CoordinatorState& state,
                    absl::Time now);
  // Answers all requests with the last checkpoint. Requires: last() is set.
  void ServeWithLast();
  // Records a shard's answer. Returns the record to publish if all shards have saved. An error in
  // `manifest_part` ends the checkpoint and is returned. Not set means that other shards are
  // awaited, or that the answer belongs to another checkpoint.
  std::optional<absl::StatusOr<CheckpointRecord>> OnSaved(
      int shard, absl::string_view directory, const absl::StatusOr<std::string>& manifest_part);
  // Ends the checkpoint in `directory` with this outcome. Returns false if the outcome belongs to
  // another checkpoint.
  bool Finish(absl::string_view directory, const Outcome& outcome, absl::Time now);
  // Ends the checkpoint under way, if any, and all requests with the error `reason`.
  void Abort(const absl::Status& reason);
  // Ends with the error `reason` only the requests that the checkpoint under way does not answer.
  void EndRequests(const absl::Status& reason);
  // Returns true if `directory` is the temporary directory of the checkpoint that was given up
  // last.
  bool IsGivenUp(absl::string_view directory) const {
    return !directory.empty() && directory == given_up_;
  }

  // Records the checkpoint that was restored as the last checkpoint. It was written at `written_at`
  // and contains `ledger` and `orders`.
  void SetLast(const PublishedCheckpoint& checkpoint, const LedgerState& ledger,
               const StandingOrders& orders, absl::Time written_at);
  void ForgetLast() { last_.reset(); }
  // Returns true if the last checkpoint contains exactly this state.
  bool HoldsLast(const LedgerState& ledger, const StandingOrders& orders) const {
    return last_.has_value() && last_ledger_ == ledger && last_orders_ == orders;
  }
  // Returns true if the last checkpoint has orders other than `orders`, or another learning rate
  // scale.
  bool HasOther(const StandingOrders& orders, double learning_rate_scale) const {
    return last_.has_value() &&
           (last_orders_ != orders || last_ledger_.learning_rate_scale != learning_rate_scale);
  }
  const std::optional<PublishedCheckpoint>& last() const { return last_; }
  // Return the time when the last checkpoint was published, and how long it took from its begin.
  // Requires: last() is set.
  absl::Time last_at() const { return last_at_; }
  absl::Duration last_write_time() const { return last_write_time_; }
  std::optional<Outcome> OutcomeOf(uint64_t ticket) const;

 private:
  struct Active {
    uint64_t ticket = 0;
    CheckpointRecord record;
    std::vector<bool> saved;
    absl::Time begun_at;
    std::optional<absl::Time> requested_at;
  };
  void Record(uint64_t ticket, const Outcome& outcome);
  void GiveUp(const absl::Status& reason);

  int num_shards_;
  uint64_t next_ticket_ = 1;
  // Time of the oldest request that the next checkpoint will answer. Not set means that there is
  // none.
  std::optional<absl::Time> requested_at_;
  std::optional<Active> active_;
  std::string given_up_;  // directory of the last checkpoint that was given up
  std::map<uint64_t, Outcome> outcomes_;
  std::optional<PublishedCheckpoint> last_;
  LedgerState last_ledger_;
  StandingOrders last_orders_;
  absl::Time last_at_;
  absl::Duration last_write_time_;
};

}  // namespace lodestar::checkpoints
