// SPDX-License-Identifier: Apache-2.0

// LeaseCourse decides how one process gets a leader lease, keeps it and loses it. It does no I/O:
// the time and the answers of a store go in, calls to the store come out. Of all processes that use
// this class with one key, at most one holds the lease at any time. Messages may be lost or late,
// and processes may be frozen. The conditions are:
//   The store ends no lease before its time to live is over, counted from when the lease was asked
//   for.
//   Clocks, including the store's, run at most 5 % too fast or too slow.
//   No other program deletes or overwrites the key, or revokes the lease, of a process that lives.
//   (That process notices it within a third of the time to live.)
//
//   seeking: read --free--> grant --> claim --ours--> held --(no answer in time, or not ours)-->
//   lost
//             ^  held by another         |
//             +-----------<--------------+
//
// A lease counts from the moment at which the call was sent that granted or renewed it, because the
// store cannot have received the call earlier. A tenth of the lease is not used, because clocks
// differ. A renewal counts only after the same endpoint has shown that the key still exists. An
// etcd member that is no longer the leader, and has not noticed because its disk hangs, renews
// leases that have ended for the other members (https://github.com/etcd-io/etcd/issues/15247). But
// such a member cannot read.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "server/durability/lease/leader_claim.h"
#include "server/durability/lease/lease_store.h"

namespace lodestar::lease {

class LeaseCourse {
 public:
  struct Config {
    std::string name;      // the key and the store's address, for messages
    std::string key = "";  // name of the key in the store
    LeaderClaim claim;     // claim of this process
    int num_endpoints = 1;
    // Duration of the lease. After the holder is gone, another process takes over within this time
    // and the store's own delay. A longer duration needs fewer calls, and tolerates longer failures
    // of the store.
    absl::Duration ttl = absl::Seconds(5);
    // Interval between reads of a key that another process holds.
    absl::Duration look_interval = absl::Milliseconds(500);
    // Pause of a holder before it retries a call that got no answer.
    absl::Duration retry_pause = absl::Milliseconds(200);
    absl::Duration call_timeout = absl::Seconds(1);
  };

  explicit LeaseCourse(Config config);

  // Returns the call to send at `now`, which then is under way. Returns nothing while another call
  // is under way, or if no call is due. Ask again after every answer and every few milliseconds.
  std::optional<LeaseCall> Next(absl::Time now);
  // Must be called with the answer to the call under way. `now` is the present time, not the time
  // of the answer's arrival.
  void OnAnswer(const LeaseAnswer& answer, absl::Time now);
  // Gives up the lease. The next calls give it back, if the store answers.
  void Release(absl::Time now);

  // Returns LeaseKey::revision of the key that this process has made, or 0 before it holds the
  // lease.
  int64_t revision() const { return revision_; }
  bool IsHeld(absl::Time now) const { return state_ == State::kHeld && now < deadline(); }
  // Checks that this process holds the lease. Errors: FailedPrecondition (not held yet); Aborted
  // (lost).
  absl::Status CheckHeld(absl::Time now) const;
  // Returns OK before and while the lease is held. Once the lease is lost, returns Aborted with the
  // cause, for good.
  absl::Status lost() const { return lost_; }
  // Returns OK while waiting for the lease makes sense. Errors: FailedPrecondition (the key belongs
  // to another role).
  absl::Status refusal() const { return refusal_; }
  // Returns a message for operators: which process holds the lease instead, or that the store does
  // not answer. Otherwise it is empty.
  std::string notice() const;
  bool is_store_away() const {
    return (state_ == State::kSeeking || state_ == State::kHeld) && !last_error_.ok();
  }
  // Returns true if the lease was given back after Release(), or if all attempts to do so have
  // failed.
  bool is_over() const;

 private:
  enum class State { kSeeking, kHeld, kLost, kReleased };
  struct Lease {
    int64_t id = 0;
    absl::Duration ttl;
    absl::Time sent;  // when the call was sent that granted or renewed the lease
  };
  struct Sent {
    LeaseCall::Kind kind;
    absl::Time at;
  };

  std::optional<LeaseCall> Wanted(absl::Time now);
  void OnFailure(const Sent& call, const absl::Status& status, absl::Time now);
  void OnGranted(const Sent& call, const LeaseAnswer& answer, absl::Time now);
  void OnRenewed(const Sent& call, absl::Duration ttl);
  void OnOwnKeySeen(const std::optional<LeaseKey>& key);
  void OnKeySeen(const std::optional<LeaseKey>& key, absl::Time now);
  void OnClaimed(const std::optional<LeaseKey>& key, absl::Time now);
  // Records that another process holds the key, and plans the next read of the key.
  void StandBy(const LeaseKey& key, absl::Time now);
  // Gives up the current lease. It is revoked with the next call.
  void Abandon();
  void CheckDeadline(absl::Time now);
  void Lose(std::string why);
  absl::Time deadline() const;
  std::string Overdue(absl::Time now) const;

  const Config config_;
  const std::string value_;
  State state_ = State::kSeeking;
  std::optional<Sent> under_way_;
  absl::Time next_call_ = absl::InfinitePast();
  int endpoint_ = 0;
  bool is_key_free_ = false;  // true: the key was free when last seen
  std::optional<Lease> lease_;
  std::optional<Lease> renewed_;  // the renewed lease, which counts if the key still exists
  int64_t revision_ = 0;
  int64_t abandoned_ = 0;  // a lease that must be revoked; 0 means none
  int releases_left_ = 0;
  std::string holder_;  // holder of the key, for messages; empty: none, or not known
  absl::Status last_error_;
  absl::Status lost_;
  absl::Status refusal_;
};

}  // namespace lodestar::lease
