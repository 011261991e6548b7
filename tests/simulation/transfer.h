// SPDX-License-Identifier: Apache-2.0

// Transfer is one attempt of a simulated worker to push to the servers or pull from them, with a
// call to each server. Like the calls of worker/client, it is ended early if nothing moves and no
// server says why. The real CallWatch decides that.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "tests/simulation/bulk_service.h"
#include "tests/simulation/network.h"
#include "tests/simulation/server.h"
#include "worker/client/call_watch.h"

namespace lodestar::simulation {

// What a worker incarnation knows about its paths to the servers.
struct PathsOfLife {
  std::vector<std::string> addresses;  // addresses of the servers, as the worker knows them
  client::StillPaths still;
  std::map<std::pair<int, bool>, client::Pace> paces;  // keys: the shard, and true for pushes
};

class Transfer : public std::enable_shared_from_this<Transfer> {
 public:
  // Called once: when all calls have ended well, or with the first error.
  using Done = std::function<void(const absl::Status&)>;

  // `patience` is the minimum patience. `paths` belongs to the worker's incarnation; the transfer
  // updates it. `paths` must outlive the transfer.
  Transfer(ClusterContext* cluster, Process* worker, absl::Duration patience, PathsOfLife* paths,
           Done done)
      : cluster_(cluster),
        worker_(worker),
        patience_(patience),
        paths_(paths),
        done_(std::move(done)) {}

  void Push(const std::vector<std::vector<PushedBucket>>& by_shard,
            std::function<void(const client::PushResult&)> on_result);
  void Pull(const std::vector<PullOrder>& by_shard,
            std::function<void(const DeliveredBucket&)> on_bucket);
  // Calls the servers without moving any data.
  void TryPaths();
  // Makes the transfer end soon, with Cancelled.
  void Cancel() { End(absl::CancelledError("this worker has given the transfer up")); }

 private:
  struct Call {
    uint64_t number = 0;
    SimulatedServer* server = nullptr;
    int shard = 0;
    std::shared_ptr<Stream> stream;
    client::Pace* pace = nullptr;
    bool has_small_chunks = false;
    client::CallWatch watch;
    client::OwnCall own;
    bool is_over = false;
  };

  // Returns the server that listens at the address that the worker knows for the shard.
  SimulatedServer* ServerOf(size_t shard) const;
  // Begins a call, and returns its index.
  size_t Begin(size_t shard, bool is_push,
               absl::AnyInvocable<void(std::shared_ptr<Stream>, uint64_t number)> accept);
  void OnCallEnded(size_t index, const absl::Status& status);
  void Look();
  void Ask(size_t index);
  void End(const absl::Status& status);

  ClusterContext* const cluster_;
  Process* const worker_;
  const absl::Duration patience_;
  PathsOfLife* const paths_;
  Done done_;
  std::vector<Call> calls_;
};

}  // namespace lodestar::simulation
