// What follows from what the coordinator was told. It calls nobody: whoever owns it takes the
// effects after each call and carries them out, in their order, before what the call answered goes
// out.
#pragma once

#include <variant>

#include "server/coordinator/announcement.h"
#include "server/coordinator/checkpoint_task.h"
#include "server/coordinator/shard_command.h"

namespace lodestar {

using Effect = std::variant<ShardCommand, RepeatedCommand, CheckpointTask, Announcement>;

}  // namespace lodestar
