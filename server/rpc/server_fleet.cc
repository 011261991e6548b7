#include "server/rpc/server_fleet.h"

#include <string>
#include <utility>

#include "server/rpc/cluster_convert.h"

namespace lodestar {

ServerFleet::ServerFleet(JobSpec job, ShardHost* local, NormCollector* norms)
    : job_(std::move(job)), local_(local), norms_(norms) {}

std::shared_ptr<ShardStream> ServerFleet::Attach(int shard, uint64_t instance_id,
                                                 std::shared_ptr<ShardStream> stream) {
  absl::MutexLock lock(&mutex_);
  return std::exchange(remotes_[shard], Remote{instance_id, std::move(stream)}).stream;
}

std::shared_ptr<ShardStream> ServerFleet::Find(int shard, uint64_t instance_id) const {
  absl::MutexLock lock(&mutex_);
  const auto remote = remotes_.find(shard);
  if (remote == remotes_.end() || remote->second.instance_id != instance_id) return nullptr;
  return remote->second.stream;
}

bool ServerFleet::Detach(int shard, const ShardStream* stream) {
  absl::MutexLock lock(&mutex_);
  const auto remote = remotes_.find(shard);
  if (remote == remotes_.end() || remote->second.stream.get() != stream) return false;
  remotes_.erase(remote);
  return true;
}

void ServerFleet::EndAll(const absl::Status& status) {
  std::map<int, Remote> remotes;
  {
    absl::MutexLock lock(&mutex_);
    remotes.swap(remotes_);
  }
  for (auto& [shard, remote] : remotes) remote.stream->End(status);
}

std::shared_ptr<const ClusterMap> ServerFleet::map() const {
  absl::MutexLock lock(&mutex_);
  return map_;
}

void ServerFleet::SendToRemotes(const v1::ShardCommand& command) {
  absl::MutexLock lock(&mutex_);
  for (auto& [shard, remote] : remotes_) remote.stream->Send(command);
}

void ServerFleet::Assign(const AssignCommand& command) {
  norms_->Reset(absl::AbortedError("the servers start anew"));
  {
    absl::MutexLock lock(&mutex_);
    map_ = command.map;
  }
  JobSpec job = job_;
  job.schedule.peak *= command.learning_rate_scale;
  job.schedule.minimum *= command.learning_rate_scale;
  local_->Assign(command, job);
  SendToRemotes(AssignToProto(command, job));
}

void ServerFleet::OpenRound(const RoundPlan& plan) {
  local_->OpenRound(plan);
  v1::ShardCommand command;
  *command.mutable_open_round() = ToProto(plan);
  SendToRemotes(command);
}

void ServerFleet::CloseRound(Round round, absl::Span<const RosterMember> reported) {
  local_->CloseRound(round, reported);
  v1::ShardCommand command;
  command.mutable_close_round()->set_round(round.value());
  for (const RosterMember& member : reported) {
    *command.mutable_close_round()->add_reported() = ToProto(member);
  }
  SendToRemotes(command);
}

void ServerFleet::SetMembers(ViewId view, absl::Span<const RosterMember> members) {
  local_->SetMembers(view, members);
  v1::ShardCommand command;
  command.mutable_members()->set_view_id(view.value());
  for (const RosterMember& member : members) {
    *command.mutable_members()->add_members() = ToProto(member);
  }
  SendToRemotes(command);
}

void ServerFleet::Drop(WorkerId worker, Incarnation incarnation, absl::string_view reason) {
  local_->Drop(worker, incarnation, reason);
  v1::ShardCommand command;
  command.mutable_drop()->set_worker_id(worker.value());
  command.mutable_drop()->set_incarnation(incarnation.value());
  command.mutable_drop()->set_reason(std::string(reason));
  SendToRemotes(command);
}

void ServerFleet::Save(Version version, absl::string_view directory) {
  local_->Save(version, directory);
  v1::ShardCommand command;
  command.mutable_save()->set_version(version.value());
  command.mutable_save()->set_directory(std::string(directory));
  SendToRemotes(command);
}

void ServerFleet::Stop(absl::string_view failure) {
  v1::ShardCommand command;
  command.mutable_stop()->set_failure(std::string(failure));
  SendToRemotes(command);
}

}  // namespace lodestar
