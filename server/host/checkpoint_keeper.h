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
#include "common/checkpoint_directory.h"
#include "common/checkpoint_manifest.h"
#include "common/clock.h"
#include "common/exchange_settings.h"
#include "common/executor.h"
#include "common/file_system.h"
#include "common/job_spec.h"
#include "common/json.h"
#include "common/layout.h"
#include "server/checkpoint/checkpoint_publisher.h"
#include "server/checkpoint/checkpoint_reader.h"
#include "server/checkpoint/resume_settings.h"
#include "server/coordinator/checkpoint_task.h"
#include "server/coordinator/journal_comparison.h"

namespace lodestar {

// Answers to tasks. Called from the keeper's executor.
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

// Works on an executor, one task after the other.
class CheckpointKeeper {
 public:
  struct Config {
    std::string root;      // empty: no checkpoints
    std::string fallback;  // where last checkpoints may be as well; empty: nowhere
    Retention retention;
    bool resume = true;       // from what is in `root` when the process starts
    std::string resume_path;  // of one checkpoint; then only from that
    std::string init_from;    // trained weights for a fresh start
    // Lets a resumed job go on with a learning rate that is more than a tenth higher.
    bool accepts_higher_rate = false;
    // Whether the folder that a checkpoint is in still is this server's: before it gets its name,
    // and before any other is moved or removed.
    std::function<absl::Status(absl::string_view checkpoint)> confirm_folder =
        [](absl::string_view) { return absl::OkStatus(); };
    // Revision of this server's claim on the folders: see FolderLock.
    int64_t lease_revision = 0;
    // Who held `root` before this process and did not release it; empty: nobody.
    std::string crashed_holder;
    JobSpec job;
    std::set<std::string> given = {};  // see CoordinatorConfig, as the next
    OpenSettings open_settings;
  };

  // Not owned; outlive the keeper, which outlives what it has scheduled.
  struct Deps {
    Executor* executor = nullptr;  // runs one task at a time, first in, first out
    FileSystem* file_system = &FileSystem::Real();
    CheckpointReports* reports = nullptr;
    // Later starts get higher numbers, and two starts differ.
    std::function<uint64_t()> new_server_incarnation = NewServerIncarnation;
  };

  CheckpointKeeper(Config config, Deps deps);

  // Whether the settings contradict those of the checkpoint that the job will be resumed from, as
  // far as manifests tell: all data is verified only once the job is restored; or, of a fresh
  // start, whether the weights of --init_from are there and fit. Blocks for the disk. Errors:
  // FailedPrecondition naming the contradictions; those of files and of TrainedWeights.
  absl::Status CheckSettings() const;

  // Has the checkpoints of this server count more than all that are in the folders: the revision of
  // its claim becomes higher than theirs. Call once, before anything is published, and only while
  // this server holds the folders; ask for that again afterwards. Blocks for the disk. Errors:
  // those of files.
  absl::Status OutrankCheckpoints();

  // The last life of the servers that has left a checkpoint in the folders; 0: none has. Blocks for
  // the disk. Errors: those of files.
  absl::StatusOr<uint64_t> LastServerIncarnation() const;

  // The checkpoint that the cluster would be restored from, as far as manifests tell. Blocks for
  // the disk. Errors: those of files.
  absl::StatusOr<std::optional<KnownCheckpoint>> Newest() const;

  // The checkpoint of most rounds up to `round`, which a rollback would go to: verified, and kept
  // beyond Config::keep until the cluster is restored or this is asked again. Blocks for what is
  // queued and for the disk. Errors: NotFound, naming the oldest; DataLoss if it does not verify,
  // naming the newest before it that does; those of files.
  absl::StatusOr<PublishedCheckpoint> NewestUpTo(Round round);

  // A journal that this process goes on with begins from the checkpoint at `path`. Only queues.
  void Watch(std::string path);
  // Every ten seconds or so: looks whether the checkpoint that was published, chosen or watched
  // last is still there. Only queues, and nothing while the last look waits for the disk.
  void Look();

  // Only queues.
  void Do(CheckpointTask task);

 private:
  // Of the time and chance.
  static uint64_t NewServerIncarnation();
  void Carry(const CheckpointRecord& record);
  void Carry(const DiscardTask& task);
  void Carry(const SetAsideTask& task);
  void Carry(const MarkTask& task);
  void Carry(const ChooseRestoreTask& task);
  absl::StatusOr<PublishedCheckpoint> Publish(const CheckpointRecord& record);
  // Removes what is not needed beside the checkpoint that was published. Returns an alarm if what
  // was left behind may be taken for the newest one later.
  std::string TidyUp(const std::string& published, Round round) const;
  // Whether this server may move or remove what is at `path`. Errors: those of
  // Config::confirm_folder; Aborted (a later leader has written it).
  absl::Status CheckMayTouch(const std::string& path) const;
  // What goes on from this checkpoint: the job asked for, with what a client had proposed to the
  // one that was saved, or what that had chosen itself, where the operator gives nothing.
  absl::StatusOr<JobSpec> JobFrom(const Manifest& manifest, const std::string& path) const;
  absl::StatusOr<std::vector<SettingChange>> Compare(const Manifest& manifest,
                                                     const std::string& path,
                                                     bool may_rate_rise) const;
  // Whether the cluster starts from what is in the folders, and not from where the flags say.
  bool StartsFromFolders() const;
  absl::Status CheckInitFrom() const;
  absl::StatusOr<RestoreChoice> Choose();
  absl::StatusOr<RestoreChoice> FromPath() const;
  absl::StatusOr<RestoreChoice> Anew() const;
  // The round of what --resume=PATH names; nothing: there is no such flag, or no telling.
  std::optional<Round> RoundOfResumePath() const;
  // What stays in the folders, and is of a future that was left behind.
  std::vector<std::string> LeftBehind() const;
  absl::StatusOr<std::optional<FoundCheckpoint>> FindNewest() const;
  absl::StatusOr<PublishedCheckpoint> FindUpTo(Round round) const;
  // Those in one folder that the cluster may be restored from.
  absl::StatusOr<std::vector<CheckpointEntry>> ListToRestore(const std::string& folder) const;
  // In all folders that the cluster would be restored from, by what their manifests say: newest
  // first.
  absl::StatusOr<std::vector<CheckpointEntry>> ListToGoBackTo() const;
  absl::StatusOr<RestoreChoice> FromCheckpoint(const FoundCheckpoint& found) const;
  RestoreChoice FreshStart() const;

  const Config config_;
  const std::vector<std::string> folders_;  // the root and the fallback, as far as there are any
  const Deps deps_;
  int64_t lease_revision_;
  // The next six are of the executor. Once this process has published a checkpoint, a
  // restart of the cluster goes back to that, whatever the flags said about the start.
  bool has_published_ = false;
  bool has_chosen_ = false;
  bool is_path_left_behind_ = false;  // Config::resume_path, which is never set aside
  absl::Status set_aside_;            // of the last SetAsideTask
  std::string awaited_path_;          // by who has asked NewestUpTo(); empty: nobody
  std::string watched_path_;          // See Look(). Empty means that there is none.
  std::atomic<bool> is_looking_ = false;
};

}  // namespace lodestar
