// SPDX-License-Identifier: Apache-2.0

// Handles journals that were written with another number of servers than this job has. The
// parameter space can be divided anew only from a checkpoint. A journal can be continued only with
// the division that it was written in.
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/storage/file_system.h"
#include "server/server.h"
#include "server/server_config.h"

namespace lodestar::server {

// Returns true if --journal_dir has a journal of the coordinator for another number of servers. If
// so, this server cannot go on from its own journal, and the server of shard 0 may still need that
// journal. Blocks for the disk. Errors: those of files; those of the journal's format, which may be
// temporary while another process writes the journal.
absl::StatusOr<bool> IsBesideOtherDivision(storage::FileSystem& disk, const ServerConfig& config);

// Saves what the journals of the former servers have as a checkpoint, from which any number of
// servers can go on. Starts the former servers within this process, on loopback, without workers,
// and then ends them, the coordinator last. They use the folders of `config`, which no other
// running server may use. If the process is killed meanwhile, the next process can do the same
// again. `refusal` says why the servers of `config` cannot go on from the journals. Blocks until
// the checkpoint is published. Errors, each with `refusal`: FailedPrecondition (not all journals
// are in --journal_dir); AlreadyExists (a running server holds a journal); those of
// Server::Create() and Server::SaveWithoutWorkers(); Cancelled (interrupted).
absl::Status SaveFormerDivision(const ServerConfig& config, const Server::Deps& deps,
                                const absl::Status& refusal);

}  // namespace lodestar::server
