// SPDX-License-Identifier: Apache-2.0

// Tests real workers in this process whose servers or fellow workers misbehave.
#include <grpcpp/grpcpp.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "common/logging/log_tail.h"
#include "common/logging/logging.h"
#include "common/params/model_spec.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/bulk_options.h"
#include "proto/cluster_service.grpc.pb.h"
#include "proto/convert.h"
#include "tests/cluster/in_process_cluster.h"
#include "tests/cluster/training_data.h"
#include "tests/cluster/wire_client.h"
#include "worker/built_in_workload.h"
#include "worker/capi/lodestar_worker.h"
#include "worker/client/cluster_session.h"
#include "worker/data/testing/test_folder.h"
#include "worker/worker.h"

namespace lodestar {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class WorkerLifeTest : public testing::Test {
 protected:
  WorkerLifeTest() { WriteImages(images_); }

  static server::ServerConfig Config() {
    server::ServerConfig config = SmallJobConfig();
    config.job.model = {"mlp", params::MlpSpec{{kImageSide * kImageSide, 8, kImageClasses}}};
    return config;
  }

  std::unique_ptr<worker::Worker> MakeWorker(const std::string& coordinator,
                                             const std::string& name,
                                             worker::Worker::Config config = {}) const {
    config.coordinator = net::AddressList::Of(coordinator);
    config.name = name;
    config.instance_id = 1;
    config.device = {.kind = "cpu", .threads = 1};
    auto worker =
        worker::MakeBuiltInWorker(config, {.data = {.path = images_.root()}}, &Clock::Real());
    EXPECT_OK(worker);
    return *std::move(worker);
  }

  const data::TestFolder images_;
};

// A worker whose push stays unanswered: `silent` comes before it in the order of summation, and
// never pushes.
struct Standoff {
  ~Standoff() {
    if (run.joinable()) run.join();
  }
  std::unique_ptr<InProcessCluster> cluster;
  std::unique_ptr<WireClient> silent;
  std::unique_ptr<worker::Worker> worker;
  absl::Status left;
  std::thread run;
};

class StandoffTest : public WorkerLifeTest {
 protected:
  void Begin(const worker::Worker::Config& told, Standoff* standoff) {
    server::ServerConfig config = Config();
    config.job.min_workers = 2;
    config.cluster.lease = absl::Seconds(2);
    ASSERT_OK_AND_ASSIGN(standoff->cluster, InProcessCluster::Start(config, 1));
    const std::string address = standoff->cluster->address();
    standoff->silent = std::make_unique<WireClient>(address, "silent", 1);
    ASSERT_OK_AND_ASSIGN(const params::Layout layout, params::BuildLayout(config.job.model));
    ASSERT_OK(standoff->silent->Register(wire::ToProto(layout)));
    ASSERT_OK(standoff->silent->Join());
    standoff->worker = MakeWorker(address, "told", told);
    standoff->run = std::thread([standoff] { standoff->left = standoff->worker->Run(); });
    ASSERT_OK(standoff->silent->NextGrant(std::nullopt));  // now both have a grant
    while (FetchStatus(address)->workers(1).activity() != "push") {
      ASSERT_OK(standoff->silent->Heartbeat());
    }
  }
};

TEST_F(StandoffTest, ToldToStopItGivesUpOnServersThatKeepItWaiting) {
  worker::Worker::Config impatient;
  impatient.life.leave_timeout = absl::Milliseconds(1);
  Standoff standoff;
  ASSERT_NO_FATAL_FAILURE(Begin(impatient, &standoff));
  standoff.worker->RequestStop();
  standoff.run.join();
  EXPECT_THAT(
      standoff.left,
      StatusIs(absl::StatusCode::kDeadlineExceeded,
               HasSubstr("--leave_timeout): the contribution to round 0 is not delivered")));
}

TEST_F(StandoffTest, ToldToStopItSaysThatItsRoundWentWithItsLife) {
  Standoff standoff;
  ASSERT_NO_FATAL_FAILURE(Begin({}, &standoff));
  standoff.cluster->Stop(0, server::Server::StopKind::kImmediate);
  standoff.worker->RequestStop();
  ASSERT_OK(standoff.cluster->StartAgain(0));
  standoff.run.join();
  EXPECT_THAT(standoff.left,
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       HasSubstr("incarnation: the contribution to round 0 is not delivered")));
}

// Passes on the metadata by which a call shows its caller.
void PassOn(const grpc::ServerContext& call, grpc::ClientContext& context) {
  for (const auto& [key, value] : call.client_metadata()) {
    if (key != wire::kLifeSecretKey) continue;
    context.AddMetadata(wire::kLifeSecretKey, std::string(value.data(), value.size()));
  }
}

// Passes a worker's calls on to the coordinator.
class Path : public v1::ClusterService::Service {
 public:
  explicit Path(const std::string& coordinator)
      : coordinator_(v1::ClusterService::NewStub(
            grpc::CreateChannel(coordinator, grpc::InsecureChannelCredentials()))) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }

  std::string address() const { return absl::StrCat("127.0.0.1:", port_); }
  void Close() { server_->Shutdown(); }

  grpc::Status Register(grpc::ServerContext* call, const v1::RegisterRequest* request,
                        v1::RegisterReply* reply) override {
    grpc::ClientContext context;
    PassOn(*call, context);
    return coordinator_->Register(&context, *request, reply);
  }
  grpc::Status Join(grpc::ServerContext* call, const v1::JoinRequest* request,
                    v1::JoinReply* reply) override {
    grpc::ClientContext context;
    PassOn(*call, context);
    return coordinator_->Join(&context, *request, reply);
  }
  grpc::Status Heartbeat(grpc::ServerContext* call, const v1::HeartbeatRequest* request,
                         v1::HeartbeatReply* reply) override {
    grpc::ClientContext context;
    PassOn(*call, context);
    return coordinator_->Heartbeat(&context, *request, reply);
  }
  grpc::Status NextGrant(grpc::ServerContext* call, const v1::GrantRequest* request,
                         v1::Grant* reply) override {
    grpc::ClientContext context;
    PassOn(*call, context);
    return coordinator_->NextGrant(&context, *request, reply);
  }
  grpc::Status Leave(grpc::ServerContext* call, const v1::LeaveRequest* request,
                     v1::LeaveReply* reply) override {
    grpc::ClientContext context;
    PassOn(*call, context);
    return coordinator_->Leave(&context, *request, reply);
  }

 private:
  const std::unique_ptr<v1::ClusterService::Stub> coordinator_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

// Fails the calls with the report of round `cut` once, with `code`, like a path that is down for a
// moment or damages an answer.
class CutPath final : public Path {
 public:
  CutPath(const std::string& coordinator, int64_t cut, grpc::StatusCode code)
      : Path(coordinator), cut_(cut), code_(code) {}
  ~CutPath() override { Close(); }

  // Returns the rounds whose reports have come, in order.
  std::vector<int64_t> reports() const { return reports_; }

  grpc::Status NextGrant(grpc::ServerContext* call, const v1::GrantRequest* request,
                         v1::Grant* reply) override {
    if (request->has_report()) {
      reports_.push_back(request->report().round());
      if (reports_.back() == cut_) {
        cut_ = kNothing;
        return grpc::Status(code_, "");
      }
    }
    return Path::NextGrant(call, request, reply);
  }

 private:
  static constexpr int64_t kNothing = -1;

  int64_t cut_;
  const grpc::StatusCode code_;
  std::vector<int64_t> reports_;  // written by one call at a time, and read after the last call
};

// Flips a bit of the answers to Register and NextGrant, `times` times each. Then the layout does
// not match its hash, and the grant has fewer learning rates than steps.
class DamagingPath final : public Path {
 public:
  DamagingPath(const std::string& coordinator, int times)
      : Path(coordinator), registrations_(times), grants_(times) {}
  ~DamagingPath() override { Close(); }

  grpc::Status Register(grpc::ServerContext* call, const v1::RegisterRequest* request,
                        v1::RegisterReply* reply) override {
    const grpc::Status status = Path::Register(call, request, reply);
    if (status.ok() && registrations_ > 0) {
      --registrations_;
      reply->mutable_layout()->mutable_tensors(0)->mutable_name()->at(0) ^= 1;
    }
    return status;
  }
  grpc::Status NextGrant(grpc::ServerContext* call, const v1::GrantRequest* request,
                         v1::Grant* reply) override {
    const grpc::Status status = Path::NextGrant(call, request, reply);
    if (status.ok() && reply->kind() == v1::Grant::KIND_TRAIN && grants_ > 0) {
      --grants_;
      reply->set_local_steps(reply->local_steps() ^ 2);
    }
    return status;
  }

 private:
  std::atomic<int> registrations_;
  std::atomic<int> grants_;
};

// Answers the first report with the end of the job, whose last weights then never come.
class FinishingPath final : public Path {
 public:
  explicit FinishingPath(const std::string& coordinator) : Path(coordinator) {}
  ~FinishingPath() override { Close(); }

  absl::Notification is_done;

  grpc::Status NextGrant(grpc::ServerContext* call, const v1::GrantRequest* request,
                         v1::Grant* reply) override {
    if (!request->has_report()) return Path::NextGrant(call, request, reply);
    reply->set_kind(v1::Grant::KIND_DONE);
    reply->set_round(kNeverOpened);
    reply->set_total_rounds(kNeverOpened);
    if (!is_done.HasBeenNotified()) is_done.Notify();
    return grpc::Status::OK;
  }

 private:
  static constexpr int64_t kNeverOpened = 1000;
};

TEST_F(WorkerLifeTest, LastWeightsThatAProgramDoesNotWaitForAreLoggedAndNoError) {
  server::ServerConfig config = SmallJobConfig();
  config.job.min_workers = 1;
  ASSERT_OK_AND_ASSIGN(const auto cluster, InProcessCluster::Start(config, 1));
  FinishingPath path(cluster->address());
  logging::LogTail tail;
  logging::KeepLog(&tail);
  lodestar_worker* const worker = lodestar_new();
  ASSERT_EQ(lodestar_set(worker, "coordinator", path.address().c_str()), 0);
  ASSERT_EQ(lodestar_set(worker, "leave_timeout", "1s"), 0) << lodestar_last_error();
  const int64_t shape[] = {1};
  ASSERT_EQ(lodestar_add_tensor(worker, "weight", shape, 1, 0, 0), 0);
  ASSERT_EQ(lodestar_set_data(worker, "", 64, 0, 1, 0), 0);
  ASSERT_EQ(lodestar_allocate(worker), 0);
  ASSERT_EQ(lodestar_start(worker), 0) << lodestar_last_error();
  lodestar_step step = {};
  step.size = sizeof(step);
  ASSERT_EQ(lodestar_next(worker, &step), 0) << lodestar_last_error();
  ASSERT_EQ(lodestar_step_done(worker, 1.0, 0, 1), 0);
  path.is_done.WaitForNotification();
  EXPECT_EQ(lodestar_leave(worker), 0) << lodestar_last_error();
  lodestar_free(worker);
  logging::KeepLog(nullptr);
  const logging::LogExcerpt warnings = tail.Read({.least_level = logging::LogLevel::kWarn});
  EXPECT_THAT(warnings.lines, testing::Contains(testing::Field(&logging::LogLineRecord::text,
                                                               HasSubstr("its last weights"))));
}

TEST_F(WorkerLifeTest, ADamagedAnswerIsAskedForAgain) {
  server::ServerConfig config = Config();
  config.job.schedule.total_rounds = 3;
  ASSERT_OK_AND_ASSIGN(const auto cluster, InProcessCluster::Start(config, 1));
  const DamagingPath path(cluster->address(), /*times=*/2);
  EXPECT_OK(MakeWorker(path.address(), "unlucky")->Run());
  ASSERT_OK_AND_ASSIGN(const v1::ClusterStatus status, FetchStatus(cluster->address()));
  EXPECT_EQ(status.state(), "done");
  EXPECT_EQ(status.shards(0).contributions_duplicate(), 0);
}

TEST_F(WorkerLifeTest, WhoseAnswersAreNeverUnderstoodIsLeft) {
  ASSERT_OK_AND_ASSIGN(const auto cluster, InProcessCluster::Start(Config(), 1));
  const DamagingPath path(cluster->address(), /*times=*/1000);
  worker::Worker::Config config;
  config.life.first_backoff = absl::Milliseconds(1);
  EXPECT_THAT(MakeWorker(path.address(), "astray", config)->Run(),
              StatusIs(absl::StatusCode::kUnimplemented,
                       AllOf(HasSubstr(path.address()),
                             HasSubstr("its answer to Register was damaged on the network, or "
                                       "comes from another release"))));
}

class CutPathTest : public WorkerLifeTest, public testing::WithParamInterface<grpc::StatusCode> {};

TEST_P(CutPathTest, AReconnectStillOwesItsReportAndComputesNoRoundTwice) {
  server::ServerConfig config = Config();
  config.job.schedule.total_rounds = 3;
  ASSERT_OK_AND_ASSIGN(const auto cluster, InProcessCluster::Start(config, 1));
  const CutPath path(cluster->address(), /*cut=*/1, GetParam());
  EXPECT_OK(MakeWorker(path.address(), "cut")->Run());
  EXPECT_THAT(path.reports(), ElementsAre(0, 1, 1, 2, 3));  // 3 belongs to the last evaluation
  ASSERT_OK_AND_ASSIGN(const v1::ClusterStatus status, FetchStatus(cluster->address()));
  EXPECT_EQ(status.shards(0).contributions_duplicate(), 0);
}

// OUT_OF_RANGE is OK with one bit flipped.
INSTANTIATE_TEST_SUITE_P(Codes, CutPathTest,
                         testing::Values(grpc::StatusCode::UNAVAILABLE,
                                         grpc::StatusCode::UNIMPLEMENTED,
                                         grpc::StatusCode::OUT_OF_RANGE));

TEST_F(WorkerLifeTest, AServerThatKnowsNoneOfItsCallsIsNone) {
  int port = 0;
  v1::ClusterService::Service stranger;
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&stranger);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  worker::Worker::Config config;
  config.life.first_backoff = absl::Milliseconds(1);
  EXPECT_THAT(MakeWorker(absl::StrCat("127.0.0.1:", port), "astray", config)->Run(),
              StatusIs(absl::StatusCode::kUnimplemented,
                       HasSubstr("does not know this call: it is no ps_server, or it is of another "
                                 "release")));
}

TEST_F(WorkerLifeTest, TheLinkNamesWhatIsWaitedForAndWhoFailed) {
  server::ServerConfig config = Config();
  config.job.min_workers = 2;
  ASSERT_OK_AND_ASSIGN(const auto cluster, InProcessCluster::Start(config, 1));
  const std::unique_ptr<client::CoordinatorLink> link =
      client::MakeClusterSession({.coordinator = net::AddressList::Of(cluster->address()),
                                  .name = "alone",
                                  .device = "",
                                  .instance_id = 1});
  EXPECT_OK(link->Leave("has not begun", std::nullopt));
  EXPECT_OK(link->Register(/*offered=*/std::nullopt, /*process=*/{}));
  absl::Notification told;
  std::string reason;
  link->StartHeartbeats(absl::Milliseconds(10),
                        {.activity = [] { return messages::HeartbeatCall{}; },
                         .on_waiting =
                             [&](const std::string& waiting_for) {
                               if (waiting_for.empty() || told.HasBeenNotified()) return;
                               reason = waiting_for;
                               told.Notify();
                             },
                         .on_lost = [](const absl::Status&) {}});
  told.WaitForNotification();
  EXPECT_THAT(reason, HasSubstr("2"));
  link->StopHeartbeats();
  cluster->Stop(0, server::Server::StopKind::kImmediate);
  EXPECT_THAT(link->Leave("told to stop", std::nullopt),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr(cluster->address())));
}

TEST_F(WorkerLifeTest, KeepsTheDialledAddressIfTheServersIsOnlyItsHostName) {
  server::ServerConfig config = Config();
  config.network.listen.host = "0.0.0.0";
  config.security.flags.insecure = true;
  for (const bool is_advertised : {false, true}) {
    if (is_advertised) config.network.advertise = "elsewhere:7";
    ASSERT_OK_AND_ASSIGN(const auto cluster, InProcessCluster::Start(config, 1));
    const int port = cluster->server(0).port();
    const std::string dialled = absl::StrCat("127.0.0.1:", port);
    const std::unique_ptr<client::CoordinatorLink> link =
        client::MakeClusterSession({.coordinator = net::AddressList::Of(dialled),
                                    .name = "w",
                                    .device = "",
                                    .instance_id = 1});
    ASSERT_OK_AND_ASSIGN(const messages::Registration registration,
                         link->Register(/*offered=*/std::nullopt, /*process=*/{}));
    EXPECT_EQ(registration.servers().front().address, is_advertised ? "elsewhere:7" : dialled);
    absl::Notification is_told;
    std::vector<std::string> addresses;
    messages::HeartbeatCall call;
    call.map_version = registration.map->version + 1;  // differs from the server's version
    link->StartHeartbeats(absl::Milliseconds(10),
                          {.activity = [call] { return call; },
                           .on_moved =
                               [&](const messages::ServerAddresses& servers) {
                                 if (is_told.HasBeenNotified()) return;
                                 addresses = servers.addresses;
                                 is_told.Notify();
                               },
                           .on_lost = [](const absl::Status&) {}});
    is_told.WaitForNotification();
    link->StopHeartbeats();
    EXPECT_THAT(addresses, ElementsAre(is_advertised ? "elsewhere:7" : dialled));
  }
}

TEST_F(WorkerLifeTest, HeartbeatsFindTheCoordinatorWhereItIsNow) {
  server::ServerConfig config = Config();
  config.job.min_workers = 2;
  ASSERT_OK_AND_ASSIGN(const auto cluster, InProcessCluster::Start(config, 1));
  CutPath before(cluster->address(), /*cut=*/-1, grpc::StatusCode::OK);
  const std::vector<std::string> addresses = {before.address(), cluster->address()};
  const std::unique_ptr<client::CoordinatorLink> link =
      client::MakeClusterSession({.coordinator = net::AddressList(addresses),
                                  .name = "faithful",
                                  .device = "",
                                  .instance_id = 1});
  ASSERT_OK_AND_ASSIGN(const messages::Registration registration,
                       link->Register(/*offered=*/std::nullopt, /*process=*/{}));
  before.Close();
  absl::Notification is_answered;
  link->StartHeartbeats(absl::Milliseconds(100),
                        {.activity = [] { return messages::HeartbeatCall{}; },
                         .on_waiting =
                             [&](const std::string&) {
                               if (!is_answered.HasBeenNotified()) {
                                 is_answered.Notify();
                               }
                             },
                         .on_lost = [](const absl::Status&) {}});
  is_answered.WaitForNotification();
  link->StopHeartbeats();
  ASSERT_OK_AND_ASSIGN(const messages::Registration again,
                       link->Register(/*offered=*/std::nullopt, /*process=*/{}));
  EXPECT_EQ(again.life, registration.life);
  cluster->Stop(0, server::Server::StopKind::kImmediate);
  EXPECT_THAT(link->Register(/*offered=*/std::nullopt, /*process=*/{}),
              StatusIs(absl::StatusCode::kUnavailable,
                       AllOf(HasSubstr(before.address()), HasSubstr(cluster->address()))));
}

// Breaks the connection before the answer to the first farewell arrives.
class BrokenFarewell final : public Path {
 public:
  using Path::Path;
  ~BrokenFarewell() override { Close(); }

  grpc::Status Leave(grpc::ServerContext* call, const v1::LeaveRequest* request,
                     v1::LeaveReply* reply) override {
    const grpc::Status left = Path::Leave(call, request, reply);
    if (num_farewells_++ > 0) return left;
    return {grpc::StatusCode::UNAVAILABLE, "Connection reset by peer"};
  }

 private:
  std::atomic<int> num_farewells_ = 0;
};

TEST_F(WorkerLifeTest, AFarewellWhoseAnswerIsLostIsSaidAgain) {
  ASSERT_OK_AND_ASSIGN(const auto cluster, InProcessCluster::Start(Config(), 1));
  const BrokenFarewell path(cluster->address());
  const std::unique_ptr<client::CoordinatorLink> link =
      client::MakeClusterSession({.coordinator = net::AddressList::Of(path.address()),
                                  .name = "leaver",
                                  .device = "",
                                  .instance_id = 1});
  EXPECT_OK(link->Register(/*offered=*/std::nullopt, /*process=*/{}));
  EXPECT_OK(link->Leave("told to stop", std::nullopt));
}

TEST_F(WorkerLifeTest, GivenTheAddressOfAnotherServerItFindsTheCoordinator) {
  server::ServerConfig config = Config();
  config.job.schedule.total_rounds = 2;
  ASSERT_OK_AND_ASSIGN(const auto cluster, InProcessCluster::Start(config, 2));
  EXPECT_OK(MakeWorker(cluster->server(1).address(), "astray")->Run());
  ASSERT_OK_AND_ASSIGN(const v1::ClusterStatus status, FetchStatus(cluster->address()));
  EXPECT_EQ(status.state(), "done");
}

TEST_F(WorkerLifeTest, StartedAgainWithinItsLeaseItWaitsForTheEndOfThatLease) {
  server::ServerConfig config = Config();
  config.job.schedule.total_rounds = 2;
  config.cluster.lease = absl::Milliseconds(300);
  ASSERT_OK_AND_ASSIGN(const auto cluster, InProcessCluster::Start(config, 1));
  WireClient killed(cluster->address(), "phoenix", 99);
  ASSERT_OK_AND_ASSIGN(const params::Layout layout, params::BuildLayout(config.job.model));
  ASSERT_OK(killed.Register(wire::ToProto(layout)));
  EXPECT_OK(MakeWorker(cluster->address(), "phoenix")->Run());
}

TEST_F(WorkerLifeTest, NameOfAnotherLiveWorkerIsFinalAfterALease) {
  server::ServerConfig config = Config();
  config.cluster.lease = absl::Milliseconds(300);
  ASSERT_OK_AND_ASSIGN(const auto cluster, InProcessCluster::Start(config, 1));
  WireClient holder(cluster->address(), "taken", 99);
  ASSERT_OK_AND_ASSIGN(const params::Layout layout, params::BuildLayout(config.job.model));
  ASSERT_OK(holder.Register(wire::ToProto(layout)));
  absl::Notification over;
  std::thread heart([&] {
    while (!over.HasBeenNotified() && holder.Heartbeat().ok()) {
    }
  });
  worker::Worker::Config hasty;
  hasty.life.longest_backoff = absl::Milliseconds(10);
  EXPECT_THAT(MakeWorker(cluster->address(), "taken", hasty)->Run(),
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("the name 'taken' is held")));
  over.Notify();
  heart.join();
}

}  // namespace
}  // namespace lodestar
