// Everything one ps_server is told at its start, as plain data: filled from flags by
// server_flags, by hand in tests.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/exchange_settings.h"
#include "common/job_spec.h"
#include "common/listen_address.h"
#include "common/logging.h"
#include "common/security/security_flags.h"
#include "server/coordinator/faults/divergence_policy.h"
#include "server/limits/server_limits.h"

namespace lodestar {

struct NetworkConfig {
  ListenAddress listen{{"127.0.0.1", 50051}};
  // HOST:PORT that workers and the coordinator are given for this server; empty: `listen` with the
  // real port, or this machine's host name if `listen` is a wildcard. ":0" stands for the real
  // port.
  std::string advertise;
  std::string port_file;                // the real port is written there; empty: nowhere
  std::optional<ListenAddress> http;    // of the dashboard and monitoring; none: they are off
  std::vector<std::string> http_names;  // of hosts, under which browsers come there, too
  // Whether payloads of workers on this machine go through memory shared with them.
  bool shared_memory = true;
  bool long_paths = false;  // see ServerOptions
};

struct SecurityConfig {
  SecurityFlags flags;
  bool tls = false;  // on this machine, too
  absl::Duration certificate_ttl = absl::Hours(24);
};

struct ClusterConfig {
  int shard = 0;  // the server of shard 0 is the coordinator
  int num_shards = 1;
  std::string coordinator;  // HOST:PORT[,HOST:PORT...]; of shards above 0 only
  absl::Duration lease = absl::Seconds(10);
  bool ends_unconnected = false;                  // see CoordinatorConfig
  absl::Duration round_timeout = absl::Hours(1);  // the longest that a round waits for a member
  // For the last checkpoint, once this server is told to stop; for rounds at hand, once the job is.
  absl::Duration stop_timeout = absl::Minutes(1);
  int64_t memory_limit = 0;  // bytes that the shard may take; 0: what the machine or its group has
  std::string leader_lease;  // see LeaseAddress; empty: whoever is started is the server
};

// Of a site, a server that with its workers is one worker of another server.
struct UpstreamConfig {
  std::string address;  // HOST:PORT[,HOST:PORT...] of those servers; empty: this is no site
  std::string join;     // join string of their cluster, or the path of a file with one; empty: none
  std::string name;     // of the site there; empty: of host and process
};

enum class ResumePolicy { kLatest, kNever, kPath };

struct DurabilityConfig {
  // Of servers above shard 0: what else the coordinator may have them read and write. See
  // FolderFence.
  std::vector<std::string> named_paths;
  // Of a server above shard 0: where it sees the coordinator's --checkpoint_dir, if it was told.
  std::string coordinators_folder;
  std::string checkpoint_dir;    // empty: no checkpoints
  std::string fallback_dir;      // for a last checkpoint that fails there; empty: none
  int64_t checkpoint_every = 0;  // rounds; 0: not by rounds
  absl::Duration checkpoint_interval = absl::ZeroDuration();  // 0: not by time
  double checkpoint_cost = 0.01;  // see CheckpointSchedule::Config::max_cost
  std::string on_checkpoint;      // for a shell, with each finished one; empty means none
  int keep = 3;                   // newest checkpoints that stay
  ResumePolicy resume = ResumePolicy::kLatest;
  std::string resume_path;           // of kPath: directory of one checkpoint
  std::string init_from;             // first weights of a fresh start; empty: initialisers and seed
  bool accepts_higher_rate = false;  // see CheckpointKeeper::Config
  // Of every server: what it acknowledges is written down before, and a restart goes on from there.
  bool has_journal = false;
  std::string journal_dir;      // with has_journal; each server has a folder in it
  std::string journal_replica;  // HOST:PORT of a process that has a copy of it; empty: none
  // Whoever starts this server says that no other goes on from a copy of the journal.
  bool may_promote = false;
  int64_t journal_limit_bytes = 0;  // see CoordinatorConfig
  // See JournalFacts. -1 means that no loss is accepted.
  int64_t accepted_loss = -1;
};

struct OutputConfig {
  std::string metrics_out;      // see MetricsFile; empty: none
  std::string tensorboard_dir;  // see TensorBoardFile; empty: none
  std::string trace_path;       // of the file with the times of a few rounds; empty: none
  int64_t trace_rounds = 5;
  LogLevel log_level = LogLevel::kInfo;
  LogFormat log_format = LogFormat::kText;
};

struct ServerConfig {
  NetworkConfig network;
  ServerLimits limits;
  SecurityConfig security;
  ClusterConfig cluster;
  UpstreamConfig upstream;
  DurabilityConfig durability;
  DivergencePolicy divergence;
  OutputConfig output;
  JobSpec job;                  // the coordinator's; the other servers receive it
  std::set<std::string> given;  // flags of the command line; see CoordinatorConfig
  OpenSettings open_settings;   // --mode=auto and others; see CoordinatorConfig
  bool exit_when_done = false;
  // The process is no server but keeps copies of the journals of some; only `network`, `limits` of
  // connections and messages, the folders and the log level count, until the leader lease makes it
  // a server.
  bool is_replica = false;

  bool is_coordinator() const { return cluster.shard == 0; }
  bool is_site() const { return !upstream.address.empty(); }
  // Others than programs of this machine reach the pages.
  bool has_remote_pages() const { return network.http.has_value() && !network.http->IsLoopback(); }
  // Else the wire is plain text.
  bool uses_tls() const {
    const SecurityFlags& flags = security.flags;
    return flags.has_own() || !flags.join.empty() || security.tls ||
           (!flags.insecure && !network.listen.IsLoopback());
  }
};

// One spelling per folder, so that two flags can be compared.
std::string NormalPath(const std::string& path);
// Makes the folders and files absolute that the servers of further shards, elsewhere at work, are
// told of. Errors: InvalidArgument if the folder at work is gone.
absl::Status MakeAbsolute(DurabilityConfig& durability);

// Everything that can be checked without opening a file or a port. Errors: InvalidArgument naming
// the flag, its value and what is allowed.
absl::Status ValidateServerConfig(const ServerConfig& config);

}  // namespace lodestar
