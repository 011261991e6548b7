#include "server/rpc/weights_export.h"

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"
#include "common/bucket_plan.h"
#include "common/executor.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lodestar {
namespace {

class LoadWaiter final : public ShardReports {
 public:
  void OnLoaded(uint64_t, const absl::Status& status) override {
    EXPECT_OK(status);
    loaded_.Notify();
  }
  void OnSaved(uint64_t, const std::string&, const absl::StatusOr<std::string>&) override {}

  absl::Notification loaded_;
};

// One server with a small model in several buckets.
class WeightsExportTest : public ::testing::Test {
 protected:
  WeightsExportTest()
      : executor_(1), host_(0, {.executor = &executor_, .norms = nullptr, .reports = &loads_}) {
    job_.model = {"small-mlp", MlpSpec{{13, 17, 9, 5}}};
    auto map = std::make_shared<ClusterMap>();
    map->layout = *BuildLayout(job_.model);
    const ElementRange all = {0, map->layout.num_elements()};
    map->shards = {{0, "nowhere:1", all}};
    map->buckets = *PlanBuckets(map->layout, {all}, /*bucket_bytes=*/256);
    map_ = map;
    host_.Assign({.server_incarnation = 1, .map = map_, .source = InitialSource{}}, job_);
    loads_.loaded_.WaitForNotification();
  }
  ~WeightsExportTest() override { host_.Shutdown(absl::CancelledError("the test is over")); }

  LoadWaiter loads_;
  ThreadPool executor_;
  ShardHost host_;
  JobSpec job_;
  std::shared_ptr<const ClusterMap> map_;
};

TEST_F(WeightsExportTest, WaitsForUpdatesUnderWayUpToTheVersionWanted) {
  // The one thread of the executor does nothing of what follows before `go`.
  absl::Notification go;
  executor_.Schedule([&go] { go.WaitForNotification(); });
  const std::vector<RosterMember> roster = {{WorkerId(1), Incarnation(1), 1}};
  host_.SetMembers(ViewId(1), roster);
  host_.OpenRound({.round = Round(0), .view = ViewId(1), .roster = roster, .learning_rate = 0.1});
  host_.Drop(WorkerId(1), Incarnation(1), "left");
  absl::Notification has_bucket;
  std::thread starter([&] {
    // Long enough for an export that does not wait; one that does passes whatever the time.
    has_bucket.WaitForNotificationWithTimeout(absl::Milliseconds(50));
    go.Notify();
  });
  int num_pieces = 0;
  const WeightsExport weights(map_, job_, Version(1), &host_);
  EXPECT_OK(weights.WriteTo([&](absl::string_view) {
    if (num_pieces++ == 0) return absl::OkStatus();  // the head of the file
    EXPECT_TRUE(go.HasBeenNotified());
    if (!has_bucket.HasBeenNotified()) has_bucket.Notify();
    return absl::OkStatus();
  }));
  starter.join();
  EXPECT_GT(num_pieces, 1);
  EXPECT_EQ(host_.stats().version, Version(1));
}

TEST_F(WeightsExportTest, EndsWithTheServer) {
  const WeightsExport weights(map_, job_, Version(1), &host_);
  EXPECT_THAT(weights.WriteTo([&](absl::string_view) {
    host_.Shutdown(absl::UnavailableError("the server stops"));
    return absl::OkStatus();
  }),
              StatusIs(absl::StatusCode::kUnavailable));
}

}  // namespace
}  // namespace lodestar
