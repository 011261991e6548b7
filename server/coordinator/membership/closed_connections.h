// SPDX-License-Identifier: Apache-2.0

// ClosedConnections decides whether a worker's incarnation may be ended before its lease is over,
// because the worker's connection to the coordinator was closed. A closed connection alone proves
// little: if a proxy was restarted, the worker connects again. So all of these conditions must
// hold:
// - The other end closed the connection.
// - The worker has not called over another connection for a while.
// - No other worker lost a connection at about the same time.
// - All servers say that the worker's connections to them are closed.
//
// Pure: gets events and the time, and returns verdicts.
//
// Only workers with a StayConnected call are known here. Sites do not make this call. Workers that
// have not called since the coordinator's process began have no such call yet.
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
  // Records that a call of `life` has come from `peer`. This shows that the worker lives, unless
  // `peer` is the address of the closed connection. A late call over that connection is ignored.
  void OnHeard(const messages::WorkerLife& life, absl::string_view peer);
  // Treats all recorded connections as if they had been closed at `now`. Call after a time in which
  // the coordinator did not run: calls that workers sent in that time are read only now.
  void OnGap(absl::Time now);
  // Records the answer of the server of `shard` about the connections of `life`. `are_closed` is
  // false if a connection of `life` to that server is open or may be open.
  void OnAnswer(int shard, const messages::WorkerLife& life, bool are_closed);

  enum class Verdict : uint8_t {
    kWait,  // The lease decides, unless a later call of Judge() returns another verdict.
    kAsk,   // The caller must ask all servers. Returned once per closed connection.
    kEnd,
  };
  // Returns whether the incarnation `awaited` may be ended. Other members are waiting for it.
  // `patience` is how long a worker that lives may take to call over another connection.
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
    // True if the other end closed the connection, and nothing has shown since that the worker
    // lives.
    bool is_evidence = false;
    bool is_asked = false;
    // Shards whose servers have answered that this life has no open connection to them.
    std::set<int> closed_at;
  };

  // Forgets connections that were closed more than a lease ago. By then, the worker's lease has
  // been renewed or is over.
  void Forget(absl::Time now);

  const Config config_;
  std::map<WorkerId, Closing> closings_;  // the last one of each worker
};

}  // namespace lodestar::membership
