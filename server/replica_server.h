// SPDX-License-Identifier: Apache-2.0

// ps_server --replica: a process that keeps copies of the journals of servers.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/runtime/clock.h"
#include "server/durability/replica/replica_store.h"
#include "server/firewall/connection_acceptor.h"
#include "server/port_file.h"
#include "server/rpc/call_refusal.h"
#include "server/rpc/replica_rpc.h"
#include "server/server_config.h"

namespace grpc {
class Server;
}  // namespace grpc

namespace lodestar::server {

class ServerSecurity;

class ReplicaServer {
 public:
  struct Deps {
    Clock* clock = &Clock::Real();
    // Called now and then while Create() takes long. If it returns true, Create() returns
    // Cancelled.
    std::function<bool()> is_interrupted = [] { return false; };
  };

  // Opens the port and begins to serve. Errors:
  // - InvalidArgument: the config is bad
  // - Unavailable: the port cannot be opened
  // - AlreadyExists: another process uses a folder
  // - FailedPrecondition: a folder was used by a server, and not by a replica
  // - those of files and of PortFile
  static absl::StatusOr<std::unique_ptr<ReplicaServer>> Create(const ServerConfig& config,
                                                               const Deps& deps);
  ~ReplicaServer();

  int port() const { return port_; }
  // Blocks until another process has taken a folder over (FailedPrecondition), or RequestStop() was
  // called (Cancelled).
  absl::Status Wait() ABSL_LOCKS_EXCLUDED(mutex_);
  void RequestStop() ABSL_LOCKS_EXCLUDED(mutex_);
  // See ReplicaStore.
  bool HasLatest(int shard) const { return store_.HasLatest(shard); }

 private:
  ReplicaServer(const ServerConfig& config, const Deps& deps);
  absl::Status Start();
  absl::StatusOr<replica::ReplicaStore::Deps::Lock> Lock(const std::string& folder);
  void Finish(const absl::Status& outcome) ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns the error for calls that only a server answers. It is Unavailable, because with a
  // leader lease this process may become a server later.
  absl::Status NoServer() const;

  const ServerConfig config_;
  const Deps deps_;
  int port_ = 0;
  absl::Mutex mutex_;
  std::optional<absl::Status> outcome_ ABSL_GUARDED_BY(mutex_);
  replica::ReplicaStore store_;
  rpc::ReplicaRpc rpc_{&store_};
  rpc::CallRefusal refusal_;
  std::unique_ptr<ServerSecurity> security_;
  std::unique_ptr<firewall::ConnectionAcceptor> acceptor_;
  std::unique_ptr<grpc::Server> grpc_server_;
  std::optional<PortFile> port_file_;  // removed before the port closes
};

}  // namespace lodestar::server
