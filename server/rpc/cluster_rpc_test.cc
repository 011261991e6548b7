#include "server/rpc/cluster_rpc.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/version.h"
#include "proto/bulk_options.h"
#include "proto/convert_cluster.h"
#include "server/rpc/commanded_shards.h"
#include "server/rpc/shard_convert.h"

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

// All that ClusterService answers with, and a client of it.
class ServedCluster {
 public:
  explicit ServedCluster(const CoordinatorConfig& config) {
    strand.Start(*Coordinator::Create(config, clock.Now()), [](Effect) {});
    int port = 0;
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&rpc);
    server_ = builder.BuildAndStart();
    stub = v1::ClusterService::NewStub(
        grpc::CreateChannel(absl::StrCat("127.0.0.1:", port), grpc::InsecureChannelCredentials()));
  }
  ~ServedCluster() { server_->Shutdown(); }

  grpc::Status Register(const RegisterCall& call, v1::RegisterReply* reply) {
    grpc::ClientContext context;
    return stub->Register(&context, ToProto(call), reply);
  }
  grpc::Status Join(const v1::RegisterReply& registered) {
    v1::JoinRequest request;
    request.set_worker_id(registered.worker_id());
    request.set_incarnation(registered.incarnation());
    request.set_layout_hash(strand.Run(
        [](Coordinator& coordinator, absl::Time) { return coordinator.map()->layout.hash(); }));
    request.mutable_dataset()->set_num_train_samples(6);
    grpc::ClientContext context;
    v1::JoinReply reply;
    return stub->Join(&context, request, &reply);
  }
  // Shows `secret`, if it is not empty.
  grpc::Status Leave(const v1::RegisterReply& registered, const std::string& secret) {
    v1::LeaveRequest request;
    request.set_worker_id(registered.worker_id());
    request.set_incarnation(registered.incarnation());
    grpc::ClientContext context;
    if (!secret.empty()) context.AddMetadata(kLifeSecretKey, secret);
    v1::LeaveReply reply;
    return stub->Leave(&context, request, &reply);
  }
  // Shard 0 has loaded.
  void Serve() {
    strand.Run([](Coordinator& coordinator, absl::Time now) {
      EXPECT_TRUE(coordinator.OnShardAttached(0, 1, 70, 0, "host:0", now).ok());
      coordinator.OnRestoreChosen(RestoreChoice{.source = InitialSource{}, .server_incarnation = 9},
                                  now);
      coordinator.OnShardLoaded(0, 9, absl::OkStatus(), now);
    });
  }

  TellingClock clock;
  CoordinatorStrand strand{&clock, /*tick=*/absl::Hours(1)};
  CommandedShards shards{nullptr};
  StatusBoard board;
  ClusterRpc rpc{{&strand, &shards, &board}};
  std::unique_ptr<v1::ClusterService::Stub> stub;

 private:
  std::unique_ptr<grpc::Server> server_;
};

// There may be no command for long, as while a client has still to supply the weights. A server
// that does not know that it is attached gives no sign of life, and one that has missed the last
// command would learn of it with the next one only.
TEST(ClusterRpcTest, AnAttachAndEverySignOfLifeAreAnsweredOnTheStream) {
  ServedCluster cluster(TwoServers());
  grpc::ClientContext context;
  // The limit is for an answer that does not come.
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(10));
  const auto reader = cluster.stub->AttachShard(&context, Shard1());
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
  EXPECT_TRUE(cluster.stub->ReportShard(&report_context, report, &reply).ok());
  ASSERT_TRUE(reader->Read(&command));
  EXPECT_EQ(command.command_case(), v1::ShardCommand::COMMAND_NOT_SET);
  EXPECT_EQ(command.number(), 2);
  context.TryCancel();
  EXPECT_FALSE(reader->Finish().ok());
}

TEST(ClusterRpcTest, ASignOfLifeTellsOfTheJournalAtNoGreatLength) {
  ServedCluster cluster(TwoServers());
  grpc::ClientContext context;
  const auto reader = cluster.stub->AttachShard(&context, Shard1());
  v1::ShardCommand command;
  ASSERT_TRUE(reader->Read(&command));
  ShardStats stats;
  stats.journal_replica = absl::StrCat("\x1b[2J", std::string(1000, 'x'));
  stats.journal_trouble = "disk full";
  v1::ShardReport report;
  report.set_shard(1);
  report.set_instance_id(7);
  *report.mutable_stats() = ToProto(stats, /*bytes_received=*/0, /*bytes_sent=*/0);
  grpc::ClientContext report_context;
  v1::ShardReportReply reply;
  ASSERT_TRUE(cluster.stub->ReportShard(&report_context, report, &reply).ok());
  const ClusterSnapshot snapshot = cluster.strand.Run(
      [](Coordinator& coordinator, absl::Time now) { return coordinator.Snapshot(now); });
  EXPECT_EQ(snapshot.shards[1].journal_replica,
            absl::StrCat("\\x1b[2J", std::string(256 - 4, 'x'), "..."));
  EXPECT_THAT(snapshot.waiting_for, ::testing::HasSubstr("the journal of shard 1: disk full"));
  context.TryCancel();
  EXPECT_FALSE(reader->Finish().ok());
}

TEST(ClusterRpcTest, AServerThatStopsLetsThoseInWhoStillHaveARoundToHandIn) {
  CoordinatorConfig config = TwoServers();
  config.num_shards = 1;
  ServedCluster cluster(config);
  cluster.Serve();
  RegisterCall worker;
  worker.name = "a";
  worker.instance_id = 1;
  RegisterCall newcomer;
  newcomer.name = "b";
  newcomer.instance_id = 2;
  v1::RegisterReply reply;
  v1::RegisterReply late;
  ASSERT_TRUE(cluster.Register(worker, &reply).ok());
  ASSERT_TRUE(cluster.Join(reply).ok());
  ASSERT_TRUE(cluster.Register(newcomer, &late).ok());
  cluster.rpc.BeginDrain();
  EXPECT_TRUE(cluster.Register(worker, &reply).ok());
  EXPECT_TRUE(cluster.Join(reply).ok());
  EXPECT_EQ(cluster.Join(late).error_code(), grpc::StatusCode::UNAVAILABLE) << "it has none yet";
  worker.instance_id = 3;
  EXPECT_EQ(cluster.Register(worker, &reply).error_code(), grpc::StatusCode::UNAVAILABLE);
}

// Whoever reads the status knows ids and incarnations.
TEST(ClusterRpcTest, NobodyLeavesInTheNameOfAnother) {
  CoordinatorConfig config = TwoServers();
  config.num_shards = 1;
  config.life_key = "a key";
  ServedCluster cluster(config);
  cluster.Serve();
  RegisterCall call;
  call.name = "a";
  call.instance_id = 1;
  v1::RegisterReply a;
  v1::RegisterReply b;
  ASSERT_TRUE(cluster.Register(call, &a).ok());
  call.name = "b";
  ASSERT_TRUE(cluster.Register(call, &b).ok());
  EXPECT_EQ(cluster.Leave(a, "").error_code(), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(cluster.Leave(a, b.life_secret()).error_code(), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(cluster.Join(a).error_code(), grpc::StatusCode::UNAUTHENTICATED);
  const auto state_of_a = [&] {
    return cluster.strand.Run([](Coordinator& coordinator, absl::Time now) {
      return coordinator.Snapshot(now).workers.front().state;
    });
  };
  EXPECT_EQ(state_of_a(), "registered");
  EXPECT_TRUE(cluster.Leave(a, a.life_secret()).ok());
  EXPECT_EQ(state_of_a(), "left");
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
