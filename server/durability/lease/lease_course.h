// How one process comes by a leader lease, keeps it and loses it. Pure: the time and the answers of
// a store go in, calls to it come out. Of all processes that follow this course with one key, at
// most one holds it at any time, whatever is lost, late or frozen, as long as
//   the store ends no lease before its time to live is over, counted from when it was asked for it;
//   clocks, the store's among them, run at most 5 % too fast or too slow;
//   no other program deletes or overwrites the key, or revokes the lease, of a process that lives:
//   that process notices within a third of the time to live.
//
//   seeking: read --free--> grant --> claim --ours--> held --(no answer in time, or not ours)-->
//   lost
//             ^  held by another         |
//             +-----------<--------------+
//
// A lease counts from the moment at which the call was sent that granted or renewed it: the store
// cannot have received it before. A tenth of it is given away for clocks that differ. A renewal
// counts once the same endpoint has shown that the key still is there: a member of etcd that leads
// no more and has not noticed, as with a disk that hangs, renews what others let run out
// (https://github.com/etcd-io/etcd/issues/15247), but cannot read.
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
    std::string name;      // of the key and where it is, for people
    std::string key = "";  // as the store has it
    LeaderClaim claim;     // this process's
    int num_endpoints = 1;
    // Another process takes over at most this, and what the store takes to notice, after the holder
    // is gone. Longer: fewer calls, and more patience with a store that is away for a moment.
    absl::Duration ttl = absl::Seconds(5);
    absl::Duration look_interval = absl::Milliseconds(500);  // at a key that another process holds
    absl::Duration retry_pause = absl::Milliseconds(200);    // of a holder that got no answer
    absl::Duration call_timeout = absl::Seconds(1);
  };

  explicit LeaseCourse(Config config);

  // What is to be sent at `now`; from then on it is under way. None while another call is, or if
  // nothing is due: ask again after every answer and every few milliseconds.
  std::optional<LeaseCall> Next(absl::Time now);
  // To the call under way. `now`: when it is taken notice of.
  void OnAnswer(const LeaseAnswer& answer, absl::Time now);
  // This process wants it no more: what it has is given back by the next calls, if the store is
  // there.
  void Release(absl::Time now);

  // LeaseKey::revision of the key that this process has made; 0 before it holds the lease.
  int64_t revision() const { return revision_; }
  bool IsHeld(absl::Time now) const { return state_ == State::kHeld && now < deadline(); }
  // OK if it is held. Errors: FailedPrecondition before it does, Aborted
  // once it has been lost.
  absl::Status CheckHeld(absl::Time now) const;
  // OK before and while it is held; Aborted with the cause afterwards, for good.
  absl::Status lost() const { return lost_; }
  // OK while it makes sense to wait. FailedPrecondition if the key is that of another role.
  absl::Status refusal() const { return refusal_; }
  // For people: who holds it instead, or that the store does not answer; else empty.
  std::string notice() const;
  bool is_store_away() const {
    return (state_ == State::kSeeking || state_ == State::kHeld) && !last_error_.ok();
  }
  // After Release(): whether everything is given back, or cannot be.
  bool is_over() const;

 private:
  enum class State { kSeeking, kHeld, kLost, kReleased };
  struct Lease {
    int64_t id = 0;
    absl::Duration ttl;
    absl::Time sent;  // of the call that granted or renewed it
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
  // Waits while another process holds the key.
  void StandBy(const LeaseKey& key, absl::Time now);
  // The lease at hand is of no use any more.
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
  bool is_key_free_ = false;  // when last seen
  std::optional<Lease> lease_;
  std::optional<Lease> renewed_;  // the same, if the key is still there
  int64_t revision_ = 0;
  int64_t abandoned_ = 0;  // a lease that is to be revoked; 0 means none
  int releases_left_ = 0;
  std::string holder_;  // for people; empty: there is none, or it is not known
  absl::Status last_error_;
  absl::Status lost_;
  absl::Status refusal_;
};

}  // namespace lodestar::lease
