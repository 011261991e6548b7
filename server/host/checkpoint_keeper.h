// The checkpoints on disk: publishes and removes them, and chooses what the cluster starts from.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/checkpoints/checkpoint_directory.h"
#include "common/checkpoints/checkpoint_manifest.h"
#include "common/job/exchange_settings.h"
#include "common/job/job_settings.h"
#include "common/job/job_spec.h"
#include "common/params/layout.h"
#include "common/runtime/clock.h"
#include "common/runtime/executor.h"
#include "common/runtime/json.h"
#include "common/storage/file_system.h"
#include "server/checkpoint/checkpoint_publisher.h"
#include "server/checkpoint/checkpoint_reader.h"
#include "server/checkpoint/resume_settings.h"
#include "server/coordinator/checkpoint_task.h"
#include "server/coordinator/shards/journal_comparison.h"

namespace lodestar::host {

// Takes the answers to tasks. The methods are called from the keeper's executor.
class CheckpointReports {
 public:
  virtual ~CheckpointReports() = default;
  virtual void OnRestoreChosen(const absl::StatusOr<RestoreChoice>& choice) = 0;
  virtual void OnCheckpointPublished(const std::string& directory,
                                     const absl::StatusOr<PublishedCheckpoint>& published) = 0;
  virtual void OnCheckpointMarked(bool is_complete, const absl::Status& status) = 0;
  // The checkpoint that a restart would begin from is not at `path` any more, although this process
  // has not removed it.
  virtual void OnCheckpointGone(const std::string& path) = 0;
};

// The keeper works on an executor, one task after the other.
class CheckpointKeeper {
 public:
  struct Config {
    std::string root;      // Empty means that there are no checkpoints.
    std::string fallback;  // Where last checkpoints may be as well. Empty means nowhere.
    checkpoint::Retention retention;
    bool resume = true;  // Whether to resume from what is in `root` when the process starts.
    // The path of one checkpoint. If it is given, only that one is resumed from.
    std::string resume_path;
    std::string init_from;  // trained weights for a fresh start
    // Lets a resumed job go on with a learning rate that is more than a tenth higher.
    bool accepts_higher_rate = false;
    // Confirms that the folder that a checkpoint is in still belongs to this server. It is called
    // before the checkpoint gets its name, and before any other checkpoint is moved or removed.
    std::function<absl::Status(absl::string_view checkpoint)> confirm_folder =
        [](absl::string_view) { return absl::OkStatus(); };
    // The revision of this server's claim on the folders: see FolderLock.
    int64_t lease_revision = 0;
    // Describes the server that held `root` before this process and did not release it. Empty means
    // that there was none.
    std::string crashed_holder;
    JobSpec job;
    // The flags that say which checkpoints are written and kept. A checkpoint has them beside those
    // of the job.
    std::vector<JobSetting> saving = {};
    std::set<std::string> given = {};  // See CoordinatorConfig, also for the next member.
    OpenSettings open_settings;
  };

  // The pointers are not owned. What they point to outlives the keeper, which outlives the tasks
  // that it has scheduled.
  struct Deps {
    Executor* executor = nullptr;  // It runs one task at a time, first in, first out.
    FileSystem* file_system = &FileSystem::Real();
    CheckpointReports* reports = nullptr;
    // Later starts get higher numbers, and two starts differ.
    std::function<uint64_t()> new_server_incarnation = NewServerIncarnation;
  };

  CheckpointKeeper(Config config, Deps deps);

  // Checks the settings against those of the checkpoint that the job will be resumed from. It reads
  // only manifests: all data is verified only once the job is restored. For a fresh start it checks
  // that the weights of --init_from are there and fit. Blocks for the disk. Errors:
  // FailedPrecondition naming the contradictions; those of files and of TrainedWeights.
  absl::Status CheckSettings() const;

  // Makes the checkpoints of this server count more than all that are in the folders: the revision
  // of its claim becomes higher than theirs. Call it once, before anything is published, and only
  // while this server holds the folders. Confirm afterwards that the server still holds them.
  // Blocks for the disk. Errors: those of files.
  absl::Status OutrankCheckpoints();

  // Returns the last life of the servers that has left a checkpoint in the folders. 0 means that
  // none has. Blocks for the disk. Errors: those of files.
  absl::StatusOr<uint64_t> LastServerIncarnation() const;

  // Returns the checkpoint that the cluster would be restored from, as far as manifests tell.
  // Blocks for the disk. Errors: those of files.
  absl::StatusOr<std::optional<KnownCheckpoint>> Newest() const;

  // Returns the checkpoint of most rounds up to `round`, which a rollback would go to. The
  // checkpoint is verified, and is kept beyond Config::retention until the cluster is restored or
  // this is called again. Blocks for queued tasks and for the disk. Errors: NotFound, naming the
  // oldest; DataLoss if it does not verify, naming the newest before it that does; those of files.
  absl::StatusOr<PublishedCheckpoint> NewestUpTo(Round round);

  // Takes `path` for the checkpoint to watch: the journal that this process goes on with begins
  // from it. Only queues.
  void Watch(std::string path);
  // Looks whether the checkpoint that was published, chosen or watched last is still there. Call it
  // every ten seconds or so. Only queues, and does nothing while the last look waits for the disk.
  void Look();

  // Queues the task and returns.
  void Do(CheckpointTask task);

 private:
  // Makes the number from the time and from chance.
  static uint64_t NewServerIncarnation();
  void Carry(const CheckpointRecord& record);
  void Carry(const DiscardTask& task);
  void Carry(const SetAsideTask& task);
  void Carry(const MarkTask& task);
  void Carry(const ChooseRestoreTask& task);
  absl::StatusOr<PublishedCheckpoint> Publish(const CheckpointRecord& record);
  // Removes what is not needed beside the checkpoint that was published. Returns an alarm if a
  // checkpoint that stays may be taken for the newest one later.
  std::string TidyUp(const std::string& published, Round round) const;
  // Checks that this server may move or remove what is at `path`. Errors: those of
  // Config::confirm_folder; Aborted if a later leader has written it.
  absl::Status CheckMayTouch(const std::string& path) const;
  bool IsInFallback(const std::string& path) const;
  // Returns the --checkpoint_dir of the run that has saved the checkpoint at `path`, if that is
  // another run than this one, and its folder is still there. Else empty: a folder that is gone may
  // have been moved, and is this run's.
  std::string OtherRunOf(const std::string& path) const;
  // Returns the checkpoints of other runs in --fallback_dir.
  std::vector<std::string> OfOtherRuns() const;
  // Returns `paths` and OfOtherRuns().
  std::vector<std::string> WithOthers(std::vector<std::string> paths) const;
  // Returns the job that goes on from this checkpoint. It is the job asked for, with what a client
  // had proposed to the saved job. Where the operator leaves a setting open, the job takes what the
  // saved job had chosen itself.
  absl::StatusOr<JobSpec> JobFrom(const Manifest& manifest, const std::string& path) const;
  absl::StatusOr<std::vector<checkpoint::SettingChange>> Compare(const Manifest& manifest,
                                                                 const std::string& path,
                                                                 bool may_rate_rise) const;
  // Whether the cluster starts from what is in the folders, and not from where the flags say.
  bool StartsFromFolders() const;
  absl::Status CheckInitFrom() const;
  absl::StatusOr<RestoreChoice> Choose();
  absl::StatusOr<RestoreChoice> FromPath() const;
  absl::StatusOr<RestoreChoice> Anew() const;
  // The round of the checkpoint that --resume=PATH names. Nothing if there is no such flag, or if
  // the round cannot be read.
  std::optional<Round> RoundOfResumePath() const;
  // Returns the checkpoints that stay in the folders although their future was left behind.
  std::vector<std::string> LeftBehind() const;
  absl::StatusOr<std::optional<checkpoint::FoundCheckpoint>> FindNewest() const;
  absl::StatusOr<PublishedCheckpoint> FindUpTo(Round round) const;
  // Returns the checkpoints in one folder that the cluster may be restored from.
  absl::StatusOr<std::vector<CheckpointEntry>> ListToRestore(const std::string& folder) const;
  // Returns the checkpoints in all folders that the cluster would be restored from. They are sorted
  // by the rounds that their manifests say, newest first.
  absl::StatusOr<std::vector<CheckpointEntry>> ListToGoBackTo() const;
  absl::StatusOr<RestoreChoice> FromCheckpoint(const checkpoint::FoundCheckpoint& found) const;
  RestoreChoice FreshStart() const;

  const Config config_;
  const std::vector<std::string> folders_;  // the root and the fallback, as far as there are any
  const Deps deps_;
  int64_t lease_revision_;
  // The executor's tasks use the members from here to watched_path_. Once this process has
  // published a checkpoint, a restart of the cluster goes back to that, whatever the flags said
  // about the start.
  bool has_published_ = false;
  bool has_chosen_ = false;
  bool is_path_left_behind_ = false;  // Config::resume_path, which is never set aside
  absl::Status set_aside_;            // The outcome of the last SetAsideTask.
  // The path that NewestUpTo() has returned last. Empty means that none is awaited.
  std::string awaited_path_;
  std::string watched_path_;  // See Look(). Empty means that there is none.
  std::atomic<bool> is_looking_ = false;
};

}  // namespace lodestar::host
