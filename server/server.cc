// SPDX-License-Identifier: Apache-2.0

#include "server/server.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "common/logging/logging.h"
#include "common/machine/host_memory.h"
#include "common/machine/usable_cores.h"
#include "common/net/address_list.h"
#include "common/net/host_port.h"
#include "common/process/trace_recorder.h"
#include "common/process/version.h"
#include "common/runtime/check.h"
#include "common/runtime/executor.h"
#include "common/runtime/status_macros.h"
#include "common/storage/folder_lock.h"
#include "proto/bulk_options.h"
#include "server/advertised_address.h"
#include "server/checkpoint/checkpoint_folder.h"
#include "server/coordinator_role.h"
#include "server/durability/journal/journal_segments.h"
#include "server/durability/replica/replication.h"
#include "server/durability/replica/replication_mark.h"
#include "server/firewall/connection_acceptor.h"
#include "server/firewall/connection_table.h"
#include "server/former_division.h"
#include "server/host/folder_fence.h"
#include "server/host/shard_host.h"
#include "server/host/shard_log.h"
#include "server/http2/guarded_reads.h"
#include "server/limits/refusal_counts.h"
#include "server/port_file.h"
#include "server/rpc/call_refusal.h"
#include "server/rpc/parameter_rpc.h"
#include "server/rpc/replica_calls.h"
#include "server/rpc/shard_agent.h"
#include "server/rpc/shard_convert.h"
#include "server/server_security.h"
#include "server/site/site.h"

namespace lodestar::server {
namespace {

constexpr char kParameterServiceName[] = "lodestar.v1.ParameterService";
// Interval at which the health of the parts and the end of the job are checked.
constexpr absl::Duration kWatchInterval = absl::Milliseconds(50);
constexpr absl::Duration kFolderPause = absl::Milliseconds(100);
constexpr absl::Duration kShardTick = absl::Seconds(1);
// Interval at which a starting server checks whether the replica has a complete copy.
constexpr absl::Duration kReplicaPause = absl::Milliseconds(50);
constexpr absl::Duration kReplicaWords = absl::Seconds(5);
// How long a server with a leader lease waits for its replica. Then it gives the lease back,
// because another server may be able to run without the replica.
constexpr absl::Duration kLeaderPatience = absl::Seconds(15);
// How long calls have to end by themselves after the server has told them to stop. Calls that are
// left are cut off.
constexpr std::chrono::milliseconds kCallPatience(1000);

// Returns a warning if --listen is a name that leads only to this machine, such as the machine's
// own name in Debian's /etc/hosts. Empty means that other machines can reach the port, or are not
// meant to.
std::string LoopbackText(const net::HostPort& listen,
                         const firewall::ConnectionAcceptor& acceptor) {
  const std::vector<std::string>& addresses = acceptor.loopback_only();
  if (addresses.empty() || listen.IsLoopback()) return "";
  return absl::StrCat(
      "no other machine can reach this server, because --listen=", listen.ToString(), " and ",
      listen.host, " is ", absl::StrJoin(addresses, " and "),
      " on this machine (see /etc/hosts). Give --listen an address that other machines reach, or "
      "0.0.0.0 for all addresses");
}

uint64_t RandomId() {
  std::random_device random;
  return (static_cast<uint64_t>(random()) << 32) | random() | 1;
}

int NumThreads(int asked) {
  if (asked > 0) return asked;
  return std::clamp(machine::UsableCores(), 1, 16);
}

machine::HostMemory AvailableMemory(int64_t limit) {
  if (limit > 0) {
    return {.total_bytes = limit, .available_bytes = limit, .limited_by = "--memory_limit"};
  }
  // Some memory is reserved for code and connections. The system ends a process that takes the last
  // of the memory.
  constexpr int64_t kReserveParts = 16;
  machine::HostMemory memory = machine::ReadHostMemory();
  memory.total_bytes -= memory.total_bytes / kReserveParts;
  memory.available_bytes = std::min(memory.available_bytes, memory.total_bytes);
  return memory;
}

// Logs the outcome of the last checkpoint. Returns an error if work is lost, or if the checkpoint
// is in --fallback_dir.
absl::Status LossOf(const absl::StatusOr<checkpoints::PublishedCheckpoint>& saved,
                    bool has_journal) {
  const absl::Status& status = saved.status();
  switch (status.code()) {
    case absl::StatusCode::kOk:
      logging::LogInfo("the last checkpoint: round={} path={}", saved->round, saved->path);
      if (!saved->is_in_fallback) return status;
      return absl::DataLossError(
          absl::StrCat("the last checkpoint could not be written into "
                       "--checkpoint_dir; it is in --fallback_dir: ",
                       saved->path));
    // With these codes nothing is lost that a checkpoint should have:
    // - There is nothing to save, or no folder to save it in.
    // - The operator has cut the save short.
    // - The coordinator is gone, or has given up this server. Then the cluster goes back to the
    //   newest checkpoint.
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kCancelled:
    case absl::StatusCode::kUnavailable:
      logging::LogWarn("the server stops without a last checkpoint: {}", status.message());
      return absl::OkStatus();
    default:
      if (has_journal) {
        logging::LogWarn(
            "the server stops without a last checkpoint ({}). The journal has everything that was "
            "acknowledged, and the next start continues from the journal",
            status.message());
        return absl::OkStatus();
      }
      return absl::DataLossError(absl::StrCat("NOT SAVED: ", status.message()));
  }
}

// FailedHandshakeWatch counts failed TLS handshakes, and logs them at most once a minute.
class FailedHandshakeWatch {
 public:
  explicit FailedHandshakeWatch(limits::RefusalCounts* refusals)
      : refusals_(refusals), counted_(http2::ReadFailedHandshakes().count), logged_(counted_) {}

  void Update(absl::Time now) {
    const http2::FailedHandshakes failed = http2::ReadFailedHandshakes();
    refusals_->Count(limits::LimitReached::kHandshakes,
                     failed.count - std::exchange(counted_, failed.count));
    if (failed.count == logged_ || now < next_log_) return;
    logging::LogWarn("{} TLS handshakes failed; the last one: {}", failed.count - logged_,
                     failed.last_reason);
    logged_ = failed.count;
    next_log_ = now + kLogInterval;
  }

 private:
  static constexpr absl::Duration kLogInterval = absl::Minutes(1);

  limits::RefusalCounts* const refusals_;
  uint64_t counted_;
  uint64_t logged_;
  absl::Time next_log_ = absl::InfinitePast();
};

}  // namespace

absl::StatusOr<std::unique_ptr<Server>> Server::Create(const ServerConfig& config,
                                                       const Deps& deps) {
  RETURN_IF_ERROR(ValidateServerConfig(config));
  std::unique_ptr<Server> server(new Server(config, deps));
  const absl::Status started = server->Start();
  const bool is_of_former_division =
      server->role_ != nullptr && server->role_->is_of_former_division();
  if (is_of_former_division) {
    server.reset();  // the former servers need its locks
    RETURN_IF_ERROR(SaveFormerDivision(config, deps, started));
    server.reset(new Server(config, deps));
    RETURN_IF_ERROR(server->Start());
    return server;
  }
  RETURN_IF_ERROR(started);
  return server;
}

absl::Status Server::Start() {
  RETURN_IF_ERROR(Build());
  RETURN_IF_ERROR(Serve());
  return BeginService();
}

Server::Server(const ServerConfig& config, const Deps& deps)
    : config_(config), deps_(deps), refusals_(std::make_shared<limits::RefusalCounts>()) {}

Server::~Server() { Stop(StopKind::kImmediate); }

std::string Server::LogFolder() const {
  return absl::StrCat(config_.durability.journal_dir, "/shard-", config_.cluster.shard);
}

absl::Status Server::AwaitNewDivision() {
  if (config_.is_coordinator()) return absl::OkStatus();
  const absl::StatusOr<bool> is_other = IsBesideOtherDivision(disk_, config_);
  if (is_other.ok() && !*is_other) return absl::OkStatus();
  is_journal_of_former_division_ = is_other.ok();
  logging::LogInfo(
      "the server waits for the coordinator before it changes the journal of shard {}: {}",
      config_.cluster.shard,
      is_other.ok()
          ? absl::StrCat(
                "the coordinator's journal in the same folder was not written by a job of ",
                config_.cluster.num_shards, " servers")
          : is_other.status().message());
  ASSIGN_OR_RETURN(const net::AddressList coordinator,
                   net::AddressList::Parse("coordinator", config_.cluster.coordinator));
  return rpc::ShardAgent::AwaitCoordinator(coordinator, security_->transport(),
                                           deps_.is_interrupted);
}

absl::Status Server::AwaitCheckpointFolder() {
  const DurabilityConfig& durability = config_.durability;
  if (!durability.has_journal || durability.coordinators_folder.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::vector<uint64_t> segments,
                   journal::ListJournalSegments(disk_, LogFolder()));
  if (!segments.empty()) return absl::OkStatus();
  const std::string lock =
      absl::StrCat(durability.coordinators_folder, "/", storage::kFolderLockName);
  if (disk_.Exists(lock)) return absl::OkStatus();
  logging::LogWarn(
      "the server waits for the file {}, which the coordinator creates when it starts, because "
      "there is no journal of shard {}. If the job is running, mount the folder of the "
      "coordinator's --checkpoint_dir on this machine",
      lock, config_.cluster.shard);
  while (!disk_.Exists(lock)) {
    if (deps_.is_interrupted()) return absl::CancelledError("told to stop");
    deps_.clock->Sleep(kFolderPause);
  }
  logging::LogInfo("the file {} exists now, so the server continues to start", lock);
  return absl::OkStatus();
}

absl::Status Server::ClaimLogFolder() {
  if (!config_.durability.has_journal) return absl::OkStatus();
  const std::string folder = LogFolder();
  RETURN_IF_ERROR(
      checkpoint::TryCheckpointFolder(disk_, folder, /*checkpoint_bytes=*/0, /*num_checkpoints=*/0)
          .status());
  storage::FolderLock::Deps lock;
  lock.clock = deps_.clock;
  lock.is_interrupted = deps_.is_interrupted;
  lock.on_lost = [this](const absl::Status& status) { Finish(status); };
  lock.confirm_leader = deps_.confirm_leader;
  ASSIGN_OR_RETURN(log_lock_, storage::FolderLock::Take(
                                  folder, storage::NewFolderClaim(deps_.leader), std::move(lock)));
  log_lock_->StartBeating();
  return absl::OkStatus();
}

absl::Status Server::PrepareReplication() {
  const DurabilityConfig& durability = config_.durability;
  if (!durability.has_journal) return absl::OkStatus();
  const std::string folder = LogFolder();
  replica::ReplicationStart start;
  start.folder = folder;
  ASSIGN_OR_RETURN(start.mark, replica::ReadReplicationMark(disk_, folder));
  for (const std::string& journal :
       {folder, absl::StrCat(durability.journal_dir, "/coordinator")}) {
    ASSIGN_OR_RETURN(const std::vector<uint64_t> segments,
                     journal::ListJournalSegments(disk_, journal));
    start.has_journal |= !segments.empty() && (journal == folder || config_.is_coordinator());
  }
  start.wants_replica = !durability.journal_replica.empty();
  start.may_promote = durability.may_promote;
  start.is_leader = !config_.cluster.leader_lease.empty();
  ASSIGN_OR_RETURN(replica::ReplicationPlan plan, replica::JudgeStart(start));
  if (plan.drops_mark) {
    logging::LogWarn(
        "{} was {} {} since {}. From now on, this server uses the folder alone", folder,
        start.mark->side == replica::ReplicationSide::kReplica ? "a replica of the server on"
                                                               : "copied to the replica",
        start.mark->peer, start.mark->since);
  }
  drops_mark_ = plan.drops_mark;
  if (plan.drops_mark && start.mark->side == replica::ReplicationSide::kReplica) {
    promoted_from_ = start.mark->peer;
  }
  if (!start.wants_replica) return absl::OkStatus();
  const storage::FolderClaim claim = storage::NewFolderClaim();
  replica::Replication::Config config;
  config.shard = config_.cluster.shard;
  config.num_shards = config_.cluster.num_shards;
  config.journal_dir = durability.journal_dir;
  config.checkpoint_dir = durability.checkpoint_dir;
  config.replica = durability.journal_replica;
  config.server = absl::StrCat("host ", claim.host, ", process ", claim.process);
  config.term = RandomId();
  config.plan = std::move(plan);
  replica::Replication::Deps deps;
  deps.disk = &disk_;
  deps.clock = deps_.clock;
  deps.connect = [this] {
    return rpc::ConnectReplica(config_.durability.journal_replica, security_->transport());
  };
  deps.random_id = RandomId;
  deps.confirm = [this] { return ConfirmFolder(); };
  deps.now = [since = claim.since] { return since; };
  deps.on_change = [this](const absl::Status& state) { OnReplicaChange(state); };
  replication_ = std::make_unique<replica::Replication>(std::move(config), std::move(deps));
  log_disk_ = replication_->AddDisk();
  shard_disk_ = replication_->AddDisk();
  return absl::OkStatus();
}

absl::Status Server::AwaitReplica() {
  if (replication_ == nullptr) return absl::OkStatus();
  replication_->KeepConnected();
  absl::Time next_words = deps_.clock->Now() + kReplicaPause;
  absl::Time give_up = deps_.clock->Now() + kLeaderPatience;
  std::string last_words;
  while (true) {
    const absl::Status state = replication_->state();
    if (!absl::IsUnavailable(state)) return state;
    const absl::Time now = deps_.clock->Now();
    // The message changes while files are copied. Each change means progress, so the server waits
    // for another kLeaderPatience.
    if (std::exchange(last_words, std::string(state.message())) != state.message()) {
      give_up = now + kLeaderPatience;
    }
    if (!config_.cluster.leader_lease.empty() && now >= give_up) {
      return absl::UnavailableError(
          absl::StrCat(state.message(), "; this server releases the lease ",
                       config_.cluster.leader_lease, ", so that another machine can continue"));
    }
    if (now >= next_words) {
      logging::LogWarn(
          "the server acknowledges no contribution, because it waits for the replica: {}",
          state.message());
      next_words = now + kReplicaWords;
    }
    if (deps_.is_interrupted()) return absl::CancelledError("told to stop");
    deps_.clock->Sleep(kReplicaPause);
  }
}

absl::Status Server::NoReplica() const {
  if (promoted_from_.empty()) {
    return absl::FailedPreconditionError(
        "a server and not a replica answers at --journal_replica. Give the address of a ps_server "
        "--replica. If that server was the replica and has continued the job, end this server");
  }
  return absl::AbortedError(absl::StrCat(
      "the replica has continued as the server, in place of the server on ", promoted_from_));
}

absl::Status Server::NoAuthority() const {
  return absl::FailedPreconditionError(
      security_->transport().is_plain()
          ? "this server speaks plain text, so it has no tokens and no certificates. It has them "
            "if it listens on an address that other machines reach, without --insecure"
          : "the authority of --tls_ca issues the certificates of this cluster, so this server has "
            "no tokens and cannot revoke; use that authority");
}

void Server::OnReplicaChange(const absl::Status& state) {
  if (state.ok()) {
    is_replica_back_ = true;
    return logging::LogInfo("the replica {} has everything", config_.durability.journal_replica);
  }
  if (absl::IsAborted(state)) return Finish(state);
  const std::string text = absl::StrCat(
      state.message(), "; no contribution is acknowledged until the replica has everything again");
  if (!has_begun_) return logging::LogWarn("{}", text);
  reports().OnEvent(shards::ShardAlarm{text});
}

std::string Server::ReplicaText() const {
  if (replication_ == nullptr) return "";
  const std::string& replica = config_.durability.journal_replica;
  const absl::Status state = replication_->state();
  if (state.ok()) return absl::StrCat(replica, " has everything");
  absl::string_view why = state.message();
  absl::ConsumePrefix(&why, absl::StrCat("replica ", replica, ": "));
  return absl::StrCat(replica, ": ", why);
}

absl::Status Server::ConfirmFolder() const {
  if (log_lock_ != nullptr) RETURN_IF_ERROR(log_lock_->CheckHeld());
  return deps_.confirm_leader();
}

absl::Status Server::ConfirmInCharge() const {
  RETURN_IF_ERROR(log_lock_->CheckHeld());
  if (replication_ != nullptr) RETURN_IF_ERROR(replication_->state());
  // The lease is checked last, because it may end while the folder is being read.
  return deps_.confirm_leader();
}

absl::Status Server::OpenLog() {
  if (!config_.durability.has_journal) return absl::OkStatus();
  const std::string folder = LogFolder();
  log_executor_ = std::make_unique<ThreadPool>(1, "shard-journal");
  const auto make_deps = [&] {
    host::ShardLog::Deps deps;
    deps.file_system = log_disk_;
    deps.clock = deps_.clock;
    deps.executor = log_executor_.get();
    deps.format_assignment = rpc::FormatAssignment;
    deps.parse_assignment = rpc::ParseAssignment;
    deps.confirm = [this] { return ConfirmInCharge(); };
    deps.reclaim = [this] { return log_lock_->Reclaim(); };
    deps.on_trouble = [this](const absl::Status& status) { OnLogTrouble(status); };
    deps.run_folder = config_.durability.checkpoint_dir;
    return deps;
  };
  absl::StatusOr<std::unique_ptr<host::ShardLog>> log = host::ShardLog::Open(folder, make_deps());
  if (absl::IsDataLoss(log.status()) && deps_.check_recovered == nullptr) {
    journal_refusal_ =
        absl::StrCat(log.status().message(),
                     ". This server cannot continue from it. Either all servers go back to the "
                     "newest undamaged checkpoint, or the coordinator raises an alarm and waits "
                     "for an operator. The journal's files are kept as *.damaged");
    logging::LogError("{}", journal_refusal_);
    log = host::ShardLog::OpenBesideDamaged(folder, make_deps());
  }
  ASSIGN_OR_RETURN(log_, std::move(log));
  return absl::OkStatus();
}

void Server::OnLogTrouble(const absl::Status& status) {
  if (status.ok()) {
    return logging::LogInfo("shard={} the journal can be written again", config_.cluster.shard);
  }
  // If another process has the folder, this process must end.
  if (absl::IsAlreadyExists(status)) return Finish(status);
  reports().OnEvent(
      shards::ShardAlarm{absl::StrCat("the journal cannot be written, and no contribution is "
                                      "acknowledged until the journal can be written again: ",
                                      status.message())});
}

host::ShardReports& Server::reports() {
  if (role_ != nullptr) return *role_;
  return *agent_;
}

absl::Status Server::Recover() {
  ASSIGN_OR_RETURN(const bool is_journal_of_run, host_->IsJournalOfRun());
  if (!is_journal_of_run) {
    logging::LogInfo("shard={} does not use its journal, which is of another run that has ended",
                     config_.cluster.shard);
  }
  if (log_ != nullptr && log_->beginning().has_value()) {
    const size_t num_servers = log_->beginning()->assignment.map->servers.size();
    is_journal_of_former_division_ |= num_servers != config_.cluster.num_shards;
    if (is_journal_of_former_division_) {
      logging::LogInfo(
          "shard={} does not use its journal, because a job with another number of servers wrote "
          "it",
          config_.cluster.shard);
    }
  }
  if (is_journal_of_run && !is_journal_of_former_division_) {
    ASSIGN_OR_RETURN(has_recovered_, host_->Recover());
    if (!host_->journal_refusal().empty()) journal_refusal_ = host_->journal_refusal();
  }
  if (deps_.check_recovered == nullptr) return absl::OkStatus();
  if (has_recovered_) return deps_.check_recovered(*host_);
  return absl::FailedPreconditionError(
      absl::StrCat("the journal of shard ", config_.cluster.shard, " in ", LogFolder(),
                   " lacks its first record, which says what the job was, so the server cannot "
                   "continue from it"));
}

absl::Status Server::Build() {
  // The files are checked before the port opens and workers train.
  RETURN_IF_ERROR(PortFile::Clear(config_.network.port_file));
  RETURN_IF_ERROR(process::CheckTraceOutput(config_.output.trace_path));
  StartTrace();
  ASSIGN_OR_RETURN(security_, ServerSecurity::Open(config_, deps_.is_interrupted));
  executor_ = std::make_unique<ThreadPool>(NumThreads(deps_.num_threads), "shard");
  host::ShardHost::Deps host;
  host.executor = executor_.get();
  host.trace = trace_.get();
  host.instance_id = RandomId();
  host.staging_bytes = config_.limits.staging_bytes;
  host.read_memory = [limit = config_.cluster.memory_limit] { return AvailableMemory(limit); };
  const auto explain = [this](const absl::Status& status) {
    return absl::Status(
        status.code(),
        absl::StrCat("--journal_dir=", config_.durability.journal_dir, ": ", status.message()));
  };
  RETURN_IF_ERROR(AwaitNewDivision());
  RETURN_IF_ERROR(AwaitCheckpointFolder());
  if (const absl::Status claimed = ClaimLogFolder(); !claimed.ok()) return explain(claimed);
  RETURN_IF_ERROR(PrepareReplication());
  std::vector<rpc::CallRefusal::Services> refused = {
      {{rpc::ReplicaService()}, [this] { return NoReplica(); }}};
  if (config_.is_coordinator()) {
    CoordinatorRole::Deps deps;
    deps.clock = deps_.clock;
    deps.disk = &disk_;
    if (replication_ != nullptr) {
      deps.journal_disk = replication_->AddDisk();
      deps.checkpoint_disk = replication_->AddDisk();
    }
    deps.confirm_in_charge = [this] { return ConfirmInCharge(); };
    deps.leader = deps_.leader;
    deps.confirm_leader = deps_.confirm_leader;
    deps.security = security_.get();
    deps.is_interrupted = deps_.is_interrupted;
    deps.read_memory = host.read_memory;
    deps.read_connections = [this] { return ReadConnections(); };
    deps.is_open = [this](const std::string& peer) {
      return acceptor_ == nullptr || acceptor_->IsOpen(peer);
    };
    deps.state_of = [this](const std::string& peer) { return StateOf(peer); };
    deps.refusals = refusals_;
    deps.log = deps_.log;
    deps.is_promoted = config_.durability.may_promote || !promoted_from_.empty();
    ASSIGN_OR_RETURN(role_, CoordinatorRole::Create(config_, deps));
  } else {
    ASSIGN_OR_RETURN(net::AddressList coordinator,
                     net::AddressList::Parse("coordinator", config_.cluster.coordinator));
    agent_ = std::make_unique<rpc::ShardAgent>(
        rpc::ShardAgent::Config{.coordinator = std::move(coordinator),
                                .security = security_->transport(),
                                .shard = config_.cluster.shard,
                                .num_shards = config_.cluster.num_shards},
        rpc::ShardAgent::Deps{[this] { return ReadShard(); },
                              [this](const absl::Status& status) { Finish(status); },
                              [this] { return ConfirmFolder(); }});
    refused.push_back(
        {rpc::CoordinatorServices(),
         [this] { return rpc::NotTheCoordinator(config_.cluster.shard, agent_->coordinator()); }});
  }
  if (config_.is_coordinator() && security_->authority() == nullptr) {
    refused.push_back({{rpc::AuthorityService()}, [this] { return NoAuthority(); }});
  }
  refusal_ = std::make_unique<rpc::CallRefusal>(std::move(refused));
  RETURN_IF_ERROR(OpenPort());
  RETURN_IF_ERROR(AwaitReplica());
  if (const absl::Status opened = OpenLog(); !opened.ok()) return explain(opened);
  host.log = log_.get();
  host.file_system = shard_disk_;
  host.folders = {.checkpoint_dir = config_.durability.checkpoint_dir,
                  .fallback_dir = config_.durability.fallback_dir,
                  .journal_dir = config_.durability.journal_dir};
  if (!config_.is_coordinator()) {
    fence_ = std::make_unique<host::FolderFence>(config_.durability.named_paths);
    host.fence = fence_.get();
  }
  host.reports = &reports();
  host.are_connections_closed = [this](const messages::WorkerLife& life) {
    return parameter_rpc_ != nullptr && parameter_rpc_->AreConnectionsClosed(life);
  };
  host_ = std::make_unique<host::ShardHost>(config_.cluster.shard, host);
  RETURN_IF_ERROR(Recover());
  rpc::ParameterRpc::Config bulk;
  bulk.share_memory = config_.network.shared_memory;
  bulk.export_key = host_->instance_id();
  bulk.streams.per_worker = config_.limits.streams_per_worker;
  bulk.message_timeout = config_.limits.message_timeout;
  bulk.connection_bytes = [this](const std::string& peer) {
    return acceptor_ == nullptr ? std::nullopt : acceptor_->BytesReceived(peer);
  };
  bulk.state_of = [this](absl::string_view peer) { return StateOf(peer); };
  bulk.refusals = refusals_;
  parameter_rpc_ =
      std::make_unique<rpc::ParameterRpc>([this] { return host_->shard(); }, executor_.get(), bulk);
  if (role_ == nullptr) return absl::OkStatus();
  return role_->Start(host_.get(), [this] { return ReadShard(); });
}

void Server::StartTrace() {
  const std::string& path = config_.output.trace_path;
  if (path.empty()) return;
  trace_ = std::make_unique<process::TraceRecorder>(
      process::TraceRecorder::Options{.path = path,
                                      .process = absl::StrCat("server ", config_.cluster.shard),
                                      .num_rounds = config_.output.trace_rounds},
      deps_.clock);
}

absl::Status Server::OpenPort() {
  firewall::ConnectionAcceptor::Config acceptor;
  acceptor.listen = config_.network.listen;
  acceptor.limits.max_connections = config_.limits.max_connections;
  acceptor.limits.max_per_address = config_.limits.max_connections_per_address;
  acceptor.limits.new_per_minute = config_.limits.connections_per_minute;
  acceptor.limits.kept_for_this_machine = config_.limits.connections_kept_for_this_machine();
  if (!security_->transport().is_plain()) {
    acceptor.transport = firewall::ConnectionAcceptor::Transport::kTls;
  }
  if (security_->authority() != nullptr && role_ != nullptr) {
    acceptor.enroll = [this](int fd, std::string peer) {
      role_->TakeEnrollment(fd, std::move(peer));
    };
  }
  acceptor.clock = deps_.clock;
  ASSIGN_OR_RETURN(acceptor_, firewall::ConnectionAcceptor::Listen(std::move(acceptor)));
  port_ = acceptor_->port();
  return absl::OkStatus();
}

absl::Status Server::Serve() {
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  grpc::ServerBuilder builder;
  wire::ApplyServerOptions(builder,
                           {.long_paths = config_.network.long_paths,
                            .message_bytes = config_.limits.message_bytes,
                            .calls_per_connection = config_.limits.calls_per_connection()});
  auto connections = builder.experimental().AddExternalConnectionAcceptor(
      grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
      security_->MakeServerCredentials(refusals_));
  builder.RegisterService(parameter_rpc_.get());
  if (role_ != nullptr) role_->AddServices(builder);
  builder.RegisterCallbackGenericService(refusal_.get());
  grpc_server_ = builder.BuildAndStart();
  if (grpc_server_ == nullptr)
    return absl::InternalError(
        "gRPC could not start its server; the log above may have gRPC's reason");
  SetHealth(false);
  acceptor_->Serve(std::move(connections));
  address_ = AdvertisedAddress(config_.network, port_);
  ASSIGN_OR_RETURN(PortFile port_file, PortFile::Write(config_.network.port_file, port_));
  port_file_.emplace(std::move(port_file));
  return absl::OkStatus();
}

absl::Status Server::BeginService() {
  // The mark says that this folder was copied to a replica, or was a replica's. It is removed only
  // now, so that a start that fails leaves it. If there is a replica, a new mark has replaced the
  // old one already.
  if (drops_mark_ && replication_ == nullptr) {
    RETURN_IF_ERROR(replica::RemoveReplicationMark(disk_, LogFolder()));
  }
  logging::LogInfo("version={} shard={}/{} listen={} address={} wire=\"{}\"",
                   process::SoftwareVersion(), config_.cluster.shard, config_.cluster.num_shards,
                   net::HostPort{config_.network.listen.host, port_}.ToString(), address_,
                   security_->ToString());
  const std::string unreachable = LoopbackText(config_.network.listen, *acceptor_);
  if (!unreachable.empty()) logging::LogWarn("{}", unreachable);
  if (role_ != nullptr) {
    RETURN_IF_ERROR(role_->AttachLocalShard(*host_, address_));
    if (!unreachable.empty()) role_->RaiseAlarm(unreachable, coordinator::AlarmKind::kReminder);
    if (!config_.network.listen.IsLoopback() && security_->transport().is_plain()) {
      role_->RaiseAlarm(absl::StrCat("--insecure: ", config_.network.listen.host, ":", port_,
                                     " is neither encrypted nor authenticated; everyone who can "
                                     "connect to it can read and change the weights"),
                        coordinator::AlarmKind::kReminder);
    }
  } else {
    agent_->Start(host_.get(), address_);
  }
  if (!promoted_from_.empty() && replication_ == nullptr) {
    const absl::string_view text =
        "this server was a replica and now has no replica, so acknowledged contributions are on "
        "one disk only. Start a replica, and start this server with --journal_replica";
    // If this server is not the coordinator, it raises no alarm: the status shows the missing
    // replica in the row of this server.
    logging::LogWarn("{}", text);
    if (role_ != nullptr) role_->RaiseAlarm(std::string(text), coordinator::AlarmKind::kReminder);
  }
  if (has_recovered_) host_->GoOn();
  RETURN_IF_ERROR(StartUplink());
  has_begun_ = true;
  watch_ = std::thread([this] { Watch(); });
  return absl::OkStatus();
}

absl::Status Server::StartUplink() {
  if (!config_.is_site()) return absl::OkStatus();
  if (deps_.make_uplink == nullptr) {
    return absl::FailedPreconditionError(
        "this build of the server does not support --upstream. Use ps_server for a site, or leave "
        "--upstream out");
  }
  ASSIGN_OR_RETURN(uplink_, deps_.make_uplink(role_->site()));
  return absl::OkStatus();
}

void Server::WatchUplink() {
  if (uplink_ == nullptr) return;
  std::string standing = uplink_->Standing();
  if (standing == told_of_uplink_) return;
  told_of_uplink_ = std::move(standing);
  role_->site()->TellUpstream(told_of_uplink_);
}

void Server::Watch() {
  const auto is_over = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return is_watch_over_; };
  bool was_serving = false;
  uint64_t floods_seen = http2::NumFloodsEnded();
  FailedHandshakeWatch handshakes(refusals_.get());
  absl::Duration since_tick;
  if (!journal_refusal_.empty()) {
    reports().OnEvent(shards::ShardAlarm{journal_refusal_, shards::ShardAlarm::Ends::kNever});
  }
  while (true) {
    {
      absl::MutexLock lock(&mutex_);
      if (mutex_.AwaitWithTimeout(absl::Condition(&is_over), kWatchInterval)) return;
    }
    since_tick += kWatchInterval;
    for (const messages::WorkerLife& life : parameter_rpc_->TakeEndedProcesses()) {
      if (role_ != nullptr) role_->OnProcessEnded(life);
    }
    const bool is_replica_back = is_replica_back_.exchange(false);
    if (since_tick >= kShardTick || is_replica_back) {
      since_tick = absl::ZeroDuration();
      host_->Tick();
      if (const std::string fault = security_->Keep(); !fault.empty()) {
        reports().OnEvent(shards::ShardAlarm{fault, shards::ShardAlarm::Ends::kNever});
      }
      if (const std::optional<std::string> news = security_->LookAtFiles(); news.has_value()) {
        reports().OnEvent(
            shards::ShardAlarm{*news, shards::ShardAlarm::Ends::kWithNextOfCertificate});
      }
      if (role_ != nullptr) {
        role_->OnStats(ReadShard().stats);
        role_->LookAtCheckpoint();
      }
      WatchConnections();
      parameter_rpc_->EndStalled(deps_.clock->Now());
      const uint64_t floods = http2::NumFloodsEnded();
      refusals_->Count(limits::LimitReached::kFloods, floods - std::exchange(floods_seen, floods));
      handshakes.Update(deps_.clock->Now());
      deps_.on_alive(was_serving);
    }
    const bool is_serving = !is_draining_ && host_->is_serving();
    if (is_serving != was_serving) {
      SetHealth(is_serving);
      logging::LogInfo("shard={} state={}", config_.cluster.shard,
                       is_serving ? "serving" : "not_serving");
      was_serving = is_serving;
    }
    WatchUplink();
    if (role_ == nullptr) continue;
    if (is_replica_back) role_->TryJournalAgain();
    const std::optional<absl::Status> outcome = role_->outcome();
    if (outcome.has_value() && !role_->AwaitsServers()) Finish(*outcome);
  }
}

void Server::ThrowAwayCertificate(absl::string_view why) { security_->ThrowAwayCertificate(why); }

void Server::WatchConnections() {
  if (role_ == nullptr) return;  // other servers raise no alarm
  const firewall::ConnectionCounts counts = ReadConnections();
  const uint64_t num_refused = counts.refused_for(firewall::RefusalReason::kTooMany) +
                               counts.refused_for(firewall::RefusalReason::kTooManyOfAddress) +
                               counts.refused_for(firewall::RefusalReason::kNoFile);
  if (std::exchange(num_refused_, num_refused) == num_refused) return;
  const int64_t num_of_others = std::max<int64_t>(
      counts.max_connections - config_.limits.connections_kept_for_this_machine(), 0);
  role_->RaiseAlarm(
      absl::StrCat("this server refuses connections, because a limit is reached. It takes at most ",
                   counts.max_connections, " connections in all (--max_connections, ulimit -n), ",
                   num_of_others, " from all other machines, and ",
                   std::min<int64_t>(config_.limits.connections_per_address(), num_of_others),
                   " from one address of another machine (--max_connections_per_address). Raise "
                   "the limit, or find out which programs connect"),
      coordinator::AlarmKind::kReminder);
}

firewall::ConnectionState Server::StateOf(absl::string_view peer) const {
  return acceptor_ == nullptr ? firewall::ConnectionState::kUnknown : acceptor_->StateOf(peer);
}

firewall::ConnectionCounts Server::ReadConnections() const {
  return acceptor_ == nullptr ? firewall::ConnectionCounts() : acceptor_->counts();
}

void Server::SetHealth(bool is_serving) {
  grpc::HealthCheckServiceInterface* health = grpc_server_->GetHealthCheckService();
  if (health == nullptr) return;
  health->SetServingStatus(is_serving);
  health->SetServingStatus(kParameterServiceName, is_serving);
}

status::ShardReading Server::ReadShard() const {
  shard::ShardStats stats = host_->stats();
  stats.journal_replica = ReplicaText();
  const absl::Status copied = replication_ == nullptr ? absl::OkStatus() : replication_->state();
  // While the replica is lost no record can be written, even if no write was tried.
  if (!copied.ok()) stats.journal_trouble = std::string(copied.message());
  const rpc::BulkTraffic traffic = parameter_rpc_->traffic();
  return {std::move(stats), traffic.bytes_received, traffic.bytes_sent};
}

void Server::Finish(const absl::Status& outcome) {
  absl::MutexLock lock(&mutex_);
  if (!outcome_.has_value()) outcome_ = outcome;
}

absl::Status Server::Wait() {
  const auto is_known = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return outcome_.has_value() || stop_requested_ != StopKind::kNone;
  };
  absl::MutexLock lock(&mutex_);
  mutex_.Await(absl::Condition(&is_known));
  return outcome_.value_or(absl::CancelledError("told to stop"));
}

void Server::RequestStop(StopKind kind) {
  absl::MutexLock lock(&mutex_);
  stop_requested_ = std::max(stop_requested_, kind);
}

bool Server::IsToStopAtOnce() {
  absl::MutexLock lock(&mutex_);
  return stop_requested_ == StopKind::kImmediate;
}

bool Server::is_job_done() { return role_ != nullptr && role_->is_job_done(); }

std::string Server::ending() {
  return role_ != nullptr ? role_->ending() : "the coordinator has ended the job";
}

void Server::SaveAndGoOn() {
  if (role_ != nullptr) return role_->SaveAndGoOn();
  logging::LogInfo(
      "shard={} is saved only when the coordinator, {}, asks for it; send the signal to the "
      "coordinator",
      config_.cluster.shard, agent_->coordinator());
}

absl::StatusOr<checkpoints::PublishedCheckpoint> Server::SaveWithoutWorkers() {
  LODESTAR_CHECK(role_ != nullptr);
  ASSIGN_OR_RETURN(const checkpoints::PublishedCheckpoint saved,
                   role_->SaveWithoutWorkers(deps_.is_interrupted));
  const absl::Status command =
      role_->FinishCheckpointCommand(config_.cluster.stop_timeout, deps_.is_interrupted);
  if (!command.ok()) logging::LogError("{}", command.message());
  return saved;
}

void Server::SaveBeforeStop() {
  {
    // If the coordinator has told this server to exit, or refuses it, the coordinator takes no
    // checkpoint for it.
    absl::MutexLock lock(&mutex_);
    if (agent_ != nullptr && outcome_.has_value()) return;
  }
  const absl::Duration patience = config_.cluster.stop_timeout;
  const auto is_interrupted = [this] { return IsToStopAtOnce(); };
  const absl::StatusOr<checkpoints::PublishedCheckpoint> saved =
      role_ != nullptr ? role_->SaveBeforeStop(patience, is_interrupted)
                       : agent_->SaveBeforeStop(patience, is_interrupted);
  loss_ = LossOf(saved, config_.durability.has_journal);
  if (role_ == nullptr) return;
  if (const std::string lost = role_->lost_rounds(); !lost.empty()) logging::LogWarn("{}", lost);
  const absl::Status command = role_->FinishCheckpointCommand(patience, is_interrupted);
  if (!loss_.ok() && !command.ok()) logging::LogError("{}", command.message());
  loss_.Update(command);
}

void Server::Stop(StopKind kind) {
  if (std::exchange(is_stopped_, true)) return;
  // The uplink leaves first: its step under way still needs this server's workers.
  if (kind == StopKind::kGraceful && uplink_ != nullptr) {
    uplink_->Leave([this] { return IsToStopAtOnce(); });
  }
  is_draining_ = true;
  if (grpc_server_ != nullptr) SetHealth(false);
  if (role_ != nullptr && grpc_server_ != nullptr) role_->BeginDrain();
  if (kind == StopKind::kGraceful && grpc_server_ != nullptr) SaveBeforeStop();
  {
    absl::MutexLock lock(&mutex_);
    is_watch_over_ = true;
  }
  if (watch_.joinable()) watch_.join();
  if (role_ != nullptr) role_->Stop();
  if (agent_ != nullptr) agent_->Stop();
  if (host_ != nullptr) {
    host_->Shutdown(
        absl::UnavailableError("the server is stopping; connect again when it is back"));
  }
  uplink_.reset();  // it no longer gets answers from role_ and host_
  if (parameter_rpc_ != nullptr) parameter_rpc_->EndSharing();
  port_file_.reset();
  if (acceptor_ != nullptr) acceptor_->Stop();
  if (grpc_server_ != nullptr) {
    grpc_server_->Shutdown(std::chrono::system_clock::now() + kCallPatience);
    grpc_server_->Wait();
  }
  // Threads that wait for the replica get an error.
  if (replication_ != nullptr) replication_->Shutdown();
  // The disk of the journal may hang for a long time. Its callbacks must not run after the objects
  // that they use are destroyed.
  if (log_ != nullptr) log_->EndCallbacks();
  if (trace_ != nullptr) trace_->Finish();
}

}  // namespace lodestar::server
