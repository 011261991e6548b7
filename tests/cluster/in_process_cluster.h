// All servers of a job in one process, on ports that the system chooses. A server may be stopped
// and started again on its port, as a restarted process would be.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/server.h"
#include "server/server_config.h"

namespace lodestar {

// A small job on loopback that needs no data: model `client`, plain SGD with learning rate 1, so
// that integers stay integers. Tests change what they are about.
ServerConfig SmallJobConfig();

class InProcessCluster {
 public:
  // `config` is the coordinator's.
  static absl::StatusOr<std::unique_ptr<InProcessCluster>> Start(const ServerConfig& config,
                                                                 int num_shards);

  Server& server(int shard) { return *servers_[shard]; }
  // HOST:PORT of the coordinator; stays the same over restarts.
  std::string address() const;

  void Stop(int shard, Server::StopKind kind);
  // After Stop().
  absl::Status StartAgain(int shard);

 private:
  InProcessCluster(const ServerConfig& config, int num_shards);
  absl::Status StartServer(int shard);

  const ServerConfig config_;
  std::vector<int> ports_;  // 0 means not chosen yet
  std::vector<std::unique_ptr<Server>> servers_;
};

}  // namespace lodestar
