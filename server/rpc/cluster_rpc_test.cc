#include "server/rpc/cluster_rpc.h"

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/version.h"
#include "server/rpc/commanded_shards.h"

namespace lodestar {
namespace {

// Tells whenever it is asked for the time; the strand asks once it is entered.
class TellingClock final : public Clock {
 public:
  absl::Time Now() override {
    if (on_asked != nullptr) on_asked();
    return absl::UnixEpoch();
  }
  void Sleep(absl::Duration) override {}

  std::function<void()> on_asked;
};

CoordinatorConfig TwoServers() {
  CoordinatorConfig config;
  config.job.model = *ModelPreset("mlp");
  config.job.global_batch_size = 6;
  config.num_shards = 2;
  return config;
}

v1::AttachShardRequest Shard1() {
  v1::AttachShardRequest request;
  request.set_wire_version(kWireVersion);
  request.set_shard(1);
  request.set_num_shards(2);
  request.set_instance_id(7);
  request.set_address("host:1");
  return request;
}

// There may be no command for long, as while a client has still to supply the weights. A server
// that does not know that it is attached gives no sign of life, and one that has missed the last
// command would learn of it with the next one only.
TEST(ClusterRpcTest, AnAttachAndEverySignOfLifeAreAnsweredOnTheStream) {
  TellingClock clock;
  CoordinatorStrand strand(&clock, /*tick=*/absl::Hours(1));
  strand.Start(*Coordinator::Create(TwoServers(), clock.Now()), [](Effect) {});
  CommandedShards shards(nullptr);
  StatusBoard board;
  ClusterRpc rpc({&strand, &shards, &board});
  int port = 0;
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&rpc);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  const auto stub = v1::ClusterService::NewStub(
      grpc::CreateChannel(absl::StrCat("127.0.0.1:", port), grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  // The limit is for an answer that does not come.
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(10));
  const auto reader = stub->AttachShard(&context, Shard1());
  v1::ShardCommand command;
  ASSERT_TRUE(reader->Read(&command));
  EXPECT_EQ(command.command_case(), v1::ShardCommand::COMMAND_NOT_SET);
  EXPECT_EQ(command.number(), 1);
  v1::ShardReport report;
  report.set_shard(1);
  report.set_instance_id(7);
  report.mutable_stats();
  grpc::ClientContext report_context;
  v1::ShardReportReply reply;
  EXPECT_TRUE(stub->ReportShard(&report_context, report, &reply).ok());
  ASSERT_TRUE(reader->Read(&command));
  EXPECT_EQ(command.command_case(), v1::ShardCommand::COMMAND_NOT_SET);
  EXPECT_EQ(command.number(), 2);
  context.TryCancel();
  EXPECT_FALSE(reader->Finish().ok());
  server->Shutdown();
}

// Else a server that attaches again in between would be given up with the connection that it left.
TEST(ClusterRpcTest, AServerIsGivenUpWithItsStreamInOneStepOfTheStrand) {
  TellingClock clock;
  CoordinatorStrand strand(&clock, /*tick=*/absl::Hours(1));
  strand.Start(*Coordinator::Create(TwoServers(), clock.Now()), [](Effect) {});
  CommandedShards shards(nullptr);
  ClusterRpc rpc({&strand, &shards, nullptr});
  const v1::AttachShardRequest request = Shard1();
  auto* const stream = rpc.AttachShard(nullptr, &request);
  ASSERT_NE(shards.Find(1, 7), nullptr);

  std::optional<bool> was_attached;
  clock.on_asked = [&] { was_attached = shards.Find(1, 7) != nullptr; };
  stream->OnDone();
  clock.on_asked = nullptr;
  EXPECT_EQ(was_attached, true) << "when the strand was entered";
  EXPECT_EQ(shards.Find(1, 7), nullptr);
  EXPECT_EQ(strand.Run([](Coordinator& coordinator, absl::Time now) {
    return coordinator.Snapshot(now).shards[1].state;
  }),
            "missing");
}

TEST(ClusterRpcTest, AServerThatStopsLetsThoseInWhoseWeightsItsLastCheckpointNeeds) {
  TellingClock clock;
  CoordinatorStrand strand(&clock, /*tick=*/absl::Hours(1));
  strand.Start(*Coordinator::Create(TwoServers(), clock.Now()), [](Effect) {});
  CommandedShards shards(nullptr);
  ClusterRpc rpc({&strand, &shards, nullptr});
  v1::AttachShardRequest request = Shard1();
  std::vector<grpc::ServerWriteReactor<v1::ShardCommand>*> streams;
  const auto attach = [&] {
    streams.push_back(rpc.AttachShard(nullptr, &request));
    const auto attached = shards.Find(1, request.instance_id());
    return attached != nullptr && attached.get() == streams.back();
  };
  EXPECT_TRUE(attach());
  strand.Run([](Coordinator& coordinator, absl::Time now) {
    EXPECT_TRUE(coordinator.OnShardAttached(0, 2, 70, 0, "host:0", now).ok());
    coordinator.OnRestoreChosen(RestoreChoice{.source = InitialSource{}, .server_incarnation = 9},
                                now);
    coordinator.OnShardLoaded(0, 9, absl::OkStatus(), now);
    coordinator.OnShardLoaded(1, 9, absl::OkStatus(), now);
  });
  rpc.BeginDrain();
  request.set_server_incarnation(9);
  EXPECT_TRUE(attach());
  request.set_instance_id(8);
  EXPECT_FALSE(attach()) << "it has no weights, whatever it says";
  request.set_instance_id(7);
  shards.EndAll(absl::AbortedError("all is saved"));
  EXPECT_FALSE(attach()) << "it would be told of the end of no stream";
  for (auto* stream : streams) stream->OnDone();
}

}  // namespace
}  // namespace lodestar
