// SPDX-License-Identifier: Apache-2.0

// CheckpointKeeper handles the checkpoints on disk: it publishes and removes them, and chooses what
// the cluster starts from.
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

// CheckpointReports receives the results of the keeper's tasks. Its methods are called from the
// keeper's executor.
class CheckpointReports {
 public:
  virtual ~CheckpointReports() = default;
  virtual void OnRestoreChosen(const absl::StatusOr<coordinator::RestoreChoice>& choice) = 0;
  virtual void OnCheckpointPublished(
      const std::string& directory,
      const absl::StatusOr<checkpoints::PublishedCheckpoint>& published) = 0;
  virtual void OnCheckpointMarked(bool is_complete, const absl::Status& status) = 0;
  // Called when the checkpoint from which a restart would begin is no longer at `path`, although
  // this process has not removed it.
  virtual void OnCheckpointGone(const std::string& path) = 0;
};

// The keeper does its tasks on an executor, one after the other.
class CheckpointKeeper {
 public:
  struct Config {
    std::string root;      // empty means that there are no checkpoints
    std::string fallback;  // folder that may also have last checkpoints; empty means none
    checkpoint::Retention retention;
    bool resume = true;  // true: resume from what is in `root` when the process starts
    // Path of one checkpoint. If it is given, the run resumes only from that checkpoint.
    std::string resume_path;
    std::string init_from;  // trained weights for a fresh start
    // True: the learning rate of a resumed job may be more than a tenth higher than that of the
    // checkpoint.
    bool accepts_higher_rate = false;
    // Confirms that the folder that holds `checkpoint` still belongs to this server. Called before
    // the checkpoint gets its name, and before any other checkpoint is moved or removed.
    std::function<absl::Status(absl::string_view checkpoint)> confirm_folder =
        [](absl::string_view) { return absl::OkStatus(); };
    // Revision of this server's claim on the folders: see FolderLock.
    int64_t lease_revision = 0;
    // Description of the server that held `root` before this process and did not release it. Empty
    // means that there was none.
    std::string crashed_holder;
    job::JobSpec job;
    // Flags that say which checkpoints are written and kept. A checkpoint stores them beside the
    // job's settings.
    std::vector<job::JobSetting> saving = {};
    std::set<std::string> given = {};  // see CoordinatorConfig, also for the next member
    job::OpenSettings open_settings;
  };

  // The pointers are not owned. Their objects must outlive the keeper, and the keeper must outlive
  // the tasks that it has scheduled.
  struct Deps {
    Executor* executor = nullptr;  // must run one task at a time, first in, first out
    storage::FileSystem* file_system = &storage::FileSystem::Real();
    CheckpointReports* reports = nullptr;
    // Returns a number for the next incarnation of the servers. Numbers must ascend, also over
    // restarts of this process.
    std::function<uint64_t()> new_server_incarnation = NewServerIncarnation;
  };

  CheckpointKeeper(Config config, Deps deps);

  // Checks the settings against those of the checkpoint that the job will be resumed from. Reads
  // only manifests: all data is verified later, when the job is restored. For a fresh start, checks
  // that the weights of --init_from exist and fit. Blocks for the disk. Errors: FailedPrecondition,
  // naming the contradictions; those of files and of TrainedWeights.
  absl::Status CheckSettings() const;

  // Makes the revision of this server's claim on the folders higher than the revisions in all
  // checkpoints there, so that this server's checkpoints take precedence. Must be called once,
  // before anything is published. The caller must hold the folders, and must check after the call
  // that it still holds them. Blocks for the disk. Errors: those of files.
  absl::Status OutrankCheckpoints();

  // Returns the last incarnation of the servers that has left a checkpoint in the folders. 0 means
  // that there is none. Blocks for the disk. Errors: those of files.
  absl::StatusOr<uint64_t> LastServerIncarnation() const;

  // Returns the checkpoint that the cluster would be restored from. Reads only manifests. Blocks
  // for the disk. Errors: those of files.
  absl::StatusOr<std::optional<shards::KnownCheckpoint>> Newest() const;

  // Returns the checkpoint that a rollback to `round` goes back to: the newest one of at most
  // `round` rounds. Verifies the checkpoint. It is not removed until the cluster is restored or
  // PrepareRollBack() is called again. Checks that the later checkpoints can be set aside: see
  // CheckCanSetAside(). Blocks for queued tasks and for the disk. Errors:
  // - NotFound: there is no such checkpoint; the text names the round of the oldest one
  // - DataLoss: the checkpoint is damaged; the text names the newest intact one before it
  // - FailedPrecondition: a later checkpoint cannot be set aside; the text names it
  // - those of files
  absl::StatusOr<checkpoints::PublishedCheckpoint> PrepareRollBack(Round round);

  // Queues a task that makes `path` the checkpoint that Look() checks. `path` is the checkpoint
  // from which the journal of this process begins.
  void Watch(std::string path);
  // Queues a check that the checkpoint that was last published, chosen or watched still exists.
  // Must be called every ten seconds or so. Does nothing while the last check waits for the disk.
  void Look();

  // Queues the task and returns.
  void Do(coordinator::CheckpointTask task);

 private:
  // Returns the time in milliseconds, followed by 16 random bits.
  static uint64_t NewServerIncarnation();
  void Carry(const checkpoints::CheckpointRecord& record);
  void Carry(const coordinator::DiscardTask& task);
  void Carry(const coordinator::SetAsideTask& task);
  void Carry(const coordinator::MarkTask& task);
  void Carry(const coordinator::ChooseRestoreTask& task);
  absl::StatusOr<checkpoints::PublishedCheckpoint> Publish(
      const checkpoints::CheckpointRecord& record);
  // Removes the files that are no longer needed after the checkpoint `published`, and renames
  // checkpoints of later rounds. Returns the text of an alarm about what could not be removed or
  // renamed, or an empty text. The text does not name `published`, so that failures of several
  // checkpoints raise one alarm.
  std::string TidyUp(const std::string& published, Round round) const;
  // Checks that this server may move or remove what is at `path`. Errors: Aborted (a later leader
  // has written it); FailedPrecondition (it belongs to another run); those of
  // Config::confirm_folder.
  absl::Status CheckMayTouch(const std::string& path) const;
  bool IsInFallback(const std::string& path) const;
  // Returns the --checkpoint_dir of the other run that has saved the checkpoint at `path` in
  // --fallback_dir. Returns an empty text if that run may be this run. It may be if its folder does
  // not exist, because the folder may have been moved.
  std::string OtherRunOf(const std::string& path) const;
  // Returns the checkpoints of other runs in --fallback_dir.
  std::vector<std::string> OfOtherRuns() const;
  // Returns `paths` together with OfOtherRuns().
  std::vector<std::string> WithOthers(std::vector<std::string> paths) const;
  // Returns the job that goes on from this checkpoint. It is the job that the operator asked for,
  // with values of the saved job for two kinds of settings:
  // - settings that a client had proposed to the saved job
  // - settings that the operator leaves open, and that the saved job had chosen
  absl::StatusOr<job::JobSpec> JobFrom(const checkpoints::Manifest& manifest,
                                       const std::string& path) const;
  checkpoint::RateAtResume RateOf(const checkpoints::Manifest& manifest, bool may_rise) const;
  absl::StatusOr<std::vector<checkpoint::SettingChange>> Compare(
      const checkpoints::Manifest& manifest, const std::string& path, bool may_rate_rise) const;
  // Returns true if the cluster starts from the newest checkpoint in the folders. Otherwise it
  // starts from the path in --resume, or anew with --resume=never.
  bool StartsFromFolders() const;
  absl::Status CheckInitFrom() const;
  absl::StatusOr<coordinator::RestoreChoice> Choose();
  absl::StatusOr<coordinator::RestoreChoice> FromPath() const;
  absl::StatusOr<coordinator::RestoreChoice> Anew() const;
  // Returns the round of the checkpoint that --resume=PATH names. The result is not set if there is
  // no such flag, or if the round cannot be read.
  std::optional<Round> RoundOfResumePath() const;
  // Returns the path in --resume if the job has gone back to a round before the checkpoint there,
  // else nothing. That checkpoint is not renamed, so a search for the newest one must skip it.
  std::vector<std::string> LeftBehind() const;
  absl::StatusOr<std::optional<checkpoint::FoundCheckpoint>> FindNewest() const;
  absl::StatusOr<checkpoints::PublishedCheckpoint> FindUpTo(Round round) const;
  // Checks that the checkpoints of rounds after `last_good` can be set aside. Errors:
  // FailedPrecondition, naming one that cannot.
  absl::Status CheckCanSetAside(Round last_good) const;
  // Returns the checkpoints in one folder that the cluster may be restored from.
  absl::StatusOr<std::vector<checkpoints::CheckpointEntry>> ListToRestore(
      const std::string& folder) const;
  // Returns the checkpoints in all folders that the cluster could be restored from. They are sorted
  // by the rounds in their manifests, newest first.
  absl::StatusOr<std::vector<checkpoints::CheckpointEntry>> ListToGoBackTo() const;
  absl::StatusOr<coordinator::RestoreChoice> FromCheckpoint(
      const checkpoint::FoundCheckpoint& found) const;
  coordinator::RestoreChoice FreshStart() const;

  const Config config_;
  const std::vector<std::string> folders_;  // the root and the fallback, if they are given
  const Deps deps_;
  int64_t lease_revision_;
  // True: this process has published a checkpoint. Then a restart of the cluster starts from the
  // folders, whatever --resume says. Only the executor's tasks use the members from here to
  // watched_path_.
  bool has_published_ = false;
  bool has_chosen_ = false;
  // True: the job has gone back to a round before the checkpoint at Config::resume_path. See
  // LeftBehind().
  bool is_path_left_behind_ = false;
  absl::Status set_aside_;  // the result of the last SetAsideTask
  // Path that PrepareRollBack() has returned last. It is cleared when the cluster is restored.
  // Empty means that there is none.
  std::string awaited_path_;
  std::string watched_path_;  // see Look(); empty means that there is none
  std::atomic<bool> is_looking_ = false;
};

}  // namespace lodestar::host
