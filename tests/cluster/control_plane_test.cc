// SPDX-License-Identifier: Apache-2.0

// Tests whole clusters in one process through the wire, on which clients in other languages rely.
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <cmath>
#include <limits>
#include <thread>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/runtime/status_hints.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/status_mapping.h"
#include "tests/cluster/in_process_cluster.h"
#include "tests/cluster/wire_client.h"

namespace lodestar {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

// The layout has several chunks and several buckets. Two servers get different numbers of them.
const v1::Layout& TestLayout() {
  static const v1::Layout& layout = *new v1::Layout(FlatLayout({3000, 1500, 7}));
  return layout;
}
constexpr size_t kElements = 4507;

std::vector<float> Filled(float value) { return std::vector<float>(kElements, value); }

server::ServerConfig TestConfig() {
  server::ServerConfig config = SmallJobConfig();
  config.job.bucket_bytes = 8192;
  return config;
}

v1::ClusterStatus StatusOf(const std::string& address) {
  const absl::StatusOr<v1::ClusterStatus> status = FetchStatus(address);
  EXPECT_OK(status);
  return status.value_or(v1::ClusterStatus());
}

// Returns a member of the cluster. Weights start at zero.
std::unique_ptr<WireClient> Joined(const InProcessCluster& cluster, const std::string& name,
                                   uint64_t instance_id = 1) {
  auto client = std::make_unique<WireClient>(cluster.address(), name, instance_id);
  EXPECT_OK(client->Register(TestLayout()));
  EXPECT_OK(client->SupplyAndJoin(Filled(0.0f)));
  return client;
}

// Runs one round in which worker i pushes `gradients[i]`, all at the same time. Reports go to
// `reports`.
void RunRound(const std::vector<WireClient*>& workers, const std::vector<float>& gradients,
              std::vector<std::optional<v1::RoundReport>>* reports) {
  std::vector<std::thread> threads;
  for (size_t i = 0; i < workers.size(); ++i) {
    threads.emplace_back([&, i] {
      const absl::StatusOr<v1::Grant> grant = workers[i]->NextGrant((*reports)[i]);
      ASSERT_OK(grant);
      ASSERT_EQ(grant->kind(), v1::Grant::KIND_TRAIN);
      ASSERT_OK(workers[i]->Push(v1::CONTRIBUTION_KIND_GRADIENT, grant->round(), grant->min_round(),
                                 Filled(gradients[i])));
      (*reports)[i] = ReportOf(*grant);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(ControlPlaneTest, SyncAveragesTheGradientsOfAllWorkersOverTwoServers) {
  server::ServerConfig config = TestConfig();
  config.job.min_workers = 2;
  ASSERT_OK_AND_ASSIGN(const auto cluster, InProcessCluster::Start(config, 2));
  const auto first = Joined(*cluster, "first");
  const auto second = Joined(*cluster, "second");
  std::vector<std::optional<v1::RoundReport>> reports(2);
  RunRound({first.get(), second.get()}, {2.0f, 4.0f}, &reports);
  RunRound({first.get(), second.get()}, {1.0f, 1.0f}, &reports);
  ASSERT_OK_AND_ASSIGN(const std::vector<float> weights, first->Pull(2));
  EXPECT_THAT(weights, Each(-4.0f));

  const v1::ClusterStatus status = StatusOf(cluster->address());
  EXPECT_EQ(status.state(), "training");
  ASSERT_EQ(status.shards_size(), 2);
  EXPECT_EQ(status.shards(0).state(), "serving");
  EXPECT_EQ(status.shards(0).version(), 2);
  EXPECT_EQ(status.workers_size(), 2);
  EXPECT_EQ(status.num_parameters(), kElements);
}

TEST(ControlPlaneTest, ClientThatJoinsBeforeTheFirstWeightsDoesNotShutThemOut) {
  server::ServerConfig config = TestConfig();
  // both are in the round, so neither waits for the other's lease to end
  config.job.min_workers = 2;
  ASSERT_OK_AND_ASSIGN(const auto cluster, InProcessCluster::Start(config, 2));
  WireClient supplier(cluster->address(), "supplier", 1);
  ASSERT_OK(supplier.Register(TestLayout()));
  ASSERT_TRUE(supplier.registration().needs_initial_weights());
  const auto early = Joined(*cluster, "early", 2);
  ASSERT_OK(supplier.SupplyAndJoin(Filled(3.0f)));
  ASSERT_OK_AND_ASSIGN(const std::vector<float> weights, early->Pull(0));
  EXPECT_THAT(weights, Each(3.0f));
  std::vector<std::optional<v1::RoundReport>> reports(2);
  RunRound({&supplier, early.get()}, {1.0f, 3.0f}, &reports);
  ASSERT_OK_AND_ASSIGN(const std::vector<float> after, early->Pull(1));
  EXPECT_THAT(after, Each(1.0f));
}

TEST(ControlPlaneTest, AsyncAppliesEachGradientOnArrival) {
  server::ServerConfig config = TestConfig();
  config.job.mode = job::Mode::kAsync;
  ASSERT_OK_AND_ASSIGN(const auto cluster, InProcessCluster::Start(config, 1));
  const auto first = Joined(*cluster, "first");
  const auto second = Joined(*cluster, "second");
  ASSERT_OK_AND_ASSIGN(const v1::Grant a, first->NextGrant(std::nullopt));
  ASSERT_OK_AND_ASSIGN(const v1::Grant b, second->NextGrant(std::nullopt));
  ASSERT_OK(second->Push(v1::CONTRIBUTION_KIND_GRADIENT, b.round(), 0, Filled(2.0f)));
  ASSERT_OK(first->Push(v1::CONTRIBUTION_KIND_GRADIENT, a.round(), 0, Filled(3.0f)));
  ASSERT_OK_AND_ASSIGN(const std::vector<float> weights, first->Pull(2));
  EXPECT_THAT(weights, Each(-5.0f));
}

TEST(ControlPlaneTest, LocalSgdAveragesWeights) {
  server::ServerConfig config = TestConfig();
  config.job.mode = job::Mode::kLocalSgd;
  config.job.local_steps = 3;
  config.job.outer_optimizer = job::OuterOptimizerKind::kAverage;
  ASSERT_OK_AND_ASSIGN(const auto cluster, InProcessCluster::Start(config, 1));
  const auto worker = Joined(*cluster, "only");
  ASSERT_OK_AND_ASSIGN(const v1::Grant grant, worker->NextGrant(std::nullopt));
  EXPECT_EQ(grant.local_steps(), 3);
  EXPECT_EQ(grant.learning_rates_size(), 3);
  EXPECT_EQ(grant.num_samples(), 12);
  ASSERT_OK(worker->Push(v1::CONTRIBUTION_KIND_WEIGHTS, 0, 0, Filled(7.0f)));
  ASSERT_OK_AND_ASSIGN(const std::vector<float> weights, worker->Pull(1));
  EXPECT_THAT(weights, Each(7.0f));
}

TEST(ControlPlaneTest, AGrantAskedForAheadComesOnceAllServersHaveTheContribution) {
  ASSERT_OK_AND_ASSIGN(const auto cluster, InProcessCluster::Start(TestConfig(), 2));
  const auto worker = Joined(*cluster, "only");
  EXPECT_THAT(worker->AskForGrant(std::nullopt, absl::Milliseconds(1), /*ahead=*/true),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("ahead")));
  ASSERT_OK_AND_ASSIGN(v1::Grant grant, worker->NextGrant(std::nullopt));
  for (int64_t round = 0; round < 3; ++round) {
    ASSERT_OK_AND_ASSIGN(
        const v1::Grant wait,
        worker->AskForGrant(ReportOf(grant), absl::Milliseconds(1), /*ahead=*/true));
    EXPECT_EQ(wait.kind(), v1::Grant::KIND_WAIT);
    EXPECT_THAT(wait.reason(), HasSubstr("on its way"));
    absl::StatusOr<v1::Grant> next;
    std::thread asks([&] {
      next = worker->AskForGrant(ReportOf(grant), WireClient::kCallDeadline, /*ahead=*/true);
    });
    ASSERT_OK(worker->Push(v1::CONTRIBUTION_KIND_GRADIENT, grant.round(), round, Filled(1.0f)));
    asks.join();
    ASSERT_OK(next);
    EXPECT_EQ(next->kind(), v1::Grant::KIND_TRAIN);
    EXPECT_EQ(next->round(), round + 1);
    ASSERT_OK_AND_ASSIGN(const v1::Grant again, worker->NextGrant(ReportOf(grant)));
    EXPECT_EQ(again.round(), round + 1) << "a repeat";
    grant = *next;
  }
  EXPECT_EQ(StatusOf(cluster->address()).shards(0).version(), 3);
}

TEST(ControlPlaneTest, RepeatedPushCountsOnceAndSaysSo) {
  ASSERT_OK_AND_ASSIGN(const auto cluster, InProcessCluster::Start(TestConfig(), 1));
  const auto worker = Joined(*cluster, "only");
  ASSERT_OK_AND_ASSIGN(const v1::Grant grant, worker->NextGrant(std::nullopt));
  ASSERT_OK(worker->Push(v1::CONTRIBUTION_KIND_GRADIENT, grant.round(), 0, Filled(1.0f)));
  ASSERT_OK_AND_ASSIGN(const v1::PushReply again, worker->Push(v1::CONTRIBUTION_KIND_GRADIENT,
                                                               grant.round(), 0, Filled(1.0f)));
  EXPECT_EQ(again.buckets_counted(), 0u);
  EXPECT_EQ(again.buckets_duplicate(), worker->registration().buckets_size());
  ASSERT_OK_AND_ASSIGN(const std::vector<float> weights, worker->Pull(1));
  EXPECT_THAT(weights, Each(-1.0f));
}

TEST(ControlPlaneTest, NameInUseIsRefusedWithTheHolder) {
  ASSERT_OK_AND_ASSIGN(const auto cluster, InProcessCluster::Start(TestConfig(), 1));
  const auto holder = Joined(*cluster, "same", 1);
  WireClient intruder(cluster->address(), "same", 2);
  EXPECT_THAT(intruder.Register(TestLayout()),
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("same")));
  WireClient reconnected(cluster->address(), "same", 1);
  ASSERT_OK(reconnected.Register(TestLayout()));
  EXPECT_EQ(reconnected.registration().incarnation(), holder->registration().incarnation());
}

TEST(ControlPlaneTest, BadRegistrationsAreRefusedAndHarmless) {
  ASSERT_OK_AND_ASSIGN(const auto cluster, InProcessCluster::Start(TestConfig(), 1));
  WireClient bad_name(cluster->address(), "no spaces please", 1);
  EXPECT_THAT(bad_name.Register(TestLayout()), StatusIs(absl::StatusCode::kInvalidArgument));
  WireClient bad_layout(cluster->address(), "a", 2);
  EXPECT_THAT(bad_layout.Register(FlatLayout({-3})),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("tensor0")));
  WireClient no_life(cluster->address(), "b", 3);
  EXPECT_THAT(no_life.Heartbeat(), StatusIs(absl::StatusCode::kAborted));
  const auto worker = Joined(*cluster, "good");
  WireClient other_layout(cluster->address(), "c", 4);
  EXPECT_FALSE(other_layout.Register(FlatLayout({5, 5})).ok());
}

TEST(ControlPlaneTest, HeldGrantIsAnsweredWithWhatItWaitsFor) {
  server::ServerConfig config = TestConfig();
  config.job.min_workers = 2;
  ASSERT_OK_AND_ASSIGN(const auto cluster, InProcessCluster::Start(config, 1));
  const auto first = Joined(*cluster, "first");
  ASSERT_OK_AND_ASSIGN(const v1::Grant waited,
                       first->AskForGrant(std::nullopt, absl::Milliseconds(1)));
  EXPECT_EQ(waited.kind(), v1::Grant::KIND_WAIT);
  EXPECT_THAT(waited.reason(), HasSubstr("2"));
  EXPECT_THAT(StatusOf(cluster->address()).open_round().waiting_for(), HasSubstr("2"));
}

TEST(ControlPlaneTest, RoundGoesOnWithoutAWorkerWhoseLeaseIsOver) {
  server::ServerConfig config = TestConfig();
  config.job.min_workers = 2;
  config.cluster.lease = absl::Milliseconds(300);
  ASSERT_OK_AND_ASSIGN(const auto cluster, InProcessCluster::Start(config, 1));
  const auto stays = Joined(*cluster, "stays");
  const auto dies = Joined(*cluster, "dies");
  absl::StatusOr<v1::Grant> lost;
  std::thread other([&] { lost = dies->NextGrant(std::nullopt); });
  ASSERT_OK_AND_ASSIGN(const v1::Grant grant, stays->NextGrant(std::nullopt));
  other.join();
  ASSERT_OK(lost);
  std::thread heart([&] {
    while (stays->Heartbeat().ok() && StatusOf(cluster->address()).workers(1).state() == "member") {
    }
  });
  ASSERT_OK(stays->Push(v1::CONTRIBUTION_KIND_GRADIENT, 0, 0, Filled(6.0f)));
  ASSERT_OK_AND_ASSIGN(const std::vector<float> weights, stays->Pull(1));
  heart.join();
  EXPECT_THAT(weights, Each(-6.0f));
  EXPECT_EQ(StatusOf(cluster->address()).workers(1).state(), "expired");
}

TEST(ControlPlaneTest, ClippingGivesTheSameBitsForAnyNumberOfServers) {
  std::vector<std::vector<float>> results;
  for (const int num_shards : {1, 2, 3}) {
    server::ServerConfig config = TestConfig();
    config.job.clip_norm = 0.7;
    ASSERT_OK_AND_ASSIGN(const auto cluster, InProcessCluster::Start(config, num_shards));
    const auto worker = Joined(*cluster, "only");
    std::vector<float> gradient(kElements);
    for (size_t i = 0; i < kElements; ++i) gradient[i] = 0.01f * static_cast<float>(i % 97) - 0.3f;
    std::optional<v1::RoundReport> report;
    for (int round = 0; round < 3; ++round) {
      ASSERT_OK_AND_ASSIGN(const v1::Grant grant, worker->NextGrant(report));
      ASSERT_OK(worker->Push(v1::CONTRIBUTION_KIND_GRADIENT, round, round, gradient));
      report = ReportOf(grant);
    }
    ASSERT_OK_AND_ASSIGN(results.emplace_back(), worker->Pull(3));
  }
  double square_sum = 0.0;
  for (const float weight : results[0]) square_sum += static_cast<double>(weight) * weight;
  EXPECT_NEAR(std::sqrt(square_sum), 3 * 0.7, 1e-3);
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(results[0], results[2]);
}

TEST(ControlPlaneTest, CompleteJobTellsWorkersAndThenTheServersExit) {
  server::ServerConfig config = TestConfig();
  config.job.schedule.total_rounds = 1;
  config.exit_when_done = true;
  ASSERT_OK_AND_ASSIGN(const auto cluster, InProcessCluster::Start(config, 2));
  const auto worker = Joined(*cluster, "only");
  std::vector<std::optional<v1::RoundReport>> reports(1);
  RunRound({worker.get()}, {1.0f}, &reports);
  ASSERT_OK_AND_ASSIGN(v1::Grant last, worker->NextGrant(reports[0]));
  if (last.kind() == v1::Grant::KIND_EVALUATE) {
    ASSERT_OK_AND_ASSIGN(last, worker->NextGrant(ReportOf(last)));
  }
  EXPECT_EQ(last.kind(), v1::Grant::KIND_DONE);
  EXPECT_OK(worker->Leave());
  EXPECT_OK(cluster->server(0).Wait());
  EXPECT_OK(cluster->server(1).Wait());
  EXPECT_TRUE(cluster->server(0).is_job_done());
}

TEST(ControlPlaneTest, WhatALeavingClientSaysIsShortAndOfOneLine) {
  ASSERT_OK_AND_ASSIGN(const auto cluster, InProcessCluster::Start(TestConfig(), 1));
  const std::string flood(size_t{1} << 20, 'x');
  EXPECT_OK(Joined(*cluster, "liar")->Leave({}, absl::StrCat("a\n\x1b[2J\u00e9", flood)));
  ASSERT_OK_AND_ASSIGN(const v1::ClusterStatus status, FetchStatus(cluster->address()));
  ASSERT_EQ(status.workers_size(), 1);
  EXPECT_THAT(status.workers(0).reason(), HasSubstr("a\\n\\x1b[2J\u00e9xxx"));
  EXPECT_LT(status.workers(0).reason().size(), 2000);
}

TEST(ControlPlaneTest, HealthIsServingOnceTheWeightsAreThere) {
  ASSERT_OK_AND_ASSIGN(const auto cluster, InProcessCluster::Start(TestConfig(), 1));
  const auto channel = grpc::CreateChannel(cluster->address(), grpc::InsecureChannelCredentials());
  // Encodes HealthCheckRequest{service} and decodes HealthCheckResponse{status} by hand. The status
  // of the call shows that the service is there. The byte of field 1 is 1 if it serves, and 2 if
  // not.
  const auto check = [&channel](const std::string& service) -> int {
    grpc::GenericStub stub(channel);
    grpc::ClientContext context;
    std::string request;
    if (!service.empty()) {
      request = absl::StrCat("\x0a", std::string(1, static_cast<char>(service.size())), service);
    }
    grpc::Slice slice(request);
    grpc::ByteBuffer message(&slice, 1);
    grpc::ByteBuffer answer;
    grpc::CompletionQueue queue;
    const auto call =
        stub.PrepareUnaryCall(&context, "/grpc.health.v1.Health/Check", message, &queue);
    grpc::Status status;
    call->StartCall();
    call->Finish(&answer, &status, nullptr);
    void* tag = nullptr;
    bool ok = false;
    queue.Next(&tag, &ok);
    if (!status.ok()) return -1;
    grpc::Slice reply;
    if (!answer.DumpToSingleSlice(&reply).ok() || reply.size() != 2) return -1;
    return reply.begin()[1];
  };
  constexpr int kServing = 1;
  constexpr int kNotServing = 2;
  EXPECT_EQ(check("lodestar.v1.ParameterService"), kNotServing);
  const auto worker = Joined(*cluster, "only");
  while (check("lodestar.v1.ParameterService") != kServing) {
    ASSERT_OK(worker->Heartbeat());
  }
  EXPECT_EQ(check(""), kServing);
}

TEST(ControlPlaneTest, WatchSendsOneStatusAfterTheOtherUntilTheServerStops) {
  ASSERT_OK_AND_ASSIGN(const auto cluster, InProcessCluster::Start(TestConfig(), 1));
  const auto stub = v1::StatusService::NewStub(
      grpc::CreateChannel(cluster->address(), grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  v1::WatchStatusRequest request;
  request.set_interval_ms(100);
  const auto reader = stub->WatchStatus(&context, request);
  v1::ClusterStatus status;
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(reader->Read(&status));
  EXPECT_EQ(status.state(), "waiting_for_layout");
  cluster->Stop(0, server::Server::StopKind::kGraceful);
  while (reader->Read(&status)) {
  }
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST(ControlPlaneTest, OtherServersSayWhereTheCoordinatorIs) {
  ASSERT_OK_AND_ASSIGN(const auto cluster, InProcessCluster::Start(TestConfig(), 2));
  const std::string& other = cluster->server(1).address();
  const absl::Status status = FetchStatus(other).status();
  EXPECT_THAT(status,
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("server of shard 1"), HasSubstr(cluster->address()))));
  EXPECT_EQ(CoordinatorOf(status), cluster->address());
  WireClient worker(other, "astray", 1);
  EXPECT_EQ(CoordinatorOf(worker.TryRegister(TestLayout())), cluster->address());

  grpc::GenericStub stub(grpc::CreateChannel(other, grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  grpc::CompletionQueue queue;
  const auto call = stub.PrepareUnaryCall(&context, "/some.Service/Call", {}, &queue);
  grpc::ByteBuffer answer;
  grpc::Status unknown;
  call->StartCall();
  call->Finish(&answer, &unknown, nullptr);
  void* tag = nullptr;
  bool ok = false;
  queue.Next(&tag, &ok);
  EXPECT_EQ(unknown.error_code(), grpc::StatusCode::UNIMPLEMENTED);
}

TEST(ControlPlaneTest, TakenPortIsAnError) {
  ASSERT_OK_AND_ASSIGN(const auto cluster, InProcessCluster::Start(TestConfig(), 1));
  server::ServerConfig config = TestConfig();
  config.network.listen.port = cluster->server(0).port();
  EXPECT_THAT(
      server::Server::Create(config, {}).status(),
      StatusIs(absl::StatusCode::kUnavailable,
               AllOf(HasSubstr(absl::StrCat(config.network.listen.port)), HasSubstr("in use"))));
}

// Returns a channel with a connection of its own, once it is connected.
std::shared_ptr<grpc::Channel> Connected(const std::string& address) {
  grpc::ChannelArguments own_connection;
  own_connection.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  auto channel =
      grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), own_connection);
  EXPECT_TRUE(channel->WaitForConnected(absl::ToChronoTime(absl::Now() + absl::Seconds(20))));
  return channel;
}

TEST(ControlPlaneTest, ConnectionsThatAreTooManyAreSaidAndCounted) {
  server::ServerConfig config = TestConfig();
  config.limits.max_connections = 8;
  ASSERT_OK_AND_ASSIGN(const auto cluster, InProcessCluster::Start(config, 1));
  std::vector<std::shared_ptr<grpc::Channel>> channels;
  while (channels.size() < 8) channels.push_back(Connected(cluster->address()));
  EXPECT_THAT(FetchStatus(cluster->address()),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("--max_connections")));
  const auto stub = v1::StatusService::NewStub(channels[0]);
  v1::ClusterStatus status;
  const auto alarm = [&status] {
    return absl::c_find_if(status.alarms(), [](const v1::Alarm& raised) {
      return absl::StrContains(raised.text(), "--max_connections");
    });
  };
  do {
    grpc::ClientContext context;
    ASSERT_TRUE(stub->GetStatus(&context, {}, &status).ok());
  } while (alarm() == status.alarms().end());
  EXPECT_TRUE(alarm()->is_reminder());
  EXPECT_EQ(status.port().connections(), 8);
  EXPECT_EQ(status.port().max_connections(), 8);
  EXPECT_GE(status.port().accepted(), 9);
  ASSERT_EQ(status.port().refused_size(), 1);
  EXPECT_EQ(status.port().refused(0).reason(), "too many");
}

// A client that begins to read an export and then stops reading until ReadAll().
class ExportReader {
 public:
  explicit ExportReader(const std::string& address) {
    grpc::ChannelArguments own_connection;
    own_connection.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    reader_ =
        v1::AdminService::NewStub(
            grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), own_connection))
            ->Export(&context_, {});
    reader_->Read(&chunk_);
  }
  ~ExportReader() {
    context_.TryCancel();
    ReadAll().IgnoreError();
  }

  absl::Status ReadAll() {
    if (outcome_.has_value()) return *outcome_;
    while (reader_->Read(&chunk_)) {
    }
    outcome_ = wire::FromGrpcStatus(reader_->Finish());
    return *outcome_;
  }

 private:
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReader<v1::ExportChunk>> reader_;
  v1::ExportChunk chunk_;
  std::optional<absl::Status> outcome_;
};

TEST(ControlPlaneTest, ExportsThatNobodyReadsDoNotBlockAnother) {
  ASSERT_OK_AND_ASSIGN(const auto cluster, InProcessCluster::Start(SmallJobConfig(), 1));
  WireClient client(cluster->address(), "supplier", 1);
  constexpr size_t kManyElements = 1 << 22;  // more than connections can buffer
  ASSERT_OK(client.Register(FlatLayout({kManyElements})));
  ASSERT_OK(client.SupplyAndJoin(std::vector<float>(kManyElements)));
  ExportReader first(cluster->address());
  ExportReader second(cluster->address());
  ExportReader third(cluster->address());
  EXPECT_OK(ExportReader(cluster->address()).ReadAll());
  ExportReader fourth(cluster->address());
  EXPECT_THAT(ExportReader(cluster->address()).ReadAll(),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("4 exports")));
  EXPECT_OK(first.ReadAll());
  EXPECT_OK(ExportReader(cluster->address()).ReadAll());
}

TEST(ControlPlaneTest, AMeanGradientIsNotExportedAsWeights) {
  server::ServerConfig config = SmallJobConfig();
  config.job.optimizer.kind = job::OptimizerKind::kReduce;
  ASSERT_OK_AND_ASSIGN(const auto cluster, InProcessCluster::Start(config, 1));
  EXPECT_THAT(ExportReader(cluster->address()).ReadAll(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("and no weights")));
}

}  // namespace
}  // namespace lodestar
