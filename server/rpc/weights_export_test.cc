#include "server/rpc/weights_export.h"

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "common/bucket_plan.h"
#include "common/executor.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/parameter_service.grpc.pb.h"

namespace lodestar {
namespace {

// Takes every Pull, and answers none.
class FrozenServer final : public v1::ParameterService::CallbackService {
 public:
  FrozenServer() {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
    address_ = absl::StrCat("127.0.0.1:", port);
  }

  grpc::ServerWriteReactor<v1::PullChunk>* Pull(grpc::CallbackServerContext*,
                                                const v1::PullRequest*) override {
    has_call_.Notify();
    return new Silence();
  }

  const std::string& address() const { return address_; }
  void AwaitCall() { has_call_.WaitForNotification(); }

 private:
  class Silence final : public grpc::ServerWriteReactor<v1::PullChunk> {
   public:
    void OnCancel() override { Finish(grpc::Status::CANCELLED); }
    void OnDone() override { delete this; }
  };

  absl::Notification has_call_;
  std::string address_;
  std::unique_ptr<grpc::Server> server_;
};

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
  WeightsExportTest() : executor_(1), host_(0, {.executor = &executor_, .reports = &loads_}) {
    job_.model = {"small-mlp", MlpSpec{{13, 17, 9, 5}}};
    auto map = std::make_shared<ClusterMap>();
    map->layout = *BuildLayout(job_.model);
    const ElementRange all = {0, map->layout.num_elements()};
    map->servers = {{0, "nowhere:1", all}};
    map->buckets = *PlanBuckets(map->layout, {all}, /*bucket_bytes=*/256);
    map_ = map;
    host_.Obey(AssignCommand{
        .server_incarnation = 1, .job = job_, .map = map_, .source = InitialSource{}});
    loads_.loaded_.WaitForNotification();
  }
  ~WeightsExportTest() override { host_.Shutdown(absl::CancelledError("the test is over")); }

  LoadWaiter loads_;
  ThreadPool executor_;
  ShardHost host_;
  OutgoingCalls calls_;
  JobSpec job_;
  std::shared_ptr<const ClusterMap> map_;
};

TEST_F(WeightsExportTest, WaitsForUpdatesUnderWayUpToTheRoundWanted) {
  // The one thread of the executor does nothing of what follows before `go`.
  absl::Notification go;
  executor_.Schedule([&go] { go.WaitForNotification(); });
  const std::vector<RosterMember> roster = {{WorkerId(1), Incarnation(1), 1}};
  host_.Obey(MembersCommand{ViewId(1), roster});
  host_.Obey(OpenRoundCommand{
      {.round = Round(0), .view = ViewId(1), .roster = roster, .learning_rate = 0.1}});
  host_.Obey(DropCommand{WorkerId(1), Incarnation(1), "left"});
  absl::Notification has_bucket;
  std::thread starter([&] {
    // Long enough for an export that does not wait; one that does passes whatever the time.
    has_bucket.WaitForNotificationWithTimeout(absl::Milliseconds(50));
    go.Notify();
  });
  int num_pieces = 0;
  const WeightsExport weights(map_, job_, Round(1), &host_, &calls_);
  EXPECT_OK(weights.WriteTo([&](absl::string_view) {
    if (num_pieces++ == 0) return absl::OkStatus();  // the head of the file
    EXPECT_TRUE(go.HasBeenNotified());
    if (!has_bucket.HasBeenNotified()) has_bucket.Notify();
    return absl::OkStatus();
  }));
  starter.join();
  EXPECT_GT(num_pieces, 1);
  EXPECT_EQ(host_.stats().open_round, Round(1));
}

TEST_F(WeightsExportTest, DoesNotWaitForAFrozenServerOnceCancelled) {
  FrozenServer frozen;
  auto map = std::make_shared<ClusterMap>(*map_);
  map->servers.push_back({1, frozen.address(), {}});
  map->buckets.back().shard = 1;
  WeightsExport weights(map, job_, Round(0), &host_, &calls_);
  std::thread stopper([&] {
    frozen.AwaitCall();
    calls_.CancelAll();
  });
  const auto take = [](absl::string_view) { return absl::OkStatus(); };
  const auto is_stopping =
      StatusIs(absl::StatusCode::kUnavailable, testing::HasSubstr("the server is stopping"));
  EXPECT_THAT(weights.WriteTo(take), is_stopping);
  stopper.join();
  EXPECT_THAT(weights.WriteTo(take), is_stopping) << "nor is another begun";
}

TEST_F(WeightsExportTest, EndsWithTheServer) {
  const WeightsExport weights(map_, job_, Round(1), &host_, &calls_);
  EXPECT_THAT(weights.WriteTo([&](absl::string_view) {
    host_.Shutdown(absl::UnavailableError("the server stops"));
    return absl::OkStatus();
  }),
              StatusIs(absl::StatusCode::kUnavailable));
}

}  // namespace
}  // namespace lodestar
