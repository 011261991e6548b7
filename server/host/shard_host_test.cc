// SPDX-License-Identifier: Apache-2.0

#include "server/host/shard_host.h"

#include <sys/resource.h>

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "common/params/bucket_plan.h"
#include "common/params/layout.h"
#include "common/runtime/executor.h"
#include "common/storage/folder_lock.h"
#include "common/testing/queue_executor.h"
#include "common/testing/simulated_file_system.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/host/folder_fence.h"

namespace lodestar::host {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// LockedReports blocks inside a report, as if it waited for the coordinator's lock.
class LockedReports final : public ShardReports {
 public:
  void OnEvent(shards::ShardEvent event) override {
    if (const auto* loaded = std::get_if<shards::ShardLoaded>(&event)) {
      EXPECT_OK(loaded->status);
      (loaded->server_incarnation == 1 ? first_loaded : second_loaded).Notify();
    }
    if (!std::holds_alternative<shards::ShardDiverged>(event)) return;
    diverged.Notify();
    // The time limit makes the test fail if Assign() waits for this report.
    was_unlocked = unlocked.WaitForNotificationWithTimeout(absl::Seconds(10));
    told.Notify();
  }

  absl::Notification first_loaded, second_loaded, diverged, unlocked, told;
  bool was_unlocked = false;
};

// Returns an assignment of all of a small model to one shard.
shards::AssignCommand Assignment(uint64_t server_incarnation) {
  job::JobSpec job;
  job.model = {"small-mlp", params::MlpSpec{{13, 17, 9, 5}}};
  auto map = std::make_shared<messages::ClusterMap>();
  map->layout = *params::BuildLayout(job.model);
  const params::ElementRange all = {0, map->layout.num_elements()};
  map->servers = {{0, "nowhere:1", all}};
  map->buckets = *params::PlanBuckets(map->layout, {all}, /*bucket_bytes=*/256);
  return {.server_incarnation = server_incarnation,
          .job = job,
          .map = map,
          .source = shards::InitialSource{}};
}

class RecordedReports final : public ShardReports {
 public:
  void OnEvent(shards::ShardEvent event) override {
    if (const auto* of_load = std::get_if<shards::ShardLoaded>(&event)) {
      EXPECT_OK(of_load->status);
      loaded.push_back(of_load->server_incarnation);
    } else if (const auto* of_save = std::get_if<shards::ShardSaved>(&event)) {
      EXPECT_OK(of_save->manifest_part);
      saved.push_back(of_save->directory);
    } else if (const auto* sums = std::get_if<shards::ShardSquareSums>(&event)) {
      sums_of.push_back(sums->server_incarnation);
    } else if (const auto* alarm = std::get_if<shards::ShardAlarm>(&event)) {
      alarms.push_back(alarm->text);
    } else if (const auto* connections = std::get_if<shards::ShardConnections>(&event)) {
      if (connections->are_closed) closed.push_back(connections->life.worker.value());
    }
  }

  std::vector<std::string> alarms;
  std::vector<uint32_t> closed;
  std::vector<uint64_t> loaded;
  std::vector<uint64_t> sums_of;
  std::vector<std::string> saved;
};

TEST(NormRelayTest, SumsOfAnEndedLifeAreReportedAsNoOthers) {
  RecordedReports reports;
  NormRelay first(1, &reports);
  absl::StatusOr<double> total = absl::UnknownError("");
  const auto done = [&](absl::StatusOr<double> answer) { total = std::move(answer); };
  first.Submit(Round(5), {1.0}, done);
  EXPECT_THAT(reports.sums_of, ElementsAre(1));
  first.OnTotal(Round(5), 4.0);
  EXPECT_THAT(total, IsOkAndHolds(4.0));

  first.Submit(Round(6), {1.0}, done);
  first.End();
  EXPECT_THAT(total, StatusIs(absl::StatusCode::kAborted)) << "it waited";
  NormRelay second(3, &reports);
  second.Submit(Round(6), {1.0}, [](const absl::StatusOr<double>&) {});
  total = 0.0;
  first.Submit(Round(6), {1.0}, done);
  EXPECT_THAT(total, StatusIs(absl::StatusCode::kAborted));
  EXPECT_THAT(reports.sums_of, ElementsAre(1, 1, 3));
}

TEST(ShardHostTest, AShardWhoseAssignmentIsReplacedWhileItLoadsIsNeverServed) {
  InlineExecutor executor;
  QueueExecutor commands;
  RecordedReports reports;
  ShardHost* assigned = nullptr;
  ShardHost::Deps deps = {.executor = &executor, .commands = &commands, .reports = &reports};
  deps.read_memory = [&] {  // called during the first load
    assigned->Obey(Assignment(3));
    return machine::HostMemory{};
  };
  ShardHost host(0, deps);
  assigned = &host;
  host.Obey(Assignment(1));
  commands.RunNext();
  EXPECT_EQ(host.server_incarnation(), 3);
  EXPECT_THAT(host.shard(), StatusIs(absl::StatusCode::kUnavailable)) << "of another life";
  EXPECT_THAT(reports.loaded, IsEmpty());
  commands.RunNext();
  EXPECT_OK(host.shard());
  EXPECT_THAT(reports.loaded, ElementsAre(3));
}

TEST(ShardHostTest, AnswersWhetherConnectionsAreClosedAlsoBeforeItHasLoaded) {
  InlineExecutor executor;
  RecordedReports reports;
  ShardHost::Deps deps = {.executor = &executor, .commands = &executor, .reports = &reports};
  deps.are_connections_closed = [](const messages::WorkerLife& life) {
    return life.worker == WorkerId(2);
  };
  ShardHost host(0, deps);
  for (uint32_t worker : {1, 2}) {
    host.Obey(shards::AskConnectionsCommand{{WorkerId(worker), Incarnation(7)}});
  }
  EXPECT_THAT(reports.closed, ElementsAre(2));
}

TEST(ShardHostTest, AlarmIsRaisedWhenCheckpointsNeedLargerFilesThanAreAllowed) {
  InlineExecutor executor;
  RecordedReports reports;
  ShardHost host(2, {.executor = &executor, .commands = &executor, .reports = &reports});
  shards::AssignCommand assignment = Assignment(1);
  assignment.folder.path = "/checkpoints";
  auto map = std::make_shared<messages::ClusterMap>(*assignment.map);
  const params::ElementRange all = map->servers[0].range;
  map->servers = {{0, "a:1", {0, 0}}, {1, "b:1", {0, 0}}, {2, "c:1", all}};
  for (params::Bucket& bucket : map->buckets) bucket.shard = 2;
  assignment.map = map;
  rlimit before = {};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit small = {4 * static_cast<rlim_t>(all.size()) - 1, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  host.Obey(assignment);
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_THAT(reports.loaded, ElementsAre(1));
  EXPECT_THAT(reports.alarms, ElementsAre(HasSubstr("weights of shard 2")));
}

// The command that opens the round was lost with the connection, and then the workers of the round
// were lost. The checkpoint after that round must still be saved.
TEST(ShardHostTest, ARoundThatWasNeverOpenedHereDoesNotHoldUpTheCheckpointBehindIt) {
  InlineExecutor executor;
  RecordedReports reports;
  SimulatedFileSystem disk;
  ShardHost host(0, {.executor = &executor,
                     .commands = &executor,
                     .writer = &executor,
                     .reports = &reports,
                     .file_system = &disk});
  host.Obey(Assignment(1));
  host.Obey(shards::SaveCommand{.round = Round(1), .directory = "ckpt/round-00000001.tmp"});
  EXPECT_THAT(reports.saved, ElementsAre("ckpt/round-00000001.tmp"));
}

// A new process of the coordinator goes on with the same job, but its claim on the folder has a new
// number. The shard must save under the new claim.
TEST(ShardHostTest, SavesGoOnUnderACoordinatorThatWasStartedAgain) {
  InlineExecutor executor;
  RecordedReports reports;
  SimulatedFileSystem disk;
  const std::string runs = absl::StrCat(testing::TempDir(), "/started_again");
  std::filesystem::create_directories(runs);
  auto lock = storage::FolderLock::Take(runs, storage::NewFolderClaim(), {});
  ASSERT_OK(lock);
  const FolderFence fence({});
  ShardHost host(0, {.executor = &executor,
                     .commands = &executor,
                     .writer = &executor,
                     .reports = &reports,
                     .file_system = &disk,
                     .fence = &fence});
  shards::AssignCommand command = Assignment(1);
  command.folder = {runs, (*lock)->claim_id()};
  host.Obey(command);
  lock->reset();
  lock = storage::FolderLock::Take(runs, storage::NewFolderClaim(), {});
  ASSERT_OK(lock);
  const std::string directory = absl::StrCat(runs, "/round-00000001.a1.tmp");
  host.Obey(shards::SaveCommand{
      .round = Round(1), .directory = directory, .folder_claim_id = (*lock)->claim_id()});
  EXPECT_THAT(reports.saved, ElementsAre(directory));
}

TEST(ShardHostTest, AssignDoesNotWaitForAShardThatReportsToTheCaller) {
  LockedReports reports;
  ThreadPool executor(1);
  ShardHost host(0, {.executor = &executor, .reports = &reports});
  shards::AssignCommand command = Assignment(1);
  host.Obey(command);
  reports.first_loaded.WaitForNotification();

  // The update overflows.
  const std::vector<sync::RosterMember> roster = {{WorkerId(1), Incarnation(2), 1}};
  shard::ContributionKey key;
  key.worker = WorkerId(1);
  key.incarnation = Incarnation(2);
  {
    // The test calls the shard directly. The host's command thread could hold the shard for longer
    // than the test expects.
    const std::shared_ptr<shard::ParameterShard> shard = *host.shard();
    shard->SetMembers(ViewId(1), roster);
    shard->OpenRound(
        {.round = Round(0), .view = ViewId(1), .roster = roster, .learning_rate = 1e38});
    absl::Notification given;
    absl::StatusOr<shard::StagedBucket> staged = absl::UnknownError("");
    shard->BeginBucket(key, 0, [&](absl::StatusOr<shard::StagedBucket> bucket) {
      staged = std::move(bucket);
      given.Notify();
    });
    given.WaitForNotification();
    ASSERT_OK(staged);
    const absl::Span<std::byte> bytes = staged->bytes();
    const std::vector<float> gradient(bytes.size() / sizeof(float), 1e17f);
    std::memcpy(bytes.data(), gradient.data(), bytes.size());
    shard->FinishBucket(*std::move(staged), [](const absl::StatusOr<shard::PushOutcome>&) {});
  }
  reports.diverged.WaitForNotification();

  command.server_incarnation = 3;
  host.Obey(command);
  EXPECT_THAT(host.shard(), StatusIs(absl::StatusCode::kUnavailable));
  reports.unlocked.Notify();
  reports.told.WaitForNotification();
  EXPECT_TRUE(reports.was_unlocked) << "Assign() has waited for the report";
  reports.second_loaded.WaitForNotification();
  EXPECT_OK(host.shard());
}

}  // namespace
}  // namespace lodestar::host
