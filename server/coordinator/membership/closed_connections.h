// Which incarnation may be ended before its lease because its connections were closed. A closed
// connection alone proves little: a proxy may have been restarted, and the worker dials again.
// Therefore an incarnation is ended only if the other end has closed its connection, and nothing of
// it came over another connection for a while. Besides, no other worker may have lost a connection
// about then, and all servers must say that its connections to them are closed as well. Else its
// lease decides. Pure: events and the time go in, verdicts come out.
//
// Only workers that hold StayConnected are known here: sites do not, nor do workers that were not
// heard of since the coordinator's process began.
#pragma once

#include <map>
#include <set>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/messages/cluster_messages.h"
#include "common/runtime/ids.h"

namespace lodestar {

class ClosedConnections {
 public:
  struct Config {
    int num_shards = 1;
    absl::Duration lease = absl::Seconds(10);
  };

  explicit ClosedConnections(const Config& config) : config_(config) {}

  // The connection from `peer`, over which `life` held StayConnected, has ended. `by_peer` says
  // that the other end has closed or reset it. Else a timeout, or this process, has ended it.
  void OnEnded(const WorkerLife& life, const std::string& peer, bool by_peer, absl::Time now);
  // A call of `life` has come from `peer`. What came late over the connection that has ended is no
  // sign of life.
  void OnHeard(const WorkerLife& life, absl::string_view peer);
  // The coordinator did not run. What was sent meanwhile is read only now, so all waits begin anew.
  void OnGap(absl::Time now);
  // The server of `shard` was asked about `life`. `are_closed` is false if a connection is open
  // there, or may be.
  void OnAnswer(int shard, const WorkerLife& life, bool are_closed);

  enum class Verdict : uint8_t {
    kWait,  // The lease decides, unless the verdict changes before.
    kAsk,   // The servers are to be asked. This is said once.
    kEnd,
  };
  // What becomes of the one incarnation that others wait for, if `patience` is how long it has to
  // open another connection.
  Verdict Judge(const WorkerLife& awaited, absl::Duration patience, absl::Time now);
  // Returns how long ago the connection of this incarnation ended. Call it after kEnd.
  absl::Duration ClosedFor(const WorkerLife& life, absl::Time now) const {
    return now - closings_.at(life.worker).at;
  }
  bool is_empty() const { return closings_.empty(); }

 private:
  struct Closing {
    WorkerLife life;
    std::string peer;
    absl::Time at;
    bool is_evidence = false;  // Closed by the other end, and no sign of life since.
    bool is_asked = false;
    std::set<int> closed_at;  // Shards that have said so.
  };

  // Drops what is older than a lease, which has decided by then.
  void Forget(absl::Time now);

  const Config config_;
  std::map<WorkerId, Closing> closings_;  // The last one of each worker.
};

}  // namespace lodestar
