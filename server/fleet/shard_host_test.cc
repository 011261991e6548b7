#include "server/fleet/shard_host.h"

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "common/bucket_plan.h"
#include "common/executor.h"
#include "common/layout.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lodestar {
namespace {

// Waits as the coordinator's lock makes the reports of shards wait.
class LockedReports final : public ShardReports {
 public:
  void OnLoaded(uint64_t server_incarnation, const absl::Status& status) override {
    EXPECT_OK(status);
    (server_incarnation == 1 ? first_loaded : second_loaded).Notify();
  }
  void OnSaved(uint64_t, const std::string&, const absl::StatusOr<std::string>&) override {}
  void OnDiverged(uint64_t, Round, absl::string_view) override {
    diverged.Notify();
    // The limit is for an Assign() that waits for this report in turn.
    was_unlocked = unlocked.WaitForNotificationWithTimeout(absl::Seconds(10));
    told.Notify();
  }

  absl::Notification first_loaded, second_loaded, diverged, unlocked, told;
  bool was_unlocked = false;
};

TEST(ShardHostTest, AssignDoesNotWaitForAShardThatReportsToTheCaller) {
  JobSpec job;
  job.model = {"small-mlp", MlpSpec{{13, 17, 9, 5}}};
  auto map = std::make_shared<ClusterMap>();
  map->layout = *BuildLayout(job.model);
  const ElementRange all = {0, map->layout.num_elements()};
  map->shards = {{0, "nowhere:1", all}};
  map->buckets = *PlanBuckets(map->layout, {all}, /*bucket_bytes=*/256);
  LockedReports reports;
  ThreadPool executor(1);
  ShardHost host(0, {.executor = &executor, .reports = &reports});
  AssignCommand command = {
      .server_incarnation = 1, .job = job, .map = map, .source = InitialSource{}};
  host.Obey(command);
  reports.first_loaded.WaitForNotification();

  // An update that overflows.
  const std::vector<RosterMember> roster = {{WorkerId(1), Incarnation(2), 1}};
  ContributionKey key;
  key.worker = WorkerId(1);
  key.incarnation = Incarnation(2);
  {
    // Without the host's thread, which may hold the shard for longer than a command takes effect.
    const std::shared_ptr<ParameterShard> shard = *host.shard();
    shard->SetMembers(ViewId(1), roster);
    shard->OpenRound(
        {.round = Round(0), .view = ViewId(1), .roster = roster, .learning_rate = 1e38});
    absl::Notification given;
    absl::StatusOr<StagedBucket> staged = absl::UnknownError("");
    shard->BeginBucket(key, 0, [&](absl::StatusOr<StagedBucket> bucket) {
      staged = std::move(bucket);
      given.Notify();
    });
    given.WaitForNotification();
    ASSERT_OK(staged);
    const absl::Span<std::byte> bytes = staged->bytes();
    const std::vector<float> gradient(bytes.size() / sizeof(float), 1e17f);
    std::memcpy(bytes.data(), gradient.data(), bytes.size());
    shard->FinishBucket(*std::move(staged), [](const absl::StatusOr<PushOutcome>&) {});
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
}  // namespace lodestar
