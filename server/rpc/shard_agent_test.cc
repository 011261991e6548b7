#include "server/rpc/shard_agent.h"

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lodestar {
namespace {

using ::testing::HasSubstr;

constexpr absl::Duration kNeverOver = absl::Hours(1);

// Answers as the test says.
class ScriptedCoordinator final : public v1::ClusterService::Service {
 public:
  ScriptedCoordinator() {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
    address = absl::StrCat("127.0.0.1:", port);
  }

  ~ScriptedCoordinator() override {
    is_over_.Notify();
    server_->Shutdown();
  }

  grpc::Status AttachShard(grpc::ServerContext*, const v1::AttachShardRequest*,
                           grpc::ServerWriter<v1::ShardCommand>* writer) override {
    writer->Write({});
    if (!farewell.ok()) return farewell;
    is_over_.WaitForNotification();
    return grpc::Status::OK;
  }
  grpc::Status ReportShard(grpc::ServerContext*, const v1::ShardReport* report,
                           v1::ShardReportReply* reply) override {
    if (!report->has_stopping()) return grpc::Status::OK;
    reply->set_saved_path("ckpt/round-00000004");
    return --num_not_attached >= 0 ? grpc::Status(grpc::StatusCode::ABORTED, "attach again")
                                   : grpc::Status::OK;
  }

  std::string address;
  grpc::Status farewell;
  std::atomic<int> num_not_attached = 0;

 private:
  absl::Notification is_over_;
  std::unique_ptr<grpc::Server> server_;
};

// Of a server that has weights, and is told to stop while it connects, or once it is attached.
absl::StatusOr<PublishedCheckpoint> SaveBeforeStop(const std::string& coordinator,
                                                   absl::Duration patience,
                                                   bool is_attached = false) {
  // Takes commands, and obeys none.
  class IdleExecutor final : public Executor {
   public:
    void Schedule(Task) override {}
    int num_threads() const override { return 1; }
  } commands;
  ShardAgent agent({.coordinator = coordinator},
                   {.read_stats = [] { return ShardReading{}; }, .on_stop = [](const auto&) {}});
  ShardHost host(1, {.executor = &commands, .commands = &commands, .reports = &agent});
  AssignCommand assignment;
  assignment.server_incarnation = 3;
  host.Obey(assignment);
  agent.Start(&host, "host:1");
  while (is_attached && !agent.connection().ok()) std::this_thread::yield();
  auto saved = agent.SaveBeforeStop(patience, [] { return false; });
  agent.Stop();
  return saved;
}

TEST(ShardAgentTest, AStoppingServerThatIsJustConnectingAsksUntilItIsAnswered) {
  ScriptedCoordinator coordinator;
  coordinator.num_not_attached = 2;
  const auto saved = SaveBeforeStop(coordinator.address, kNeverOver);
  ASSERT_OK(saved);
  EXPECT_EQ(saved->path, "ckpt/round-00000004");
}

TEST(ShardAgentTest, ACoordinatorThatIsThereAndDoesNotAnswerIsALoss) {
  ScriptedCoordinator coordinator;
  coordinator.num_not_attached = 1'000'000;
  EXPECT_THAT(SaveBeforeStop(coordinator.address, absl::Milliseconds(1), /*is_attached=*/true),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("attach again")));
}

TEST(ShardAgentTest, ACoordinatorThatIsNotThereIsWaitedForOnlySoLong) {
  EXPECT_THAT(SaveBeforeStop("127.0.0.1:1", absl::Milliseconds(1)),
              StatusIs(absl::StatusCode::kUnavailable));
}

TEST(ShardAgentTest, ACoordinatorThatHasSaidThatItStopsIsNotWaitedFor) {
  ScriptedCoordinator coordinator;
  coordinator.farewell = {grpc::StatusCode::ABORTED, "all is saved in ckpt"};
  // Its answers, should it be asked before.
  coordinator.num_not_attached = 1'000'000;
  EXPECT_THAT(SaveBeforeStop(coordinator.address, kNeverOver),
              StatusIs(absl::StatusCode::kAborted, HasSubstr("all is saved")));
}

}  // namespace
}  // namespace lodestar
