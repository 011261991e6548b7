// SPDX-License-Identifier: Apache-2.0

// ServerConfig has everything that one ps_server is told at its start, as plain data. It is filled
// from flags by server_flags, and by hand in tests.
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
  net::ListenAddress listen{{"127.0.0.1", 50051}};
  // HOST:PORT at which workers and the coordinator reach this server.
  // - Port 0 stands for the port that the server got.
  // - Empty means the address in `listen`. If that is a wildcard, this machine's host name is used.
  std::string advertise;
  std::string port_file;  // file for the real port; empty means none
  // Address of the dashboard and of monitoring. Not set means that they are off.
  std::optional<net::ListenAddress> http;
  std::vector<std::string> http_names;  // other host names under which browsers reach the dashboard
  // True: payloads of workers on this machine go through memory shared with them.
  bool shared_memory = true;
  bool long_paths = false;  // see ServerOptions
};

struct SecurityConfig {
  security::SecurityFlags flags;
  bool tls = false;  // true: TLS is used within this machine too
  absl::Duration certificate_ttl = absl::Hours(24);
};

struct ClusterConfig {
  int shard = 0;  // the server of shard 0 is the coordinator
  int num_shards = 1;
  std::string coordinator;  // HOST:PORT[,HOST:PORT...]; only for shards above 0
  absl::Duration lease = absl::Seconds(10);
  bool ends_unconnected = false;  // see CoordinatorConfig
  // Maximum time that a round waits for a member. Then the member is dropped.
  absl::Duration round_timeout = absl::Hours(1);
  // Maximum time for the last checkpoint once this server is told to stop. Also the maximum time to
  // complete the open rounds once the job is told to stop.
  absl::Duration stop_timeout = absl::Minutes(1);
  // Maximum number of bytes that the shard may use. 0 means all memory of the machine or of its
  // control group.
  int64_t memory_limit = 0;
  // Address of the leader lease: see LeaseAddress. Empty means that there is no lease, so this
  // process serves at once.
  std::string leader_lease;
};

// The settings of a site: a server that, with its workers, is one worker of another server.
struct UpstreamConfig {
  // HOST:PORT[,HOST:PORT...] of the servers upstream. Empty means that this is no site.
  std::string address;
  // Join string of the cluster upstream, or the path of a file that has one. Empty means none.
  std::string join;
  std::string name;  // name of the site upstream; empty means one made of host and process
};

enum class ResumePolicy { kLatest, kNever, kPath };

struct DurabilityConfig {
  // Paths in which the coordinator may make a server above shard 0 read and write. See FolderFence.
  std::vector<std::string> named_paths;
  // Path of the coordinator's checkpoint folder, as a server above shard 0 reaches it. Empty if the
  // operator gave no path.
  std::string coordinators_folder;
  std::string checkpoint_dir;  // empty means that there are no checkpoints
  // Folder for a last checkpoint that fails in checkpoint_dir. Empty means none.
  std::string fallback_dir;
  int64_t checkpoint_every = 0;  // rounds between checkpoints; 0 means not by rounds
  absl::Duration checkpoint_interval = absl::ZeroDuration();  // 0 means not by time
  double checkpoint_cost = 0.01;  // see CheckpointSchedule::Config::max_cost
  // Shell command that is run with each finished checkpoint. Empty means none.
  std::string on_checkpoint;
  int keep = 3;  // number of newest checkpoints that are kept
  ResumePolicy resume = ResumePolicy::kLatest;
  std::string resume_path;           // with kPath, the directory of one checkpoint
  std::string init_from;             // file of first weights; empty means initialisers and seed
  bool accepts_higher_rate = false;  // see CheckpointKeeper::Config
  // True: every server writes to its journal before it acknowledges anything, and goes on from the
  // journal after a restart.
  bool has_journal = false;
  std::string journal_dir;      // used with has_journal; each server has a folder in it
  std::string journal_replica;  // HOST:PORT of a process that keeps a copy; empty means none
  // True: --promote is given. The operator confirms that no other server goes on from a copy of the
  // journal.
  bool may_promote = false;
  int64_t journal_limit_bytes = 0;  // see CoordinatorConfig
  // Round of --accept_loss: see JournalFacts. -1 means that no loss is accepted.
  int64_t accepted_loss = -1;
};

struct OutputConfig {
  std::string metrics_out;      // see MetricsFile; empty means none
  std::string tensorboard_dir;  // see TensorBoardFile; empty means none
  std::string trace_path;       // file for a trace of a few rounds; empty means none
  int64_t trace_rounds = 5;
  logging::LogLevel log_level = logging::LogLevel::kInfo;
  logging::LogFormat log_format = logging::LogFormat::kText;
};

struct ServerConfig {
  NetworkConfig network;
  limits::ServerLimits limits;
  SecurityConfig security;
  ClusterConfig cluster;
  UpstreamConfig upstream;
  DurabilityConfig durability;
  faults::DivergencePolicy divergence;
  OutputConfig output;
  job::JobSpec job;                 // the job of the coordinator; the other servers receive it
  std::set<std::string> given;      // flags of the command line; see CoordinatorConfig
  job::OpenSettings open_settings;  // settings that the job chooses; see CoordinatorConfig
  bool exit_when_done = false;
  // True: the process is no server, but keeps copies of the journals of other servers. It uses only
  // `network`, the folders, the log level, and the `limits` of connections and messages. All other
  // fields are used once the leader lease makes the process a server.
  bool is_replica = false;

  bool is_coordinator() const { return cluster.shard == 0; }
  bool is_site() const { return !upstream.address.empty(); }
  // Returns true if programs on other machines can reach the pages.
  bool has_remote_pages() const { return network.http.has_value() && !network.http->IsLoopback(); }
  // Returns false if the wire is plain text.
  bool uses_tls() const {
    const security::SecurityFlags& flags = security.flags;
    return flags.has_own() || !flags.join.empty() || security.tls ||
           (!flags.insecure && !network.listen.IsLoopback());
  }
};

// Returns the normal form of a path, so that two flags can be compared.
std::string NormalPath(const std::string& path);
// Makes the paths absolute that are sent to other servers, because those have other working
// directories. Errors: InvalidArgument (the working directory is gone).
absl::Status MakeAbsolute(DurabilityConfig& durability);

// Checks everything that can be checked without opening a file or a port. Errors: InvalidArgument,
// naming the flag, its value and what is allowed.
absl::Status ValidateServerConfig(const ServerConfig& config);

}  // namespace lodestar::server
