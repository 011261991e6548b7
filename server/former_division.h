// What the journals in a folder have where they are of another number of servers than this job's:
// a parameter space is divided anew only from a checkpoint, and a journal goes on only under the
// division that it was written in.
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/storage/file_system.h"
#include "server/server.h"
#include "server/server_config.h"

namespace lodestar::server {

// Whether --journal_dir has a journal of the coordinator that is of another number of servers. Then
// the server of shard 0 may need that of this server, too, and this server cannot go on from it.
// Blocks for the disk. Errors: those of files and formats, also while the journal is written.
absl::StatusOr<bool> IsBesideOtherDivision(FileSystem& disk, const ServerConfig& config);

// Brings into a checkpoint what the journals of the former servers have, so that any number of
// servers goes on from there. Starts the former servers within this process, on loopback, on the
// folders of `config`, which no other server may hold, and ends them in order, without workers. A
// process that is killed meanwhile leaves journals and checkpoints from which the next one does so
// again. `refusal`: why the servers of `config` cannot go on from the journals. Blocks. Errors:
// FailedPrecondition if not all journals are in --journal_dir, AlreadyExists if a living server
// holds one, and those of Server::Create() and Server::SaveWithoutWorkers(), each with `refusal`;
// Cancelled once interrupted.
absl::Status SaveFormerDivision(const ServerConfig& config, const Server::Deps& deps,
                                const absl::Status& refusal);

}  // namespace lodestar::server
