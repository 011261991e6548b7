// SPDX-License-Identifier: Apache-2.0

#include "server/host/journal_base.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <variant>

#include "absl/strings/str_cat.h"
#include "common/checkpoints/checkpoint_manifest.h"
#include "common/testing/checkpoint_files.h"
#include "common/testing/simulated_file_system.h"
#include "common/testing/status_matchers.h"

namespace lodestar::host {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kName[] = "round-00000050";

class JournalBaseTest : public testing::Test {
 protected:
  void Write(const std::string& folder, const std::string& bytes) {
    WriteCheckpoint(disk_, absl::StrCat(folder, "/", kName), 50, bytes);
  }
  // Returns the base of a journal of the run in `folder`. The checkpoint must exist.
  JournalBase BaseIn(const std::string& folder) {
    JournalBase base;
    base.source = shards::CheckpointSource{absl::StrCat(folder, "/", kName)};
    base.run_folder = folder;
    base.checksum = ChecksumOf(disk_, base.source);
    EXPECT_TRUE(base.checksum.has_value());
    return base;
  }
  absl::StatusOr<std::string> Find(const JournalBase& base, const RunFolders& folders) {
    absl::StatusOr<shards::WeightsSource> found = FindBase(disk_, base, folders);
    if (!found.ok()) return found.status();
    return std::get<shards::CheckpointSource>(*found).directory;
  }

  SimulatedFileSystem disk_;
};

TEST_F(JournalBaseTest, FindsTheCheckpointWhereTheJournalSays) {
  Write("/a", "weights!");
  const JournalBase base = BaseIn("/a");
  EXPECT_THAT(Find(base, {.checkpoint_dir = "/a", .journal_dir = "/a/journal"}),
              IsOkAndHolds("/a/round-00000050"));
  EXPECT_THAT(Find(base, {}), IsOkAndHolds("/a/round-00000050"));
}

// The process ended while it tried to rename the checkpoint for a rollback.
TEST_F(JournalBaseTest, FindsTheCheckpointUnderItsOtherName) {
  Write("/a", "weights!");
  JournalBase base = BaseIn("/a");
  const RunFolders folders = {.checkpoint_dir = "/a", .journal_dir = "/a/journal"};
  ASSERT_OK(disk_.Rename("/a/round-00000050", "/a/round-00000050.old"));
  EXPECT_THAT(Find(base, folders), IsOkAndHolds("/a/round-00000050.old"));
  Write("/a", "another?");
  EXPECT_THAT(Find(base, folders), IsOkAndHolds("/a/round-00000050.old"));
  Write("/a", "weights!");
  EXPECT_THAT(Find(base, folders), IsOkAndHolds("/a/round-00000050"));
  base.checksum.reset();
  ASSERT_OK(disk_.RemoveAll("/a/round-00000050"));
  EXPECT_THAT(Find(base, folders), StatusIs(absl::StatusCode::kNotFound)) << "it may be another";
}

TEST_F(JournalBaseTest, FindsTheCheckpointOfAMovedRun) {
  Write("/a", "weights!");
  JournalBase base = BaseIn("/a");
  ASSERT_OK(disk_.RemoveAll("/a"));
  Write("/b", "weights!");
  const RunFolders moved = {.checkpoint_dir = "/b", .journal_dir = "/b/journal"};
  EXPECT_THAT(Find(base, moved), IsOkAndHolds("/b/round-00000050"));
  base.checksum.reset();
  EXPECT_THAT(Find(base, moved), IsOkAndHolds("/b/round-00000050")) << "an earlier release's";
}

TEST_F(JournalBaseTest, FindsTheCheckpointOfAMovedFallbackFolder) {
  Write("/spare", "weights!");
  JournalBase base = BaseIn("/spare");
  base.run_folder = "/a";
  ASSERT_OK(disk_.RemoveAll("/spare"));
  Write("/spare2", "weights!");
  EXPECT_THAT(Find(base, {.checkpoint_dir = "/b", .fallback_dir = "/spare2"}),
              IsOkAndHolds("/spare2/round-00000050"));
}

TEST_F(JournalBaseTest, NeverReadsTheFolderThatARunWasCopiedFrom) {
  Write("/a", "weights!");
  const JournalBase base = BaseIn("/a");
  Write("/b", "weights!");
  const RunFolders copied = {.checkpoint_dir = "/b", .journal_dir = "/b/journal"};
  EXPECT_THAT(Find(base, copied), IsOkAndHolds("/b/round-00000050"));
  // A copied run that lacks the checkpoint is incomplete, even if the folder that it was copied
  // from has it.
  ASSERT_OK(disk_.RemoveAll("/b"));
  const absl::StatusOr<std::string> found = Find(base, copied);
  EXPECT_THAT(found, StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_THAT(found.status().message(),
              AllOf(HasSubstr("/a/round-00000050"), HasSubstr("/b/round-00000050")));
  EXPECT_THAT(found.status().message(), Not(HasSubstr("journal away")));
}

// The folder of the run is empty, perhaps because its disk is not mounted. So the journal must not
// be given up, although the fallback folder has a checkpoint.
TEST_F(JournalBaseTest, AnEmptyRunFolderIsAnOperatorsMatterWhateverTheFallbackHas) {
  Write("/a", "weights!");
  const JournalBase base = BaseIn("/a");
  ASSERT_OK(disk_.RemoveAll("/a"));
  WriteCheckpoint(disk_, "/spare/round-00000007", 7, "older!!!");
  EXPECT_THAT(Find(base, {.checkpoint_dir = "/a", .fallback_dir = "/spare"}),
              StatusIs(absl::StatusCode::kUnavailable));
  WriteCheckpoint(disk_, "/a/round-00000007", 7, "older!!!");
  EXPECT_THAT(Find(base, {.checkpoint_dir = "/a", .fallback_dir = "/spare"}),
              StatusIs(absl::StatusCode::kNotFound));
}

// --checkpoint_dir names another folder than the journal, which is on a disk of its own.
TEST_F(JournalBaseTest, RefusesJournalOfAnotherRun) {
  Write("/a", "weights!");
  JournalBase base = BaseIn("/a");
  const RunFolders other = {.checkpoint_dir = "/b", .journal_dir = "/fast"};
  const auto is_refused = StatusIs(absl::StatusCode::kFailedPrecondition,
                                   AllOf(HasSubstr("/a"), HasSubstr("/b"), HasSubstr("/fast")));
  EXPECT_THAT(IsJournalOfRun(disk_, base, other), is_refused);
  WriteCheckpoint(disk_, "/b/round-00000007", 7, "of /b...");
  EXPECT_THAT(IsJournalOfRun(disk_, base, other), is_refused);
  Write("/b", "another?");
  EXPECT_THAT(IsJournalOfRun(disk_, base, other), is_refused);
  Write("/b", "weights!");
  EXPECT_THAT(IsJournalOfRun(disk_, base, other), is_refused) << "equal beginnings";
  base.source = shards::InitialSource{};
  EXPECT_THAT(IsJournalOfRun(disk_, base, other), is_refused) << "before the first checkpoint";
}

TEST_F(JournalBaseTest, TakesJournalOfThisRun) {
  Write("/a", "weights!");
  JournalBase base = BaseIn("/a");
  const auto is_of_run = [&](const RunFolders& folders) {
    return IsJournalOfRun(disk_, base, folders).value_or(false);
  };
  EXPECT_TRUE(is_of_run({.checkpoint_dir = "/a", .journal_dir = "/fast"}));
  EXPECT_TRUE(is_of_run({.checkpoint_dir = "", .journal_dir = "/fast"})) << "not known";
  EXPECT_TRUE(is_of_run({.checkpoint_dir = "/b", .journal_dir = "/b/journal"})) << "a copied run";
  Write("/b", "weights!");
  ASSERT_OK(disk_.RemoveAll("/a/round-00000050"));
  EXPECT_TRUE(is_of_run({.checkpoint_dir = "/b", .journal_dir = "/fast"})) << "a moved checkpoint";
  ASSERT_OK(disk_.RemoveAll("/b"));
  ASSERT_OK(disk_.RemoveAll("/a"));
  EXPECT_TRUE(is_of_run({.checkpoint_dir = "/b", .journal_dir = "/fast"})) << "a moved run";
}

TEST_F(JournalBaseTest, KnowsThatAnotherRunHasEndedInOrder) {
  WriteCheckpoint(disk_, "/a/round-00000050", 50, "weights!",
                  {.journal_id = 7, .record = 3, .shard_records = {}});
  const JournalBase base = BaseIn("/a");
  ASSERT_OK(checkpoints::MarkComplete(disk_, "/a/round-00000050"));
  EXPECT_THAT(IsJournalOfRun(disk_, base, {.checkpoint_dir = "/b", .journal_dir = "/fast"}),
              IsOkAndHolds(false));
}

TEST_F(JournalBaseTest, TakesNoCheckpointOfTheSameNameWithOtherContents) {
  Write("/a", "weights!");
  const JournalBase base = BaseIn("/a");
  Write("/b", "another?");
  EXPECT_THAT(Find(base, {.checkpoint_dir = "/b", .journal_dir = "/b/journal"}),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("/b/round-00000050")));
}

TEST_F(JournalBaseTest, ADamagedCheckpointIsAnError) {
  Write("/a", "weights!");
  const JournalBase base = BaseIn("/a");
  WriteFile(disk_, "/a/round-00000050/weights", "weightz!");
  EXPECT_THAT(Find(base, {.checkpoint_dir = "/a"}), StatusIs(absl::StatusCode::kDataLoss));
}

TEST_F(JournalBaseTest, FindsWeightsInsideOfAMovedRun) {
  for (const char* folder : {"/a", "/b", "/models"}) ASSERT_OK(disk_.CreateDirectories(folder));
  WriteFile(disk_, "/b/first.safetensors", "weights!");
  WriteFile(disk_, "/models/other.safetensors", "weights!");
  JournalBase base;
  base.run_folder = "/a";
  const RunFolders moved = {.checkpoint_dir = "/b", .journal_dir = "/b/journal"};
  const auto find = [&](const std::string& path) -> absl::StatusOr<std::string> {
    base.source = shards::SafetensorsSource{path};
    absl::StatusOr<shards::WeightsSource> found = FindBase(disk_, base, moved);
    if (!found.ok()) return found.status();
    return std::get<shards::SafetensorsSource>(*found).path;
  };
  EXPECT_THAT(find("/a/first.safetensors"), IsOkAndHolds("/b/first.safetensors"));
  EXPECT_THAT(find("/models/other.safetensors"), IsOkAndHolds("/models/other.safetensors"));
  WriteFile(disk_, "/a/old.safetensors", "weights!");
  EXPECT_THAT(find("/a/old.safetensors"), StatusIs(absl::StatusCode::kUnavailable));
}

TEST(PathAfterMoveTest, MovesWhatLiesInside) {
  EXPECT_EQ(PathAfterMove("/a/round-1", "/a", "/b"), "/b/round-1");
  EXPECT_EQ(PathAfterMove("/ab/round-1", "/a", "/b"), "/ab/round-1");
  EXPECT_EQ(PathAfterMove("/a/round-1", "", "/b"), "/a/round-1");
  EXPECT_EQ(PathAfterMove("/a/round-1", "/a", ""), "/a/round-1");
}

}  // namespace
}  // namespace lodestar::host
