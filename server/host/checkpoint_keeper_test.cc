// SPDX-License-Identifier: Apache-2.0

#include "server/host/checkpoint_keeper.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/checkpoints/checkpoint_directory.h"
#include "common/checkpoints/checkpoint_manifest.h"
#include "common/params/layout.h"
#include "common/params/model_spec_json.h"
#include "common/runtime/executor.h"
#include "common/runtime/status_macros.h"
#include "common/storage/forwarding_file_system.h"
#include "common/testing/simulated_file_system.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/checkpoint/checkpoint_folder.h"
#include "server/checkpoint/checkpoint_reader.h"
#include "server/checkpoint/shard_files.h"
#include "server/shard/page.h"
#include "server/shard/shard_state.h"

namespace lodestar::host {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAreArray;

class CheckpointKeeperTest : public testing::Test, public CheckpointReports {
 protected:
  CheckpointKeeperTest() {
    config_.root = root_;
    config_.job.model = {"small-mlp", params::MlpSpec{{3, 2}}};
    config_.job.optimizer.kind = job::OptimizerKind::kSgd;
    config_.job.schedule.total_rounds = 100;
    layout_ = *params::BuildLayout(config_.job.model);
    StartProcess();
  }

  void OnRestoreChosen(const absl::StatusOr<coordinator::RestoreChoice>& choice) override {
    choice_ = choice;
  }
  void OnCheckpointPublished(
      const std::string&,
      const absl::StatusOr<checkpoints::PublishedCheckpoint>& published) override {
    published_ = published;
  }
  void OnCheckpointMarked(bool, const absl::Status& status) override { marked_ = status; }

  void OnCheckpointGone(const std::string& path) override { gone_.push_back(path); }

  // Starts a process with the current config_.
  void StartProcess() {
    keeper_ = std::make_unique<CheckpointKeeper>(
        config_, CheckpointKeeper::Deps{
                     .executor = &executor_, .file_system = disk_.get(), .reports = this});
  }
  std::string Path(int64_t round) const { return absl::StrFormat("%s/round-%08d", root_, round); }

  // Writes the files of a shard into `directory`. All of its weights are `weight`.
  absl::StatusOr<std::string> WriteShard(const std::string& directory, int64_t round,
                                         float weight) {
    RETURN_IF_ERROR(disk_->CreateDirectories(directory));
    shard::ShardState state;
    state.range = {0, layout_.num_elements()};
    shard::BucketState& bucket = state.buckets.emplace_back();
    bucket.range = state.range;
    bucket.version = Version(round);
    const std::shared_ptr<shard::Page> page = shard::Page::Create(state.range.size());
    std::fill_n(page->data(), state.range.size(), weight);
    bucket.weights = page;
    ASSIGN_OR_RETURN(
        const checkpoints::ShardManifest part,
        checkpoint::WriteShardFiles(
            *disk_, {directory, 0, 1, params::ModelSpecToJson(config_.job.model)}, layout_, state));
    return checkpoints::FormatShardManifest(part);
  }

  // Saves a checkpoint. The result is in published_.
  void TrySave(int64_t round, const checkpoints::LedgerState& ledger = {}, float weight = 0) {
    checkpoints::CheckpointRecord record;
    record.directory = Path(round) + ".7-1.tmp";
    record.round = Round(round);
    record.state.ledger = ledger;
    record.state.server_incarnation = server_incarnation_;
    record.job = config_.job;
    record.layout = layout_;
    record.journal = journal_;
    const absl::StatusOr<std::string> part = WriteShard(record.directory, round, weight);
    if (!part.ok()) {
      published_ = part.status();
      return;
    }
    record.manifest_parts = {*part};
    keeper_->Do(std::move(record));
  }
  void Save(int64_t round, const checkpoints::LedgerState& ledger = {}, float weight = 0) {
    TrySave(round, ledger, weight);
    ASSERT_OK(published_);
    EXPECT_THAT(published_->alarm, IsEmpty());
  }
  coordinator::RestoreChoice Choose(bool accepts_loss = false) {
    keeper_->Do(coordinator::ChooseRestoreTask{.accepts_loss = accepts_loss});
    EXPECT_OK(choice_) << choice_.status();
    return choice_.value_or(coordinator::RestoreChoice());
  }
  // Returns the directory of the checkpoint that `choice` restores, or an empty text if it restores
  // none.
  static std::string SourceOf(const coordinator::RestoreChoice& choice) {
    const auto* const checkpoint = std::get_if<shards::CheckpointSource>(&choice.source);
    return checkpoint == nullptr ? "" : checkpoint->directory;
  }

  std::unique_ptr<SimulatedFileSystem> disk_ = std::make_unique<SimulatedFileSystem>();
  InlineExecutor executor_;
  std::string root_ = "/checkpoints";
  CheckpointKeeper::Config config_;
  params::Layout layout_;
  absl::StatusOr<coordinator::RestoreChoice> choice_;
  absl::StatusOr<checkpoints::PublishedCheckpoint> published_;
  absl::Status marked_ = absl::UnknownError("not asked");
  std::vector<std::string> gone_;
  checkpoints::JournalManifest journal_;  // journal named in saved checkpoints
  uint64_t server_incarnation_ = 7;       // incarnation named in saved checkpoints
  std::unique_ptr<CheckpointKeeper> keeper_;
};

TEST_F(CheckpointKeeperTest, NothingIsMovedIntoAFolderThatIsAnothers) {
  Save(2);
  config_.confirm_folder = [this](absl::string_view checkpoint) {
    EXPECT_EQ(checkpoint, Path(4) + ".7-1.tmp");
    return absl::AlreadyExistsError("held by another server");
  };
  StartProcess();
  TrySave(4);
  EXPECT_THAT(published_,
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("held by another server")));
  EXPECT_FALSE(disk_->Exists(Path(4)));
}

TEST_F(CheckpointKeeperTest, NewestCheckpointThatIsRemovedByOthersIsReported) {
  keeper_->Look();
  Save(2);
  Save(4);
  ASSERT_OK(disk_->RemoveAll(Path(2)));
  keeper_->Look();
  EXPECT_THAT(gone_, IsEmpty());
  ASSERT_OK(disk_->RemoveAll(Path(4)));
  keeper_->Look();
  EXPECT_THAT(gone_, ElementsAre(Path(4)));
  Save(5);
  keeper_->Look();
  EXPECT_THAT(gone_, ElementsAre(Path(4)));
  // The next process begins from this checkpoint.
  StartProcess();
  Choose();
  ASSERT_OK(disk_->RemoveAll(Path(5)));
  keeper_->Look();
  EXPECT_THAT(gone_, ElementsAre(Path(4), Path(5)));
}

TEST_F(CheckpointKeeperTest, CheckpointThatAJournalBeginsFromIsReportedIfItIsRemoved) {
  keeper_->Watch(Path(2));
  keeper_->Look();
  EXPECT_THAT(gone_, ElementsAre(Path(2)));
}

TEST_F(CheckpointKeeperTest, CheckpointThatIsRemovedInAFolderOfAnotherServerIsNotReported) {
  Save(2);
  ASSERT_OK(disk_->RemoveAll(Path(2)));
  config_.confirm_folder = [](absl::string_view) { return absl::AlreadyExistsError("held"); };
  StartProcess();
  keeper_->Watch(Path(2));
  keeper_->Look();
  EXPECT_THAT(gone_, IsEmpty());
}

// While the leader with revision 7 was frozen, another leader with a higher revision took over.
TEST_F(CheckpointKeeperTest, CheckpointOfAnOvertakenLeaderIsNotRestored) {
  config_.lease_revision = 7;
  StartProcess();
  Save(10);
  config_.lease_revision = 12;
  StartProcess();
  Save(20, {}, 2);
  // The leader with the lower revision saves round 30 now, as if it had been frozen.
  config_.lease_revision = 7;
  config_.retention.keep = 9;
  StartProcess();
  Save(30, {}, 3);
  EXPECT_TRUE(disk_->Exists(Path(20)));
  config_.lease_revision = 13;
  StartProcess();
  const coordinator::RestoreChoice choice = Choose();
  EXPECT_EQ(std::get<shards::CheckpointSource>(choice.source).directory, Path(20));
  EXPECT_THAT(choice.alarm, HasSubstr(Path(30)));
  ASSERT_OK_AND_ASSIGN(const checkpoints::PublishedCheckpoint newest,
                       keeper_->PrepareRollBack(Round(30)));
  EXPECT_EQ(newest.path, Path(20));
}

TEST_F(CheckpointKeeperTest, CheckpointWithoutARevisionCountsBehindOneThatHasOne) {
  config_.lease_revision = 7;
  StartProcess();
  Save(10);
  config_.lease_revision = 0;  // an earlier release writes no revision
  StartProcess();
  TrySave(20);
  EXPECT_EQ(std::get<shards::CheckpointSource>(Choose().source).directory, Path(20));
}

TEST_F(CheckpointKeeperTest, OvertakenLeaderTouchesNothingOfALaterOne) {
  config_.lease_revision = 12;
  StartProcess();
  Save(20, {}, 2);
  Save(40, {}, 4);
  config_.lease_revision = 7;
  StartProcess();
  TrySave(20, {}, 9);
  EXPECT_THAT(published_.status(), StatusIs(absl::StatusCode::kAborted, HasSubstr(Path(20))));
  TrySave(30, {}, 9);
  ASSERT_OK(published_);
  EXPECT_THAT(published_->alarm, HasSubstr(Path(40))) << "it would set that aside";
  EXPECT_EQ(std::get<shards::CheckpointSource>(Choose().source).directory, Path(40));
}

TEST_F(CheckpointKeeperTest, EachEntryIsMovedOrRemovedOnlyWhileTheFolderIsHeld) {
  for (int64_t round : {10, 20, 30}) Save(round);
  std::vector<std::string> asked;
  config_.confirm_folder = [&asked](absl::string_view path) {
    asked.emplace_back(path);
    return asked.size() > 1 ? absl::AbortedError("another server holds it") : absl::OkStatus();
  };
  config_.retention.keep = 1;
  StartProcess();
  TrySave(15);
  ASSERT_OK(published_);
  EXPECT_THAT(published_->alarm, HasSubstr("another server holds it"));
  for (int64_t round : {10, 20, 30}) EXPECT_TRUE(disk_->Exists(Path(round))) << round;
  EXPECT_THAT(asked, Contains(Path(10)));
  EXPECT_THAT(asked, Contains(Path(30)));
}

TEST_F(CheckpointKeeperTest, CheckpointsCountMoreThanAllThatAreThere) {
  config_.lease_revision = 900;
  StartProcess();
  Save(10);
  // The store of leases was lost, and counts revisions from the beginning again.
  config_.lease_revision = 3;
  StartProcess();
  ASSERT_OK(keeper_->OutrankCheckpoints());
  Save(20);
  EXPECT_EQ(checkpoints::ReadManifest(*disk_, Path(20))->lease_revision, 901);
}

TEST_F(CheckpointKeeperTest, NewestTellsWhichRecordTheCheckpointFollows) {
  EXPECT_FALSE(keeper_->Newest()->has_value());
  journal_ = {.journal_id = 11, .record = 80, .shard_records = {5, 6}, .is_complete = false};
  Save(2);
  journal_.record = 90;
  Save(4);
  auto newest = keeper_->Newest();
  ASSERT_OK(newest);
  ASSERT_TRUE(newest->has_value());
  EXPECT_EQ((*newest)->path, Path(4));
  EXPECT_EQ((*newest)->round, Round(4));
  EXPECT_EQ((*newest)->server_incarnation, 7);
  EXPECT_EQ((*newest)->journal.journal_id, 11);
  EXPECT_EQ((*newest)->journal.record, 90);
  EXPECT_THAT((*newest)->journal.shard_records, ElementsAre(5, 6));
  // With --resume=never, the run does not start from a checkpoint.
  config_.resume = false;
  StartProcess();
  EXPECT_FALSE(keeper_->Newest()->has_value());
}

TEST_F(CheckpointKeeperTest, MarksCheckpointAsCompleteAndTakesThatBack) {
  journal_ = {.journal_id = 11, .record = 80, .shard_records = {}, .is_complete = true};
  Save(2);
  EXPECT_TRUE(Choose().is_complete);
  // Withdraws the mark. The task names another journal, because a new one may have begun since the
  // save.
  keeper_->Do(
      coordinator::MarkTask{Path(2), /*is_complete=*/false, {.journal_id = 12, .number = 3}});
  EXPECT_OK(marked_);
  std::mt19937_64 chance(1);
  disk_->Crash(chance);
  const checkpoints::JournalManifest reopened = (*keeper_->Newest())->journal;
  EXPECT_FALSE(reopened.is_complete);
  EXPECT_EQ(reopened.journal_id, 12);
  EXPECT_EQ(reopened.record, 3);
  EXPECT_FALSE(Choose().is_complete);
  disk_->SetFaultHook([](FileOperation operation, const std::string&) {
    return operation == FileOperation::kCreate ? absl::UnknownError("Input/output error")
                                               : absl::OkStatus();
  });
  keeper_->Do(coordinator::ChooseRestoreTask{.accepts_loss = true});
  EXPECT_THAT(choice_.status(), StatusIs(absl::StatusCode::kUnknown, HasSubstr(Path(2))));
  disk_->SetFaultHook(nullptr);
  EXPECT_TRUE(Choose(/*accepts_loss=*/true).is_complete);
  EXPECT_TRUE((*keeper_->Newest())->journal.is_complete);
  // It is no error to mark a checkpoint that an operator has removed.
  keeper_->Do(coordinator::MarkTask{Path(3), /*is_complete=*/false, {}});
  EXPECT_OK(marked_);
}

TEST_F(CheckpointKeeperTest, DoesNotMarkCheckpointInFolderOfAnotherServer) {
  journal_ = {.journal_id = 11, .record = 80, .shard_records = {}, .is_complete = true};
  Save(2);
  config_.confirm_folder = [](absl::string_view) { return absl::AlreadyExistsError("held"); };
  StartProcess();
  keeper_->Do(coordinator::MarkTask{Path(2), /*is_complete=*/false, {}});
  EXPECT_THAT(marked_, StatusIs(absl::StatusCode::kAlreadyExists));
  EXPECT_TRUE((*keeper_->Newest())->journal.is_complete);
}

TEST_F(CheckpointKeeperTest, KnowsTheLastLifeOfTheServersThatHasSaved) {
  EXPECT_THAT(keeper_->LastServerIncarnation(), IsOkAndHolds(0));
  server_incarnation_ = 70;
  Save(2);
  server_incarnation_ = 60;
  Save(4);
  EXPECT_THAT(keeper_->LastServerIncarnation(), IsOkAndHolds(70));
}

TEST_F(CheckpointKeeperTest, ADamagedFallbackIsNoReasonNotToUseWhatIsWhole) {
  Save(2);
  ASSERT_OK(disk_->CreateDirectories("/spare/round-00000004"));
  ASSERT_OK(WriteShard("/spare/round-00000004", 4, 0));  // without a manifest
  config_.fallback = "/spare";
  StartProcess();
  const coordinator::RestoreChoice choice = Choose();
  EXPECT_EQ(SourceOf(choice), Path(2));
  EXPECT_THAT(choice.alarm, HasSubstr("CHECKPOINT /spare/round-00000004 IS DAMAGED"));
}

TEST_F(CheckpointKeeperTest, LeavesCheckpointsOfAnotherRunInFallbackAlone) {
  config_.fallback = "/spare";
  config_.root = "/other";
  ASSERT_OK(disk_->CreateDirectories("/other"));
  StartProcess();
  root_ = "/spare";  // folder of the run that saves next
  Save(4);
  const std::string others = Path(4);
  root_ = "/checkpoints";
  config_.root = root_;
  config_.retention.keep = 1;
  StartProcess();
  Save(2);
  EXPECT_TRUE(disk_->Exists(others)) << "a later round is set aside in this run's folders only";
  EXPECT_THAT(keeper_->PrepareRollBack(Round(9)),
              IsOkAndHolds(Field(&checkpoints::PublishedCheckpoint::path, Path(2))));
  StartProcess();
  const coordinator::RestoreChoice choice = Choose();
  EXPECT_EQ(SourceOf(choice), Path(2));
  EXPECT_THAT(choice.alarm, AllOf(HasSubstr(others), HasSubstr("/other")));
  EXPECT_THAT(Choose().alarm, IsEmpty()) << "said once";
  // If the folder of a run is gone, the run counts as moved, and its checkpoints as those of this
  // run.
  ASSERT_OK(disk_->RemoveAll("/other"));
  StartProcess();
  EXPECT_EQ(SourceOf(Choose()), others);
}

TEST_F(CheckpointKeeperTest, ACheckpointThatMayNotBeReadIsNoReasonToTakeAnOlderOne) {
  Save(2);
  Save(4);
  for (const absl::Status& refused : {absl::PermissionDeniedError("Permission denied"),
                                      absl::ResourceExhaustedError("Too many open files"),
                                      absl::UnavailableError("Stale file handle")}) {
    for (const absl::string_view unread : {"MANIFEST.json", "safetensors"}) {
      disk_->SetFaultHook([&](FileOperation operation, const std::string& path) {
        const bool fails = operation == FileOperation::kRead && absl::StrContains(path, Path(4)) &&
                           absl::EndsWith(path, unread);
        return fails ? refused : absl::OkStatus();
      });
      const auto is_refused =
          StatusIs(refused.code(), AllOf(HasSubstr(Path(4)), HasSubstr("move")));
      keeper_->Do(coordinator::ChooseRestoreTask{.accepts_loss = true});
      EXPECT_THAT(choice_.status(), is_refused);
      if (unread == "MANIFEST.json") {
        EXPECT_THAT(keeper_->CheckSettings(), is_refused);
      }
    }
  }
  disk_->SetFaultHook([&](FileOperation operation, const std::string& path) {
    const bool fails = operation == FileOperation::kRead && absl::StrContains(path, Path(4));
    return fails ? absl::InternalError("Input/output error") : absl::OkStatus();
  });
  EXPECT_EQ(SourceOf(Choose()), Path(2)) << "a disk that has lost a sector";
}

TEST_F(CheckpointKeeperTest, NoProcessStartsFromWhatWasSetAside) {
  Save(2);
  Save(4);
  keeper_->Do(coordinator::SetAsideTask{Round(4), "are bad"});
  EXPECT_EQ(SourceOf(Choose()), Path(2));
  StartProcess();
  EXPECT_EQ(SourceOf(Choose()), Path(2));
  EXPECT_TRUE(disk_->Exists(Path(4) + ".abandoned"));
  keeper_->Do(coordinator::SetAsideTask{Round(2), "are bad"});
  const coordinator::RestoreChoice choice = Choose();
  EXPECT_EQ(SourceOf(choice), "");
  EXPECT_THAT(choice.alarm, AllOf(HasSubstr("begins at round 0"), HasSubstr("--resume=PATH"),
                                  HasSubstr(Path(4) + ".abandoned")));
}

TEST_F(CheckpointKeeperTest, KnowsWhatThereIsToGoBackTo) {
  const auto round_of = [this](int64_t most) -> absl::StatusOr<int64_t> {
    ASSIGN_OR_RETURN(const checkpoints::PublishedCheckpoint found,
                     keeper_->PrepareRollBack(Round(most)));
    EXPECT_EQ(found.path, Path(found.round.value()));
    return found.round.value();
  };
  EXPECT_THAT(round_of(9),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("no checkpoint was written")));
  Save(2);
  Save(4);
  EXPECT_THAT(round_of(9), IsOkAndHolds(4));
  EXPECT_THAT(round_of(3), IsOkAndHolds(2));
  EXPECT_THAT(round_of(1),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("the oldest is of round 2")));
  config_.resume = false;
  StartProcess();
  EXPECT_THAT(round_of(9), StatusIs(absl::StatusCode::kNotFound)) << "those are of another run";
}

TEST_F(CheckpointKeeperTest, OnlyWhatIsWholeIsGoneBackTo) {
  for (const int64_t round : {2, 4, 6}) Save(round);
  const auto damage = [this](int64_t round) {
    const std::string path = Path(round) + "/shard-00000-of-00001.safetensors";
    ASSERT_OK_AND_ASSIGN(storage::SequentialFileWriter file,
                         storage::SequentialFileWriter::Create(*disk_, path));
    ASSERT_OK(file.Append("short"));
    ASSERT_OK(file.Finish(/*sync=*/false));
  };
  damage(4);
  EXPECT_THAT(
      keeper_->PrepareRollBack(Round(5)),
      StatusIs(absl::StatusCode::kDataLoss,
               AllOf(HasSubstr(Path(4) + " cannot be used: "), HasSubstr("bytes"),
                     HasSubstr("nothing was changed"), HasSubstr(Path(2) + "; give round 2"))));
  EXPECT_EQ(SourceOf(Choose()), Path(6));
  damage(2);
  EXPECT_THAT(
      keeper_->PrepareRollBack(Round(5)),
      StatusIs(absl::StatusCode::kDataLoss, AllOf(HasSubstr(Path(2) + " cannot be used: "),
                                                  HasSubstr("No older checkpoint is undamaged"))));
}

// Returns a hook that refuses to rename `path`.
SimulatedFileSystem::FaultHook RefusesToRename(const std::string& path) {
  return [path](FileOperation operation, const std::string& changed) {
    return operation == FileOperation::kRename && changed == path
               ? absl::PermissionDeniedError(absl::StrCat("cannot rename ", path))
               : absl::OkStatus();
  };
}

TEST_F(CheckpointKeeperTest, RollBackIsRefusedUnchangedIfALaterCheckpointCannotBeRenamed) {
  for (const int64_t round : {2, 4, 6}) Save(round);
  const std::vector<std::string> names = *disk_->List(root_);
  for (const int64_t fixed : {4, 6}) {
    disk_->SetFaultHook(RefusesToRename(Path(fixed)));
    EXPECT_THAT(keeper_->PrepareRollBack(Round(3)),
                StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr(Path(fixed))));
    EXPECT_THAT(*disk_->List(root_), UnorderedElementsAreArray(names));
  }
  disk_->SetFaultHook(RefusesToRename(Path(2)));
  EXPECT_OK(keeper_->PrepareRollBack(Round(3))) << "the job goes back to that one";
  EXPECT_THAT(*disk_->List(root_), UnorderedElementsAreArray(names));
  EXPECT_EQ(SourceOf(Choose()), Path(6));
}

TEST_F(CheckpointKeeperTest, CheckpointThatCannotGetItsNameBackStillCounts) {
  Save(2);
  Save(4);
  disk_->SetFaultHook(RefusesToRename(Path(4) + ".old"));
  EXPECT_THAT(keeper_->PrepareRollBack(Round(3)),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr(Path(4) + ".old")));
  disk_->SetFaultHook(nullptr);
  keeper_->Look();
  EXPECT_THAT(gone_, IsEmpty());
  EXPECT_EQ(SourceOf(Choose()), Path(4) + ".old");
  EXPECT_OK(keeper_->PrepareRollBack(Round(3)));
  keeper_->Do(coordinator::SetAsideTask{Round(4), "are undone"});
  EXPECT_EQ(SourceOf(Choose()), Path(2));
}

// A disk that renames, and then returns an error, because its replica does not answer.
class DiskThatLosesItsReplica final : public storage::ForwardingFileSystem {
 public:
  using storage::ForwardingFileSystem::ForwardingFileSystem;
  absl::Status Rename(const std::string& from, const std::string& to) override {
    RETURN_IF_ERROR(storage::ForwardingFileSystem::Rename(from, to));
    return absl::UnavailableError("the replica does not answer");
  }
};

TEST_F(CheckpointKeeperTest, CheckpointKeepsItsNameIfTheReplicaIsLostMeanwhile) {
  Save(2);
  Save(4);
  DiskThatLosesItsReplica disk(disk_.get());
  keeper_ = std::make_unique<CheckpointKeeper>(
      config_,
      CheckpointKeeper::Deps{.executor = &executor_, .file_system = &disk, .reports = this});
  EXPECT_THAT(keeper_->PrepareRollBack(Round(3)),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("replica")));
  EXPECT_TRUE(disk_->Exists(Path(4)));
  EXPECT_FALSE(disk_->Exists(Path(4) + ".old"));
}

TEST_F(CheckpointKeeperTest, CheckpointThatWasReplacedDoesNotCountOnceItsSuccessorIsSetAside) {
  Save(2);
  Save(4);
  ASSERT_OK(disk_->Rename(Path(4), Path(4) + ".old"));
  disk_->SetFaultHook(RefusesToRename(Path(4) + ".old"));
  Save(4);  // the checkpoint that it replaces stays
  ASSERT_TRUE(disk_->Exists(Path(4) + ".old"));
  const auto is_refused =
      StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr(Path(4) + ".old"));
  EXPECT_THAT(keeper_->PrepareRollBack(Round(3)), is_refused);
  keeper_->Do(coordinator::SetAsideTask{Round(4), "are undone"});
  keeper_->Do(coordinator::ChooseRestoreTask{});
  EXPECT_THAT(choice_, StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr(Path(4) + ".old")));
  disk_->SetFaultHook(nullptr);
  EXPECT_OK(keeper_->PrepareRollBack(Round(3)));
  keeper_->Do(coordinator::SetAsideTask{Round(4), "are undone"});
  EXPECT_EQ(SourceOf(Choose()), Path(2));
}

TEST_F(CheckpointKeeperTest, CheckpointThatWasReplacedIsRemovedBeforeARollBack) {
  Save(2);
  Save(4);
  ASSERT_OK(disk_->Rename(Path(4), Path(4) + ".old"));
  disk_->SetFaultHook(RefusesToRename(Path(4) + ".old"));
  Save(4);
  disk_->SetFaultHook(nullptr);
  ASSERT_TRUE(disk_->Exists(Path(4) + ".old"));
  EXPECT_OK(keeper_->PrepareRollBack(Round(3)));
  EXPECT_FALSE(disk_->Exists(Path(4) + ".old"));
  EXPECT_EQ(SourceOf(Choose()), Path(4));
}

TEST_F(CheckpointKeeperTest, FilesThatCannotBeRemovedAreAnAlarmThatNamesTheOldest) {
  config_.retention.keep = 1;
  StartProcess();
  Save(2);
  disk_->SetFaultHook([this](FileOperation operation, const std::string& path) {
    RETURN_IF_ERROR(RefusesToRename(Path(2))(operation, path));
    return RefusesToRename(Path(6))(operation, path);
  });
  for (const int64_t round : {4, 6, 8, 10}) {
    TrySave(round);
    ASSERT_OK(published_);
    EXPECT_THAT(published_->alarm, AllOf(HasSubstr(root_), HasSubstr(Path(2)))) << round;
  }
  for (const int64_t round : {4, 8}) EXPECT_FALSE(disk_->Exists(Path(round))) << round;
  disk_->SetFaultHook(nullptr);
  Save(12);
  for (const int64_t round : {2, 6}) EXPECT_FALSE(disk_->Exists(Path(round))) << round;
}

TEST_F(CheckpointKeeperTest, RestOfAFailedSaveThatCannotBeRemovedIsAnAlarm) {
  const std::string rest = Path(1) + ".7-9.tmp";
  ASSERT_OK(disk_->CreateDirectories(rest));
  disk_->SetFaultHook([&](FileOperation operation, const std::string& path) {
    return operation == FileOperation::kRemove && path == rest
               ? absl::PermissionDeniedError(absl::StrCat("cannot remove ", rest))
               : absl::OkStatus();
  });
  EXPECT_EQ(SourceOf(Choose()), "") << "the job starts";
  TrySave(2);
  ASSERT_OK(published_);
  EXPECT_THAT(published_->alarm, HasSubstr(rest));
  const std::string first = published_->alarm;
  TrySave(4);
  EXPECT_EQ(published_->alarm, first);
}

TEST_F(CheckpointKeeperTest, AlarmOfALaterCheckpointStaysTheSame) {
  Save(9);
  config_.resume = false;
  StartProcess();
  disk_->SetFaultHook(RefusesToRename(Path(9)));
  TrySave(2);
  ASSERT_OK(published_);
  EXPECT_THAT(published_->alarm, HasSubstr(Path(9)));
  const std::string first = published_->alarm;
  TrySave(4);
  EXPECT_EQ(published_->alarm, first);
}

TEST_F(CheckpointKeeperTest, WhatIsGoneBackToStaysMeanwhile) {
  config_.retention.keep = 2;
  StartProcess();
  for (const int64_t round : {2, 4}) Save(round);
  ASSERT_OK(keeper_->PrepareRollBack(Round(3)));
  Save(6);
  EXPECT_TRUE(disk_->Exists(Path(2)));
  keeper_->Do(coordinator::SetAsideTask{Round(4), "belong to undone rounds"});
  EXPECT_EQ(SourceOf(Choose()), Path(2));
  Save(4);
  Save(5);
  EXPECT_FALSE(disk_->Exists(Path(2))) << "for ever";
}

TEST_F(CheckpointKeeperTest, PathThatIsResumedFromIsNotGoneBackToOnceItIsLeftBehind) {
  Save(1);
  Save(2);
  config_.resume_path = Path(2);
  StartProcess();
  EXPECT_EQ(SourceOf(Choose()), Path(2));
  Save(3);
  ASSERT_OK_AND_ASSIGN(const checkpoints::PublishedCheckpoint found,
                       keeper_->PrepareRollBack(Round(1)));
  EXPECT_EQ(found.path, Path(1));
  keeper_->Do(coordinator::SetAsideTask{Round(2), "belong to undone rounds"});
  const coordinator::RestoreChoice back = Choose();
  EXPECT_EQ(SourceOf(back), Path(1));
  EXPECT_THAT(back.alarm, HasSubstr(Path(2) + " has undone rounds, but keeps its name"));
  EXPECT_TRUE(disk_->Exists(Path(2)));
  EXPECT_EQ(SourceOf(Choose()), Path(1)) << "when a server is lost";

  Save(4);
  ASSERT_OK_AND_ASSIGN(const checkpoints::PublishedCheckpoint older,
                       keeper_->PrepareRollBack(Round(3)));
  EXPECT_EQ(older.path, Path(1)) << "that of round 2 is of another past";
  Save(2);
  keeper_->Do(coordinator::SetAsideTask{Round(3), "are bad"});
  const coordinator::RestoreChoice replaced = Choose();
  EXPECT_EQ(SourceOf(replaced), Path(2));
  EXPECT_THAT(replaced.alarm, IsEmpty());
}

TEST_F(CheckpointKeeperTest, ProcessThatGoesOnWithAJournalKnowsWhatItsPathIsOf) {
  Save(1);
  Save(3);
  config_.resume_path = Path(3);
  StartProcess();
  Save(2);  // the job was sent back to round 1 before the process began
  EXPECT_EQ(SourceOf(Choose()), Path(2));
}

TEST_F(CheckpointKeeperTest, RunThatHasSavedNothingSpeaksAgainstNoCheckpoint) {
  Save(2);
  config_.resume = false;
  StartProcess();
  keeper_->Do(coordinator::SetAsideTask{Round(1), "are bad"});
  EXPECT_THAT(Choose().alarm, HasSubstr("The newest is " + Path(2)));
  EXPECT_TRUE(disk_->Exists(Path(2)));
}

TEST_F(CheckpointKeeperTest, PathThatIsResumedFromStaysAndWhatIsLaterIsNamed) {
  config_.retention.keep = 1;
  StartProcess();
  Save(1);
  config_.resume_path = Path(1);
  StartProcess();
  EXPECT_THAT(Choose().alarm, IsEmpty());
  Save(2);
  Save(3);
  EXPECT_FALSE(disk_->Exists(Path(2)));
  StartProcess();
  const coordinator::RestoreChoice again = Choose();
  EXPECT_EQ(SourceOf(again), Path(1));
  EXPECT_THAT(again.alarm,
              AllOf(HasSubstr("--resume=" + Path(1)), HasSubstr("The newest is " + Path(3)),
                    HasSubstr("--resume=latest")));
}

TEST_F(CheckpointKeeperTest, WhatRollbacksMadeOfTheLearningRateIsShown) {
  checkpoints::LedgerState ledger;
  ledger.rollbacks = 2;
  ledger.learning_rate_scale = 0.25;
  Save(2, ledger);
  EXPECT_THAT(Choose().note, AllOf(HasSubstr("resumes from path="),
                                   HasSubstr("multiplied by 0.25, after 2 rollbacks"),
                                   HasSubstr("the learning rate of round 2 is ")));
  config_.job.schedule.peak /= 2;
  config_.job.schedule.total_rounds = 2;
  StartProcess();
  const coordinator::RestoreChoice choice = Choose();
  EXPECT_THAT(choice.note, HasSubstr("takes the weights of path="))
      << "there is nothing to go on with";
  EXPECT_GT(std::get<shards::CheckpointSource>(choice.source).bytes, 0);
  ASSERT_EQ(choice.resumed->changes.size(), 2);
  EXPECT_EQ(choice.resumed->changes[1].flag, "learning_rate");
  EXPECT_EQ(choice.resumed->changes[1].effect,
            "from round 2 on, multiplied by 0.25, after 2 rollbacks");
}

TEST_F(CheckpointKeeperTest, LearningRateThatIsGivenReplacesTheOneOfAnOrder) {
  checkpoints::LedgerState ledger;
  ledger.rollbacks = 1;
  ledger.learning_rate_scale = 0.125;
  ledger.scale_by_operators = 0.25;
  Save(2, ledger);
  config_.job.schedule.peak /= 4;
  StartProcess();
  EXPECT_EQ(Choose().state->ledger.learning_rate_scale, 0.125) << "the flag is not given";
  config_.given = {"learning_rate"};
  StartProcess();
  const coordinator::RestoreChoice choice = Choose();
  EXPECT_EQ(choice.state->ledger.learning_rate_scale, 0.5);
  EXPECT_EQ(choice.state->ledger.scale_by_operators, 1.0);
  EXPECT_EQ(choice.state->ledger.rollbacks, 1);
}

TEST_F(CheckpointKeeperTest, WhatAClientHadProposedIsTheCheckpointsUnlessTheOperatorGivesIt) {
  const job::JobSpec asked = [this] {
    job::JobSpec job = config_.job;
    job.model = {"client", params::ClientModelSpec{}};
    job.batch_size = 12;
    return job;
  }();
  config_.job = asked;
  // Settings that the client had proposed to the saved job.
  config_.job.optimizer.kind = job::OptimizerKind::kMomentum;
  config_.job.optimizer.momentum = 0.3;
  config_.job.schedule.peak = 0.25;
  Save(2);
  config_.job = asked;
  StartProcess();
  coordinator::RestoreChoice choice = Choose();
  ASSERT_TRUE(choice.job.has_value());
  EXPECT_EQ(choice.job->optimizer.kind, job::OptimizerKind::kMomentum);
  EXPECT_EQ(choice.job->optimizer.momentum, 0.3);
  EXPECT_EQ(choice.job->schedule.peak, 0.25);
  EXPECT_THAT(choice.resumed->changes, IsEmpty());
  config_.given = {"learning_rate"};
  StartProcess();
  choice = Choose();
  EXPECT_EQ(choice.job->schedule.peak, asked.schedule.peak);
  ASSERT_EQ(choice.resumed->changes.size(), 2);
  EXPECT_EQ(choice.resumed->changes[0].flag, "learning_rate");
  EXPECT_EQ(choice.resumed->changes[1].flag, "rate");
}

TEST_F(CheckpointKeeperTest, NamesFlagsOfSavingThatDifferFromTheCheckpoints) {
  config_.saving = {{"checkpoint_every", "10"}, {"checkpoint_keep", "20"}};
  StartProcess();
  Save(10);
  config_.saving = {{"checkpoint_every", "10"}, {"checkpoint_keep", "3"}};
  StartProcess();
  const coordinator::RestoreChoice choice = Choose();
  ASSERT_TRUE(choice.resumed.has_value());
  ASSERT_EQ(choice.resumed->changes.size(), 1);
  EXPECT_EQ(choice.resumed->changes[0].flag, "checkpoint_keep");
  EXPECT_EQ(choice.resumed->changes[0].saved, "20");
  EXPECT_EQ(choice.resumed->changes[0].asked, "3");
}

TEST_F(CheckpointKeeperTest, HigherRateThanTheCheckpointsAsksForTheFlag) {
  config_.job.schedule = {.kind = job::ScheduleKind::kCosine, .peak = 1, .total_rounds = 2};
  Save(2);
  config_.job.schedule.total_rounds = 4;
  StartProcess();
  EXPECT_THAT(keeper_->CheckSettings(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("--accept_higher_rate")));
  config_.accepts_higher_rate = true;
  StartProcess();
  EXPECT_OK(keeper_->CheckSettings());
}

TEST_F(CheckpointKeeperTest, AJobThatChoosesItsExchangeGoesOnWithWhatTheCheckpointHas) {
  job::JobSpec asked = config_.job;
  asked.batch_size = 12;
  asked.schedule.total_rounds = 4000;  // in steps
  asked.eval_every = 400;
  config_.job = asked;
  config_.job.mode = job::Mode::kLocalSgd;
  config_.job.local_steps = 40;
  config_.job.push_encoding = params::Encoding::kInt4;
  Save(2);
  config_.job = asked;
  config_.open_settings = job::OpenSettings::All();
  StartProcess();
  coordinator::RestoreChoice choice = Choose();
  ASSERT_TRUE(choice.job.has_value());
  EXPECT_EQ(choice.job->mode, job::Mode::kLocalSgd);
  EXPECT_EQ(choice.job->local_steps, 40);
  EXPECT_EQ(choice.job->push_encoding, params::Encoding::kInt4);
  EXPECT_EQ(choice.job->schedule.total_rounds, 100);
  EXPECT_EQ(choice.job->eval_every, 10);
}

TEST_F(CheckpointKeeperTest, OfWhatACheckpointHasChosenTheJobTakesWhatIsOpen) {
  job::JobSpec asked = config_.job;
  asked.batch_size = 12;
  asked.mode = job::Mode::kLocalSgd;
  asked.push_encoding = params::Encoding::kInt8;
  asked.schedule.total_rounds = 4000;  // in steps
  config_.job = asked;
  config_.job.local_steps = 40;
  config_.job.push_encoding = params::Encoding::kInt4;
  Save(2);
  config_.job = asked;
  config_.open_settings = {.local_steps = true};
  StartProcess();
  const coordinator::RestoreChoice choice = Choose();
  ASSERT_TRUE(choice.job.has_value());
  EXPECT_EQ(choice.job->local_steps, 40);
  EXPECT_EQ(choice.job->push_encoding, params::Encoding::kInt8);
  EXPECT_EQ(choice.job->schedule.total_rounds, 100);
  EXPECT_THAT(choice.note, AllOf(HasSubstr("push_encoding"), HasSubstr("int4")));
}

TEST_F(CheckpointKeeperTest, WhatACheckpointHasChosenDoesNotGoWithAllThatIsGiven) {
  job::JobSpec asked = config_.job;
  asked.mode = job::Mode::kLocalSgd;
  asked.batch_size = 12;
  config_.job = asked;
  config_.job.local_steps = 8;
  Save(2);
  config_.job = asked;
  config_.job.fragments = 10;
  config_.job.local_steps = 10;  // until the job has chosen
  config_.open_settings = {.local_steps = true};
  StartProcess();
  EXPECT_THAT(keeper_->CheckSettings(),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("--fragments=10 exceeds --local_steps=8"),
                             HasSubstr("--resume=never --init_from=" + Path(2)))));
}

TEST_F(CheckpointKeeperTest, InitFromThatCannotBeLookedAtIsNotSaidToBeMissing) {
  config_.init_from = std::string(300, 'x');  // longer than a name may be on any file system
  StartProcess();
  EXPECT_THAT(keeper_->CheckSettings(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(config_.init_from)));
}

TEST_F(CheckpointKeeperTest, RoundsOfOtherLengthThanThoseThatAreDoneAreRefused) {
  job::JobSpec asked = config_.job;
  asked.batch_size = 12;
  config_.job = asked;
  config_.job.mode = job::Mode::kLocalSgd;
  config_.job.local_steps = 8;
  Save(2);
  config_.job = asked;
  config_.job.local_steps = 4;
  config_.open_settings = job::OpenSettings::All();
  config_.open_settings.local_steps = false;
  StartProcess();
  EXPECT_THAT(
      keeper_->CheckSettings(),
      StatusIs(absl::StatusCode::kFailedPrecondition,
               HasSubstr(
                   "a round of the checkpoint has 8 steps, but a round of this job would have 4")));
}

TEST_F(CheckpointKeeperTest, AJobIsNotOverBecauseItsLengthIsInStepsNow) {
  job::JobSpec asked = config_.job;
  asked.batch_size = 12;
  asked.mode = job::Mode::kLocalSgd;
  asked.local_steps = 10;
  asked.schedule.total_rounds = 40;
  config_.job = asked;
  Save(12);
  config_.open_settings = {.push_encoding = true, .pull_encoding = true};
  StartProcess();
  EXPECT_EQ(Choose().job->schedule.total_rounds, 40) << "a round's length is as it was";
  config_.open_settings = {.local_steps = true};
  StartProcess();
  EXPECT_THAT(keeper_->CheckSettings(),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("--rounds=40 counts steps with auto. These steps are 4 rounds, "
                                 "but the checkpoint has already done 12 of 40")));
}

TEST_F(CheckpointKeeperTest,
       AJobThatChoosesItsExchangeDoesNotGoOnWithARunOfAModeThatItDoesNotChoose) {
  const job::JobSpec asked = config_.job;
  config_.job.mode = job::Mode::kAsync;
  Save(2);
  config_.job = asked;
  config_.open_settings = job::OpenSettings::All();
  StartProcess();
  EXPECT_THAT(keeper_->CheckSettings(), StatusIs(absl::StatusCode::kFailedPrecondition,
                                                 HasSubstr("contradicts --mode=async")));
}

TEST_F(CheckpointKeeperTest, ACrashedHolderIsToldOfOnce) {
  config_.crashed_holder = "the server on host h";
  StartProcess();
  EXPECT_THAT(Choose().alarm, HasSubstr("the server on host h ended before"));
  EXPECT_THAT(Choose().alarm, IsEmpty()) << "a rollback to the first weights";
}

TEST_F(CheckpointKeeperTest, LeftOversOfFailedOnesGoWithTheNextThatIsPublished) {
  Save(1);
  const std::string late = Path(2) + ".7-9.tmp";
  ASSERT_OK(disk_->CreateDirectories(late));
  Save(3);
  EXPECT_FALSE(disk_->Exists(late));
}

// CheckpointFaultTest tests with disks that fail. The checkpoints are numbered, and all weights of
// a checkpoint are its number.
class CheckpointFaultTest : public CheckpointKeeperTest {
 protected:
  // Says which changes of the disk fail.
  enum class Fault {
    kOne,      // one change is refused
    kAllFrom,  // one change and all later ones are refused, as if the process were killed
  };
  struct Step {
    std::function<void()> act;
    // Number of the checkpoint that a new process starts from once `act` has succeeded. 0 means
    // that there is no checkpoint.
    int newest;
    // Numbers of the checkpoints that a new process may start from if `act` fails, in addition to
    // those that were possible before `act`.
    std::set<int> meanwhile;
  };

  CheckpointFaultTest() {
    config_.root = root_ = "/data/checkpoints";
    config_.retention.keep = 2;
  }

  void OnRestoreChosen(const absl::StatusOr<coordinator::RestoreChoice>& choice) override {
    CheckpointKeeperTest::OnRestoreChosen(choice);
    outcome_ = choice.status();
  }
  void OnCheckpointPublished(
      const std::string& directory,
      const absl::StatusOr<checkpoints::PublishedCheckpoint>& published) override {
    CheckpointKeeperTest::OnCheckpointPublished(directory, published);
    outcome_ = published.status();
  }

  void StartServer() {
    outcome_ = checkpoint::TryCheckpointFolder(*disk_, root_, 0, 1).status();
    if (!outcome_.ok())
      outcome_ = checkpoint::TryCheckpointFolder(*disk_, root_, 0, 1).status();  // a second time
  }
  std::vector<Step> Steps() {
    const auto publish = [this](int64_t round, int number) {
      return Step{[=, this] { TrySave(round, {}, static_cast<float>(number)); }, number, {number}};
    };
    const auto set_aside = [this](int64_t first_bad, int newest, std::set<int> meanwhile) {
      return Step{[=, this] {
                    keeper_->Do(coordinator::SetAsideTask{Round(first_bad), "are bad"});
                    keeper_->Do(coordinator::ChooseRestoreTask{});
                  },
                  newest, std::move(meanwhile)};
    };
    return {
        {[this] { StartServer(); }, 0, {0}},
        publish(2, 1),
        publish(4, 2),
        publish(4, 3),  // replaces the other checkpoint of round 3
        publish(6, 4),  // and the oldest is removed
        // Renames the checkpoint of round 6, and renames it back.
        {[this] { outcome_ = keeper_->PrepareRollBack(Round(4)).status(); }, 4, {}},
        set_aside(5, 3, {3}),
        publish(6, 5),
        set_aside(5, 3, {3}),  // and what was set aside before is removed
        publish(7, 6),
    };
  }

  // Does the steps on a new disk, of which change number `fault_at` fails, counted from 0. Returns
  // the numbers of the checkpoints that a process may start from afterwards. Returns an empty set
  // if the steps make at most `fault_at` changes.
  std::set<int> Run(const std::vector<Step>& steps, Fault fault, int64_t fault_at) {
    disk_ = std::make_unique<SimulatedFileSystem>();
    bool is_killed = false;
    int64_t num_changes = 0;
    disk_->SetFaultHook([&](FileOperation operation, const std::string&) {
      const bool is_fault = operation != FileOperation::kRead && num_changes++ == fault_at;
      is_killed |= is_fault && fault == Fault::kAllFrom;
      return is_fault || is_killed ? absl::InternalError("fault") : absl::OkStatus();
    });
    StartProcess();
    std::set<int> newest;
    for (const Step& step : steps) {
      outcome_ = absl::InternalError("no answer");
      step.act();
      if (outcome_.ok()) {
        newest = {step.newest};
      } else {
        newest.insert(step.meanwhile.begin(), step.meanwhile.end());
      }
      if (is_killed) break;
    }
    disk_->SetFaultHook(nullptr);
    return num_changes > fault_at ? newest : std::set<int>();
  }

  // Returns the number of the checkpoint that a new process starts from.
  int NewestNumber() {
    StartProcess();
    const coordinator::RestoreChoice choice = Choose();
    const std::string path = SourceOf(choice);
    if (path.empty()) return 0;
    EXPECT_THAT(choice.alarm, IsEmpty());
    const auto reader = checkpoint::CheckpointReader::Open(*disk_, path);
    EXPECT_OK(reader);
    if (!reader.ok()) return -1;
    const auto bucket = (*reader)->ReadBucket({0, layout_.num_elements()}, {});
    EXPECT_OK(bucket);
    if (!bucket.ok()) return -1;
    const absl::Span<const float> weights = bucket->weights->span();
    EXPECT_THAT(weights, Each(weights[0]));
    return static_cast<int>(weights[0]);
  }

  // Expects that every checkpoint with a final name is complete, because programs that copy
  // checkpoints assume it. This must hold even while a server removes checkpoints.
  void ExpectWholeUnderTheirNames() {
    const auto entries = checkpoints::ListCheckpoints(*disk_, root_);
    ASSERT_OK(entries);
    for (const checkpoints::CheckpointEntry& entry : *entries) {
      if (entry.suffix == checkpoints::kTemporarySuffix) continue;
      EXPECT_OK(checkpoints::VerifyCheckpoint(*disk_, entry.path));
    }
  }

  std::string Names() const {
    return absl::StrJoin(disk_->List(root_).value_or(std::vector<std::string>()), " ");
  }

  // Lets each change of the disk fail in turn. After each fault the process ends, and the power
  // fails, in `num_crashes` different ways. With Fault::kAllFrom, also tries each fault without a
  // power failure.
  void TryEvery(Fault fault, uint64_t num_crashes) {
    const std::vector<Step> steps = Steps();
    int64_t fault_at = 0;
    for (bool is_over = false; !is_over && !HasFailure(); ++fault_at) {
      for (uint64_t crash = fault == Fault::kAllFrom ? 0 : 1; crash <= num_crashes; ++crash) {
        const std::set<int> expected = Run(steps, fault, fault_at);
        is_over = expected.empty();
        if (is_over) break;
        std::mt19937_64 chance(static_cast<uint64_t>(fault_at) << 32 | crash);
        if (crash > 0) disk_->Crash(chance);
        SCOPED_TRACE(absl::StrCat("fault at change ", fault_at, ", crash ", crash, ": ", Names()));
        ExpectWholeUnderTheirNames();
        EXPECT_THAT(expected, Contains(NewestNumber()));
        for (int64_t round : {20, 21}) Save(round, {}, static_cast<float>(round));
        EXPECT_EQ(NewestNumber(), 21);
        std::vector<std::string> names = disk_->List(root_).value_or(std::vector<std::string>());
        std::erase_if(names, [](const std::string& name) {
          return checkpoints::IsAbandonedName(name) || absl::StartsWith(name, ".tried");
        });
        EXPECT_THAT(names, ElementsAre("round-00000020", "round-00000021"));
      }
    }
    EXPECT_GT(fault_at, 80) << "hardly anything is written";
  }

  absl::Status outcome_;
};

TEST_F(CheckpointFaultTest, WhateverChangeIsTheLastNothingPublishedIsLost) {
  TryEvery(Fault::kAllFrom, /*num_crashes=*/3);
}

TEST_F(CheckpointFaultTest, WhateverChangeFailsNothingPublishedIsLost) {
  TryEvery(Fault::kOne, /*num_crashes=*/1);
}

}  // namespace
}  // namespace lodestar::host
