// SPDX-License-Identifier: Apache-2.0

// CommandedShards holds the shards that the coordinator commands: the shard of this process, and
// those of other servers by their streams.
#pragma once

#include <cstdint>
#include <map>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "server/coordinator/shards/shard_command.h"
#include "server/host/shard_host.h"
#include "server/rpc/shard_stream.h"

namespace lodestar::rpc {

// The class is thread-safe. Calls only queue commands.
class CommandedShards {
 public:
  // `local` must outlive the object.
  explicit CommandedShards(host::ShardHost* local) : local_(local) {}

  // Sends the shard's commands to this stream from now on. Returns the stream that it replaces, if
  // any.
  std::shared_ptr<ShardStream> Attach(int shard, uint64_t instance_id,
                                      std::shared_ptr<ShardStream> stream);
  // Returns the stream of this shard and instance, or null if there is none.
  std::shared_ptr<ShardStream> Find(int shard, uint64_t instance_id) const;
  // Removes the stream. Returns false if another stream had replaced it.
  bool Detach(int shard, const ShardStream* stream);
  // Ends all streams, including streams that attach later.
  void EndAll(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mutex_);

  // Sends the command to all shards. StopCommand goes only to the other servers: the coordinator's
  // owner stops this process. For `follows` see ShardHost::Obey().
  void Send(const shards::ShardCommand& command, const shards::CoordinatorRecord& follows)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Sends the command to one shard if that shard is attached. The shard of this process is always
  // attached.
  void Repeat(const shards::RepeatedCommand& repeated, const shards::CoordinatorRecord& follows)
      ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Remote {
    uint64_t instance_id = 0;
    std::shared_ptr<ShardStream> stream;
  };

  host::ShardHost* const local_;
  mutable absl::Mutex mutex_;
  std::map<int, Remote> remotes_ ABSL_GUARDED_BY(mutex_);  // keyed by shard
  absl::Status ended_ ABSL_GUARDED_BY(mutex_);             // OK: the streams go on
};

}  // namespace lodestar::rpc
