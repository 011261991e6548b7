// SPDX-License-Identifier: Apache-2.0

// ps_server: holds the weights that GPU workers train together.
#include <sys/time.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/logging/log_tail.h"
#include "common/logging/logging.h"
#include "common/output/output_file.h"
#include "common/process/process_setup.h"
#include "common/process/service_manager.h"
#include "common/process/stop_signals.h"
#include "common/process/trace_recorder.h"
#include "common/process/version.h"
#include "common/runtime/join_secret.h"
#include "common/runtime/peer_text.h"
#include "common/runtime/status_hints.h"
#include "common/runtime/status_macros.h"
#include "proto/bulk_options.h"
#include "proto/grpc_environment.h"
#include "server/durability/lease/leader_lease.h"
#include "server/durability/lease/lease_address.h"
#include "server/port_file.h"
#include "server/replica_server.h"
#include "server/rpc/lease_store_factory.h"
#include "server/server.h"
#include "server/server_flags.h"
#include "server/site/site_job.h"
#include "site/site_uplink.h"

namespace lodestar::server {
namespace {

constexpr int kExitDone = 0;
constexpr int kExitFailed = 1;
constexpr int kExitBadFlags = 2;
// Exit code: the last checkpoint is not in --checkpoint_dir, or --on_checkpoint has not succeeded
// with it.
constexpr int kExitNotSaved = 3;
// Exit code: the port or a folder is in use, the disk is full, or the leader lease is lost. A code
// of 128 or more means that the same command may succeed later.
constexpr int kExitRetry = 129;
// Exit code: this number plus the number of the signal that told the process to stop.
constexpr int kExitSignalBase = 128;

bool IsToldToStop() { return process::PendingStopSignal() != 0; }

int ExitCodeOfStart(const absl::Status& failure) {
  if (absl::IsCancelled(failure)) return kExitSignalBase + process::PendingStopSignal();
  logging::LogError("{}", failure);
  const bool may_retry = absl::IsUnavailable(failure) ||      // the port is taken
                         absl::IsAlreadyExists(failure) ||    // another process uses the folder
                         absl::IsResourceExhausted(failure);  // the disk is full
  return may_retry ? kExitRetry : kExitFailed;
}

// Ends the process because another server will soon replace it. Nothing is saved or closed.
void EndAtOnce(const absl::Status& lost) {
  // If writing the log hangs, this timer ends the process before another server may take the lease.
  const itimerval patience = {.it_interval = {}, .it_value = {.tv_sec = 0, .tv_usec = 200'000}};
  setitimer(ITIMER_REAL, &patience, nullptr);
  logging::LogError("{}; this server ends at once", lost.message());
  logging::FlushLog();
  _exit(kExitRetry);
}

// Checks the output files. Removes the port file of an earlier process before this one waits for a
// lease, a folder or another server.
absl::Status PrepareOutputs(const ServerConfig& config) {
  RETURN_IF_ERROR(PortFile::Clear(config.network.port_file));
  return process::CheckTraceOutput(config.output.trace_path);
}

using Lease = std::unique_ptr<lease::LeaderLease>;

// Takes the lease. Returns null if no lease is asked for.
absl::StatusOr<Lease> TakeLeaderLease(const ClusterConfig& cluster,
                                      std::function<bool()> is_interrupted) {
  if (cluster.leader_lease.empty()) return nullptr;
  ASSIGN_OR_RETURN(const lease::LeaseAddress address,
                   lease::ParseLeaseAddress(cluster.leader_lease));
  lease::LeaseCourse::Config course;
  course.name = absl::StrCat("the leader lease ", address.ToString());
  course.key = address.key;
  course.claim = {storage::NewProcessIdentity(),
                  absl::StrCat("shard ", cluster.shard, "/", cluster.num_shards)};
  lease::LeaderLease::Deps deps;
  deps.store = rpc::MakeLeaseStore(address);
  deps.is_interrupted = std::move(is_interrupted);
  deps.on_lost = EndAtOnce;
  return lease::LeaderLease::Take(std::move(course), std::move(deps));
}

// Enters the cluster of the servers upstream, and takes over the job for this site. Returns null if
// this is no site.
absl::StatusOr<std::unique_ptr<site::UpstreamEntry>> EnterUpstream(ServerConfig& config) {
  if (!config.is_site()) return nullptr;
  site::UpstreamEntry::Config upstream;
  upstream.entrance.security = config.security.flags;
  upstream.entrance.security.join = config.upstream.join;
  upstream.entrance.security.is_join_from_environment = false;
  upstream.entrance.security.join_flag = "--upstream_join";
  upstream.entrance.coordinator = config.upstream.address;
  upstream.entrance.has_coordinator = true;
  upstream.entrance.name = config.upstream.name;
  upstream.leave_timeout = config.cluster.stop_timeout;
  ASSIGN_OR_RETURN(std::unique_ptr<site::UpstreamEntry> entry,
                   site::UpstreamEntry::Await(upstream, IsToldToStop));
  ASSIGN_OR_RETURN(config.job, site::SiteJob(entry->registration(), config.job, config.given));
  logging::LogInfo(
      "this server belongs to a site: it is worker '{}' of {}, with {} samples in each of its own "
      "rounds",
      entry->name(), config.upstream.address, config.job.global_batch_size);
  return entry;
}

// Runs the server. `lease` is given back only after the server has ended, so that the next server
// finds all that this one has written.
int RunServer(ServerConfig config, const Lease& lease, const logging::LogTail* log) {
  const absl::StatusOr<std::unique_ptr<site::UpstreamEntry>> upstream = EnterUpstream(config);
  if (IsJobOver(upstream.status())) {
    logging::LogInfo("the upstream job is over: {}", upstream.status().message());
    return kExitDone;
  }
  if (!upstream.ok()) return ExitCodeOfStart(upstream.status());
  Server::Deps deps;
  deps.is_interrupted = IsToldToStop;
  deps.log = log;
  if (*upstream != nullptr) {
    deps.make_uplink = [&upstream](site::Site* site) { return (*upstream)->MakeUplink(site); };
  }
  if (lease != nullptr) {
    deps.leader = {lease->key(), lease->revision()};
    deps.confirm_leader = [&lease] { return lease->CheckHeld(); };
  }
  const process::ServiceManager manager = process::ServiceManager::FromEnvironment();
  deps.on_alive = [&manager](bool is_serving) {
    manager.TellReady(is_serving ? "serves its shard" : "does not serve its shard yet");
  };
  absl::StatusOr<std::unique_ptr<Server>> server = Server::Create(config, deps);
  if (!server.ok()) return ExitCodeOfStart(server.status());
  std::atomic<int> first_signal = 0;
  int exit_code = kExitDone;
  {
    process::SignalWaiter signals(
        [&](int count, int signal) {
          if (count == 1) first_signal = signal;
          if (count > 2) _exit(kExitSignalBase + signal);
          manager.TellStopping();
          logging::LogInfo("signal={} stopping {}", signal,
                           count == 1
                               ? "after saving; send the signal again to stop at once"
                               : "at once; send the signal again to exit without closing anything");
          (*server)->RequestStop(count == 1 ? Server::StopKind::kGraceful
                                            : Server::StopKind::kImmediate);
        },
        [&](int signal) {
          logging::LogInfo("signal={} saves a checkpoint and continues", signal);
          (*server)->SaveAndGoOn();
        });
    const absl::Status outcome = (*server)->Wait();
    if (outcome.ok()) {
      logging::LogInfo("the job is over: {}", (*server)->ending());
    } else if (absl::IsCancelled(outcome)) {
      exit_code = (*server)->is_job_done() ? kExitDone : kExitSignalBase + first_signal;
    } else {
      logging::LogError("{}", outcome);
      if (absl::IsUnauthenticated(outcome)) (*server)->ThrowAwayCertificate(outcome.message());
      exit_code = absl::IsUnavailable(outcome) ? kExitRetry : kExitFailed;
    }
    (*server)->Stop(outcome.ok() || absl::IsCancelled(outcome) ? Server::StopKind::kGraceful
                                                               : Server::StopKind::kImmediate);
    if (!(*server)->loss().ok()) {
      logging::LogError("{}", (*server)->loss().message());
      exit_code = kExitNotSaved;
    }
  }
  logging::FlushLog();
  return exit_code;
}

// Waits until the replica's copy is the newest, so that a server can go on from it. Then waits for
// the lease. Then ends the replica, so that this process can become the server.
absl::StatusOr<Lease> StandBy(const ClusterConfig& cluster, ReplicaServer& replica,
                              const std::function<bool()>& is_stopping) {
  constexpr absl::Duration kLook = absl::Milliseconds(200);
  if (!replica.HasLatest(cluster.shard)) {
    logging::LogInfo(
        "this replica waits for its server, which has not written to it since this process "
        "started. The copy may be old, so the replica does not take the server's place yet");
  }
  while (!replica.HasLatest(cluster.shard)) {
    if (is_stopping()) return absl::CancelledError("told to stop");
    absl::SleepFor(kLook);
  }
  logging::LogInfo("this replica has the latest copy and asks etcd for the leader lease {}",
                   cluster.leader_lease);
  absl::StatusOr<Lease> lease = TakeLeaderLease(cluster, is_stopping);
  replica.RequestStop();
  return lease;
}

int RunServer(const ServerConfig& config, const logging::LogTail* log) {
  const absl::StatusOr<Lease> lease = TakeLeaderLease(config.cluster, IsToldToStop);
  return lease.ok() ? RunServer(config, *lease, log) : ExitCodeOfStart(lease.status());
}

// Runs the replica. With a leader lease, it runs until this process gets the lease and becomes the
// server.
int RunReplica(ServerConfig config, const logging::LogTail* log) {
  ReplicaServer::Deps deps;
  deps.is_interrupted = IsToldToStop;
  absl::StatusOr<std::unique_ptr<ReplicaServer>> replica = ReplicaServer::Create(config, deps);
  if (absl::IsFailedPrecondition(replica.status()) && !config.cluster.leader_lease.empty()) {
    // This process was a standby and has already become the server once. After its restart it
    // stands by as a server, not as a replica.
    logging::LogWarn("this replica is ready to take the server's place: {}",
                     replica.status().message());
    config.is_replica = false;
    return RunServer(config, log);
  }
  if (!replica.ok()) return ExitCodeOfStart(replica.status());
  absl::StatusOr<Lease> lease = nullptr;
  absl::Status outcome;
  std::atomic<int> first_signal = 0;
  {
    std::atomic<bool> is_over = false;
    process::SignalWaiter signals(
        [&](int count, int signal) {
          if (count > 1) _exit(kExitSignalBase + signal);
          first_signal = signal;
          is_over = true;
          logging::LogInfo(
              "signal={} stopping; send the signal again to exit without closing anything", signal);
          (*replica)->RequestStop();
        },
        [](int signal) {
          logging::LogInfo(
              "signal={} ignored, because a replica has already saved everything that it received",
              signal);
        });
    std::thread standby;
    if (!config.cluster.leader_lease.empty()) {
      standby = std::thread([&] {
        lease = StandBy(config.cluster, **replica, [&is_over] { return is_over.load(); });
      });
    }
    outcome = (*replica)->Wait();
    is_over = true;
    if (standby.joinable()) standby.join();
  }
  replica->reset();
  if (first_signal == 0 && lease.ok() && *lease != nullptr) {
    logging::LogWarn(
        "this replica takes the place of the server: its copy is complete, and it holds the leader "
        "lease {}",
        config.cluster.leader_lease);
    config.is_replica = false;
    return RunServer(config, *lease, log);
  }
  if (first_signal == 0)
    logging::LogError("{}", absl::IsCancelled(outcome) ? lease.status() : outcome);
  logging::FlushLog();
  return first_signal == 0 ? kExitFailed : kExitSignalBase + first_signal;
}

int Print(const std::string& text) {
  const absl::Status written = output::WriteToStandardOutput(text);
  if (written.ok()) return kExitDone;
  logging::LogError("{}", written.message());
  return kExitFailed;
}

std::string NewLogId() {
  std::random_device device;
  return absl::StrFormat("%08x%08x", device(), device());
}

int Main(const std::vector<std::string>& arguments) {
  const absl::StatusOr<ServerCommandLine> line = ParseServerCommandLine(arguments);
  if (!line.ok()) {
    std::fprintf(stderr, "ps_server: %s\n",
                 PeerLines(WithoutJoinSecrets(line.status().message())).c_str());
    return kExitBadFlags;
  }
  if (line->request == process::CommandLineRequest::kHelp) return Print(ServerShortHelp());
  if (line->request == process::CommandLineRequest::kHelpFull) return Print(ServerHelp());
  if (line->request == process::CommandLineRequest::kVersion)
    return Print(process::VersionText("ps_server"));
  logging::InitLogging("ps_server", line->config.output.log_level, line->config.output.log_format);
  // The object is never deleted, because threads that outlive main() may still log.
  auto* const log = new logging::LogTail(NewLogId(), "ps_server");
  logging::KeepLog(log);
  if (!line->ignored.empty()) {
    logging::LogWarn(
        "these flags are ignored, because {}: --{}",
        line->config.is_replica ? "a replica only keeps files" : "the coordinator decides",
        absl::StrJoin(line->ignored, ", --"));
  }
  for (const std::string& doubt : line->doubts) logging::LogWarn("{}", doubt);
  if (const absl::Status outputs = PrepareOutputs(line->config); !outputs.ok()) {
    return ExitCodeOfStart(outputs);
  }
  return line->config.is_replica ? RunReplica(line->config, log) : RunServer(line->config, log);
}

}  // namespace
}  // namespace lodestar::server

int main(int argc, char** argv) {
  lodestar::process::SetUpProgram();
  lodestar::process::SetUpMalloc();
  lodestar::process::SetUpMutexes();
  lodestar::process::RaiseFileLimit();
  lodestar::process::FlushDenormals();
  lodestar::wire::SetUpGrpcProcess();
  lodestar::process::BlockStopSignals();
  lodestar::wire::ExitUnlessTransportWorks("ps_server");
  return lodestar::server::Main(std::vector<std::string>(argv + 1, argv + argc));
}
