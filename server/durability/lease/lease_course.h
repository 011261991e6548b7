// SPDX-License-Identifier: Apache-2.0

// LeaseCourse decides how a process gets a leader lease, keeps it and loses it. It does no I/O: the
// time and the store's answers go in, calls to the store come out. Of all processes that use this
// class with one key, at most one holds the lease at any time. This also holds if messages are lost
// or late, or if processes are frozen. The conditions are:
// - The store does not end a lease before its time to live is over. That time begins at the request
//   for the lease.
// - All clocks, including the store's, are at most 5 % too fast or too slow.
// - No other program changes the key of a running process, or revokes its lease. (That process
//   notices it within a third of the time to live.)
//
//   seeking: read --free--> grant --> claim --ours--> held --(not renewed, or key changed)--> lost
//             ^  held by another         |
//             +-----------<--------------+
//
// The time of a lease begins when the process sends the call that grants or renews it. The last
// tenth of it is not used, because clocks differ.
//
// After a renewal, the same endpoint must show that the key still exists. Otherwise the renewal
// does not count. Reason: an etcd member that hangs on its disk, and is no longer the leader, still
// renews leases that have ended (https://github.com/etcd-io/etcd/issues/15247). Such a member
// cannot read.
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
    // Duration of the lease. If the holder is gone, another process takes over after this time at
    // the latest, plus the store's own delay. A longer duration needs fewer calls, and tolerates
    // longer failures of the store.
    absl::Duration ttl = absl::Seconds(5);
    // Interval between reads of a key that another process holds.
    absl::Duration look_interval = absl::Milliseconds(500);
    // Pause after a failed call of the holder.
    absl::Duration retry_pause = absl::Milliseconds(200);
    absl::Duration call_timeout = absl::Seconds(1);
  };

  explicit LeaseCourse(Config config);

  // Returns the call that must be sent now. Returns nothing if no call is due, or if an earlier
  // call is not answered yet. Must be called after every answer, and every few milliseconds.
  std::optional<LeaseCall> Next(absl::Time now);
  // Must be called with the answer to the call that Next() returned. `now` is the present time, not
  // the time at which the answer arrived.
  void OnAnswer(const LeaseAnswer& answer, absl::Time now);
  // Ends the use of the lease. Next() then returns calls that give it back to the store.
  void Release(absl::Time now);

  // Returns LeaseKey::revision of this process's key. Returns 0 before the lease is held.
  int64_t revision() const { return revision_; }
  bool IsHeld(absl::Time now) const { return state_ == State::kHeld && now < deadline(); }
  // Checks that this process holds the lease. Errors: FailedPrecondition (not held yet); Aborted
  // (lost).
  absl::Status CheckHeld(absl::Time now) const;
  // Returns OK until the lease is lost. Then returns Aborted with the cause, from then on.
  absl::Status lost() const { return lost_; }
  // Returns OK if waiting for the lease makes sense. Errors: FailedPrecondition (the key belongs to
  // a process with another role).
  absl::Status refusal() const { return refusal_; }
  // Returns a message for operators if another process holds the lease, or if the store does not
  // answer. Otherwise returns an empty string.
  std::string notice() const;
  bool is_store_away() const {
    return (state_ == State::kSeeking || state_ == State::kHeld) && !last_error_.ok();
  }
  // Returns true if no call is left to make: the lease is lost, or was given back after Release(),
  // or all attempts to give it back have failed.
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
  // Records that another process holds the key. The key is read again after look_interval.
  void StandBy(const LeaseKey& key, absl::Time now);
  // Drops the current lease. The next call revokes it.
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
