// SPDX-License-Identifier: Apache-2.0

#include "server/host/coordinator_journal.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/testing/queue_executor.h"
#include "common/testing/simulated_clock.h"
#include "common/testing/simulated_file_system.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/durability/journal/journal_segments.h"

namespace lodestar::host {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

constexpr char kFolder[] = "/journal";
constexpr int64_t kSegmentBytes = 100;

class CoordinatorJournalTest : public testing::Test {
 protected:
  CoordinatorJournalTest() { EXPECT_OK(disk_.CreateDirectories(kFolder)); }

  // Starts another process, which finds the journal of the process before.
  void Begin() {
    journal_.reset();
    auto contents = CoordinatorJournal::Read(disk_, kFolder);
    ASSERT_OK(contents);
    auto journal = CoordinatorJournal::Create(
        {.folder = kFolder, .end = std::move(contents->end), .defers_writing = true},
        {.file_system = &disk_, .clock = &clock_, .executor = &executor_}, kSegmentBytes);
    ASSERT_OK(journal);
    journal_ = *std::move(journal);
  }
  void Keep(std::string record, bool is_whole) {
    journal_->Keep(std::move(record), is_whole, [] {});
    executor_.RunAll();
  }
  std::vector<std::string> Records() {
    const auto contents = CoordinatorJournal::Read(disk_, kFolder);
    EXPECT_OK(contents);
    return contents.ok() ? contents->records : std::vector<std::string>();
  }
  std::vector<uint64_t> Segments() {
    return journal::ListJournalSegments(disk_, kFolder).value_or(std::vector<uint64_t>());
  }

  SimulatedFileSystem disk_;
  SimulatedClock clock_;
  QueueExecutor executor_;
  std::unique_ptr<CoordinatorJournal> journal_;
};

TEST_F(CoordinatorJournalTest, FirstRecordOfEachProcessIsWholeAndReplacesThoseBefore) {
  for (int process = 0; process < 5; ++process) {
    Begin();
    ASSERT_TRUE(journal_->wants_whole());
    Keep("whole", /*is_whole=*/true);
    EXPECT_FALSE(journal_->wants_whole());
    Keep("change", /*is_whole=*/false);
    // From the second process on, the first record is one of the process before. It is written
    // again, because it may not be on disk.
    const std::vector<std::string> records = Records();
    ASSERT_THAT(records, SizeIs(process == 0 ? 2 : 3));
    EXPECT_EQ(records.end()[-2], "whole");
    EXPECT_EQ(records.end()[-1], "change");
    EXPECT_THAT(Segments(), SizeIs(1));
  }
}

TEST_F(CoordinatorJournalTest, SegmentsGrowWithWholeRecordsAndAreRemoved) {
  Begin();
  const std::string whole(100, 'w');
  const std::string change(50, 'c');
  Keep(whole, /*is_whole=*/true);
  int64_t num_changes = 0;
  for (; !journal_->wants_whole(); ++num_changes) Keep(change, /*is_whole=*/false);
  EXPECT_EQ(num_changes, 7);  // the segment then has more than four times the whole record
  EXPECT_THAT(Segments(), SizeIs(1));
  Keep("next", /*is_whole=*/true);
  EXPECT_THAT(Records(), ElementsAre("next"));
  EXPECT_THAT(Segments(), SizeIs(1));
}

}  // namespace
}  // namespace lodestar::host
