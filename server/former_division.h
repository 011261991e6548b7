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

// Returns true if the coordinator's journal in --journal_dir is for another number of servers than
// `config`. The journal of this server's shard must then stay as it is, because the server of shard
// 0 may still need it. Blocks for the disk. Errors:
// - those of files
// - those of the journal's format, which may be temporary while another process writes the journal
absl::StatusOr<bool> IsBesideOtherDivision(storage::FileSystem& disk, const ServerConfig& config);

// Saves a checkpoint of all that the journals of the former servers have. Any number of servers can
// go on from it. For that, starts the former servers within this process, on loopback and without
// workers, and ends them again. No other running server may use the folders of `config`. If the
// process is killed meanwhile, the next process can call this again. `refusal` says why the servers
// of `config` cannot go on from the journals. Blocks until the checkpoint is published. Errors,
// with `refusal` except for Cancelled:
// - FailedPrecondition: a journal is missing in --journal_dir, or is not that of the last run
// - AlreadyExists: a running server holds a journal
// - DataLoss: the former servers have gone back to an earlier round
// - Cancelled: the call was interrupted
// - those of Server::Create() and Server::SaveWithoutWorkers()
absl::Status SaveFormerDivision(const ServerConfig& config, const Server::Deps& deps,
                                const absl::Status& refusal);

}  // namespace lodestar::server
