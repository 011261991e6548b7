// SPDX-License-Identifier: Apache-2.0

#include "server/replica_server.h"

#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>

#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "common/logging/logging.h"
#include "common/net/host_port.h"
#include "common/process/version.h"
#include "common/runtime/status_macros.h"
#include "common/runtime/time_text.h"
#include "common/storage/folder_lock.h"
#include "proto/bulk_options.h"
#include "server/limits/refusal_counts.h"
#include "server/port_file.h"
#include "server/server_security.h"

namespace lodestar::server {
namespace {

// Maximum number of threads. Each call has a thread, and a server has a few calls.
constexpr int kMaxThreads = 1024;
// How often the replica checks its certificate, and renews it if necessary.
constexpr absl::Duration kWatchInterval = absl::Seconds(1);

// Returns the folder of the checkpoints that the replica copies. Empty means that it copies none:
// with several servers, all of them see one folder, and no copy is needed.
std::string KeptCheckpoints(const ServerConfig& config) {
  return config.cluster.num_shards > 1 ? "" : config.durability.checkpoint_dir;
}

// Returns a text such as "shard 0 of the server on host a, process 7, since 2026-11-22 20:23:04 UTC
// (whole)".
std::string TextOf(const replica::ReplicaStore::Copy& copy) {
  return absl::StrCat("shard ", copy.shard, " of the server on ", copy.mark.peer, ", since ",
                      copy.mark.since, copy.mark.is_whole ? " (complete)" : " (not complete yet)");
}

}  // namespace

absl::StatusOr<std::unique_ptr<ReplicaServer>> ReplicaServer::Create(const ServerConfig& config,
                                                                     const Deps& deps) {
  RETURN_IF_ERROR(ValidateServerConfig(config));
  std::unique_ptr<ReplicaServer> server(new ReplicaServer(config, deps));
  RETURN_IF_ERROR(server->Start());
  return server;
}

ReplicaServer::ReplicaServer(const ServerConfig& config, const Deps& deps)
    : config_(config),
      deps_(deps),
      store_(replica::MirroredFolders(config.durability.journal_dir, KeptCheckpoints(config)),
             replica::ReplicaStore::Deps{
                 .disk = &storage::FileSystem::Real(),
                 .clock = deps.clock,
                 .lock = [this](const std::string& folder) { return Lock(folder); },
                 .now = [] { return UtcText(absl::Now()); }}),
      refusal_({{rpc::CoordinatorServices(), [this] { return NoServer(); }},
                {{rpc::BulkService()}, [this] { return NoServer(); }}}) {}

ReplicaServer::~ReplicaServer() {
  if (grpc_server_ == nullptr) return;
  port_file_.reset();
  acceptor_->Stop();
  // The deadline is now: servers never end their calls to a replica, so waiting longer would not
  // help.
  grpc_server_->Shutdown(std::chrono::system_clock::now());
  grpc_server_->Wait();
}

absl::Status ReplicaServer::Start() {
  RETURN_IF_ERROR(PortFile::Clear(config_.network.port_file));
  RETURN_IF_ERROR(store_.Open());
  ASSIGN_OR_RETURN(security_, ServerSecurity::Open(config_, deps_.is_interrupted));
  firewall::ConnectionAcceptor::Config acceptor;
  acceptor.listen = config_.network.listen;
  acceptor.limits.max_connections = config_.limits.max_connections;
  acceptor.limits.max_per_address = config_.limits.max_connections_per_address;
  acceptor.limits.new_per_minute = config_.limits.connections_per_minute;
  if (!security_->transport().is_plain()) {
    acceptor.transport = firewall::ConnectionAcceptor::Transport::kTls;
  }
  acceptor.clock = deps_.clock;
  ASSIGN_OR_RETURN(acceptor_, firewall::ConnectionAcceptor::Listen(std::move(acceptor)));
  port_ = acceptor_->port();
  grpc::EnableDefaultHealthCheckService(true);
  grpc::ServerBuilder builder;
  wire::ApplyServerOptions(builder,
                           {.long_paths = true, .message_bytes = config_.limits.message_bytes});
  auto connections = builder.experimental().AddExternalConnectionAcceptor(
      grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
      security_->MakeServerCredentials(std::make_shared<limits::RefusalCounts>()));
  builder.RegisterService(&rpc_);
  builder.RegisterCallbackGenericService(&refusal_);
  grpc::ResourceQuota quota("replica");
  quota.SetMaxThreads(kMaxThreads);
  quota.Resize(static_cast<size_t>(config_.limits.message_bytes));
  builder.SetResourceQuota(quota);
  grpc_server_ = builder.BuildAndStart();
  if (grpc_server_ == nullptr)
    return absl::InternalError(
        "gRPC could not start its server; the log above may have gRPC's reason");
  acceptor_->Serve(std::move(connections));
  logging::LogInfo(
      "version={} replica listen={} journal_dir={} checkpoint_dir={}", process::SoftwareVersion(),
      net::HostPort{config_.network.listen.host, port_}.ToString(), config_.durability.journal_dir,
      config_.durability.checkpoint_dir.empty() ? "none" : config_.durability.checkpoint_dir);
  for (const replica::ReplicaStore::Copy& copy : store_.copies()) {
    logging::LogInfo("this replica has a copy of {}", TextOf(copy));
  }
  ASSIGN_OR_RETURN(PortFile port_file, PortFile::Write(config_.network.port_file, port_));
  port_file_.emplace(std::move(port_file));
  return absl::OkStatus();
}

absl::StatusOr<replica::ReplicaStore::Deps::Lock> ReplicaServer::Lock(const std::string& folder) {
  storage::FolderLock::Deps deps;
  deps.clock = deps_.clock;
  deps.is_interrupted = deps_.is_interrupted;
  deps.on_lost = [this](const absl::Status& status) { Finish(status); };
  ASSIGN_OR_RETURN(std::unique_ptr<storage::FolderLock> lock,
                   storage::FolderLock::Take(folder, storage::NewFolderClaim(), std::move(deps)));
  lock->StartBeating();
  return replica::ReplicaStore::Deps::Lock(std::move(lock));
}

absl::Status ReplicaServer::NoServer() const {
  std::vector<std::string> copies;
  for (const replica::ReplicaStore::Copy& copy : store_.copies()) copies.push_back(TextOf(copy));
  return absl::UnavailableError(
      absl::StrCat("this is a replica and not a server; give the address of the server instead. "
                   "This replica has copies of ",
                   copies.empty() ? "nothing yet" : absl::StrJoin(copies, "; ")));
}

void ReplicaServer::Finish(const absl::Status& outcome) {
  absl::MutexLock lock(&mutex_);
  if (!outcome_.has_value()) outcome_ = outcome;
}

absl::Status ReplicaServer::Wait() {
  const auto is_known = [this]()
                            ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return outcome_.has_value(); };
  bool is_in_trouble = false;
  while (true) {
    {
      absl::MutexLock lock(&mutex_);
      if (mutex_.AwaitWithTimeout(absl::Condition(&is_known), kWatchInterval)) return *outcome_;
    }
    if (const std::string fault = security_->Keep(); !fault.empty()) {
      logging::LogError("{}", fault);
    }
    const std::optional<std::string> news = security_->LookAtFiles();
    if (!news.has_value()) continue;
    if (!news->empty()) {
      logging::LogError("{}", *news);
    } else if (is_in_trouble) {
      logging::LogInfo("the certificate of this replica is valid again");
    }
    is_in_trouble = !news->empty();
  }
}

void ReplicaServer::RequestStop() { Finish(absl::CancelledError("told to stop")); }

}  // namespace lodestar::server
