// This process's shard over the life of the process: obeys the coordinator's commands in order,
// builds the ParameterShard anew with every assignment, loads and saves it.
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
#include "common/executor.h"
#include "common/file_system.h"
#include "common/host_memory.h"
#include "common/ids.h"
#include "common/job_spec.h"
#include "common/shard_memory.h"
#include "common/trace_recorder.h"
#include "server/coordinator/journal_state.h"
#include "server/coordinator/shard_command.h"
#include "server/coordinator/shard_event.h"
#include "server/host/folder_fence.h"
#include "server/host/journal_base.h"
#include "server/host/shard_log.h"
#include "server/shard/norm_exchange.h"
#include "server/shard/parameter_shard.h"
#include "server/shard/shard_observer.h"
#include "server/sync/round_plan.h"

namespace lodestar {

// What the server of a shard tells. Called from any thread, without a lock held; must not block.
class ShardReports {
 public:
  virtual ~ShardReports() = default;
  virtual void OnEvent(ShardEvent event) = 0;
  // All of a contribution is acknowledged here: see ShardObserver.
  virtual void OnContributed(uint64_t /*server_incarnation*/, const WorkerLife& /*life*/,
                             Round /*round*/) {}
  // For the log: the rounds go on without a worker.
  virtual void OnDropped(absl::string_view /*text*/) {}
  // For the log: something out of the ordinary that does not stop the shard.
  virtual void OnNotice(absl::string_view /*text*/) {}
};

// The NormExchange of the shard of one assignment: reports its sums, and passes on the totals that
// come as commands.
class NormRelay final : public NormExchange {
 public:
  NormRelay(uint64_t server_incarnation, ShardReports* reports)
      : server_incarnation_(server_incarnation), reports_(reports) {}

  // Another assignment has come: what waits, and what the shard still submits, gets Aborted.
  void End() ABSL_LOCKS_EXCLUDED(mutex_);
  void Submit(Round round, std::vector<double> segment_sums,
              std::function<void(absl::StatusOr<double>)> done) override
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Repeats, and totals that nobody waits for, have no effect.
  void OnTotal(Round round, double total_square_sum) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  using DoneCallback = std::function<void(absl::StatusOr<double>)>;

  const uint64_t server_incarnation_;
  ShardReports* const reports_;
  absl::Mutex mutex_;
  bool is_over_ ABSL_GUARDED_BY(mutex_) = false;
  std::map<Round, DoneCallback> waiting_ ABSL_GUARDED_BY(mutex_);
};

// Thread-safe. Commands return at once, whatever locks the caller holds; they are obeyed in the
// order given, one at a time. Files are written apart from them, so that rounds go on meanwhile.
class ShardHost {
 public:
  // Not owned; outlive the host, and `executor` all calls on its shards.
  struct Deps {
    Executor* executor = nullptr;
    // Where commands are obeyed and files are written: each runs one task at a time, first in,
    // first out, and is done with those of the host before that is destroyed. Null: on threads of
    // the host.
    Executor* commands = nullptr;
    Executor* writer = nullptr;
    ShardReports* reports = nullptr;
    TraceRecorder* trace = nullptr;  // null: no trace
    FileSystem* file_system = &FileSystem::Real();
    // Of this process, or of the one before it whose journal it goes on with: instance_id().
    uint64_t instance_id = 0;
    ShardLog* log = nullptr;  // null: nothing is written down
    RunFolders folders = {};  // where what the log goes on from is looked for
    // What commands may have this server read and write; null: everything.
    const FolderFence* fence = nullptr;
    int64_t staging_bytes = kStagingBytes;  // see ParameterShard::Config
    // What the shards may take. Zeros: not known, and not compared.
    std::function<HostMemory()> read_memory = [] { return HostMemory{}; };
    // Whether the other end has closed all connections of this life to this server.
    std::function<bool(const WorkerLife&)> are_connections_closed = [](const WorkerLife&) {
      return false;
    };
  };

  ShardHost(int shard, const Deps& deps);
  ~ShardHost();

  // Before anything else: takes over what the log has of a process before this one. Blocks while it
  // loads. False: there is nothing, or nothing whole, which the reports get a notice of, and the
  // shard begins with its first AssignCommand. Errors: what trying again or an operator may mend.
  absl::StatusOr<bool> Recover() ABSL_LOCKS_EXCLUDED(mutex_);
  // Why Recover() found nothing whole, for people. Empty means that it did, or that nothing was
  // there.
  const std::string& journal_refusal() const { return journal_refusal_; }

  // After Recover() was true, once all reports are taken: before, there are none but notices. The
  // process before may not have told that it has loaded; and what was under way goes on.
  void GoOn();

  // After an AssignCommand, until it has loaded, shard() is Unavailable. StopCommand is the
  // business of who owns the process. `follows`: the record of the coordinator's journal that the
  // command follows from.
  void Obey(const ShardCommand& command, const CoordinatorRecord& follows = {})
      ABSL_LOCKS_EXCLUDED(mutex_);

  // See ParameterShard; after the commands that were given before.
  void ReplaceWeights(Round round, absl::Span<const float> weights,
                      std::function<void(const absl::Status&)> done);

  // Of the last AssignCommand; 0 before the first.
  uint64_t server_incarnation() const ABSL_LOCKS_EXCLUDED(mutex_);
  // By which the coordinator knows whose memory this is.
  uint64_t instance_id() const { return instance_id_; }
  // The shard as of now; Unavailable, with what is waited for, while there is none.
  absl::StatusOr<std::shared_ptr<ParameterShard>> shard() const ABSL_LOCKS_EXCLUDED(mutex_);
  // True if the weights are there: loaded, and supplied if a client supplies them.
  bool is_serving() const;
  // Zeros while there is no shard.
  ShardStats stats() const;
  JournalPlace journal_place() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns the path of a file of the run that was at `path` when the process before this one wrote
  // its journal: the folder of the run may have been moved since. Call after Recover().
  std::string PathToday(const std::string& path) const;

  // To be called every second or so.
  void Tick();

  // Ends every call that waits in the shard with `status`; later commands have no effect.
  void Shutdown(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  class AssignedObserver;

  void Follow(const ShardCommand& command, const CoordinatorRecord& follows)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void Assign(const AssignCommand& command);
  void Save(const SaveCommand& command);
  void OnPublished(const PublishedCommand& published);
  absl::Status TakeOver(const ShardLog::Beginning& beginning) ABSL_LOCKS_EXCLUDED(mutex_);
  void Load(const AssignCommand& assignment);
  absl::StatusOr<std::shared_ptr<ParameterShard>> BuildShard(
      const AssignCommand& assignment, std::shared_ptr<AssignedObserver> observer);
  absl::Status CheckPaths(const AssignCommand& assignment) const;
  // Returns the most memory that the shard may take. Raises an alarm if its checkpoints need larger
  // files than this process may write. Errors: ResourceExhausted if the shard does not fit.
  absl::StatusOr<int64_t> CheckResources(const AssignCommand& assignment, int64_t num_elements);
  void WriteFiles(const AssignCommand& assignment, const std::string& directory,
                  const absl::StatusOr<ShardState>& state);
  // False, and the argument ends, if a later assignment has come meanwhile, or Shutdown().
  bool Install(uint64_t server_incarnation, absl::StatusOr<std::shared_ptr<ParameterShard>> shard)
      ABSL_LOCKS_EXCLUDED(mutex_);

  const int shard_;
  const Deps deps_;
  uint64_t instance_id_;
  mutable absl::Mutex mutex_;
  uint64_t server_incarnation_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::StatusOr<std::shared_ptr<ParameterShard>> current_ ABSL_GUARDED_BY(mutex_);
  bool is_shut_down_ ABSL_GUARDED_BY(mutex_) = false;
  // See JournalPlace.
  CoordinatorRecord follows_ ABSL_GUARDED_BY(mutex_);
  int64_t highest_opened_ ABSL_GUARDED_BY(mutex_) = -1;
  std::shared_ptr<AssignedObserver> recovered_observer_;  // null: nothing was taken over
  // Of commands only.
  AssignCommand assignment_;
  std::string journal_refusal_;       // of Recover()
  std::shared_ptr<NormRelay> norms_;  // null before the first
  bool has_checked_resources_ = false;
  Executor* writer_;
  Executor* commands_;
  std::unique_ptr<ThreadPool> writer_thread_;
  std::unique_ptr<ThreadPool> commands_thread_;  // destroyed first: its tasks use all the others
};

}  // namespace lodestar
