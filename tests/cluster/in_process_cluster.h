// SPDX-License-Identifier: Apache-2.0

// Runs all servers of a job in one process, on ports that the system chooses. A server may be
// stopped and started again on its port, like a restarted process.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/server.h"
#include "server/server_config.h"

namespace lodestar {

// Returns a small job on loopback that needs no data: model `client`, plain SGD with learning rate
// 1, so that integers stay integers. Tests change the settings that they are about.
server::ServerConfig SmallJobConfig();

class InProcessCluster {
 public:
  // `config` is the coordinator's.
  static absl::StatusOr<std::unique_ptr<InProcessCluster>> Start(const server::ServerConfig& config,
                                                                 int num_shards);

  server::Server& server(int shard) { return *servers_[shard]; }
  // Returns HOST:PORT of the coordinator, which stays the same over restarts.
  std::string address() const;

  void Stop(int shard, server::Server::StopKind kind);
  // Starts a stopped server again. Call after Stop().
  absl::Status StartAgain(int shard);

 private:
  InProcessCluster(const server::ServerConfig& config, int num_shards);
  absl::Status StartServer(int shard);

  const server::ServerConfig config_;
  std::vector<int> ports_;  // 0 means not chosen yet
  std::vector<std::unique_ptr<server::Server>> servers_;
};

}  // namespace lodestar
