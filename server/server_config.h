// Everything one ps_server is told at its start, as plain data: filled from flags by
// server_flags, by hand in tests.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/job/exchange_settings.h"
#include "common/job/job_spec.h"
#include "common/logging/logging.h"
#include "common/net/listen_address.h"
#include "common/security/security_flags.h"
#include "server/coordinator/faults/divergence_policy.h"
#include "server/limits/server_limits.h"

namespace lodestar::server {

struct NetworkConfig {
  ListenAddress listen{{"127.0.0.1", 50051}};
  // HOST:PORT that workers and the coordinator are given for this server. Empty means `listen` with
  // the real port, or this machine's host name if `listen` is a wildcard. ":0" stands for the real
  // port.
  std::string advertise;
  std::string port_file;  // The real port is written there. Empty means nowhere.
  // The address of the dashboard and of monitoring. Nothing means that they are off.
  std::optional<ListenAddress> http;
  std::vector<std::string> http_names;  // Names of hosts under which browsers come there as well.
  // Whether payloads of workers on this machine go through memory shared with them.
  bool shared_memory = true;
  bool long_paths = false;  // See ServerOptions.
};

struct SecurityConfig {
  SecurityFlags flags;
  bool tls = false;  // Whether TLS is used on this machine as well.
  absl::Duration certificate_ttl = absl::Hours(24);
};

struct ClusterConfig {
  int shard = 0;  // The server of shard 0 is the coordinator.
  int num_shards = 1;
  std::string coordinator;  // HOST:PORT[,HOST:PORT...]. Only shards above 0 have it.
  absl::Duration lease = absl::Seconds(10);
  bool ends_unconnected = false;  // See CoordinatorConfig.
  // The longest time that a round waits for a member.
  absl::Duration round_timeout = absl::Hours(1);
  // Once this server is told to stop, the last checkpoint has this much time. Once the job is told
  // to stop, the rounds at hand have it.
  absl::Duration stop_timeout = absl::Minutes(1);
  // The bytes that the shard may take. 0 means what the machine or its group has.
  int64_t memory_limit = 0;
  // See LeaseAddress. Empty means that each process that is started is the server.
  std::string leader_lease;
};

// The settings of a site, which is a server that with its workers is one worker of another server.
struct UpstreamConfig {
  // HOST:PORT[,HOST:PORT...] of those servers. Empty means that this is no site.
  std::string address;
  // The join string of their cluster, or the path of a file with one. Empty means none.
  std::string join;
  std::string name;  // The name of the site there. Empty means a name made of host and process.
};

enum class ResumePolicy { kLatest, kNever, kPath };

struct DurabilityConfig {
  // On servers above shard 0, what else the coordinator may have them read and write. See
  // FolderFence.
  std::vector<std::string> named_paths;
  // On a server above shard 0, where it sees the coordinator's --checkpoint_dir, if it was told.
  std::string coordinators_folder;
  std::string checkpoint_dir;  // Empty means that there are no checkpoints.
  // A last checkpoint that fails in checkpoint_dir goes there. Empty means none.
  std::string fallback_dir;
  int64_t checkpoint_every = 0;  // The number of rounds between checkpoints. 0 means not by rounds.
  absl::Duration checkpoint_interval = absl::ZeroDuration();  // 0 means not by time.
  double checkpoint_cost = 0.01;  // See CheckpointSchedule::Config::max_cost.
  // A command for a shell, which is run with each finished one. Empty means none.
  std::string on_checkpoint;
  int keep = 3;  // So many of the newest checkpoints stay.
  ResumePolicy resume = ResumePolicy::kLatest;
  std::string resume_path;  // With kPath, the directory of one checkpoint.
  std::string init_from;  // The first weights of a fresh start. Empty means initialisers and seed.
  bool accepts_higher_rate = false;  // See CheckpointKeeper::Config.
  // It holds for every server. What the server acknowledges is written down before, and a restart
  // goes on from there.
  bool has_journal = false;
  std::string journal_dir;      // It counts with has_journal. Each server has a folder in it.
  std::string journal_replica;  // HOST:PORT of a process that has a copy of it. Empty means none.
  // The operator who starts this server says that no other server goes on from a copy of the
  // journal.
  bool may_promote = false;
  int64_t journal_limit_bytes = 0;  // See CoordinatorConfig.
  // See JournalFacts. -1 means that no loss is accepted.
  int64_t accepted_loss = -1;
};

struct OutputConfig {
  std::string metrics_out;      // See MetricsFile. Empty means none.
  std::string tensorboard_dir;  // See TensorBoardFile. Empty means none.
  std::string trace_path;  // The path of the file with the times of a few rounds. Empty means none.
  int64_t trace_rounds = 5;
  LogLevel log_level = LogLevel::kInfo;
  LogFormat log_format = LogFormat::kText;
};

struct ServerConfig {
  NetworkConfig network;
  limits::ServerLimits limits;
  SecurityConfig security;
  ClusterConfig cluster;
  UpstreamConfig upstream;
  DurabilityConfig durability;
  DivergencePolicy divergence;
  OutputConfig output;
  JobSpec job;                  // The job of the coordinator. The other servers receive it.
  std::set<std::string> given;  // Flags of the command line. See CoordinatorConfig.
  OpenSettings open_settings;   // The settings of --mode=auto and others. See CoordinatorConfig.
  bool exit_when_done = false;
  // If it is set, the process is no server but keeps copies of the journals of some. Until the
  // leader lease makes it a server, only `network`, `limits` of connections and messages, the
  // folders and the log level count.
  bool is_replica = false;

  bool is_coordinator() const { return cluster.shard == 0; }
  bool is_site() const { return !upstream.address.empty(); }
  // Whether programs of other machines reach the pages.
  bool has_remote_pages() const { return network.http.has_value() && !network.http->IsLoopback(); }
  // If it is false, the wire is plain text.
  bool uses_tls() const {
    const SecurityFlags& flags = security.flags;
    return flags.has_own() || !flags.join.empty() || security.tls ||
           (!flags.insecure && !network.listen.IsLoopback());
  }
};

// Returns one spelling for each folder, so that two flags can be compared.
std::string NormalPath(const std::string& path);
// Makes folders and files absolute: they are compared with each other, and servers of further
// shards, which were started in other folders, are told of them. Errors: InvalidArgument if the
// folder in which this program was started is gone.
absl::Status MakeAbsolute(DurabilityConfig& durability);

// Checks everything that can be checked without opening a file or a port. Errors: InvalidArgument
// naming the flag, its value and what is allowed.
absl::Status ValidateServerConfig(const ServerConfig& config);

}  // namespace lodestar::server
