// The shards that the coordinator commands: that of this process, and those of other servers by
// their streams.
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

// Thread-safe; every call only queues.
class CommandedShards {
 public:
  // `local` outlives this.
  explicit CommandedShards(host::ShardHost* local) : local_(local) {}

  // From now on the stream gets the shard's commands. Returns the stream it replaces, if any.
  std::shared_ptr<ShardStream> Attach(int shard, uint64_t instance_id,
                                      std::shared_ptr<ShardStream> stream);
  // The stream of this shard and instance; null if there is none.
  std::shared_ptr<ShardStream> Find(int shard, uint64_t instance_id) const;
  // Returns whether `stream` was still the shard's.
  bool Detach(int shard, const ShardStream* stream);
  // Ends all streams, and those that attach later.
  void EndAll(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mutex_);

  // Sends the command to all shards. StopCommand is for the other servers: the owner of the
  // coordinator stops this process. `follows`: see ShardHost::Obey().
  void Send(const ShardCommand& command, const CoordinatorRecord& follows)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Sends the command to one shard, if it is attached. The shard of this process always is.
  void Repeat(const RepeatedCommand& repeated, const CoordinatorRecord& follows)
      ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Remote {
    uint64_t instance_id = 0;
    std::shared_ptr<ShardStream> stream;
  };

  host::ShardHost* const local_;
  mutable absl::Mutex mutex_;
  std::map<int, Remote> remotes_ ABSL_GUARDED_BY(mutex_);  // by shard
  absl::Status ended_ ABSL_GUARDED_BY(mutex_);             // OK: they go on
};

}  // namespace lodestar::rpc
