// SPDX-License-Identifier: Apache-2.0

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/logging/log_tail.h"
#include "common/logging/logging.h"
#include "common/runtime/executor.h"
#include "common/testing/queue_executor.h"
#include "common/testing/simulated_clock.h"
#include "common/testing/simulated_file_system.h"
#include "common/testing/status_matchers.h"
#include "server/durability/journal/journal_reader.h"
#include "server/durability/journal/journal_record.h"
#include "server/durability/journal/journal_segments.h"
#include "server/durability/journal/journal_writer.h"

namespace lodestar::journal {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;
using ::testing::UnorderedElementsAreArray;

constexpr char kFolder[] = "/journal";

// Returns a payload. Some payloads are too large for the writer to copy them, and some sizes are
// not multiples of 8.
std::string PayloadOf(uint64_t number) {
  return std::string(number % 5 == 0 ? 100'003 : 7 * number, static_cast<char>('a' + number % 26));
}

class JournalTest : public ::testing::Test {
 protected:
  JournalTest() {
    EXPECT_OK(disk_.CreateDirectories(kFolder));
    EXPECT_OK(disk_.SyncDirectory("/"));
  }

  absl::StatusOr<JournalEnd> Read() {
    read_.clear();
    return ReadJournal(disk_, kFolder, [this](const JournalRecord& record) {
      read_.emplace_back(record.text);
      const std::string payload(reinterpret_cast<const char*>(record.payload.data()),
                                record.payload.size());
      EXPECT_EQ(payload, PayloadOf(record.sequence));
      return absl::OkStatus();
    });
  }

  // Opens the journal in the same way as a server that starts.
  void Open() {
    const absl::StatusOr<JournalEnd> end = Read();
    ASSERT_OK(end.status());
    absl::StatusOr<std::unique_ptr<JournalWriter>> writer = JournalWriter::Create(
        {.folder = kFolder, .end = *end},
        {.file_system = &disk_,
         .executor = &executor_,
         .on_trouble = [this](const absl::Status& status) { troubles_.push_back(status); }});
    ASSERT_OK(writer.status());
    writer_ = *std::move(writer);
    next_ = end->last_sequence + 1;
  }

  void Append(bool begins_segment = false) {
    const uint64_t number = next_++;
    const auto payload = std::make_shared<const std::string>(PayloadOf(number));
    JournalWriter::Record record = {
        .text = absl::StrCat("record ", number),
        .payload = {reinterpret_cast<const std::byte*>(payload->data()), payload->size()},
        .owner = payload};
    const auto durable = [this, number] { durable_.push_back(number); };
    const uint64_t given = begins_segment ? writer_->BeginSegment(std::move(record), durable)
                                          : writer_->Append(std::move(record), durable);
    EXPECT_EQ(given, number);
  }

  std::string ContentsOf(uint64_t segment) {
    return *disk_.ReadWholeFile(JournalSegmentPath(kFolder, segment), 1 << 30);
  }
  void Replace(uint64_t segment, absl::string_view contents) {
    const auto file = disk_.Create(JournalSegmentPath(kFolder, segment),
                                   storage::FileSystem::IfExists::kTruncate);
    ASSERT_OK(file.status());
    ASSERT_OK((*file)->Append(contents));
    ASSERT_OK((*file)->Close());
  }

  SimulatedFileSystem disk_;
  QueueExecutor executor_;
  std::unique_ptr<JournalWriter> writer_;
  uint64_t next_ = 0;
  std::vector<uint64_t> durable_;
  std::vector<absl::Status> troubles_;
  std::vector<std::string> read_;
};

TEST_F(JournalTest, NoFolderAndNoSegmentsAreAnEmptyJournal) {
  const absl::StatusOr<JournalEnd> nowhere = ReadJournal(
      disk_, "/nowhere", [](const JournalRecord&) { return absl::InternalError("a record"); });
  ASSERT_OK(nowhere.status());
  EXPECT_EQ(nowhere->last_sequence, 0);
  EXPECT_OK(Read().status());
  EXPECT_THAT(read_, IsEmpty());
}

TEST_F(JournalTest, RecordsAreDurableTogetherAndReadInOrderByTheNextProcesses) {
  for (int process = 0; process < 3; ++process) {
    Open();
    durable_.clear();
    Append();
    Append();
    EXPECT_THAT(durable_, IsEmpty());
    int num_syncs = 0;
    disk_.SetFaultHook([&](FileOperation operation, const std::string&) {
      num_syncs += operation == FileOperation::kSync;
      return absl::OkStatus();
    });
    executor_.RunAll();
    disk_.SetFaultHook(nullptr);
    EXPECT_EQ(num_syncs, 1);
    EXPECT_THAT(durable_, ElementsAre(2 * process + 1, 2 * process + 2));
  }
  const absl::StatusOr<JournalEnd> end = Read();
  ASSERT_OK(end.status());
  EXPECT_EQ(end->last_sequence, 6);
  // Each later process first writes again, into a new segment, the records that may not be on disk.
  EXPECT_THAT(end->segments,
              ElementsAre(JournalSegment{1, 1}, JournalSegment{2, 1}, JournalSegment{3, 3}));
  EXPECT_EQ(end->torn, "");
  EXPECT_THAT(read_,
              ElementsAre("record 1", "record 2", "record 3", "record 4", "record 5", "record 6"));
}

TEST_F(JournalTest, SegmentsThatNobodyNeedsAreRemoved) {
  Open();
  Append();
  Append();
  Append(/*begins_segment=*/true);
  Append();
  executor_.RunAll();
  writer_->RemoveBefore(2);
  executor_.RunAll();
  EXPECT_TRUE(disk_.Exists(JournalSegmentPath(kFolder, 1)));
  writer_->RemoveBefore(3);
  executor_.RunAll();
  EXPECT_FALSE(disk_.Exists(JournalSegmentPath(kFolder, 1)));
  ASSERT_OK(Read().status());
  EXPECT_THAT(read_, ElementsAre("record 3", "record 4"));
}

TEST_F(JournalTest, SegmentThatCannotBeRemovedIsLoggedOnceAndRemovedLater) {
  Open();
  Append();
  Append(/*begins_segment=*/true);
  const std::string path = JournalSegmentPath(kFolder, 1);
  disk_.SetFaultHook([&path](FileOperation operation, const std::string& changed) {
    return operation == FileOperation::kRemove && changed == path
               ? absl::PermissionDeniedError(absl::StrCat("cannot remove ", changed))
               : absl::OkStatus();
  });
  logging::LogTail log;
  logging::KeepLog(&log);
  for (int i = 0; i < 3; ++i) {
    writer_->RemoveBefore(2);
    executor_.RunAll();
  }
  logging::KeepLog(nullptr);
  const std::vector<logging::LogLineRecord> lines = log.Read({}).lines;
  ASSERT_EQ(lines.size(), 1);
  EXPECT_THAT(lines[0].text, HasSubstr(path));
  EXPECT_THAT(troubles_, IsEmpty());
  disk_.SetFaultHook(nullptr);
  writer_->RemoveBefore(2);
  executor_.RunAll();
  EXPECT_FALSE(disk_.Exists(path));
}

// After a crash, the file may end at any byte that was not synced.
TEST_F(JournalTest, AnEndThatIsTornAnywhereIsLeftOut) {
  Open();
  Append();
  executor_.RunAll();
  const size_t synced = ContentsOf(1).size();
  Append();
  Append();
  executor_.RunAll();
  ASSERT_OK(disk_.RemoveAll(JournalWatermarkPath(kFolder)));
  const std::string whole = ContentsOf(1);
  size_t num_read = 1;
  for (size_t size = synced; size < whole.size(); ++size) {
    Replace(1, whole.substr(0, size));
    const absl::StatusOr<JournalEnd> end = Read();
    ASSERT_OK(end.status()) << size;
    EXPECT_EQ(end->torn.empty(), size == synced || read_.size() > num_read) << size;
    ASSERT_GE(read_.size(), num_read) << size;
    num_read = read_.size();
  }
  EXPECT_EQ(num_read, 2);
}

TEST_F(JournalTest, WhatWasDurableOnceAndIsNotSoundIsAnError) {
  Open();
  for (int batch = 0; batch < 3; ++batch) {
    Append();
    Append();
    executor_.RunAll();
  }
  const std::string whole = ContentsOf(1);
  // A changed bit in the padding has no effect. Any other changed bit is found.
  const size_t last_batch = whole.rfind("record 5") - kJournalHeadBytes;
  const size_t in_payload = whole.find("record 3") + 12;
  for (const size_t at : {size_t{0}, size_t{9}, size_t{17}, size_t{33}, size_t{50}, in_payload}) {
    std::string damaged = whole;
    damaged[at] ^= 0x10;
    Replace(1, damaged);
    EXPECT_THAT(Read(), StatusIs(absl::StatusCode::kDataLoss,
                                 HasSubstr("/journal/00000001.journal at byte ")))
        << at;
  }
  ASSERT_OK(disk_.RemoveAll(JournalWatermarkPath(kFolder)));
  std::string zeros = whole;
  std::fill(zeros.begin() + static_cast<int64_t>(in_payload), zeros.end(), '\0');
  Replace(1, zeros);
  ASSERT_OK(Read().status()) << "nothing that is left tells of more";
  EXPECT_THAT(read_, SizeIs(2));
  std::string flipped = whole;
  flipped[last_batch + 20] ^= 1;
  Replace(1, flipped);
  ASSERT_OK(Read().status());
  EXPECT_THAT(read_, SizeIs(4));
}

// A disk repair may remove the last records. No later record shows that they are missing.
TEST_F(JournalTest, AnEndThatIsCutOffIsAnErrorOnceAWatermarkTellsOfIt) {
  Open();
  Append();
  Append();
  executor_.RunAll();
  const std::string whole = ContentsOf(1);
  Replace(1, whole.substr(0, whole.rfind("record 2") - kJournalHeadBytes));
  EXPECT_THAT(Read(),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("record 2 was complete on disk")));
  ASSERT_OK(SetJournalAside(disk_, kFolder));
  ASSERT_OK(Read().status());
}

TEST_F(JournalTest, ADiskThatIsFullForLongGetsNoMoreFiles) {
  Open();
  Append();
  executor_.RunAll();
  disk_.SetFaultHook([](FileOperation operation, const std::string&) {
    return operation == FileOperation::kAppend ? absl::ResourceExhaustedError("full")
                                               : absl::OkStatus();
  });
  Append();
  for (int tick = 0; tick < 5; ++tick) {
    executor_.RunAll();
    writer_->Tick();
  }
  EXPECT_THAT(disk_.List(kFolder), IsOkAndHolds(SizeIs(2))) << "the segment and the watermark";
  disk_.SetFaultHook(nullptr);
  executor_.RunAll();
  EXPECT_THAT(durable_, ElementsAre(1, 2));
  ASSERT_OK(Read().status());
  EXPECT_THAT(read_, SizeIs(2));
}

TEST_F(JournalTest, SegmentsThatAreRemovedUnderTheWriterAreWrittenAgainBeforeAnythingIsDurable) {
  Open();
  Append();
  executor_.RunAll();
  Open();  // the next process has segments that it has not written
  durable_.clear();
  Append(/*begins_segment=*/true);
  executor_.RunAll();
  const absl::StatusOr<std::vector<uint64_t>> segments = ListJournalSegments(disk_, kFolder);
  ASSERT_OK(segments.status());
  ASSERT_THAT(*segments, SizeIs(3));
  for (const uint64_t segment : *segments) {
    ASSERT_OK(disk_.RemoveAll(JournalSegmentPath(kFolder, segment)));
  }
  Append();
  executor_.RunAll();
  EXPECT_THAT(durable_, ElementsAre(2));
  EXPECT_THAT(writer_->trouble(),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr(JournalSegmentPath(kFolder, 1))));
  writer_->Tick();
  executor_.RunAll();
  EXPECT_OK(writer_->trouble());
  EXPECT_THAT(durable_, ElementsAre(2, 3));
  ASSERT_THAT(troubles_, SizeIs(2));
  EXPECT_OK(troubles_.back());
  ASSERT_OK(Read().status());
  EXPECT_THAT(read_, ElementsAre("record 1", "record 2", "record 3"));
}

TEST_F(JournalTest, ASegmentThatIsRemovedFromAnIdleJournalIsWrittenAgain) {
  Open();
  Append();
  executor_.RunAll();
  ASSERT_OK(disk_.RemoveAll(JournalSegmentPath(kFolder, 1)));
  Replace(1, "another file");
  for (int tick = 0; tick < 2; ++tick) {
    writer_->Tick();
    executor_.RunAll();
  }
  EXPECT_THAT(troubles_, SizeIs(2));
  ASSERT_OK(Read().status());
  EXPECT_THAT(read_, ElementsAre("record 1"));
}

TEST_F(JournalTest, AJournalThatIsBroughtBackBeforeTheFirstRecordStaysAsItIs) {
  Open();
  Append();
  executor_.RunAll();
  Open();
  ASSERT_OK(disk_.RemoveAll(JournalSegmentPath(kFolder, 1)));
  for (int tick = 0; tick < 2; ++tick) {
    writer_->Tick();
    executor_.RunAll();
  }
  EXPECT_FALSE(disk_.Exists(JournalSegmentPath(kFolder, 1)));
  EXPECT_THAT(troubles_, IsEmpty());
}

TEST_F(JournalTest, NoSegmentIsWrittenAgainInAFolderThatCannotBeReclaimed) {
  absl::Status reclaimed = absl::AlreadyExistsError("held by another server");
  const auto writer = JournalWriter::Create(
      {.folder = kFolder, .end = {}},
      {.file_system = &disk_, .executor = &executor_, .reclaim = [&] { return reclaimed; }});
  ASSERT_OK(writer.status());
  (*writer)->Append({.text = "x"}, [] {});
  executor_.RunAll();
  ASSERT_OK(disk_.RemoveAll(JournalSegmentPath(kFolder, 1)));
  for (int tick = 0; tick < 3; ++tick) {
    (*writer)->Tick();
    executor_.RunAll();
  }
  EXPECT_FALSE(disk_.Exists(JournalSegmentPath(kFolder, 1)));
  EXPECT_THAT((*writer)->trouble(),
              StatusIs(absl::StatusCode::kAlreadyExists, "held by another server"));
  reclaimed = absl::OkStatus();
  (*writer)->Tick();
  executor_.RunAll();
  EXPECT_TRUE(disk_.Exists(JournalSegmentPath(kFolder, 1)));
  EXPECT_OK((*writer)->trouble());
}

TEST_F(JournalTest, OneThatIsSetAsideIsEmpty) {
  for (int time = 0; time < 2; ++time) {
    Open();
    Append();
    executor_.RunAll();
    ASSERT_OK(SetJournalAside(disk_, kFolder));
    ASSERT_OK(Read().status());
    EXPECT_THAT(read_, IsEmpty());
    EXPECT_THAT(disk_.List(kFolder), IsOkAndHolds(ElementsAre("00000001.journal.damaged")));
  }
}

TEST_F(JournalTest, ADamagedJournalStaysAsItIsUntilTheFirstRecordThatReplacesIt) {
  Open();
  Append();
  executor_.RunAll();
  const std::vector<std::string> before = *disk_.List(kFolder);
  durable_.clear();
  const auto writer = JournalWriter::Create(
      {.folder = kFolder, .end = {}, .defers_writing = true, .replaces_damaged = true},
      {.file_system = &disk_, .executor = &executor_});
  ASSERT_OK(writer.status());
  (*writer)->Tick();
  executor_.RunAll();
  EXPECT_THAT(disk_.List(kFolder), IsOkAndHolds(UnorderedElementsAreArray(before)));
  (*writer)->Append({.text = "record 1", .payload = {}}, [this] { durable_.push_back(1); });
  executor_.RunAll();
  EXPECT_THAT(durable_, ElementsAre(1));
  EXPECT_THAT(disk_.List(kFolder),
              IsOkAndHolds(UnorderedElementsAre("00000001.journal", "00000001.journal.damaged",
                                                "watermark")));
}

TEST_F(JournalTest, SegmentsOfNoUseStayBesideUntilOthersDo) {
  const std::vector<std::vector<std::string>> left_by = {
      {"00000001.journal.damaged", "00000002.journal", "watermark"},
      {"00000002.journal.damaged", "00000003.journal.damaged", "00000004.journal", "watermark"}};
  for (const std::vector<std::string>& left : left_by) {
    Open();
    Append();
    executor_.RunAll();
    const uint64_t begin = next_;
    Append(/*begins_segment=*/true);
    writer_->SetAsideBefore(begin);
    writer_->RemoveBefore(begin - 1);
    executor_.RunAll();
    EXPECT_THAT(disk_.List(kFolder), IsOkAndHolds(UnorderedElementsAreArray(left)));
    ASSERT_OK(Read().status());
    EXPECT_THAT(read_, ElementsAre(absl::StrCat("record ", begin)));
  }
}

// A server whose disk hangs may have lost the folder to another server. That server would not see
// writes that are completed later.
TEST_F(JournalTest, ADiskThatHangsIsTrouble) {
  SimulatedClock clock;
  const auto writer =
      JournalWriter::Create({.folder = kFolder, .end = {}},
                            {.file_system = &disk_, .clock = &clock, .executor = &executor_});
  ASSERT_OK(writer.status());
  clock.AdvanceTime(absl::Hours(1));
  EXPECT_OK((*writer)->trouble());
  (*writer)->Append({.text = "x"}, [] {});
  clock.AdvanceTime(absl::Seconds(2));
  EXPECT_OK((*writer)->trouble());
  (*writer)->Append({.text = "y"}, [] {});
  clock.AdvanceTime(absl::Seconds(2));
  EXPECT_THAT(
      (*writer)->trouble(),
      StatusIs(
          absl::StatusCode::kUnavailable,
          HasSubstr("no write has finished for 4s; the disk of the journal or of its replica")));
  executor_.RunAll();
  EXPECT_OK((*writer)->trouble());
}

TEST_F(JournalTest, NothingIsDurableInAFolderThatIsAnothersByNow) {
  bool is_ours = true;
  const auto confirm = [&] {
    return is_ours ? absl::OkStatus() : absl::AlreadyExistsError("held by another server");
  };
  absl::StatusOr<std::unique_ptr<JournalWriter>> writer =
      JournalWriter::Create({.folder = kFolder, .end = {}},
                            {.file_system = &disk_, .executor = &executor_, .confirm = confirm});
  ASSERT_OK(writer.status());
  const auto append = [&](uint64_t number) {
    (*writer)->BeginSegment({.text = "x"}, [this, number] { durable_.push_back(number); });
    executor_.RunAll();
  };
  append(1);
  EXPECT_THAT(durable_, ElementsAre(1));
  is_ours = false;
  append(2);
  (*writer)->RemoveBefore(2);
  (*writer)->Tick();
  executor_.RunAll();
  EXPECT_THAT(durable_, ElementsAre(1));
  EXPECT_THAT((*writer)->trouble(),
              StatusIs(absl::StatusCode::kAlreadyExists, "held by another server"));
  EXPECT_THAT(disk_.List(kFolder),
              IsOkAndHolds(UnorderedElementsAre("00000001.journal", "watermark")))
      << "what the other has, and nothing that would count before it";
}

// The first process was frozen, and another process has taken over the journal. The first process
// must not remove or replace the other's segments.
TEST_F(JournalTest, TheSegmentsOfWhoHasTakenItOverStay) {
  Open();
  Append();
  executor_.RunAll();
  const std::unique_ptr<JournalWriter> frozen = std::move(writer_);
  Open();
  Append();
  executor_.RunAll();
  for (int time = 0; time < 5; ++time) {
    frozen->BeginSegment({.text = "late"}, [] {});
    frozen->Tick();
    executor_.RunAll();
    EXPECT_FALSE(frozen->trouble().ok() && time == 0) << "its number is taken";
    for (uint64_t segment = 1; segment <= 2; ++segment) {
      EXPECT_TRUE(disk_.Exists(JournalSegmentPath(kFolder, segment))) << segment;
    }
  }
}

TEST_F(JournalTest, NobodyIsCalledBackAfterTheEndOfCallbacks) {
  Open();
  Append();
  executor_.RunAll();
  EXPECT_THAT(durable_, ElementsAre(1));
  Append();
  writer_->EndCallbacks();
  executor_.RunAll();
  disk_.SetFaultHook(
      [](FileOperation, const std::string&) { return absl::UnavailableError("injected"); });
  Append();
  executor_.RunAll();
  disk_.SetFaultHook(nullptr);
  EXPECT_THAT(durable_, ElementsAre(1));
  EXPECT_THAT(troubles_, IsEmpty());
  EXPECT_THAT(Read(), IsOk());
  EXPECT_THAT(read_, SizeIs(2)) << "what was appended before the disk failed";
}

TEST_F(JournalTest, AMissingSegmentIsAnError) {
  Open();
  for (int segment = 0; segment < 3; ++segment) {
    Append(/*begins_segment=*/true);
    executor_.RunAll();
  }
  ASSERT_OK(disk_.RemoveAll(JournalSegmentPath(kFolder, 2)));
  EXPECT_THAT(Read(),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("record 2 was complete on disk")));
}

TEST_F(JournalTest, NothingIsDurableWhileTheDiskRefusesAndAllOfItOnceItTakesIt) {
  Open();
  Append();
  executor_.RunAll();
  for (const FileOperation refused : {FileOperation::kAppend, FileOperation::kSync,
                                      FileOperation::kCreate, FileOperation::kSyncDirectory}) {
    durable_.clear();
    troubles_.clear();
    disk_.SetFaultHook([&](FileOperation operation, const std::string& path) {
      return operation == refused ? absl::ResourceExhaustedError(absl::StrCat(path, " is full"))
                                  : absl::OkStatus();
    });
    const uint64_t first = next_;
    Append(/*begins_segment=*/true);
    executor_.RunAll();
    Append();
    writer_->Tick();
    executor_.RunAll();
    EXPECT_THAT(durable_, IsEmpty());
    ASSERT_THAT(troubles_, SizeIs(1));
    EXPECT_TRUE(absl::IsResourceExhausted(troubles_[0])) << troubles_[0];
    EXPECT_EQ(writer_->trouble().code(), troubles_[0].code());
    disk_.SetFaultHook(nullptr);
    writer_->Tick();
    executor_.RunAll();
    EXPECT_THAT(durable_, ElementsAre(first, first + 1));
    ASSERT_THAT(troubles_, SizeIs(2));
    EXPECT_OK(troubles_[1]);
    Append();
    executor_.RunAll();
    EXPECT_THAT(durable_, ElementsAre(first, first + 1, first + 2));
    ASSERT_OK(Read().status());
    EXPECT_THAT(read_, SizeIs(next_ - 1));
  }
}

// Disk operations fail at random, and crashes lose writes that were not synced. All records up to
// the last durable one must survive. No record may appear that was not appended.
TEST_F(JournalTest, WhatIsDurableSurvivesEveryCrash) {
  std::mt19937_64 chance(7);
  const auto with_odds = [&](uint64_t one_of) { return chance() % one_of == 0; };
  uint64_t removed_before = 1;
  int num_torn = 0;
  for (int process = 0; process < 300; ++process) {
    // Some processes fail at the start, and then another one is started.
    for (uint64_t failures = chance() % 3; failures > 0; --failures) {
      uint64_t operations = chance() % 6;
      disk_.SetFaultHook([&](FileOperation operation, const std::string&) {
        const bool refuses = operation != FileOperation::kRead && operations-- == 0;
        return refuses ? absl::UnavailableError("injected") : absl::OkStatus();
      });
      const absl::StatusOr<JournalEnd> end = Read();
      ASSERT_OK(end.status());
      if (JournalWriter::Create({.folder = kFolder, .end = *end},
                                {.file_system = &disk_, .executor = &executor_})
              .ok()) {
        break;
      }
    }
    disk_.SetFaultHook(nullptr);
    Open();
    if (HasFatalFailure()) return;
    const uint64_t known = durable_.empty() ? 0 : durable_.back();
    ASSERT_GE(next_, known + 1) << "process " << process;
    durable_.clear();
    for (uint64_t step = chance() % 12; step > 0; --step) {
      const bool is_faulty = with_odds(3);
      disk_.SetFaultHook([&](FileOperation operation, const std::string&) {
        const bool refuses = is_faulty && operation != FileOperation::kRead && with_odds(4);
        return refuses ? absl::UnavailableError("injected") : absl::OkStatus();
      });
      for (uint64_t count = chance() % 3; count > 0; --count) Append(with_odds(6));
      if (with_odds(8) && !durable_.empty()) {
        removed_before = std::max(removed_before, durable_[chance() % durable_.size()]);
        writer_->RemoveBefore(removed_before);
      }
      if (with_odds(2)) writer_->Tick();
      if (!with_odds(3)) executor_.RunAll();
      if (durable_.empty() || !with_odds(12)) continue;
      // Another program removes a segment while the machine runs.
      disk_.SetFaultHook(nullptr);
      const absl::StatusOr<std::vector<uint64_t>> segments = ListJournalSegments(disk_, kFolder);
      ASSERT_OK(segments.status());
      ASSERT_OK(
          disk_.RemoveAll(JournalSegmentPath(kFolder, (*segments)[chance() % segments->size()])));
      for (int tick = 0; tick < 2; ++tick) {
        writer_->Tick();
        executor_.RunAll();
      }
    }
    if (durable_.empty()) durable_.push_back(known);
    // After a random number of disk operations the process ends and the machine loses power.
    uint64_t left = chance() % 20;
    disk_.SetFaultHook([&](FileOperation operation, const std::string&) {
      if (operation == FileOperation::kRead) return absl::OkStatus();
      return left-- > 0 && left < 100 ? absl::OkStatus() : absl::UnavailableError("killed");
    });
    executor_.RunAll();
    writer_.reset();
    disk_.SetFaultHook(nullptr);
    disk_.Crash(chance);
    const absl::StatusOr<JournalEnd> end = Read();
    ASSERT_OK(end.status()) << "process " << process;
    num_torn += !end->torn.empty();
    const uint64_t last = end->last_sequence;
    ASSERT_GE(last, durable_.back()) << "process " << process;
    ASSERT_LT(last, next_) << "process " << process;
    for (size_t i = 0; i < read_.size(); ++i) {
      ASSERT_EQ(read_[i], absl::StrCat("record ", last + 1 - read_.size() + i));
    }
    if (read_.empty()) continue;
    ASSERT_LE(last + 1 - read_.size(), removed_before);
  }
  EXPECT_GT(num_torn, 10);
}

TEST(JournalParserTest, BlocksOfAnySizeGiveTheSameRecords) {
  std::string bytes;
  for (uint64_t number = 1; number < 5; ++number) {
    const std::string payload(3 * number, 'x');
    const std::string text = absl::StrCat("text ", number);
    const JournalRecord record = {
        number,
        number - 1,
        text,
        {reinterpret_cast<const std::byte*>(payload.data()), payload.size()}};
    absl::StrAppend(&bytes, FormatJournalHead(record), payload, JournalPadding(record));
  }
  EXPECT_EQ(bytes.size() % 8, 0);
  for (size_t size = 1; size < bytes.size(); ++size) {
    JournalParser parser;
    std::vector<uint64_t> numbers;
    for (size_t at = 0; at < bytes.size(); at += size) {
      ASSERT_OK(
          parser.Feed(absl::string_view(bytes).substr(at, size), [&](const JournalRecord& record) {
            EXPECT_EQ(record.text, absl::StrCat("text ", record.sequence));
            EXPECT_THAT(record.payload, SizeIs(3 * record.sequence));
            numbers.push_back(record.sequence);
            return absl::OkStatus();
          }));
    }
    ASSERT_THAT(numbers, ElementsAre(1, 2, 3, 4)) << size;
    EXPECT_TRUE(parser.is_whole());
    EXPECT_EQ(parser.durable(), 3);
  }
}

}  // namespace
}  // namespace lodestar::journal
