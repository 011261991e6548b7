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

// Takes what the server of a shard tells. The methods are called from any thread, without a lock
// held, and must not block.
class ShardReports {
 public:
  virtual ~ShardReports() = default;
  virtual void OnEvent(ShardEvent event) = 0;
  // All of a contribution is acknowledged by this shard: see ShardObserver.
  virtual void OnContributed(uint64_t /*server_incarnation*/, const WorkerLife& /*life*/,
                             Round /*round*/) {}
  // Logs that the rounds go on without a worker.
  virtual void OnDropped(absl::string_view /*text*/) {}
  // Logs something out of the ordinary that does not stop the shard.
  virtual void OnNotice(absl::string_view /*text*/) {}
};

// The NormExchange of the shard of one assignment: reports its sums, and passes on the totals that
// come as commands.
class NormRelay final : public shard::NormExchange {
 public:
  NormRelay(uint64_t server_incarnation, ShardReports* reports)
      : server_incarnation_(server_incarnation), reports_(reports) {}

  // Is called when another assignment has come. Waiting rounds, and those that the shard still
  // submits, get Aborted.
  void End() ABSL_LOCKS_EXCLUDED(mutex_);
  void Submit(Round round, std::vector<double> segment_sums,
              std::function<void(absl::StatusOr<double>)> done) override
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Repeated totals, and totals that no round waits for, have no effect.
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
  // The pointers are not owned. What they point to outlives the host, and `executor` outlives all
  // calls on its shards.
  struct Deps {
    Executor* executor = nullptr;
    // `commands` obeys the commands, and `writer` writes the files. Each runs one task at a time,
    // first in, first out, and has run the host's tasks before the host is destroyed. Null means a
    // thread of the host's own.
    Executor* commands = nullptr;
    Executor* writer = nullptr;
    ShardReports* reports = nullptr;
    TraceRecorder* trace = nullptr;  // Null means that nothing is traced.
    FileSystem* file_system = &FileSystem::Real();
    // See instance_id(): the number of this process, or of the earlier process whose journal it
    // goes on with.
    uint64_t instance_id = 0;
    ShardLog* log = nullptr;  // Null means that nothing is written down.
    RunFolders folders = {};  // The source of a journal is looked for in these folders.
    // Says what commands may have this server read and write. Null means everything.
    const FolderFence* fence = nullptr;
    int64_t staging_bytes = kStagingBytes;  // see ParameterShard::Config
    // Returns the memory that the shards may take. Zeros mean that it is not known, and not
    // compared.
    std::function<HostMemory()> read_memory = [] { return HostMemory{}; };
    // Whether the other end has closed all connections of this life to this server.
    std::function<bool(const WorkerLife&)> are_connections_closed = [](const WorkerLife&) {
      return false;
    };
  };

  ShardHost(int shard, const Deps& deps);
  ~ShardHost();

  // Returns whether the log is of the run in Deps::folders: see host::IsJournalOfRun(). True if
  // there is nothing in the log.
  absl::StatusOr<bool> IsJournalOfRun() const;
  // Takes over what the log has of an earlier process. Call it before anything else, unless
  // IsJournalOfRun() says that the log is of another run. Blocks while
  // it loads. Returns false if there is nothing, or nothing whole. In the latter case the reports
  // get a notice, and the shard begins with its first AssignCommand. Errors: those that another try
  // or an operator may mend.
  absl::StatusOr<bool> Recover() ABSL_LOCKS_EXCLUDED(mutex_);
  // Why Recover() found nothing whole, for people. Empty means that it did, or that nothing was
  // there.
  const std::string& journal_refusal() const { return journal_refusal_; }

  // Call it after Recover() has returned true, once the reports can be taken: before, only notices
  // are given. Reports the shard as loaded, because the earlier process may not have done so, and
  // goes on with what was under way.
  void GoOn();

  // Queues a command. After an AssignCommand, shard() is Unavailable until the shard has loaded.
  // The owner of the process obeys StopCommand. `follows` is the record of the coordinator's
  // journal that the command follows from.
  void Obey(const ShardCommand& command, const CoordinatorRecord& follows = {})
      ABSL_LOCKS_EXCLUDED(mutex_);

  // See ParameterShard. It is done after the commands that were given before.
  void ReplaceWeights(Round round, absl::Span<const float> weights,
                      std::function<void(const absl::Status&)> done);

  // The life of the servers that the last AssignCommand names. 0 means that there was none.
  uint64_t server_incarnation() const ABSL_LOCKS_EXCLUDED(mutex_);
  // The number by which the coordinator knows whose memory this is.
  uint64_t instance_id() const { return instance_id_; }
  // Returns the current shard. While there is none, the error is Unavailable and says what is
  // waited for.
  absl::StatusOr<std::shared_ptr<shard::ParameterShard>> shard() const ABSL_LOCKS_EXCLUDED(mutex_);
  // True if the weights are there: loaded, and supplied if a client supplies them.
  bool is_serving() const;
  // Returns zeros while there is no shard.
  shard::ShardStats stats() const;
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
  absl::StatusOr<std::shared_ptr<shard::ParameterShard>> BuildShard(
      const AssignCommand& assignment, std::shared_ptr<AssignedObserver> observer);
  absl::Status CheckPaths(const AssignCommand& assignment) const;
  // Returns the most memory that the shard may take. Raises an alarm if its checkpoints need larger
  // files than this process may write. Errors: ResourceExhausted if the shard does not fit.
  absl::StatusOr<int64_t> CheckResources(const AssignCommand& assignment, int64_t num_elements);
  void WriteFiles(const AssignCommand& assignment, const std::string& directory,
                  const absl::StatusOr<shard::ShardState>& state);
  // Returns false, and ends the shard that was given, if a later assignment or Shutdown() has come
  // meanwhile.
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
  // See JournalPlace.
  CoordinatorRecord follows_ ABSL_GUARDED_BY(mutex_);
  int64_t highest_opened_ ABSL_GUARDED_BY(mutex_) = -1;
  std::shared_ptr<AssignedObserver> recovered_observer_;  // Null means that nothing was taken over.
  // After Recover(), only the executor of commands uses assignment_, norms_ and
  // has_checked_resources_.
  AssignCommand assignment_;
  std::string journal_refusal_;       // What journal_refusal() returns.
  std::shared_ptr<NormRelay> norms_;  // Null means that there was no assignment yet.
  bool has_checked_resources_ = false;
  Executor* writer_;
  Executor* commands_;
  std::unique_ptr<ThreadPool> writer_thread_;
  std::unique_ptr<ThreadPool> commands_thread_;  // destroyed first: its tasks use all the others
};

}  // namespace lodestar::host
