// SPDX-License-Identifier: Apache-2.0

#include "tests/cluster/in_process_cluster.h"

#include "absl/strings/str_cat.h"
#include "common/runtime/status_macros.h"

namespace lodestar {

server::ServerConfig SmallJobConfig() {
  server::ServerConfig config;
  config.network.listen = {"127.0.0.1", 0};
  config.job.model = {"client", params::ClientModelSpec{}};
  config.job.optimizer.kind = job::OptimizerKind::kSgd;
  config.job.schedule.peak = 1.0;
  config.job.schedule.total_rounds = 1000;
  config.job.batch_size = 4;
  return config;
}

absl::StatusOr<std::unique_ptr<InProcessCluster>> InProcessCluster::Start(
    const server::ServerConfig& config, int num_shards) {
  std::unique_ptr<InProcessCluster> cluster(new InProcessCluster(config, num_shards));
  for (int shard = 0; shard < num_shards; ++shard) {
    RETURN_IF_ERROR(cluster->StartServer(shard));
  }
  return cluster;
}

InProcessCluster::InProcessCluster(const server::ServerConfig& config, int num_shards)
    : config_(config), ports_(num_shards), servers_(num_shards) {}

std::string InProcessCluster::address() const { return absl::StrCat("127.0.0.1:", ports_[0]); }

absl::Status InProcessCluster::StartServer(int shard) {
  server::ServerConfig config = config_;
  config.network.listen.port = ports_[shard];
  config.cluster.shard = shard;
  config.cluster.num_shards = static_cast<int>(ports_.size());
  if (shard > 0) config.cluster.coordinator = address();
  server::Server::Deps deps;
  deps.num_threads = 2;
  ASSIGN_OR_RETURN(servers_[shard], server::Server::Create(config, deps));
  ports_[shard] = servers_[shard]->port();
  return absl::OkStatus();
}

void InProcessCluster::Stop(int shard, server::Server::StopKind kind) {
  servers_[shard]->Stop(kind);
  servers_[shard].reset();
}

absl::Status InProcessCluster::StartAgain(int shard) { return StartServer(shard); }

}  // namespace lodestar
