#include "server/fleet/checkpoint_keeper.h"

#include <memory>
#include <string>
#include <utility>
#include <variant>

#include "absl/strings/str_format.h"
#include "common/checkpoint_manifest.h"
#include "common/executor.h"
#include "common/layout.h"
#include "common/model_spec_json.h"
#include "common/testing/simulated_file_system.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/checkpoint/shard_files.h"
#include "server/shard/page.h"
#include "server/shard/shard_state.h"

namespace lodestar {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class CheckpointKeeperTest : public testing::Test, public CheckpointReports {
 protected:
  CheckpointKeeperTest() {
    config_.root = root_;
    config_.job.model = {"small-mlp", MlpSpec{{3, 2}}};
    config_.job.optimizer.kind = OptimizerKind::kSgd;
    config_.job.schedule.total_rounds = 100;
    layout_ = *BuildLayout(config_.job.model);
    StartProcess();
  }

  void OnRestoreChosen(const absl::StatusOr<RestoreChoice>& choice) override { choice_ = choice; }
  void OnCheckpointPublished(const std::string&,
                             const absl::StatusOr<PublishedCheckpoint>& published) override {
    published_ = published;
  }

  // With the config as it is now.
  void StartProcess() {
    keeper_ = std::make_unique<CheckpointKeeper>(
        config_,
        CheckpointKeeper::Deps{.executor = &executor_, .file_system = &disk_, .reports = this});
  }
  std::string Path(int64_t round) const { return absl::StrFormat("%s/round-%08d", root_, round); }

  // The outcome is in published_.
  void TrySave(int64_t round, const LedgerState& ledger = {}) {
    CheckpointRecord record;
    record.directory = Path(round) + ".7-1.tmp";
    record.round = Round(round);
    record.state.ledger = ledger;
    ASSERT_OK(disk_.CreateDirectories(record.directory));
    ShardState state;
    state.range = {0, layout_.num_elements()};
    BucketState& bucket = state.buckets.emplace_back();
    bucket.range = state.range;
    bucket.version = Version(round);
    bucket.weights = Page::Create(state.range.size());
    const auto part = WriteShardFiles(
        disk_, {record.directory, 0, 1, ModelSpecToJson(config_.job.model)}, layout_, state);
    ASSERT_OK(part);
    record.manifest_parts = {FormatShardManifest(*part)};
    record.layout = layout_;
    keeper_->Do(std::move(record));
  }
  void Save(int64_t round, const LedgerState& ledger = {}) {
    TrySave(round, ledger);
    ASSERT_OK(published_);
    EXPECT_THAT(published_->alarm, IsEmpty());
  }
  RestoreChoice Choose() {
    keeper_->Do(ChooseRestoreTask{});
    EXPECT_OK(choice_);
    return choice_.value_or(RestoreChoice());
  }
  // Empty: the first weights.
  static std::string SourceOf(const RestoreChoice& choice) {
    const auto* const checkpoint = std::get_if<CheckpointSource>(&choice.source);
    return checkpoint == nullptr ? "" : checkpoint->directory;
  }

  SimulatedFileSystem disk_;
  InlineExecutor executor_;
  const std::string root_ = "/checkpoints";
  CheckpointKeeper::Config config_;
  Layout layout_;
  absl::StatusOr<RestoreChoice> choice_;
  absl::StatusOr<PublishedCheckpoint> published_;
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
  EXPECT_FALSE(disk_.Exists(Path(4)));
}

TEST_F(CheckpointKeeperTest, NoProcessStartsFromWhatWasSetAside) {
  Save(2);
  Save(4);
  keeper_->Do(SetAsideTask{Round(4)});
  EXPECT_EQ(SourceOf(Choose()), Path(2));
  StartProcess();
  EXPECT_EQ(SourceOf(Choose()), Path(2));
  EXPECT_TRUE(disk_.Exists(Path(4) + ".abandoned"));
  keeper_->Do(SetAsideTask{Round(2)});
  const RestoreChoice choice = Choose();
  EXPECT_EQ(SourceOf(choice), "");
  EXPECT_THAT(choice.alarm, AllOf(HasSubstr("begins anew at round 0"),
                                  HasSubstr("--resume=" + Path(2) + ".abandoned")));
}

TEST_F(CheckpointKeeperTest, RunThatHasSavedNothingSpeaksAgainstNoCheckpoint) {
  Save(2);
  config_.resume = false;
  StartProcess();
  keeper_->Do(SetAsideTask{Round(1)});
  EXPECT_THAT(Choose().alarm, HasSubstr("the newest is " + Path(2)));
  EXPECT_TRUE(disk_.Exists(Path(2)));
}

TEST_F(CheckpointKeeperTest, PathThatIsResumedFromStaysAndWhatIsLaterIsNamed) {
  config_.keep = 1;
  StartProcess();
  Save(1);
  config_.resume_path = Path(1);
  StartProcess();
  EXPECT_THAT(Choose().alarm, IsEmpty());
  Save(2);
  Save(3);
  EXPECT_FALSE(disk_.Exists(Path(2)));
  StartProcess();
  const RestoreChoice again = Choose();
  EXPECT_EQ(SourceOf(again), Path(1));
  EXPECT_THAT(again.alarm,
              AllOf(HasSubstr("--resume=" + Path(1)), HasSubstr("the newest is " + Path(3)),
                    HasSubstr("--resume=latest")));
}

TEST_F(CheckpointKeeperTest, WhatRollbacksMadeOfTheLearningRateIsShown) {
  LedgerState ledger;
  ledger.rollbacks = 2;
  ledger.learning_rate_scale = 0.25;
  Save(2, ledger);
  EXPECT_THAT(Choose().note,
              AllOf(HasSubstr("resumes from path="), HasSubstr("times 0.25, after 2 rollbacks")));
  config_.job.schedule.peak /= 2;
  config_.job.schedule.total_rounds = 2;
  StartProcess();
  const RestoreChoice choice = Choose();
  EXPECT_THAT(choice.note, HasSubstr("takes the weights of path="))
      << "there is nothing to go on with";
  ASSERT_EQ(choice.resumed->changes.size(), 2);
  EXPECT_EQ(choice.resumed->changes[1].flag, "learning_rate");
  EXPECT_EQ(choice.resumed->changes[1].effect, "from round 2 on, times 0.25, after 2 rollbacks");
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
  ASSERT_OK(disk_.CreateDirectories(late));
  Save(3);
  EXPECT_FALSE(disk_.Exists(late));
}

}  // namespace
}  // namespace lodestar
