// SPDX-License-Identifier: Apache-2.0

#include "server/rpc/cluster_rpc.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "common/process/version.h"
#include "common/security/testing/test_authority.h"
#include "common/testing/status_matchers.h"
#include "proto/bulk_options.h"
#include "proto/convert_cluster.h"
#include "proto/message_checksum.h"
#include "proto/status_mapping.h"
#include "proto/transport_security.h"
#include "server/http2/guarded_reads.h"
#include "server/rpc/commanded_shards.h"
#include "server/rpc/held_connections.h"
#include "server/rpc/shard_convert.h"

namespace lodestar::rpc {
namespace {

// TellingClock notifies the test whenever it is asked for the time. The strand asks each time it is
// entered.
class TellingClock final : public Clock {
 public:
  absl::Time Now() override {
    if (on_asked != nullptr) on_asked();
    return absl::UnixEpoch();
  }
  void Sleep(absl::Duration) override {}

  std::function<void()> on_asked;
};

coordinator::CoordinatorConfig TwoServers() {
  coordinator::CoordinatorConfig config;
  config.job.model = *params::ModelPreset("mlp");
  config.job.global_batch_size = 6;
  config.num_shards = 2;
  return config;
}

coordinator::CoordinatorConfig OneServer() {
  coordinator::CoordinatorConfig config = TwoServers();
  config.num_shards = 1;
  return config;
}

v1::AttachShardRequest Shard1() {
  v1::AttachShardRequest request;
  request.set_wire_version(process::kWireVersion);
  request.set_shard(1);
  request.set_num_shards(2);
  request.set_instance_id(7);
  request.set_address("host:1");
  return request;
}

// The coordinator must give up the stream and the server in one step. Otherwise the server could
// attach again in between, and its new connection would be given up, too.
TEST(ClusterRpcTest, AServerIsGivenUpWithItsStreamInOneStepOfTheStrand) {
  TellingClock clock;
  CoordinatorStrand strand(&clock, /*tick=*/absl::Hours(1));
  strand.Start(*coordinator::Coordinator::Create(TwoServers(), clock.Now()),
               [](coordinator::Effect, const shards::CoordinatorRecord&) {});
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
  EXPECT_EQ(strand.Run([](coordinator::Coordinator& coordinator, absl::Time now) {
    return coordinator.Snapshot(now).shards[1].state;
  }),
            "missing");
}

// ServedCluster is a server of ClusterService with all it needs, and a client of it.
class ServedCluster {
 public:
  // Both sides use plain text, unless `own` and `client` say otherwise.
  explicit ServedCluster(const coordinator::CoordinatorConfig& config,
                         const wire::TransportSecurity& own = wire::TransportSecurity(),
                         const wire::TransportSecurity& client = wire::TransportSecurity(),
                         HeldConnections* held = nullptr)
      : held_connections(held) {
    strand.Start(*coordinator::Coordinator::Create(config, clock.Now()),
                 [](coordinator::Effect, const shards::CoordinatorRecord&) {});
    int port = 0;
    grpc::ServerBuilder builder;
    builder.AddListeningPort(
        "127.0.0.1:0", own.MakeServerCredentials([](const security::Identity&, absl::string_view) {
          return absl::OkStatus();
        }),
        &port);
    builder.RegisterService(&rpc);
    builder.SetMaxReceiveMessageSize(8 << 20);
    server_ = builder.BuildAndStart();
    stub = v1::ClusterService::NewStub(
        grpc::CreateChannel(absl::StrCat("127.0.0.1:", port), client.channel_credentials()));
  }
  ~ServedCluster() { server_->Shutdown(); }

  grpc::Status Register(const messages::RegisterCall& call, v1::RegisterReply* reply) {
    grpc::ClientContext context;
    return stub->Register(&context, wire::ToProto(call), reply);
  }
  // Begins a call of StayConnected. `done` gets its status when it ends.
  void StayConnected(grpc::ClientContext* context, const v1::RegisterReply& registered,
                     std::function<void(grpc::Status)> done) {
    auto request = std::make_shared<v1::StayConnectedRequest>();
    request->set_worker_id(registered.worker_id());
    request->set_incarnation(registered.incarnation());
    auto reply = std::make_shared<v1::StayConnectedReply>();
    stub->async()->StayConnected(
        context, request.get(), reply.get(),
        [request, reply, done = std::move(done)](grpc::Status status) { done(status); });
  }
  grpc::Status Join(const v1::RegisterReply& registered) {
    v1::JoinRequest request;
    request.set_worker_id(registered.worker_id());
    request.set_incarnation(registered.incarnation());
    request.set_layout_hash(strand.Run([](coordinator::Coordinator& coordinator, absl::Time) {
      return coordinator.map()->layout.hash();
    }));
    request.mutable_dataset()->set_num_train_samples(6);
    grpc::ClientContext context;
    v1::JoinReply reply;
    return stub->Join(&context, request, &reply);
  }
  // Leaves, with `secret` in the metadata if it is not empty.
  grpc::Status Leave(const v1::RegisterReply& registered, const std::string& secret) {
    v1::LeaveRequest request;
    request.set_worker_id(registered.worker_id());
    request.set_incarnation(registered.incarnation());
    grpc::ClientContext context;
    if (!secret.empty()) context.AddMetadata(wire::kLifeSecretKey, secret);
    v1::LeaveReply reply;
    return stub->Leave(&context, request, &reply);
  }
  // Makes shard 0 loaded.
  void Serve() {
    strand.Run([](coordinator::Coordinator& coordinator, absl::Time now) {
      EXPECT_TRUE(coordinator.OnShardAttached(0, 1, 70, 0, "host:0", now).ok());
      coordinator.OnRestoreChosen(
          coordinator::RestoreChoice{.source = shards::InitialSource{}, .server_incarnation = 9},
          now);
      coordinator.OnShardEvent(0, shards::ShardLoaded{9, absl::OkStatus()}, now);
    });
  }

  TellingClock clock;
  CoordinatorStrand strand{&clock, /*tick=*/absl::Hours(1)};
  CommandedShards shards{nullptr};
  status::StatusBoard board;
  std::shared_ptr<limits::RefusalCounts> refusals = std::make_shared<limits::RefusalCounts>();
  HeldConnections* const held_connections;
  ClusterRpc rpc{{.strand = &strand,
                  .shards = &shards,
                  .board = &board,
                  .refusals = refusals,
                  .refusal_pause = absl::ZeroDuration(),
                  .held_connections = held_connections}};
  std::unique_ptr<v1::ClusterService::Stub> stub;

 private:
  std::unique_ptr<grpc::Server> server_;
};

TEST(ClusterRpcTest, ARefusalIsInTheLogUnderTheIdOfTheCallWhichIsOneShortWord) {
  coordinator::CoordinatorConfig config;
  config.job.model = *params::ModelPreset("mlp");
  config.job.global_batch_size = 6;
  ServedCluster cluster(config);
  cluster.Serve();
  for (const auto& [sent, written] :
       {std::pair<std::string, std::string>("3fa9c1d2-17", "3fa9c1d2-17"),
        {"x worker=9 round=1" + std::string(1000, 'y'),
         "x?worker?9?round?1" + std::string(46, 'y')},
        {"", ""}}) {
    v1::JoinRequest request;
    request.set_worker_id(77);
    request.set_incarnation(5);
    grpc::ClientContext context;
    if (!sent.empty()) context.AddMetadata(wire::kRequestIdKey, sent);
    v1::JoinReply reply;
    ::testing::internal::CaptureStderr();
    EXPECT_FALSE(cluster.stub->Join(&context, request, &reply).ok());
    const std::string log = ::testing::internal::GetCapturedStderr();
    EXPECT_THAT(log, ::testing::HasSubstr(
                         absl::StrCat("call failed call=Join ",
                                      written.empty() ? "" : absl::StrCat("request=", written, " "),
                                      "worker=77 incarnation=5 peer=ipv4:127.0.0.1:")));
    const auto& answered = context.GetServerTrailingMetadata();
    const auto id = answered.find(wire::kRequestIdKey);
    ASSERT_EQ(id != answered.end(), !written.empty());
    if (!written.empty()) {
      EXPECT_EQ(std::string(id->second.data(), id->second.size()), written);
    }
  }
}

TEST(ClusterRpcTest, WhoIsShutOutDoesNotComeBackUnderAnotherNameOfItsCertificate) {
  coordinator::CoordinatorConfig config;
  config.job.model = *params::ModelPreset("mlp");
  config.job.global_batch_size = 6;
  config.divergence.poison_limit = 1;
  const security::TestAuthority authority;
  ServedCluster cluster(
      config,
      wire::TransportSecurity(authority.FilesFor({security::Role::kServer, "server-0", "01"})),
      wire::TransportSecurity(authority.FilesFor({security::Role::kWorker, "card", "02"})));
  cluster.Serve();
  messages::RegisterCall call;
  call.name = "card.1";
  v1::RegisterReply registered;
  ASSERT_OK(wire::FromGrpcStatus(cluster.Register(call, &registered)));
  for (int64_t round = 0; round < 2; ++round) {
    cluster.strand.Run([&](coordinator::Coordinator& coordinator, absl::Time now) {
      coordinator.OnShardEvent(
          0,
          sync::WorkerFault{.worker = WorkerId(registered.worker_id()),
                            .incarnation = Incarnation(registered.incarnation()),
                            .round = Round(round),
                            .kind = sync::WorkerFault::Kind::kTooLong,
                            .text = "a norm of 90"},
          now);
    });
  }
  call.name = "card.2";
  EXPECT_THAT(wire::FromGrpcStatus(cluster.Register(call, &registered)),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       ::testing::HasSubstr("worker 'card' is shut out")));
}

TEST(ClusterRpcTest, WhoComesUnderAnothersNameOrWithoutACertificateIsCounted) {
  coordinator::CoordinatorConfig config;
  config.job.model = *params::ModelPreset("mlp");
  config.job.global_batch_size = 6;
  const security::TestAuthority authority;
  const wire::TransportSecurity own(
      authority.FilesFor({security::Role::kServer, "server-0", "01"}));
  const auto register_as = [&](const wire::TransportSecurity& client) {
    ServedCluster cluster(config, own, client);
    cluster.Serve();
    messages::RegisterCall call;
    call.name = "other";
    v1::RegisterReply registered;
    const absl::Status answer = wire::FromGrpcStatus(cluster.Register(call, &registered));
    EXPECT_EQ(cluster.refusals->of(limits::LimitReached::kDeniedCalls),
              absl::IsUnavailable(answer) ? 0 : 1);
    return answer;
  };
  const http2::FailedHandshakes before = http2::ReadFailedHandshakes();
  EXPECT_THAT(
      register_as(
          wire::TransportSecurity(authority.FilesFor({security::Role::kWorker, "card", "02"}))),
      StatusIs(absl::StatusCode::kPermissionDenied, ::testing::HasSubstr("The name must be")));
  EXPECT_EQ(http2::ReadFailedHandshakes().count, before.count);
#ifndef LODESTAR_SANITIZER  // see guarded_reads.h
  EXPECT_THAT(register_as(wire::TransportSecurity(
                  authority.FilesFor({security::Role::kWorker, "card", "02"}, -absl::Minutes(1)))),
              StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_GT(http2::ReadFailedHandshakes().count, before.count);
  EXPECT_EQ(http2::ReadFailedHandshakes().last_reason, "certificate has expired");
#endif
}

// A HeldCall records how one call has ended.
struct HeldCall {
  std::function<void(grpc::Status)> taker() {
    return [this](const grpc::Status& status) {
      end = status;
      ended.Notify();
    };
  }
  grpc::StatusCode Await() {
    ended.WaitForNotification();
    return end.error_code();
  }

  grpc::ClientContext context;
  grpc::Status end;
  absl::Notification ended;
};

class StayConnectedTest : public ::testing::Test {
 protected:
  // Told is what the coordinator is told about connections that have ended.
  struct Told {
    messages::WorkerLife life;
    firewall::ConnectionState end = firewall::ConnectionState::kUnknown;
  };

  StayConnectedTest() {
    cluster_.Serve();
    messages::RegisterCall call;
    call.name = "a";
    call.instance_id = 1;
    EXPECT_TRUE(cluster_.Register(call, &registered_).ok());
  }
  ~StayConnectedTest() override { held_.EndAll(); }
  size_t num_told() {
    absl::MutexLock lock(&mutex_);
    return told_.size();
  }

  absl::Mutex mutex_;
  firewall::ConnectionState state_ ABSL_GUARDED_BY(mutex_) = firewall::ConnectionState::kOpen;
  std::vector<Told> told_ ABSL_GUARDED_BY(mutex_);
  HeldConnections held_{
      {[this](const std::string&) {
         absl::MutexLock lock(&mutex_);
         return state_;
       },
       [this](const messages::WorkerLife& life, const std::string&, firewall::ConnectionState end) {
         absl::MutexLock lock(&mutex_);
         told_.push_back({life, end});
       }}};
  ServedCluster cluster_{OneServer(), wire::TransportSecurity(), wire::TransportSecurity(), &held_};
  v1::RegisterReply registered_;
};

TEST_F(StayConnectedTest, RefusesLifeThatIsNotKnown) {
  HeldCall unknown;
  v1::RegisterReply other = registered_;
  other.set_incarnation(registered_.incarnation() + 1);
  cluster_.StayConnected(&unknown.context, other, unknown.taker());
  EXPECT_EQ(unknown.Await(), grpc::StatusCode::ABORTED);
}

TEST_F(StayConnectedTest, ReplacesTheCallOfTheWorkerThatWasHeldBefore) {
  HeldCall first;
  HeldCall second;
  cluster_.StayConnected(&first.context, registered_, first.taker());
  cluster_.StayConnected(&second.context, registered_, second.taker());
  // The order in which the two calls end does not matter.
  while (!first.ended.HasBeenNotified() && !second.ended.HasBeenNotified()) {
    std::this_thread::yield();
  }
  HeldCall& replaced = first.ended.HasBeenNotified() ? first : second;
  HeldCall& stays = &replaced == &first ? second : first;
  EXPECT_EQ(replaced.Await(), grpc::StatusCode::CANCELLED);
  EXPECT_FALSE(stays.ended.HasBeenNotified());
  held_.EndAll();
  EXPECT_EQ(stays.Await(), grpc::StatusCode::OK);
  EXPECT_EQ(num_told(), 0) << "this end has ended both";
  HeldCall late;
  cluster_.StayConnected(&late.context, registered_, late.taker());
  EXPECT_EQ(late.Await(), grpc::StatusCode::OK);
}

TEST_F(StayConnectedTest, TellsHowTheConnectionHasEndedUnlessItStays) {
  for (const firewall::ConnectionState state :
       {firewall::ConnectionState::kOpen, firewall::ConnectionState::kClosed,
        firewall::ConnectionState::kUnknown}) {
    {
      absl::MutexLock lock(&mutex_);
      state_ = state;
      told_.clear();
    }
    HeldCall call;
    cluster_.StayConnected(&call.context, registered_, call.taker());
    while (held_.num_held() == 0) std::this_thread::yield();
    call.context.TryCancel();
    EXPECT_EQ(call.Await(), grpc::StatusCode::CANCELLED);
    while (held_.num_held() > 0) std::this_thread::yield();
    const bool is_told = state != firewall::ConnectionState::kOpen;
    while (is_told && num_told() == 0) std::this_thread::yield();
    absl::MutexLock lock(&mutex_);
    ASSERT_EQ(told_.size(), is_told ? 1 : 0);
    for (const Told& told : told_) {
      EXPECT_EQ(told.end, state);
      EXPECT_EQ(told.life.worker.value(), registered_.worker_id());
    }
  }
}

TEST(ClusterRpcTest, StayConnectedIsAnsweredAtOnceWhereNothingFollowsFromConnections) {
  ServedCluster cluster(OneServer());
  cluster.Serve();
  messages::RegisterCall call;
  call.name = "a";
  call.instance_id = 1;
  v1::RegisterReply registered;
  ASSERT_TRUE(cluster.Register(call, &registered).ok());
  HeldCall held;
  cluster.StayConnected(&held.context, registered, held.taker());
  EXPECT_EQ(held.Await(), grpc::StatusCode::OK);
}

// A command may not come for long, for example while no client has supplied the weights. So the
// stream also carries numbers without a command. Without these numbers:
// - A server would not know that it is attached, and would give no sign of life.
// - A server that has missed the last command would notice it only with the next one.
TEST(ClusterRpcTest, AnAttachAndEverySignOfLifeAreAnsweredOnTheStream) {
  ServedCluster cluster(TwoServers());
  grpc::ClientContext context;
  // The time limit makes the test fail if no answer comes.
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

TEST(ClusterRpcTest, ADamagedReportOfAServerIsRefusedSoThatItComesAgain) {
  ServedCluster cluster(TwoServers());
  grpc::ClientContext context;
  const auto reader = cluster.stub->AttachShard(&context, Shard1());
  v1::ShardCommand command;
  ASSERT_TRUE(reader->Read(&command));
  EXPECT_OK(wire::CheckChecksum(command));
  EXPECT_NE(command.crc32c(), 0);
  v1::ShardReport report;
  report.set_shard(1);
  report.set_instance_id(7);
  report.mutable_square_sums()->add_sums(0.5);
  wire::SetChecksum(report);
  report.mutable_square_sums()->set_sums(0, 0.25);
  grpc::ClientContext report_context;
  v1::ShardReportReply reply;
  EXPECT_EQ(cluster.stub->ReportShard(&report_context, report, &reply).error_code(),
            grpc::StatusCode::DATA_LOSS);
  context.TryCancel();
  EXPECT_FALSE(reader->Finish().ok());
}

TEST(ClusterRpcTest, ASignOfLifeTellsOfTheJournalAtNoGreatLength) {
  ServedCluster cluster(TwoServers());
  grpc::ClientContext context;
  const auto reader = cluster.stub->AttachShard(&context, Shard1());
  v1::ShardCommand command;
  ASSERT_TRUE(reader->Read(&command));
  shard::ShardStats stats;
  stats.journal_replica = absl::StrCat("\x1b[2J", std::string(1000, 'x'));
  stats.journal_trouble = "disk full";
  v1::ShardReport report;
  report.set_shard(1);
  report.set_instance_id(7);
  *report.mutable_stats() = ToProto(stats, /*bytes_received=*/0, /*bytes_sent=*/0);
  grpc::ClientContext report_context;
  v1::ShardReportReply reply;
  ASSERT_TRUE(cluster.stub->ReportShard(&report_context, report, &reply).ok());
  const coordinator::ClusterSnapshot snapshot =
      cluster.strand.Run([](coordinator::Coordinator& coordinator, absl::Time now) {
        return coordinator.Snapshot(now);
      });
  EXPECT_EQ(snapshot.shards[1].journal_replica,
            absl::StrCat("\\x1b[2J", std::string(256 - 4, 'x'), "..."));
  EXPECT_THAT(snapshot.waiting_for,
              ::testing::HasSubstr("the journal of shard 1 cannot be written: disk full"));
  context.TryCancel();
  EXPECT_FALSE(reader->Finish().ok());
}

TEST(ClusterRpcTest, ASignOfLifeTellsWhoKeepsItsSpaceFromWhom) {
  shard::ShardStats stats;
  stats.push_space.unfinished = {{{WorkerId(3), Incarnation(7)}, Round(5), 6, 100, 200}};
  stats.push_space.held = {{WorkerId(1), Incarnation(8)}, {WorkerId(2), Incarnation(9)}};
  EXPECT_EQ(FromProto(ToProto(stats, 0, 0)).push_space, stats.push_space);
}

messages::RegisterCall WithLayout(int num_tensors, int name_bytes = 40) {
  std::vector<params::TensorSpec> tensors(static_cast<size_t>(num_tensors));
  for (int i = 0; i < num_tensors; ++i) {
    tensors[i].name = absl::StrCat(i, std::string(static_cast<size_t>(name_bytes), 'x'));
    tensors[i].shape = {1};
  }
  messages::RegisterCall call;
  call.name = "a";
  call.instance_id = 1;
  call.layout = *params::Layout::FromTensors(std::move(tensors));
  return call;
}

TEST(ClusterRpcTest, RegistrationsAreRefusedBeforeTheyTakeMemoryAndCounted) {
  coordinator::CoordinatorConfig config = TwoServers();
  config.job.model = *params::ModelPreset("client");
  config.registrations = {.per_origin = 5, .from_loopback = 5, .in_all = 5};
  ServedCluster cluster(config);
  const auto refused = [&](limits::LimitReached limit) { return cluster.refusals->of(limit); };
  v1::RegisterReply reply;
  // A layout that is too large is refused before it is read, so the call does not count as a
  // registration.
  grpc::Status status = cluster.Register(WithLayout((1 << 16) + 1, 1), &reply);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), ::testing::HasSubstr("more than 65536 tensors"));
  EXPECT_EQ(refused(limits::LimitReached::kLayouts), 1);
  status = cluster.Register(WithLayout(60'000, 100), &reply);
  EXPECT_THAT(status.error_message(), ::testing::HasSubstr("bytes; allowed are at most 5242880"));
  EXPECT_EQ(refused(limits::LimitReached::kLargeRegistrations), 1);
  messages::RegisterCall call;
  call.name = std::string(300, 'x');
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(cluster.Register(call, &reply).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  }
  EXPECT_EQ(refused(limits::LimitReached::kNames), 5);
  EXPECT_EQ(cluster.Register(call, &reply).error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(refused(limits::LimitReached::kRegistrations), 1);
}

// The layout of a registration stays in memory until the servers have loaded. So only a few large
// registrations may wait.
TEST(ClusterRpcTest, FewLargeRegistrationsWaitAtATime) {
  coordinator::CoordinatorConfig config = TwoServers();
  config.job.model = *params::ModelPreset("client");
  ServedCluster cluster(config);
  std::vector<std::thread> callers;
  for (int i = 0; i < 3; ++i) {
    callers.emplace_back([&cluster, i] {
      messages::RegisterCall call = WithLayout(1000);
      call.name = absl::StrCat("waits-", i);
      v1::RegisterReply reply;
      cluster.Register(call, &reply);
    });
  }
  v1::RegisterReply reply;
  grpc::Status status;
  do {
    messages::RegisterCall call = WithLayout(1000);
    call.name = "one-more";
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(50));
    status = cluster.stub->Register(&context, wire::ToProto(call), &reply);
  } while (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(),
              ::testing::HasSubstr("3 registrations of more than 16384 bytes"));
  EXPECT_GE(cluster.refusals->of(limits::LimitReached::kLargeRegistrations), 1);
  cluster.strand.Stop();
  for (std::thread& caller : callers) caller.join();
}

TEST(ClusterRpcTest, AServerThatStopsLetsThoseInWhoStillHaveARoundToHandIn) {
  coordinator::CoordinatorConfig config = TwoServers();
  config.num_shards = 1;
  ServedCluster cluster(config);
  cluster.Serve();
  messages::RegisterCall worker;
  worker.name = "a";
  worker.instance_id = 1;
  messages::RegisterCall newcomer;
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

// Ids and incarnations prove nothing, because every program that reads the status knows them. So a
// call must also have the secret of the worker.
TEST(ClusterRpcTest, NobodyLeavesInTheNameOfAnother) {
  coordinator::CoordinatorConfig config = TwoServers();
  config.num_shards = 1;
  config.life_key = "a key";
  ServedCluster cluster(config);
  cluster.Serve();
  messages::RegisterCall call;
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
    return cluster.strand.Run([](coordinator::Coordinator& coordinator, absl::Time now) {
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
  strand.Start(*coordinator::Coordinator::Create(TwoServers(), clock.Now()),
               [](coordinator::Effect, const shards::CoordinatorRecord&) {});
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
  strand.Run([](coordinator::Coordinator& coordinator, absl::Time now) {
    EXPECT_TRUE(coordinator.OnShardAttached(0, 2, 70, 0, "host:0", now).ok());
    coordinator.OnRestoreChosen(
        coordinator::RestoreChoice{.source = shards::InitialSource{}, .server_incarnation = 9},
        now);
    coordinator.OnShardEvent(0, shards::ShardLoaded{9, absl::OkStatus()}, now);
    coordinator.OnShardEvent(1, shards::ShardLoaded{9, absl::OkStatus()}, now);
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
}  // namespace lodestar::rpc
