// SPDX-License-Identifier: Apache-2.0

// ClosedConnections decides which worker's incarnation may be ended before its lease is over
// because its connection to the coordinator was closed. A closed connection alone proves little: if
// a proxy was restarted, the worker dials again. Therefore an incarnation is ended only if all of
// the following is true. The other end closed the connection. No call of the worker came over
// another connection for a while. No other worker lost a connection at about the same time. All
// servers say that the worker's connections to them are closed as well. Else the lease decides.
// Pure: it gets events and the time, and returns verdicts.
//
// Only workers that hold a StayConnected call are known here. Sites hold none. Workers that have
// not called since the coordinator's process began hold none either.
#pragma once

#include <map>
#include <set>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/messages/cluster_messages.h"
#include "common/runtime/ids.h"

namespace lodestar::membership {

class ClosedConnections {
 public:
  struct Config {
    int num_shards = 1;
    absl::Duration lease = absl::Seconds(10);
  };

  explicit ClosedConnections(const Config& config) : config_(config) {}

  // Records that the connection from `peer`, over which `life` held its StayConnected call, has
  // ended. `by_peer` is true if the other end closed or reset the connection. It is false if a
  // timeout or this process ended the connection.
  void OnEnded(const messages::WorkerLife& life, const std::string& peer, bool by_peer,
               absl::Time now);
  // Records that a call of `life` has come from `peer`. A late call over the connection that has
  // ended does not show that the worker lives, and is ignored.
  void OnHeard(const messages::WorkerLife& life, absl::string_view peer);
  // Starts all waits again. Call after a time in which the coordinator did not run: calls that
  // workers sent in that time are read only now.
  void OnGap(absl::Time now);
  // Records the answer of the server of `shard` about the connections of `life`. `are_closed` is
  // false if a connection of `life` to that server is open or may be open.
  void OnAnswer(int shard, const messages::WorkerLife& life, bool are_closed);

  enum class Verdict : uint8_t {
    kWait,  // The lease decides, unless a later call of Judge() returns another verdict.
    kAsk,   // The caller must ask all servers. Returned once per closed connection.
    kEnd,
  };
  // Returns whether the incarnation `awaited`, which others wait for, may be ended. `patience` is
  // the time after which a worker that lives would have called over another connection.
  Verdict Judge(const messages::WorkerLife& awaited, absl::Duration patience, absl::Time now);
  // Returns how long ago the connection of `life` ended. Requires: Judge() has returned kEnd for
  // `life`.
  absl::Duration ClosedFor(const messages::WorkerLife& life, absl::Time now) const {
    return now - closings_.at(life.worker).at;
  }
  bool is_empty() const { return closings_.empty(); }

 private:
  struct Closing {
    messages::WorkerLife life;
    std::string peer;
    absl::Time at;
    // True if the other end closed the connection and the worker has not called since.
    bool is_evidence = false;
    bool is_asked = false;
    // Shards whose servers have said that they have no open connection of this life.
    std::set<int> closed_at;
  };

  // Drops closings that are older than a lease. By then, the lease has decided.
  void Forget(absl::Time now);

  const Config config_;
  std::map<WorkerId, Closing> closings_;  // the last one of each worker
};

}  // namespace lodestar::membership
