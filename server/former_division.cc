// SPDX-License-Identifier: Apache-2.0

#include "server/former_division.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/logging/logging.h"
#include "common/runtime/status_macros.h"
#include "common/storage/folder_lock.h"
#include "server/checkpoint/patient_file_system.h"
#include "server/coordinator/coordinator_memory.h"
#include "server/coordinator/coordinator_memory_json.h"
#include "server/durability/journal/journal_segments.h"
#include "server/durability/replica/replication_mark.h"
#include "server/host/coordinator_journal.h"
#include "server/host/shard_host.h"

namespace lodestar::server {
namespace {

std::string ServersText(int number) {
  return absl::StrCat(number, number == 1 ? " server" : " servers");
}

std::string JournalFolder(const DurabilityConfig& durability, int shard) {
  return absl::StrCat(durability.journal_dir, "/shard-", shard);
}

// Returns the coordinator's state from its journal. Not set means that there is no journal, or that
// it is empty.
absl::StatusOr<std::optional<coordinator::CoordinatorMemory>> ReadMemory(
    storage::FileSystem& disk, const DurabilityConfig& durability) {
  ASSIGN_OR_RETURN(
      const host::CoordinatorJournal::Contents contents,
      host::CoordinatorJournal::Read(disk, absl::StrCat(durability.journal_dir, "/coordinator")));
  if (contents.records.empty()) return std::nullopt;
  return coordinator::CoordinatorMemoryFromRecords(contents.records, absl::Now());
}

absl::Status CheckJournalsAreFree(storage::FileSystem& disk, const DurabilityConfig& durability,
                                  int num_shards) {
  for (int shard = 0; shard < num_shards; ++shard) {
    const std::string folder = JournalFolder(durability, shard);
    ASSIGN_OR_RETURN(const std::vector<uint64_t> segments,
                     journal::ListJournalSegments(disk, folder));
    if (segments.empty()) {
      return absl::FailedPreconditionError(
          absl::StrCat("the journal of shard ", shard, " of ", num_shards, " is not in ", folder,
                       "; perhaps its server was on another machine"));
    }
    if (storage::IsFolderHeld(folder)) {
      return absl::AlreadyExistsError(absl::StrCat("a running server holds the journal of shard ",
                                                   shard, " of ", num_shards, ", ", folder,
                                                   "; end that server first"));
    }
  }
  return absl::OkStatus();
}

// Checks that the journal of a shard is that of the coordinator's last run. It must have all
// records that the coordinator knows to be on disk. Otherwise, the cluster could only resume from a
// checkpoint.
absl::Status CheckIsOf(const coordinator::CoordinatorMemory& memory, int shard,
                       const host::ShardHost& recovered) {
  const shards::ShardFleet::Holder& holder = memory.shards.servers[shard];
  const uint64_t end = recovered.journal_place().end;
  if (recovered.instance_id() == holder.instance_id &&
      recovered.server_incarnation() == memory.shards.server_incarnation &&
      end >= holder.journal_end) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "the journal of shard ", shard, " is not the journal of the last run: it ends with record ",
      end, ", but the last run wrote record ", holder.journal_end,
      ". Put the newest journal of this shard back"));
}

// Returns the config for the server of one former shard. The server listens only on loopback, at a
// port that only this process knows.
ServerConfig ConfigOf(const ServerConfig& config, int shard, int num_shards) {
  ServerConfig former = config;
  former.network.listen = {"127.0.0.1", 0};
  former.network.advertise.clear();
  former.network.port_file.clear();
  former.network.http.reset();
  former.network.http_names.clear();
  // If the job uses TLS, these servers use it too, although they listen only on loopback. So other
  // users of this machine cannot connect.
  former.security.tls = config.uses_tls();
  former.security.flags.insecure &= !former.security.tls;
  former.cluster.shard = shard;
  former.cluster.num_shards = num_shards;
  former.output.trace_path.clear();
  former.exit_when_done = false;
  DurabilityConfig& durability = former.durability;
  // An accepted loss of rounds must stay visible in the status of a running server. These servers
  // end soon, so they accept none. An operator who accepts a loss must start the former number of
  // servers.
  durability.accepted_loss = -1;
  if (shard == 0) return former;
  former.cluster.leader_lease.clear();
  durability.named_paths = {durability.checkpoint_dir, durability.fallback_dir,
                            durability.init_from};
  std::erase(durability.named_paths, "");
  return former;
}

// FormerServers runs all servers of the former number of shards in this process. It holds the
// coordinator state from which they resume.
class FormerServers {
 public:
  FormerServers(const ServerConfig& config, const Server::Deps& deps,
                coordinator::CoordinatorMemory memory)
      : config_(config), deps_(deps), memory_(std::move(memory)) {}

  // The coordinator is destroyed last. Otherwise the other servers would try to connect to it
  // again.
  ~FormerServers() {
    while (!servers_.empty()) servers_.pop_back();
  }

  absl::StatusOr<checkpoints::PublishedCheckpoint> Save(storage::FileSystem& disk) {
    for (int shard = 0; shard < num_shards(); ++shard) RETURN_IF_ERROR(Start(disk, shard));
    return servers_[0]->SaveWithoutWorkers();
  }

 private:
  int num_shards() const { return static_cast<int>(memory_.shards.servers.size()); }

  absl::Status Start(storage::FileSystem& disk, int shard) {
    ServerConfig config = ConfigOf(config_, shard, num_shards());
    Server::Deps deps;
    deps.clock = deps_.clock;
    deps.num_threads = deps_.num_threads;
    deps.is_interrupted = deps_.is_interrupted;
    deps.confirm_leader = deps_.confirm_leader;
    deps.check_recovered = [this, shard](const host::ShardHost& recovered) {
      return CheckIsOf(memory_, shard, recovered);
    };
    if (shard == 0) {
      deps.leader = deps_.leader;
      // This process lives, but the server for which `deps_` was made does not serve yet.
      deps.on_alive = [on_alive = deps_.on_alive](bool) { on_alive(false); };
    } else {
      config.cluster.coordinator = servers_[0]->address();
      ASSIGN_OR_RETURN(const std::optional<replica::ReplicationMark> mark,
                       replica::ReadReplicationMark(disk, JournalFolder(config.durability, shard)));
      // If the former journal has no replica, this server must not fill one.
      if (!mark.has_value()) config.durability.journal_replica.clear();
    }
    ASSIGN_OR_RETURN(servers_.emplace_back(), Server::Create(config, deps));
    return absl::OkStatus();
  }

  const ServerConfig& config_;
  const Server::Deps& deps_;
  const coordinator::CoordinatorMemory memory_;
  std::vector<std::unique_ptr<Server>> servers_;  // indexed by shard
};

absl::StatusOr<checkpoints::PublishedCheckpoint> Save(const ServerConfig& config,
                                                      const Server::Deps& deps) {
  if (config.durability.may_promote) {
    return absl::FailedPreconditionError(
        "--promote cannot be used while the number of servers changes. Start with --promote and "
        "the former number of servers first");
  }
  checkpoint::PatientFileSystem disk(&storage::FileSystem::Real(), deps.clock);
  ASSIGN_OR_RETURN(std::optional<coordinator::CoordinatorMemory> memory,
                   ReadMemory(disk, config.durability));
  if (!memory.has_value()) {
    return absl::FailedPreconditionError(
        "the journal changed while this server read it; start the server again");
  }
  const auto num_shards = static_cast<int>(memory->shards.servers.size());
  const Round next_round(memory->rounds.ledger.state.next_round);
  RETURN_IF_ERROR(CheckJournalsAreFree(disk, config.durability, num_shards));
  logging::LogInfo(
      "the journals in {} are of {}, but the flags say {}; the server first saves everything that "
      "the journals have",
      config.durability.journal_dir, ServersText(num_shards),
      ServersText(config.cluster.num_shards));
  FormerServers servers(config, deps, *std::move(memory));
  ASSIGN_OR_RETURN(checkpoints::PublishedCheckpoint saved, servers.Save(disk));
  if (saved.round < next_round) {
    return absl::DataLossError(absl::StrCat(
        "the former servers could not continue from their journals and went back to round ",
        saved.round.value(), ", although the journals have ", next_round.value(),
        " rounds. The log above says why"));
  }
  logging::LogInfo(
      "the job continues with {} instead of {}, from round {}; nothing is lost, because {} has "
      "everything from the journals",
      ServersText(config.cluster.num_shards), ServersText(num_shards), saved.round, saved.path);
  return saved;
}

}  // namespace

absl::StatusOr<bool> IsBesideOtherDivision(storage::FileSystem& disk, const ServerConfig& config) {
  if (!config.durability.has_journal) return false;
  ASSIGN_OR_RETURN(const std::optional<coordinator::CoordinatorMemory> memory,
                   ReadMemory(disk, config.durability));
  return memory.has_value() &&
         static_cast<int>(memory->shards.servers.size()) != config.cluster.num_shards;
}

absl::Status SaveFormerDivision(const ServerConfig& config, const Server::Deps& deps,
                                const absl::Status& refusal) {
  const absl::Status saved = Save(config, deps).status();
  if (saved.ok() || absl::IsCancelled(saved)) return saved;
  return absl::Status(saved.code(), absl::StrCat(saved.message(),
                                                 ". Therefore this server cannot save the contents "
                                                 "of the former servers' journals itself: ",
                                                 refusal.message()));
}

}  // namespace lodestar::server
