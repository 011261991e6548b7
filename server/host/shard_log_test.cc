// SPDX-License-Identifier: Apache-2.0

#include "server/host/shard_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/params/bucket_plan.h"
#include "common/params/layout.h"
#include "common/runtime/executor.h"
#include "common/testing/checkpoint_files.h"
#include "common/testing/queue_executor.h"
#include "common/testing/simulated_file_system.h"
#include "common/testing/status_matchers.h"
#include "server/host/journal_base.h"
#include "server/host/shard_host.h"
#include "server/host/shard_record_json.h"

namespace lodestar::host {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

constexpr char kFolder[] = "/journal";
constexpr uint64_t kLife = 7;  // incarnation of the servers
constexpr char kSave[] = "/checkpoints/round-00000001.tmp";

class RecordedReports final : public ShardReports {
 public:
  void OnEvent(shards::ShardEvent event) override {
    if (const auto* of_load = std::get_if<shards::ShardLoaded>(&event)) {
      EXPECT_OK(of_load->status);
      loaded.push_back(of_load->server_incarnation);
    } else if (const auto* of_save = std::get_if<shards::ShardSaved>(&event)) {
      EXPECT_OK(of_save->manifest_part);
      ++num_saved;
    }
  }
  void OnNotice(absl::string_view text) override { notices.emplace_back(text); }

  std::vector<uint64_t> loaded;
  int num_saved = 0;
  std::vector<std::string> notices;
};

// Returns an assignment of all of a small model to one shard with one bucket.
shards::AssignCommand Assignment(uint64_t server_incarnation) {
  job::JobSpec job;
  job.model = {"small-mlp", params::MlpSpec{{5, 3}}};
  job.optimizer.kind = job::OptimizerKind::kMomentum;
  auto map = std::make_shared<messages::ClusterMap>();
  map->layout = *params::BuildLayout(job.model);
  const params::ElementRange all = {0, map->layout.num_elements()};
  map->servers = {{0, "nowhere:1", all}};
  map->buckets = *params::PlanBuckets(map->layout, {all}, /*bucket_bytes=*/4096);
  return {.server_incarnation = server_incarnation,
          .job = job,
          .map = map,
          .source = shards::InitialSource{}};
}

// Fixture with processes, one after the other, that serve one shard to one worker.
class ShardLogTest : public testing::Test {
 protected:
  // A Process holds the objects of one run of the server process.
  struct Process {
    QueueExecutor journal;
    InlineExecutor others;
    RecordedReports reports;
    std::unique_ptr<ShardLog> log;
    std::unique_ptr<ShardHost> host;
  };

  ShardLogTest() {
    EXPECT_OK(disk_.CreateDirectories(kFolder));
    EXPECT_OK(disk_.SyncDirectory("/"));
  }

  // Starts a process. `run_folder` is its --checkpoint_dir.
  absl::StatusOr<bool> Start(uint64_t instance_id = 5,
                             const std::string& run_folder = "/checkpoints") {
    return StartOn(&ShardLog::Open, instance_id, run_folder);
  }

  absl::StatusOr<bool> StartOn(decltype(&ShardLog::Open) open, uint64_t instance_id,
                               const std::string& run_folder) {
    process_ = std::make_unique<Process>();
    ShardLog::Deps deps;
    deps.file_system = &disk_;
    deps.executor = &process_->journal;
    deps.format_assignment = [](const shards::AssignCommand& assignment) {
      return absl::StrCat(assignment.server_incarnation);
    };
    deps.parse_assignment = [](absl::string_view bytes) -> absl::StatusOr<shards::AssignCommand> {
      if (bytes != absl::StrCat(kLife)) return absl::InvalidArgumentError("not an assignment");
      return Assignment(kLife);
    };
    deps.on_trouble = [](const absl::Status&) {};
    deps.run_folder = run_folder;
    absl::StatusOr<std::unique_ptr<ShardLog>> log = open(kFolder, std::move(deps));
    if (!log.ok()) return log.status();
    process_->log = *std::move(log);
    process_->host =
        std::make_unique<ShardHost>(0, ShardHost::Deps{.executor = &process_->others,
                                                       .commands = &process_->others,
                                                       .writer = &process_->others,
                                                       .reports = &process_->reports,
                                                       .file_system = &disk_,
                                                       .instance_id = instance_id,
                                                       .log = process_->log.get(),
                                                       .folders = {.checkpoint_dir = run_folder},
                                                       .read_memory = [this] { return memory_; }});
    return process_->host->Recover();
  }

  void Assign() {
    process_->host->Obey(Assignment(kLife));
    process_->journal.RunAll();
  }

  // Contributes to a round. Returns true if the contribution was acknowledged.
  bool Train(int64_t round) {
    const std::vector<sync::RosterMember> roster = {{WorkerId(1), Incarnation(9), 1}};
    process_->host->Obey(shards::MembersCommand{ViewId(1), roster});
    process_->host->Obey(shards::OpenRoundCommand{{Round(round), ViewId(1), roster, 0.1}});
    shard::ContributionKey key;
    key.worker = WorkerId(1);
    key.incarnation = Incarnation(9);
    key.round = Round(round);
    const std::shared_ptr<shard::ParameterShard> shard = *process_->host->shard();
    // The variable is shared because the answer may come after this call.
    const auto is_acknowledged = std::make_shared<bool>(false);
    shard->BeginBucket(key, 0, [&, is_acknowledged](absl::StatusOr<shard::StagedBucket> staged) {
      ASSERT_OK(staged.status());
      const std::vector<float> values(staged->num_elements(), 0.1f * static_cast<float>(round + 1));
      if (!staged->is_discard()) {
        std::memcpy(staged->bytes().data(), values.data(), values.size() * sizeof(float));
      }
      shard->FinishBucket(
          *std::move(staged), [is_acknowledged](const absl::StatusOr<shard::PushOutcome>& outcome) {
            *is_acknowledged = outcome.ok() && *outcome == shard::PushOutcome::kCounted;
          });
    });
    process_->journal.RunAll();
    return *is_acknowledged;
  }

  void Save(int64_t round) {
    process_->host->Obey(shards::SaveCommand{Round(round), kSave});
    process_->journal.RunAll();
    process_->journal.RunAll();
  }

  std::vector<float> Weights() {
    std::vector<float> weights;
    (*process_->host->shard())
        ->ReadBucket(WorkerId(0), Incarnation(0), 0, Round(0),
                     [&](const absl::StatusOr<shard::PublishedBucket>& read) {
                       ASSERT_OK(read.status());
                       weights.assign(read->data().begin(), read->data().end());
                     });
    return weights;
  }

  SimulatedFileSystem disk_;
  machine::HostMemory memory_;  // zeros: not known
  std::unique_ptr<Process> process_;
};

TEST_F(ShardLogTest, TheNextProcessGoesOnWhereTheLastOneEnded) {
  EXPECT_THAT(Start(5), IsOkAndHolds(false));
  Assign();
  EXPECT_THAT(process_->reports.loaded, ElementsAre(kLife));
  EXPECT_TRUE(Train(0));
  EXPECT_TRUE(Train(1));
  const std::vector<float> weights = Weights();
  std::mt19937_64 chance(1);
  for (int process = 0; process < 3; ++process) {
    disk_.Crash(chance);
    EXPECT_THAT(Start(6), IsOkAndHolds(true));
    EXPECT_EQ(process_->host->server_incarnation(), kLife);
    EXPECT_EQ(process_->host->instance_id(), 5);
    EXPECT_EQ(Weights(), weights);
    EXPECT_THAT(process_->reports.loaded, IsEmpty());
    process_->host->GoOn();
    EXPECT_THAT(process_->reports.loaded, ElementsAre(kLife));
  }
  EXPECT_TRUE(Train(2));
}

TEST_F(ShardLogTest, KnowsWhichRecordOfTheCoordinatorItFollowsAndItsHighestRound) {
  EXPECT_THAT(Start(), IsOkAndHolds(false));
  process_->host->Obey(Assignment(kLife), {11, 3});
  process_->journal.RunAll();
  EXPECT_EQ(process_->host->journal_place().follows, (shards::CoordinatorRecord{11, 3}));
  EXPECT_EQ(process_->host->journal_place().highest_round, -1);
  const std::vector<sync::RosterMember> roster = {{WorkerId(1), Incarnation(9), 1}};
  process_->host->Obey(shards::OpenRoundCommand{{Round(4), ViewId(1), roster, 0.1}}, {11, 8});
  process_->journal.RunAll();
  std::mt19937_64 chance(1);
  disk_.Crash(chance);
  EXPECT_THAT(Start(), IsOkAndHolds(true));
  EXPECT_EQ(process_->host->journal_place().follows, (shards::CoordinatorRecord{11, 8}));
  EXPECT_EQ(process_->host->journal_place().highest_round, 4);
  // For a DropCommand, the shard writes no record. So ShardLog itself records that the command was
  // carried out.
  process_->host->Obey(shards::DropCommand{WorkerId(2), Incarnation(8), "gone"}, {11, 9});
  process_->journal.RunAll();
  disk_.Crash(chance);
  EXPECT_THAT(Start(), IsOkAndHolds(true));
  EXPECT_EQ(process_->host->journal_place().follows, (shards::CoordinatorRecord{11, 9}));
  // In another journal, and in another incarnation of the servers, the numbers of records and
  // rounds begin again.
  process_->host->Obey(Assignment(kLife), {12, 2});
  process_->journal.RunAll();
  disk_.Crash(chance);
  EXPECT_THAT(Start(), IsOkAndHolds(true));
  EXPECT_EQ(process_->host->journal_place().follows, (shards::CoordinatorRecord{12, 2}));
  EXPECT_EQ(process_->host->journal_place().highest_round, -1);
}

TEST_F(ShardLogTest, KeepsItsHighestRoundWhereCheckpointsLetGoOfIt) {
  EXPECT_THAT(Start(), IsOkAndHolds(false));
  Assign();
  EXPECT_TRUE(Train(0));
  Save(1);
  process_->host->Obey(shards::PublishedCommand{kSave, "/checkpoints/round-00000001", Round(1)});
  process_->journal.RunAll();
  EXPECT_EQ(process_->log->highest_round(), 0);
  process_->log.reset();
  ShardLog::Deps deps;
  deps.file_system = &disk_;
  deps.executor = &process_->journal;
  deps.format_assignment = [](const shards::AssignCommand&) { return std::string(); };
  deps.parse_assignment = [](absl::string_view) { return Assignment(kLife); };
  const auto log = ShardLog::Open(kFolder, std::move(deps));
  ASSERT_OK(log.status());
  EXPECT_EQ((*log)->highest_round(), 0);
}

TEST_F(ShardLogTest, NobodyIsToldThatAShardHasLoadedBeforeItsBeginningIsOnDisk) {
  EXPECT_THAT(Start(), IsOkAndHolds(false));
  process_->host->Obey(Assignment(kLife));
  EXPECT_THAT(process_->reports.loaded, IsEmpty());
  process_->journal.RunAll();
  EXPECT_THAT(process_->reports.loaded, ElementsAre(kLife));
}

TEST_F(ShardLogTest, ANewLifeOfTheServersForgetsTheOneBefore) {
  EXPECT_THAT(Start(), IsOkAndHolds(false));
  Assign();
  const std::vector<float> weights = Weights();
  EXPECT_TRUE(Train(0));
  Assign();
  EXPECT_THAT(Start(), IsOkAndHolds(true));
  EXPECT_EQ(Weights(), weights);
}

TEST_F(ShardLogTest, KnowsHowMuchWasWrittenSinceTheNewestCheckpoint) {
  EXPECT_THAT(Start(), IsOkAndHolds(false));
  Assign();
  const auto written = [this] { return process_->host->stats().journal_bytes; };
  const int64_t at_first = written();
  EXPECT_TRUE(Train(0));
  const int64_t of_one = written() - at_first;
  EXPECT_GT(of_one, 18 * sizeof(float));
  Save(1);
  EXPECT_TRUE(Train(1));
  EXPECT_GE(written(), at_first + 2 * of_one);
  process_->host->Obey(shards::PublishedCommand{kSave, "/checkpoints/round-00000001", Round(1)});
  process_->journal.RunAll();
  const int64_t since = written();
  EXPECT_GE(since, of_one);
  EXPECT_LT(since, at_first + 2 * of_one);
  EXPECT_TRUE(Train(2));
  const int64_t at_last = written();
  EXPECT_GT(at_last, since + 18 * sizeof(float));
  EXPECT_FALSE(Start().value_or(false)) << "there is no such checkpoint";
  EXPECT_EQ(written(), at_last) << "as the files say";
}

TEST_F(ShardLogTest, TellsWhyNothingIsAcknowledgedUntilTheDiskTakesItAgain) {
  EXPECT_THAT(Start(), IsOkAndHolds(false));
  Assign();
  const auto trouble = [this] { return process_->host->stats().journal_trouble; };
  EXPECT_EQ(trouble(), "");
  disk_.SetFaultHook(
      [](FileOperation, absl::string_view) { return absl::ResourceExhaustedError("disk full"); });
  EXPECT_FALSE(Train(0));
  EXPECT_THAT(trouble(), HasSubstr("disk full"));
  disk_.SetFaultHook(nullptr);
  process_->host->Tick();
  process_->journal.RunAll();
  EXPECT_EQ(trouble(), "");
}

// Saving a checkpoint removes nothing yet. When it is published, the records that it includes are
// removed.
TEST_F(ShardLogTest, WhatACheckpointHoldsIsRemoved) {
  EXPECT_THAT(Start(), IsOkAndHolds(false));
  Assign();
  for (int64_t round = 0; round < 3; ++round) {
    EXPECT_TRUE(Train(round));
    Save(round + 1);
    EXPECT_TRUE(disk_.Exists("/journal/00000001.journal")) << round;
  }
  EXPECT_EQ(process_->reports.num_saved, 3);
  // The files of this checkpoint do not exist. Records are removed nevertheless, because
  // OnPublished() does not read them.
  process_->host->Obey(shards::PublishedCommand{kSave, "/checkpoints/round-00000001", Round(1)});
  process_->journal.RunAll();
  EXPECT_TRUE(disk_.Exists("/journal/00000001.journal"));
  process_->host->Obey(shards::PublishedCommand{kSave, "/checkpoints/round-00000003", Round(3)});
  process_->journal.RunAll();
  EXPECT_FALSE(disk_.Exists("/journal/00000001.journal"));
  EXPECT_FALSE(disk_.Exists("/journal/00000002.journal"));
  EXPECT_TRUE(disk_.Exists("/journal/00000003.journal")) << "round 3 may have begun in it";
}

// A save is reported only once the journal has its records on disk. If it were reported before and
// the process then ended, the next process would go on from a checkpoint without these records.
TEST_F(ShardLogTest, ACheckpointCountsOnceTheJournalHasWhatWasWrittenDownWithIt) {
  EXPECT_THAT(Start(), IsOkAndHolds(false));
  Assign();
  EXPECT_TRUE(Train(0));
  process_->host->Obey(shards::SaveCommand{Round(1), kSave});
  EXPECT_EQ(process_->reports.num_saved, 0);
  process_->journal.RunAll();
  EXPECT_EQ(process_->reports.num_saved, 1);
}

class ShardLogAfterCheckpointTest : public ShardLogTest {
 protected:
  ShardLogAfterCheckpointTest() {
    EXPECT_THAT(Start(), IsOkAndHolds(false));
    Assign();
    for (int64_t round = 0; round < 3; ++round) {
      EXPECT_TRUE(Train(round));
      Save(round + 1);
    }
    process_->host->Obey(shards::PublishedCommand{kSave, "/checkpoints/round-00000003", Round(3)});
    process_->journal.RunAll();
  }
};

// Flips bits and cuts files at all positions. Each time the next process must find all acknowledged
// records, or get an error.
TEST_F(ShardLogTest, NoDamageIsTakenForLessThanThereWas) {
  EXPECT_THAT(Start(), IsOkAndHolds(false));
  Assign();
  EXPECT_TRUE(Train(0));
  Save(1);
  EXPECT_TRUE(Train(1));
  const std::vector<float> weights = Weights();
  const absl::StatusOr<std::vector<std::string>> names = disk_.List(kFolder);
  ASSERT_OK(names.status());
  std::map<std::string, std::string> files;
  for (const std::string& name : *names) {
    files[name] = *disk_.ReadWholeFile(absl::StrCat(kFolder, "/", name), 1 << 20);
  }
  EXPECT_THAT(*names, UnorderedElementsAre("00000001.journal", "00000002.journal", "watermark"));
  int num_refused = 0;
  const auto try_with = [&](const std::string& damaged, const std::string& contents) {
    ASSERT_OK(disk_.RemoveAll(kFolder));
    ASSERT_OK(disk_.CreateDirectories(kFolder));
    for (const auto& [name, whole] : files) {
      WriteFile(disk_, absl::StrCat(kFolder, "/", name), name == damaged ? contents : whole);
    }
    const absl::StatusOr<bool> started = Start();
    num_refused += !started.ok();
    if (absl::IsDataLoss(started.status())) return;
    ASSERT_THAT(started, IsOkAndHolds(true));
    EXPECT_EQ(Weights(), weights);
  };
  int num_tried = 0;
  for (const auto& [name, whole] : files) {
    for (size_t at = 0; at < whole.size(); ++at, ++num_tried) {
      std::string flipped = whole;
      flipped[at] = static_cast<char>(flipped[at] ^ (1 << at % 8));
      SCOPED_TRACE(absl::StrCat(name, " with a bit flipped at ", at));
      try_with(name, flipped);
      if (at % 5 == 0 && name != "watermark") try_with(name, whole.substr(0, at));
    }
  }
  EXPECT_GT(num_refused, num_tried / 2);
}

TEST_F(ShardLogTest, DamagedFilesStayAsTheyAreUntilANewLifeBeginsAndBesideItThen) {
  EXPECT_THAT(Start(), IsOkAndHolds(false));
  Assign();
  EXPECT_TRUE(Train(0));
  const std::string first = absl::StrCat(kFolder, "/00000001.journal");
  const std::string whole = *disk_.ReadWholeFile(first, 1 << 20);
  WriteFile(disk_, first, absl::StrCat("x", whole.substr(1)));
  EXPECT_THAT(Start(), StatusIs(absl::StatusCode::kDataLoss, HasSubstr(first)));
  EXPECT_THAT(StartOn(&ShardLog::OpenBesideDamaged, 6, "/checkpoints"), IsOkAndHolds(false));
  process_->host->Tick();
  process_->journal.RunAll();
  EXPECT_FALSE(disk_.Exists(first + ".damaged"));
  // If an operator brings an intact copy of the file back, the log goes on from it.
  WriteFile(disk_, first, whole);
  EXPECT_THAT(Start(), IsOkAndHolds(true));
  WriteFile(disk_, first, absl::StrCat("x", whole.substr(1)));
  EXPECT_THAT(StartOn(&ShardLog::OpenBesideDamaged, 6, "/checkpoints"), IsOkAndHolds(false));
  Assign();
  EXPECT_TRUE(disk_.Exists(first + ".damaged"));
  EXPECT_TRUE(Train(0));
  EXPECT_THAT(Start(), IsOkAndHolds(true));
}

// Memory may be too short to load the checkpoint, or to replay the journal.
TEST_F(ShardLogTest, TooLittleMemoryIsNoReasonToGiveUpTheJournal) {
  EXPECT_THAT(Start(), IsOkAndHolds(false));
  Assign();
  EXPECT_TRUE(Train(0));
  const int64_t needed = 1024;
  const std::pair<machine::HostMemory, absl::StatusCode> cases[] = {
      {{.total_bytes = needed, .available_bytes = 16, .limited_by = ""},
       absl::StatusCode::kFailedPrecondition},
      {{.total_bytes = 16, .available_bytes = needed, .limited_by = ""},
       absl::StatusCode::kResourceExhausted}};
  for (const auto& [memory, code] : cases) {
    memory_ = memory;
    EXPECT_THAT(Start(), StatusIs(code, HasSubstr("--memory_limit")));
    EXPECT_THAT(process_->reports.notices, IsEmpty());
  }
  memory_ = {};
  EXPECT_THAT(Start(), IsOkAndHolds(true));
}

// Writes the files of the checkpoint too, so that the log can record the checksum of its manifest.
TEST_F(ShardLogTest, NamesTheCheckpointSoThatItIsFoundAfterAMove) {
  EXPECT_THAT(Start(), IsOkAndHolds(false));
  Assign();
  EXPECT_TRUE(Train(0));
  Save(1);
  WriteCheckpoint(disk_, "/checkpoints/round-00000001", 1, "weights!");
  process_->host->Obey(shards::PublishedCommand{kSave, "/checkpoints/round-00000001", Round(1)});
  process_->journal.RunAll();
  const std::optional<uint32_t> checksum =
      ChecksumOf(disk_, shards::CheckpointSource{"/checkpoints/round-00000001"});
  ASSERT_TRUE(checksum.has_value());
  // The save at the end of this loop is not published. Its segment, too, must name the checkpoint
  // that the log goes on from.
  for (int process = 0; process < 2; ++process) {
    EXPECT_FALSE(Start(5, "/moved").ok()) << "the moved folder is empty";
    ASSERT_TRUE(process_->log->beginning().has_value());
    const JournalBase& base = process_->log->beginning()->base;
    EXPECT_EQ(std::get<shards::CheckpointSource>(base.source).directory,
              "/checkpoints/round-00000001");
    EXPECT_EQ(base.run_folder, "/checkpoints");
    EXPECT_EQ(base.checksum, checksum);
    EXPECT_EQ(process_->host->PathToday("/checkpoints/round-00000001"), "/moved/round-00000001");
    process_->log->OnSave({Round(2), "/checkpoints/round-00000002.tmp"});
    process_->journal.RunAll();
  }
}

// The folder may be empty because its disk is not mounted.
TEST_F(ShardLogAfterCheckpointTest, AnEmptyCheckpointFolderIsNoReasonToGiveUpTheJournal) {
  ASSERT_OK(disk_.RemoveAll("/checkpoints"));
  for (int process = 0; process < 2; ++process) {
    EXPECT_THAT(Start(), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("Mount its disk")));
    EXPECT_TRUE(disk_.Exists("/journal/00000003.journal"));
  }
}

TEST_F(ShardLogAfterCheckpointTest, WithoutItsCheckpointItBeginsAnewAndTheJournalStaysBeside) {
  ASSERT_OK(disk_.CreateDirectories("/checkpoints/round-00000004"));
  EXPECT_THAT(Start(), IsOkAndHolds(false));
  EXPECT_THAT(process_->reports.notices, ElementsAre(HasSubstr("/checkpoints/round-00000003")));
  EXPECT_TRUE(disk_.Exists("/journal/00000003.journal")) << "until there is something instead";
  Assign();
  EXPECT_FALSE(disk_.Exists("/journal/00000003.journal"));
  EXPECT_TRUE(disk_.Exists("/journal/00000003.journal.damaged"));
  EXPECT_THAT(Start(), IsOkAndHolds(true));
}

TEST_F(ShardLogAfterCheckpointTest, WithoutItsOldestFileItIsNotWhole) {
  ASSERT_OK(disk_.RemoveAll("/journal/00000003.journal"));
  EXPECT_THAT(Start(), StatusIs(absl::StatusCode::kDataLoss,
                                HasSubstr("its oldest file is missing or damaged")));
}

TEST_F(ShardLogTest, WhatAnotherVersionHasWrittenIsNamedAndLeftAlone) {
  EXPECT_THAT(Start(), IsOkAndHolds(false));
  process_->log->Begin(5, Assignment(kLife + 1), [] {});
  process_->journal.RunAll();
  EXPECT_THAT(Start(), StatusIs(absl::StatusCode::kUnimplemented,
                                HasSubstr("not an assignment; another release wrote it")));
}

TEST(ShardRecordJsonTest, RecordsComeBackToTheBit) {
  shard::StepRecord step;
  step.bucket = 3;
  step.step = {.kind = shard::BucketStep::Kind::kAccumulate,
               .round = Round(41),
               .weight = 5,
               .factor = 0.1f,
               .rescale = 1.0f / 3.0f,
               .norm = 1.0 / 3.0,
               .clip = 0.01f};
  step.key = {.worker = WorkerId(4'000'000'000),
              .incarnation = Incarnation(0xfedcba9876543210),
              .round = Round(41),
              .base_version = Version(39),
              .kind = messages::ContributionKind::kPseudoGradient,
              .scale = 1e-30f,
              .encoding = params::Encoding::kInt8,
              .num_samples = 17,
              .learning_rate = 0.1 / 7,
              .weight = 0,
              .state_vector = 2};
  shard::StepRecord update;
  update.step = {.kind = shard::BucketStep::Kind::kApply,
                 .round = Round(41),
                 .has_update = true,
                 .call = {.step = 40, .learning_rate = 0.1 / 3, .gradient_scale = 0.7f}};
  const sync::RoundPlan plan = {
      Round(41), ViewId(8), {{WorkerId(1), Incarnation(0xfedcba9876543210), 3}}, 0.1 / 7};
  for (const shard::ShardRecord& record :
       {shard::ShardRecord(step), shard::ShardRecord(update), shard::ShardRecord(plan),
        shard::ShardRecord(shard::ShadowRecord{2, Version(9)}),
        shard::ShardRecord(shard::NormRecord{Round(1), 1.0 / 3})}) {
    const Json json = ShardRecordToJson(record);
    ASSERT_OK_AND_ASSIGN(const Json read, ParseJson(FormatJson(json)));
    ASSERT_OK_AND_ASSIGN(const shard::ShardRecord again, ShardRecordFromJson(read));
    EXPECT_EQ(again.index(), record.index());
    EXPECT_EQ(FormatJson(ShardRecordToJson(again)), FormatJson(json));
  }
  ASSERT_OK_AND_ASSIGN(const Json json, ParseJson(FormatJson(ShardRecordToJson(step))));
  ASSERT_OK_AND_ASSIGN(const shard::ShardRecord again, ShardRecordFromJson(json));
  const auto& same = std::get<shard::StepRecord>(again);
  EXPECT_EQ(same.step.factor, step.step.factor);
  EXPECT_EQ(same.step.rescale, step.step.rescale);
  EXPECT_EQ(same.step.norm, step.step.norm);
  EXPECT_EQ(same.step.clip, step.step.clip);
  EXPECT_EQ(same.key.incarnation, step.key.incarnation);
  EXPECT_EQ(same.key.kind, step.key.kind);
  EXPECT_EQ(same.key.scale, step.key.scale);
  EXPECT_EQ(same.key.learning_rate, step.key.learning_rate);
  EXPECT_EQ(same.key.weight, step.key.weight);
  EXPECT_EQ(same.key.state_vector, step.key.state_vector);
}

TEST(ShardRecordJsonTest, NumbersThatNoFloatHoldsAreRefused) {
  shard::StepRecord step;
  step.step.kind = shard::BucketStep::Kind::kApply;
  Json json = ShardRecordToJson(step);
  json["factor"] = 1e39;
  EXPECT_THAT(ShardRecordFromJson(json),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("factor")));
}

}  // namespace
}  // namespace lodestar::host
