// The coordinator's ShardFleet: the shard of this process and those of other servers, by their
// streams. Every command goes to all of them.
#pragma once

#include <cstdint>
#include <map>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/job_spec.h"
#include "server/coordinator/shard_fleet.h"
#include "server/fleet/norm_collector.h"
#include "server/fleet/shard_host.h"
#include "server/rpc/shard_stream.h"

namespace lodestar {

// Thread-safe; every call only queues.
class ServerFleet : public ShardFleet {
 public:
  // Both outlive the fleet. `norms` starts anew with every assignment.
  ServerFleet(JobSpec job, ShardHost* local, NormCollector* norms);

  // From now on the stream gets the shard's commands. Returns the stream it replaces, if any.
  std::shared_ptr<ShardStream> Attach(int shard, uint64_t instance_id,
                                      std::shared_ptr<ShardStream> stream);
  // The stream of this shard and instance; null if there is none.
  std::shared_ptr<ShardStream> Find(int shard, uint64_t instance_id) const;
  // Returns whether `stream` was still the shard's.
  bool Detach(int shard, const ShardStream* stream);
  // Ends all streams.
  void EndAll(const absl::Status& status);

  // Of the last assignment; null before it.
  std::shared_ptr<const ClusterMap> map() const;

  void Assign(const AssignCommand& command) override;
  void OpenRound(const RoundPlan& plan) override;
  void CloseRound(Round round, absl::Span<const RosterMember> reported) override;
  void SetMembers(ViewId view, absl::Span<const RosterMember> members) override;
  void Drop(WorkerId worker, Incarnation incarnation, absl::string_view reason) override;
  void Save(Version version, absl::string_view directory) override;
  // The other servers exit; this process is the business of who owns the coordinator.
  void Stop(absl::string_view failure) override;

 private:
  struct Remote {
    uint64_t instance_id = 0;
    std::shared_ptr<ShardStream> stream;
  };
  void SendToRemotes(const v1::ShardCommand& command) ABSL_LOCKS_EXCLUDED(mutex_);

  const JobSpec job_;
  ShardHost* const local_;
  NormCollector* const norms_;
  mutable absl::Mutex mutex_;
  std::map<int, Remote> remotes_ ABSL_GUARDED_BY(mutex_);  // by shard
  std::shared_ptr<const ClusterMap> map_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lodestar
