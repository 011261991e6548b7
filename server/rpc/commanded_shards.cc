// SPDX-License-Identifier: Apache-2.0

#include "server/rpc/commanded_shards.h"

#include <utility>

#include "server/rpc/shard_convert.h"

namespace lodestar::rpc {

std::shared_ptr<ShardStream> CommandedShards::Attach(int shard, uint64_t instance_id,
                                                     std::shared_ptr<ShardStream> stream) {
  absl::MutexLock lock(&mutex_);
  if (!ended_.ok()) {
    stream->End(ended_);
    return nullptr;
  }
  return std::exchange(remotes_[shard], Remote{instance_id, std::move(stream)}).stream;
}

std::shared_ptr<ShardStream> CommandedShards::Find(int shard, uint64_t instance_id) const {
  absl::MutexLock lock(&mutex_);
  const auto remote = remotes_.find(shard);
  if (remote == remotes_.end() || remote->second.instance_id != instance_id) return nullptr;
  return remote->second.stream;
}

bool CommandedShards::Detach(int shard, const ShardStream* stream) {
  absl::MutexLock lock(&mutex_);
  const auto remote = remotes_.find(shard);
  if (remote == remotes_.end() || remote->second.stream.get() != stream) return false;
  remotes_.erase(remote);
  return true;
}

void CommandedShards::EndAll(const absl::Status& status) {
  std::map<int, Remote> remotes;
  {
    absl::MutexLock lock(&mutex_);
    ended_ = status;
    remotes.swap(remotes_);
  }
  for (auto& [shard, remote] : remotes) remote.stream->End(status);
}

void CommandedShards::Send(const shards::ShardCommand& command,
                           const shards::CoordinatorRecord& follows) {
  local_->Obey(command, follows);
  const v1::ShardCommand wire = ToProto(command, follows);
  absl::MutexLock lock(&mutex_);
  for (auto& [shard, remote] : remotes_) remote.stream->Send(wire);
}

void CommandedShards::Repeat(const shards::RepeatedCommand& repeated,
                             const shards::CoordinatorRecord& follows) {
  if (repeated.shard == 0) return local_->Obey(repeated.command, follows);
  absl::MutexLock lock(&mutex_);
  const auto remote = remotes_.find(repeated.shard);
  if (remote != remotes_.end()) remote->second.stream->Send(ToProto(repeated.command, follows));
}

}  // namespace lodestar::rpc
