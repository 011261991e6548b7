// SPDX-License-Identifier: Apache-2.0

// ShardHost holds this process's shard. It obeys the coordinator's commands in order, builds a new
// ParameterShard with every assignment, and loads and saves it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "common/job/job_spec.h"
#include "common/machine/host_memory.h"
#include "common/plan/shard_memory.h"
#include "common/process/trace_recorder.h"
#include "common/runtime/executor.h"
#include "common/runtime/ids.h"
#include "common/storage/file_system.h"
#include "server/coordinator/shards/journal_state.h"
#include "server/coordinator/shards/shard_command.h"
#include "server/coordinator/shards/shard_event.h"
#include "server/host/folder_fence.h"
#include "server/host/journal_base.h"
#include "server/host/shard_log.h"
#include "server/shard/norm_exchange.h"
#include "server/shard/parameter_shard.h"
#include "server/shard/shard_observer.h"
#include "server/sync/round_plan.h"

namespace lodestar::host {

// ShardReports receives what the server of a shard reports. Its methods are called from any thread,
// without a lock held, and must not block.
class ShardReports {
 public:
  virtual ~ShardReports() = default;
  virtual void OnEvent(shards::ShardEvent event) = 0;
  // Called when all of a contribution is acknowledged by this shard: see ShardObserver.
  virtual void OnContributed(uint64_t /*server_incarnation*/, const messages::WorkerLife& /*life*/,
                             Round /*round*/) {}
  // Called when the rounds go on without a worker. `text` is for the log.
  virtual void OnDropped(absl::string_view /*text*/) {}
  // Called when something unusual happens that does not stop the shard. `text` is for the log.
  virtual void OnNotice(absl::string_view /*text*/) {}
};

// A NormRelay is the NormExchange of the shard of one assignment. It reports the shard's sums, and
// passes on the totals that come as commands.
class NormRelay final : public shard::NormExchange {
 public:
  NormRelay(uint64_t server_incarnation, ShardReports* reports)
      : server_incarnation_(server_incarnation), reports_(reports) {}

  // Ends the exchange because another assignment has come. Rounds that wait for a norm, and rounds
  // that are submitted later, get Aborted.
  void End() ABSL_LOCKS_EXCLUDED(mutex_);
  void Submit(Round round, std::vector<double> segment_sums,
              std::function<void(absl::StatusOr<double>)> done) override
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Passes a total on. Repeated totals, and totals that no round waits for, have no effect.
  void OnTotal(Round round, double total_square_sum) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  using DoneCallback = std::function<void(absl::StatusOr<double>)>;

  const uint64_t server_incarnation_;
  ShardReports* const reports_;
  absl::Mutex mutex_;
  bool is_over_ ABSL_GUARDED_BY(mutex_) = false;
  std::map<Round, DoneCallback> waiting_ ABSL_GUARDED_BY(mutex_);
};

// The class is thread-safe. Methods that take commands return at once, even if the caller holds
// locks. Commands are obeyed in the order given, one at a time. Another executor writes the files,
// so that rounds go on while files are written.
class ShardHost {
 public:
  // The pointers are not owned. Their objects must outlive the host, and `executor` must outlive
  // all calls on its shards.
  struct Deps {
    Executor* executor = nullptr;
    // `commands` obeys the commands, and `writer` writes the files. Each must run one task at a
    // time, first in, first out, and must have run the host's tasks before the host is destroyed.
    // Null means that the host starts a thread of its own.
    Executor* commands = nullptr;
    Executor* writer = nullptr;
    ShardReports* reports = nullptr;
    process::TraceRecorder* trace = nullptr;  // null means that nothing is traced
    storage::FileSystem* file_system = &storage::FileSystem::Real();
    // Number of this process: a new one for each process.
    uint64_t instance_id = 0;
    ShardLog* log = nullptr;  // null means that nothing is written down
    RunFolders folders = {};  // folders in which the source of a journal is searched
    // Says which files commands may make this server read and write. Null means all.
    const FolderFence* fence = nullptr;
    int64_t staging_bytes = plan::kStagingBytes;  // see ParameterShard::Config
    // Returns the memory that the shards may use. Zeros mean that the memory is not known, and not
    // checked.
    std::function<machine::HostMemory()> read_memory = [] { return machine::HostMemory{}; };
    // Returns true if the other end has closed all connections of this incarnation to this server.
    std::function<bool(const messages::WorkerLife&)> are_connections_closed =
        [](const messages::WorkerLife&) { return false; };
  };

  ShardHost(int shard, const Deps& deps);
  ~ShardHost();

  // Returns true if the log belongs to the run in Deps::folders (see host::IsJournalOfRun()), or is
  // empty.
  absl::StatusOr<bool> IsJournalOfRun() const;
  // Takes over the state of an earlier process from the log. Must be called before all other
  // methods but IsJournalOfRun(), and not if that returns false. Blocks while it loads. Returns
  // false in two cases, in which the shard begins with its first AssignCommand:
  // - The log has no state.
  // - Data is lost, so that the state cannot be restored. Then a notice is reported, too.
  //
  // Errors: those that another try or an operator may repair.
  absl::StatusOr<bool> Recover() ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns a message for operators that says why Recover() has not taken over the state of the
  // journal. It is empty if Recover() succeeded, or if the journal had no state.
  const std::string& journal_refusal() const { return journal_refusal_; }

  // Resumes what was under way when the earlier process ended. Also reports the shard as loaded,
  // because the earlier process may not have done so. Must be called after Recover() has returned
  // true, once Deps::reports is ready for calls. Before this call only notices are reported.
  void GoOn();

  // Queues a command. `follows` is the record in the coordinator's journal of the decision that led
  // to the command. After an AssignCommand, shard() is Unavailable until the new shard has loaded.
  // StopCommand does nothing here, because the owner of the process obeys it.
  void Obey(const shards::ShardCommand& command, const shards::CoordinatorRecord& follows = {})
      ABSL_LOCKS_EXCLUDED(mutex_);

  // See ParameterShard. The replacement is done after the commands that were given before.
  void ReplaceWeights(Round round, absl::Span<const float> weights,
                      std::function<void(const absl::Status&)> done);

  // Returns the incarnation of the servers in the last AssignCommand. 0 means that there was none.
  uint64_t server_incarnation() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns the number by which the coordinator recognizes the state of this shard. After Recover()
  // it is the number of the earlier process whose state goes on, otherwise Deps::instance_id.
  uint64_t instance_id() const { return instance_id_; }
  // Returns the current shard. Errors: Unavailable (there is no shard yet; the text says why).
  absl::StatusOr<std::shared_ptr<shard::ParameterShard>> shard() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns true if the shard has its weights: they are loaded, or a client has supplied them.
  bool is_serving() const;
  // Returns the statistics of the shard, or zeros while there is no shard.
  shard::ShardStats stats() const;
  shards::JournalPlace journal_place() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns the present path of a file of the run that was at `path` when the earlier process wrote
  // its journal. (The folder of the run may have been moved since.) Call after Recover().
  std::string PathToday(const std::string& path) const;

  // Must be called about once a second.
  void Tick();

  // Ends every call that waits in the shard with `status`. Later commands have no effect.
  void Shutdown(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  class AssignedObserver;

  void Follow(const shards::ShardCommand& command, const shards::CoordinatorRecord& follows)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void Assign(const shards::AssignCommand& command);
  void Save(const shards::SaveCommand& command);
  void OnPublished(const shards::PublishedCommand& published);
  absl::Status TakeOver(const ShardLog::Beginning& beginning) ABSL_LOCKS_EXCLUDED(mutex_);
  void Load(const shards::AssignCommand& assignment);
  absl::StatusOr<std::shared_ptr<shard::ParameterShard>> BuildShard(
      const shards::AssignCommand& assignment, std::shared_ptr<AssignedObserver> observer);
  absl::Status CheckPaths(const shards::AssignCommand& assignment) const;
  // Returns the maximum memory of the shard. Raises an alarm if its checkpoints need larger files
  // than this process may write. Errors: ResourceExhausted (the shard does not fit).
  absl::StatusOr<int64_t> CheckResources(const shards::AssignCommand& assignment,
                                         int64_t num_elements);
  void WriteFiles(const shards::AssignCommand& assignment, const std::string& directory,
                  const absl::StatusOr<shard::ShardState>& state);
  // Makes `shard` the current shard. Returns false, and shuts `shard` down, if a later assignment
  // or Shutdown() has come meanwhile.
  bool Install(uint64_t server_incarnation,
               absl::StatusOr<std::shared_ptr<shard::ParameterShard>> shard)
      ABSL_LOCKS_EXCLUDED(mutex_);

  const int shard_;
  const Deps deps_;
  uint64_t instance_id_;
  mutable absl::Mutex mutex_;
  uint64_t server_incarnation_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::StatusOr<std::shared_ptr<shard::ParameterShard>> current_ ABSL_GUARDED_BY(mutex_);
  bool is_shut_down_ ABSL_GUARDED_BY(mutex_) = false;
  // For these two members see JournalPlace.
  shards::CoordinatorRecord follows_ ABSL_GUARDED_BY(mutex_);
  int64_t highest_opened_ ABSL_GUARDED_BY(mutex_) = -1;
  std::shared_ptr<AssignedObserver> recovered_observer_;  // null: no state was taken over
  // After Recover(), only the executor of commands uses assignment_, norms_ and
  // has_checked_resources_.
  shards::AssignCommand assignment_;
  std::string journal_refusal_;       // see journal_refusal()
  std::shared_ptr<NormRelay> norms_;  // null means that there was no assignment yet
  bool has_checked_resources_ = false;
  Executor* writer_;
  Executor* commands_;
  std::unique_ptr<ThreadPool> writer_thread_;
  std::unique_ptr<ThreadPool> commands_thread_;  // destroyed first: its tasks use all others
};

}  // namespace lodestar::host
