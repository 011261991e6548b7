// The checkpoint under way, at most one at a time: requested, being written by the shards, being
// published, and its outcome. Pure; the coordinator acts on what it says.
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

namespace lodestar {

class CheckpointTracker {
 public:
  using Outcome = absl::StatusOr<PublishedCheckpoint>;
  static constexpr size_t kMaxOutcomes = 16;

  // What outlives the process. Callers that have asked for checkpoints are not part of it, because
  // their calls end with the process.
  struct Memory {
    uint64_t next_ticket = 1;
    std::string active_directory = {};  // directory of the one under way; empty if none is
    std::optional<PublishedCheckpoint> last;
    LedgerState last_ledger;
    StandingOrders last_orders;
    absl::Time last_at;
    absl::Duration last_write_time;
    friend bool operator==(const Memory&, const Memory&) = default;
  };

  explicit CheckpointTracker(int num_shards) : num_shards_(num_shards) {}
  Memory memory() const;
  // The checkpoint that was under way is given up.
  void Resume(const Memory& memory);

  bool is_active() const { return active_.has_value(); }
  bool is_requested() const { return requested_at_.has_value(); }
  // Returns when the first of the requests was made that are not served yet. Not set means that
  // there is none.
  std::optional<absl::Time> requested_at() const;
  // All shards have saved theirs, and the one under way waits for the disk only.
  bool is_publishing() const;
  // Directory of the one under way; empty if none is.
  absl::string_view active_directory() const;

  // The ticket of the checkpoint that will be begun next.
  uint64_t Request(absl::Time now);
  // Requires: not is_active(). Returns the temporary directory, below `folder`. Serves all requests
  // made so far.
  std::string Begin(absl::string_view folder, Round round, const CoordinatorState& state,
                    absl::Time now);
  // Serves all requests with what is on disk already.
  void ServeWithLast();
  // Returns the record to publish once the last shard has saved. An error ends the checkpoint. Not
  // set means that other shards are awaited, or that the answer is of another checkpoint.
  std::optional<absl::StatusOr<CheckpointRecord>> OnSaved(
      int shard, absl::string_view directory, const absl::StatusOr<std::string>& manifest_part);
  // Returns false if the answer is of another checkpoint.
  bool Finish(absl::string_view directory, const Outcome& outcome, absl::Time now);
  // Ends the one under way, if any, and all requests with this error.
  void Abort(const absl::Status& reason);
  // Ends the requests alone that the one under way does not serve.
  void EndRequests(const absl::Status& reason);
  // Returns true if this is the directory of the last checkpoint that has ended with an error.
  bool IsGivenUp(absl::string_view directory) const {
    return !directory.empty() && directory == given_up_;
  }

  // The checkpoint that was restored, and was written at `written_at`, counts as the last one.
  // `ledger` and `orders` are as they are on disk.
  void SetLast(const PublishedCheckpoint& checkpoint, const LedgerState& ledger,
               const StandingOrders& orders, absl::Time written_at);
  void ForgetLast() { last_.reset(); }
  // The last one was taken in this very state.
  bool HoldsLast(const LedgerState& ledger, const StandingOrders& orders) const {
    return last_.has_value() && last_ledger_ == ledger && last_orders_ == orders;
  }
  // The last one was taken under other orders.
  bool HasOther(const StandingOrders& orders, double learning_rate_scale) const {
    return last_.has_value() &&
           (last_orders_ != orders || last_ledger_.learning_rate_scale != learning_rate_scale);
  }
  const std::optional<PublishedCheckpoint>& last() const { return last_; }
  // When the last one was written, and how long that took. Requires: last() is set.
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
  std::optional<absl::Time> requested_at_;  // of those that the next one serves
  std::optional<Active> active_;
  std::string given_up_;  // directory
  std::map<uint64_t, Outcome> outcomes_;
  std::optional<PublishedCheckpoint> last_;
  LedgerState last_ledger_;
  StandingOrders last_orders_;
  absl::Time last_at_;
  absl::Duration last_write_time_;
};

}  // namespace lodestar
