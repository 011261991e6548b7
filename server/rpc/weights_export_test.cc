// SPDX-License-Identifier: Apache-2.0

#include "server/rpc/weights_export.h"

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "common/params/bucket_plan.h"
#include "common/runtime/executor.h"
#include "common/testing/simulated_clock.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/parameter_service.grpc.pb.h"
#include "proto/status_mapping.h"
#include "proto/transport_security.h"
#include "server/rpc/admin_rpc.h"
#include "server/rpc/coordinator_strand.h"

namespace lodestar::rpc {
namespace {

constexpr int64_t kBucketBytes = 256;

// FrozenServer accepts every Pull, and answers none.
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

class LoadWaiter final : public host::ShardReports {
 public:
  void OnEvent(shards::ShardEvent event) override {
    const auto* loaded = std::get_if<shards::ShardLoaded>(&event);
    if (loaded == nullptr) return;
    EXPECT_OK(loaded->status);
    loaded_.Notify();
  }

  absl::Notification loaded_;
};

// The test has one server with a small model in several buckets.
class WeightsExportTest : public ::testing::Test {
 protected:
  WeightsExportTest() : executor_(1), host_(0, {.executor = &executor_, .reports = &loads_}) {
    job_.model = {"small-mlp", params::MlpSpec{{13, 17, 9, 5}}};
    auto map = std::make_shared<messages::ClusterMap>();
    map->layout = *params::BuildLayout(job_.model);
    const params::ElementRange all = {0, map->layout.num_elements()};
    map->servers = {{0, "nowhere:1", all}};
    map->buckets = *params::PlanBuckets(map->layout, {all}, kBucketBytes);
    map_ = map;
    host_.Obey(shards::AssignCommand{
        .server_incarnation = 1, .job = job_, .map = map_, .source = shards::InitialSource{}});
    loads_.loaded_.WaitForNotification();
  }
  ~WeightsExportTest() override { host_.Shutdown(absl::CancelledError("the test is over")); }

  // Does round 0 without any contribution.
  void DoRoundZero() {
    const std::vector<sync::RosterMember> roster = {{WorkerId(1), Incarnation(1), 1}};
    host_.Obey(shards::MembersCommand{ViewId(1), roster});
    host_.Obey(shards::OpenRoundCommand{
        {.round = Round(0), .view = ViewId(1), .roster = roster, .learning_rate = 0.1}});
    host_.Obey(shards::DropCommand{WorkerId(1), Incarnation(1), "left"});
  }

  LoadWaiter loads_;
  ThreadPool executor_;
  host::ShardHost host_;
  OutgoingCalls calls_;
  job::JobSpec job_;
  std::shared_ptr<const messages::ClusterMap> map_;
};

TEST_F(WeightsExportTest, WaitsForUpdatesUnderWayUpToTheRoundWanted) {
  // The executor has one thread. Until `go`, that thread runs none of the tasks below.
  absl::Notification go;
  executor_.Schedule([&go] { go.WaitForNotification(); });
  DoRoundZero();
  absl::Notification has_bucket;
  std::thread starter([&] {
    // An export that does not wait notifies `has_bucket` within these 50 ms, before `go`. Then the
    // test fails. An export that waits passes, however slow the machine is.
    has_bucket.WaitForNotificationWithTimeout(absl::Milliseconds(50));
    go.Notify();
  });
  int num_pieces = 0;
  const WeightsExport weights(map_, job_, Round(1), &host_, &calls_, wire::TransportSecurity());
  EXPECT_OK(weights.WriteTo([&](absl::string_view) {
    if (num_pieces++ == 0) return absl::OkStatus();  // the header of the file
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
  auto map = std::make_shared<messages::ClusterMap>(*map_);
  map->servers.push_back({1, frozen.address(), {}});
  map->buckets.back().shard = 1;
  WeightsExport weights(map, job_, Round(0), &host_, &calls_, wire::TransportSecurity());
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
  const WeightsExport weights(map_, job_, Round(1), &host_, &calls_, wire::TransportSecurity());
  EXPECT_THAT(weights.WriteTo([&](absl::string_view) {
    host_.Shutdown(absl::UnavailableError("the server stops"));
    return absl::OkStatus();
  }),
              StatusIs(absl::StatusCode::kUnavailable));
}

// The coordinator of this test has committed round 0, but its shard still works on round 0. An
// export that begins now must wait.
class AdminExportTest : public WeightsExportTest {
 protected:
  AdminExportTest() : strand_(&clock_, /*tick=*/absl::InfiniteDuration()) {
    coordinator::CoordinatorConfig config;
    config.job = job_;
    config.job.global_batch_size = 6;
    config.job.bucket_bytes = kBucketBytes;
    strand_.Start(*coordinator::Coordinator::Create(config, clock_.Now()),
                  [](const coordinator::Effect&, const shards::CoordinatorRecord&) {});
    Begin(/*instance_id=*/70, /*server_incarnation=*/9);
    AdminRpc::Deps deps;
    deps.strand = &strand_;
    deps.local = &host_;
    rpc_ = std::make_unique<AdminRpc>(job_, std::move(deps));
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(rpc_.get());
    server_ = builder.BuildAndStart();
    export_ = v1::AdminService::NewStub(grpc::CreateChannel(absl::StrCat("127.0.0.1:", port),
                                                            grpc::InsecureChannelCredentials()))
                  ->Export(&context_, {});
    v1::ExportChunk head;
    EXPECT_TRUE(export_->Read(&head));
    EXPECT_EQ(head.source().round(), 1);
  }
  ~AdminExportTest() override {
    strand_.Stop();
    server_->Shutdown();
  }

  void Begin(uint64_t instance_id, uint64_t server_incarnation) {
    strand_.Run([&](coordinator::Coordinator& coordinator, absl::Time now) {
      EXPECT_OK(coordinator.OnShardAttached(0, 1, instance_id, 0, "host:0", now));
      coordinator::RestoreChoice choice = {.server_incarnation = server_incarnation};
      choice.state.emplace().ledger.next_round = 1;
      coordinator.OnRestoreChosen(choice, now);
    });
  }
  absl::Status Finish() {
    DoRoundZero();
    v1::ExportChunk chunk;
    while (export_->Read(&chunk)) {
    }
    return wire::FromGrpcStatus(export_->Finish());
  }

  SimulatedClock clock_;
  CoordinatorStrand strand_;
  std::unique_ptr<AdminRpc> rpc_;
  std::unique_ptr<grpc::Server> server_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReader<v1::ExportChunk>> export_;
};

TEST_F(AdminExportTest, HasTheRoundsThatItSays) { EXPECT_OK(Finish()); }

TEST_F(AdminExportTest, FailsWhenTheServersHaveGoneBackMeanwhile) {
  strand_.Run([](coordinator::Coordinator& own, absl::Time now) {
    own.OnShardDisconnected(0, /*instance_id=*/70, now);
  });
  Begin(/*instance_id=*/71, /*server_incarnation=*/10);
  EXPECT_THAT(Finish(), StatusIs(absl::StatusCode::kUnavailable,
                                 testing::HasSubstr("has parts from before and after")));
}

}  // namespace
}  // namespace lodestar::rpc
