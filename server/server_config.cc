// SPDX-License-Identifier: Apache-2.0

#include "server/server_config.h"

#include <filesystem>
#include <limits>

#include "absl/strings/str_cat.h"
#include "common/net/address_list.h"
#include "common/params/shard_plan.h"
#include "common/runtime/flag_range.h"
#include "common/runtime/peer_text.h"
#include "common/runtime/status_macros.h"
#include "common/runtime/worker_name.h"
#include "common/security/certificates.h"
#include "proto/cluster_entry.h"
#include "server/authority/certificate_authority.h"
#include "server/durability/lease/lease_address.h"

namespace lodestar::server {
namespace {

constexpr absl::Duration kMinLease = absl::Milliseconds(100);
constexpr absl::Duration kShortestWait = absl::Milliseconds(100);
constexpr absl::Duration kMaxDuration = absl::Hours(24);
constexpr absl::Duration kMaxInterval = absl::Hours(24 * 365);
constexpr double kMinCost = 1e-6;
constexpr int64_t kMaxEvery = int64_t{1} << 48;
constexpr int kMaxKeep = 1000;
constexpr int64_t kMaxMemory = int64_t{1} << 50;
constexpr int64_t kMaxTraceRounds = 1000;

absl::Status CheckSecurity(const ServerConfig& config) {
  const security::SecurityFlags& flags = config.security.flags;
  if (flags.insecure && config.security.tls) {
    return absl::InvalidArgumentError(
        "--insecure is plain text, but --tls encrypts; leave one of the two out");
  }
  const absl::Duration ttl = config.security.certificate_ttl;
  RETURN_IF_ERROR(CheckDurationRange("certificate_ttl", ttl,
                                     authority::CertificateAuthority::kShortestTtl,
                                     authority::CertificateAuthority::kLongestTtl));
  if (!config.uses_tls()) {
    const std::string& coordinator = config.cluster.coordinator;
    if (!coordinator.empty()) {
      RETURN_IF_ERROR(wire::CheckMayBePlain("coordinator", coordinator, flags));
    }
    const std::string& replica = config.durability.journal_replica;
    return replica.empty() ? absl::OkStatus()
                           : wire::CheckMayBePlain("journal_replica", replica, flags);
  }
  if (config.is_coordinator() && !config.is_replica && !flags.join.empty()) {
    return absl::InvalidArgumentError(
        "--join cannot be used with the server of shard 0, because the other programs join this "
        "server. Leave it out");
  }
  if (!flags.has_own() && flags.state_dir.empty()) {
    return absl::InvalidArgumentError(
        "TLS needs a folder for keys and certificates; give --state_dir, or set HOME");
  }
  return absl::OkStatus();
}

absl::Status CheckNetwork(const NetworkConfig& network) {
  if (network.advertise.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const net::ListenAddress advertise,
                   net::ParseListenAddress("advertise", network.advertise));
  if (advertise.IsWildcard()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--advertise=", network.advertise,
                     " means all interfaces and is not an address to connect to; give the address "
                     "under which workers reach this server"));
  }
  return absl::OkStatus();
}

absl::Status CheckHttp(const ServerConfig& config) {
  const NetworkConfig& network = config.network;
  if (!network.http.has_value()) return absl::OkStatus();
  if (!config.is_coordinator() || config.is_replica) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--http=", network.http->ToString(),
        ": only the coordinator, the server of shard 0, has pages; leave the flag out"));
  }
  const net::ListenAddress& own = network.listen;
  const bool shares_host =
      network.http->host == own.host || network.http->IsWildcard() || own.IsWildcard();
  if (shares_host && own.port != 0 && network.http->port == own.port) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--http=", network.http->ToString(), " has the same port as --listen=", own.ToString(),
        ", which is for workers; give another port for the pages"));
  }
  for (const std::string& name : network.http_names) {
    RETURN_IF_ERROR(security::CheckHostName("--http_names", name));
  }
  if (!config.has_remote_pages() || config.uses_tls() || config.security.flags.insecure) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--http=", network.http->ToString(),
                   ": other machines reach this address, but the job is plain text and asks for no "
                   "password. For pages with TLS and a certificate or token, give --tls. For pages "
                   "only on this machine, give 127.0.0.1:",
                   network.http->port,
                   " (from other machines, use ssh -L). To let everyone who connects read the "
                   "pages and give orders, give --insecure"));
}

absl::Status CheckCluster(const ClusterConfig& cluster) {
  const std::string shard = absl::StrCat("--shard=", cluster.shard, "/", cluster.num_shards);
  if (cluster.num_shards < 1 || cluster.num_shards > params::kMaxServers || cluster.shard < 0 ||
      cluster.shard >= cluster.num_shards) {
    return absl::InvalidArgumentError(
        absl::StrCat(shard, " is out of range; give I/K with 0 <= I < K <= ", params::kMaxServers));
  }
  if (cluster.shard > 0 && cluster.coordinator.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        shard, " needs --coordinator=HOST:PORT, the address of the server with --shard=0/",
        cluster.num_shards));
  }
  if (cluster.shard == 0 && !cluster.coordinator.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--coordinator=", cluster.coordinator, " contradicts ", shard,
        ", because the server of shard 0 is the coordinator itself; leave one of the two out"));
  }
  if (!cluster.coordinator.empty()) {
    RETURN_IF_ERROR(net::AddressList::Parse("coordinator", cluster.coordinator).status());
  }
  RETURN_IF_ERROR(CheckDurationRange("lease", cluster.lease, kMinLease, kMaxDuration));
  RETURN_IF_ERROR(
      CheckDurationRange("round_timeout", cluster.round_timeout, kShortestWait, kMaxDuration));
  RETURN_IF_ERROR(CheckWholeRange("memory_limit", cluster.memory_limit, 0, kMaxMemory));
  if (!cluster.leader_lease.empty()) {
    RETURN_IF_ERROR(lease::ParseLeaseAddress(cluster.leader_lease).status());
  }
  return CheckDurationRange("stop_timeout", cluster.stop_timeout, kShortestWait, kMaxDuration);
}

absl::Status CheckDurability(const DurabilityConfig& durability, const params::ModelSpec& model) {
  RETURN_IF_ERROR(CheckWholeRange("checkpoint_every", durability.checkpoint_every, 0, kMaxEvery));
  if (durability.has_journal && durability.checkpoint_dir.empty()) {
    return absl::InvalidArgumentError(
        "--durability=journal needs --checkpoint_dir, because a journal only has what came after "
        "the newest checkpoint");
  }
  if (!durability.checkpoint_dir.empty() && durability.fallback_dir == durability.checkpoint_dir) {
    return absl::InvalidArgumentError(
        absl::StrCat("--fallback_dir=", durability.fallback_dir,
                     " is the same folder as --checkpoint_dir; give a folder on another disk"));
  }
  if (durability.checkpoint_interval != absl::ZeroDuration()) {
    RETURN_IF_ERROR(CheckDurationRange("checkpoint_interval", durability.checkpoint_interval,
                                       kShortestWait, kMaxInterval));
  }
  RETURN_IF_ERROR(CheckRange("checkpoint_cost", durability.checkpoint_cost, kMinCost, 1.0));
  RETURN_IF_ERROR(CheckWholeRange("checkpoint_keep", durability.keep, 1, kMaxKeep));
  RETURN_IF_ERROR(CheckWholeRange("accept_loss", durability.accepted_loss, -1,
                                  std::numeric_limits<int64_t>::max()));
  if (durability.has_journal && durability.keep < 2) {
    return absl::InvalidArgumentError(
        "--checkpoint_keep=1 contradicts --durability=journal, because a checkpoint must be kept "
        "until every server knows the next one. Give 2 or more");
  }
  if (durability.resume == ResumePolicy::kPath && !durability.init_from.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--init_from=", durability.init_from, " contradicts --resume=", durability.resume_path,
        ", because weights can come from one source only; leave one of the two out"));
  }
  if (!durability.init_from.empty() &&
      std::holds_alternative<params::ClientModelSpec>(model.architecture)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--init_from=", durability.init_from,
                     " contradicts --model=client, where the first program gives the weights; "
                     "leave one of the two out"));
  }
  return absl::OkStatus();
}

// Checks the settings of the journal. Every server has these settings.
absl::Status CheckJournal(const DurabilityConfig& durability) {
  if (durability.journal_replica.empty()) return absl::OkStatus();
  return net::ParseHostPort("journal_replica", durability.journal_replica, /*lowest_port=*/1)
      .status();
}

absl::Status CheckReplica(const ServerConfig& config) {
  if (config.durability.journal_dir.empty()) {
    return absl::InvalidArgumentError(
        "--replica needs --journal_dir, the folder for its copies of journals, or --checkpoint_dir "
        "for copies of checkpoints as well");
  }
  if (config.cluster.leader_lease.empty()) return absl::OkStatus();
  if (config.durability.resume != ResumePolicy::kLatest) {
    return absl::InvalidArgumentError(
        "--resume contradicts --replica with --leader_lease, which continues from its copy; leave "
        "--resume out");
  }
  if (config.durability.has_journal) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "--replica with --leader_lease takes the server's place if the server fails, so it needs the "
      "server's flags; --durability=journal is missing");
}

absl::Status CheckUpstream(const ServerConfig& config) {
  if (!config.is_site()) return absl::OkStatus();
  const std::string& upstream = config.upstream.address;
  const auto refuse = [&upstream](absl::string_view setting, absl::string_view why) {
    return absl::InvalidArgumentError(
        absl::StrCat(setting, " contradicts --upstream=", upstream, ": ", why));
  };
  ASSIGN_OR_RETURN(const net::AddressList roots, net::AddressList::Parse("upstream", upstream));
  for (const std::string& root : roots.all()) {
    ASSIGN_OR_RETURN(const net::HostPort address,
                     net::ParseHostPort("upstream", root, /*lowest_port=*/1));
    const net::ListenAddress& own = config.network.listen;
    if (root == config.network.advertise ||
        (address.port == own.port &&
         (address.host == own.host || (own.IsWildcard() && address.IsLoopback())))) {
      return refuse(absl::StrCat("--listen=", own.ToString()),
                    "that is this server itself; give the address of another server");
    }
  }
  if (!config.upstream.name.empty()) {
    RETURN_IF_ERROR(CheckWorkerName("--site_name", config.upstream.name));
  }
  if (config.cluster.num_shards > 1) {
    return refuse(absl::StrCat("--shard=", config.cluster.shard, "/", config.cluster.num_shards),
                  "a site has one server; leave it out");
  }
  if (config.open_settings.any()) {
    return refuse("auto (in --mode, --local_steps or another flag)",
                  "the upstream servers choose the job's settings; leave auto out, or give the "
                  "settings for the site's own workers");
  }
  if (config.is_replica) return refuse("--replica", "a site keeps no journal; leave it out");
  if (config.durability.has_journal) {
    return refuse("--durability=journal",
                  "a site that is started again repeats its window of local steps; leave the flag "
                  "out, and give --checkpoint_dir for the state of the optimizer");
  }
  if (!config.durability.init_from.empty()) {
    return refuse(absl::StrCat("--init_from=", config.durability.init_from),
                  "a site gets its weights from the upstream servers; leave the flag out");
  }
  if (config.divergence.action == faults::DivergenceAction::kRollback) {
    return refuse("--on_divergence=rollback",
                  "a site goes back to the weights of the upstream servers; leave the flag out");
  }
  return absl::OkStatus();
}

absl::Status CheckOutput(const OutputConfig& output) {
  return CheckWholeRange("trace_rounds", output.trace_rounds, 1, kMaxTraceRounds);
}

absl::Status CheckAllButSecurity(const ServerConfig& config) {
  RETURN_IF_ERROR(CheckNetwork(config.network));
  RETURN_IF_ERROR(CheckHttp(config));
  RETURN_IF_ERROR(CheckUpstream(config));
  RETURN_IF_ERROR(limits::ValidateServerLimits(config.limits));
  if (config.is_replica) {
    RETURN_IF_ERROR(CheckReplica(config));
    if (config.cluster.leader_lease.empty()) return absl::OkStatus();
  }
  RETURN_IF_ERROR(CheckJournal(config.durability));
  RETURN_IF_ERROR(CheckCluster(config.cluster));
  RETURN_IF_ERROR(CheckOutput(config.output));
  if (!config.is_coordinator()) {
    if (!config.durability.has_journal || !config.durability.journal_dir.empty()) {
      return absl::OkStatus();
    }
    return absl::InvalidArgumentError(
        "--durability=journal needs --journal_dir, or the same --checkpoint_dir as the "
        "coordinator");
  }
  RETURN_IF_ERROR(CheckDurability(config.durability, config.job.model));
  RETURN_IF_ERROR(faults::ValidateDivergencePolicy(config.divergence));
  RETURN_IF_ERROR(job::ValidateJobSpec(config.job));
  return faults::CheckFits(config.divergence, config.job);
}

}  // namespace

std::string NormalPath(const std::string& path) {
  const std::string normal = std::filesystem::path(path).lexically_normal().string();
  return normal.size() > 1 && normal.back() == '/' ? normal.substr(0, normal.size() - 1) : normal;
}

absl::Status MakeAbsolute(DurabilityConfig& durability) {
  for (std::string* const path :
       {&durability.checkpoint_dir, &durability.fallback_dir, &durability.init_from,
        &durability.resume_path, &durability.journal_dir}) {
    if (path->empty()) continue;
    std::error_code error;
    const std::filesystem::path absolute = std::filesystem::absolute(*path, error);
    if (error) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the path ", *path,
          " is relative to the folder in which this program was started, but that folder is gone (",
          error.message(), "). Start the program in another folder, or give absolute paths"));
    }
    if (!IsUtf8(absolute.string())) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the path ", *path, " is ", PeerText(absolute.string(), absolute.string().size()),
          " as an absolute path, which has bytes that are not UTF-8. Start the program in another "
          "folder, or rename that folder"));
    }
    *path = NormalPath(absolute.string());
  }
  return absl::OkStatus();
}

absl::Status ValidateServerConfig(const ServerConfig& config) {
  RETURN_IF_ERROR(CheckAllButSecurity(config));
  return CheckSecurity(config);
}

}  // namespace lodestar::server
