// SPDX-License-Identifier: Apache-2.0

// Tests checkpoints, restarts and export with whole clusters in one process.
#include <grpcpp/grpcpp.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/runtime/file_io.h"
#include "common/storage/file_system.h"
#include "common/storage/safetensors.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/status_mapping.h"
#include "server/replica_server.h"
#include "tests/cluster/in_process_cluster.h"
#include "tests/cluster/wire_client.h"

namespace lodestar {
namespace {

using ::testing::Contains;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr size_t kElements = 4500;

v1::Layout TestLayout() { return FlatLayout({3000, 1500}); }
std::vector<float> Filled(float value) { return std::vector<float>(kElements, value); }

class RestartTest : public testing::Test {
 protected:
  RestartTest() {
    const std::string test = testing::UnitTest::GetInstance()->current_test_info()->name();
    config_ = SmallJobConfig();
    config_.job.bucket_bytes = 8192;
    config_.job.optimizer.kind = job::OptimizerKind::kMomentum;
    config_.durability.checkpoint_dir = testing::TempDir() + "/" + test;
    std::filesystem::remove_all(config_.durability.checkpoint_dir);
  }

  // Trains `rounds` rounds of one worker with gradient 1, and leaves its report in report_.
  absl::Status Train(WireClient& worker, int rounds) {
    for (int i = 0; i < rounds; ++i) {
      ASSIGN_OR_RETURN(const v1::Grant grant, worker.NextGrant(report_));
      RETURN_IF_ERROR(
          worker
              .Push(v1::CONTRIBUTION_KIND_GRADIENT, grant.round(), grant.min_round(), Filled(1.0f))
              .status());
      report_ = ReportOf(grant);
    }
    return absl::OkStatus();
  }

  absl::Status Enter(WireClient& worker) {
    report_.reset();
    RETURN_IF_ERROR(worker.Register(TestLayout()));
    return worker.SupplyAndJoin(Filled(0.0f));
  }

  // Starts a server that leads until is_leader_ is false.
  absl::StatusOr<std::unique_ptr<server::Server>> StartLeader() {
    config_.cluster.leader_lease = "etcd://h:1/k";
    server::Server::Deps deps;
    deps.confirm_leader = [this] {
      return is_leader_ ? absl::OkStatus() : absl::AbortedError("another server leads");
    };
    return server::Server::Create(config_, deps);
  }

  server::ServerConfig config_;
  std::optional<v1::RoundReport> report_;
  std::atomic<bool> is_leader_ = true;
};

absl::StatusOr<v1::CheckpointReply> Checkpoint(const std::string& address) {
  const auto stub =
      v1::AdminService::NewStub(grpc::CreateChannel(address, grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  v1::CheckpointReply reply;
  RETURN_IF_ERROR(wire::FromGrpcStatus(stub->Checkpoint(&context, {}, &reply)));
  return reply;
}

TEST_F(RestartTest, WhoIsNotTheLeaderAnyMoreAcknowledgesNothing) {
  config_.durability.has_journal = true;
  config_.durability.journal_dir = config_.durability.checkpoint_dir + "/journal";
  ASSERT_OK_AND_ASSIGN(const auto server, StartLeader());
  WireClient worker(server->address(), "one", 1);
  ASSERT_OK(Enter(worker));
  ASSERT_OK(Train(worker, 1));
  ASSERT_OK_AND_ASSIGN(const v1::Grant grant, worker.NextGrant(report_));
  is_leader_ = false;
  std::thread pushing([&] {
    EXPECT_THAT(
        worker.Push(v1::CONTRIBUTION_KIND_GRADIENT, grant.round(), grant.min_round(), Filled(1.0f)),
        Not(IsOk()));
  });
  std::thread registering([&] {
    EXPECT_THAT(WireClient(server->address(), "two", 2).TryRegister(TestLayout()), Not(IsOk()));
  });
  const auto is_held_up = [&] {
    const auto status = FetchStatus(server->address());
    return status.ok() &&
           absl::StartsWith(status->open_round().waiting_for(),
                            "the journal cannot be written: ") &&
           absl::StrContains(status->open_round().waiting_for(), "another server leads") &&
           status->state() == "waiting_for_journal" && status->durability() == "journal" &&
           absl::c_any_of(status->alarms(), [](const v1::Alarm& alarm) {
             return absl::StrContains(alarm.text(), "shard 0: the journal cannot be written");
           });
  };
  while (!is_held_up()) {
  }
  server->Stop(server::Server::StopKind::kImmediate);
  pushing.join();
  registering.join();
}

TEST_F(RestartTest, AServerWithoutAJournalWaitsForTheFolderOfTheCoordinator) {
  const std::string folder = config_.durability.checkpoint_dir;
  config_.cluster.num_shards = 2;
  config_.cluster.shard = 1;
  config_.cluster.coordinator = "127.0.0.1:1";
  config_.durability.checkpoint_dir.clear();
  config_.durability.has_journal = true;
  config_.durability.journal_dir = folder + "/journal";
  config_.durability.coordinators_folder = folder;
  int num_looks = 0;
  server::Server::Deps deps;
  deps.is_interrupted = [&num_looks] { return ++num_looks == 3; };
  EXPECT_THAT(server::Server::Create(config_, deps).status(),
              StatusIs(absl::StatusCode::kCancelled));
  EXPECT_FALSE(std::filesystem::exists(folder)) << "another folder may be mounted there";

  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/LOCK") << "of the coordinator";
  deps.is_interrupted = [] { return false; };
  EXPECT_OK(server::Server::Create(config_, deps).status());
}

TEST_F(RestartTest, EachServersReplicaIsInTheStatusAndAnAlarmAboutItEndsOnceItIsBack) {
  config_.durability.has_journal = true;
  config_.durability.journal_dir = config_.durability.checkpoint_dir + "/journal";
  config_.cluster.num_shards = 2;
  std::vector<std::unique_ptr<server::ReplicaServer>> replicas(2);
  std::vector<std::unique_ptr<server::Server>> servers(2);
  std::vector<std::string> addresses(2);
  const auto start_replica = [&](int shard, int port) -> absl::Status {
    server::ServerConfig config;
    config.is_replica = true;
    config.network.listen = {"127.0.0.1", port};
    config.durability.journal_dir =
        absl::StrCat(config_.durability.checkpoint_dir, ".replica", shard);
    if (port == 0) std::filesystem::remove_all(config.durability.journal_dir);
    ASSIGN_OR_RETURN(replicas[shard], server::ReplicaServer::Create(config, {}));
    addresses[shard] = absl::StrCat("127.0.0.1:", replicas[shard]->port());
    return absl::OkStatus();
  };
  for (int shard = 0; shard < 2; ++shard) {
    ASSERT_OK(start_replica(shard, /*port=*/0));
    config_.cluster.shard = shard;
    config_.durability.journal_replica = addresses[shard];
    if (shard > 0) config_.cluster.coordinator = servers[0]->address();
    ASSERT_OK_AND_ASSIGN(servers[shard], server::Server::Create(config_, {}));
  }
  const auto wait_for = [&](const std::function<bool(const v1::ClusterStatus&)>& is_there) {
    while (true) {
      const auto status = FetchStatus(servers[0]->address());
      if (status.ok() && status->shards_size() == 2 && is_there(*status)) return;
    }
  };
  const std::string whole = addresses[1] + " has everything";
  wait_for([&](const v1::ClusterStatus& status) {
    return status.shards(0).journal_replica() == addresses[0] + " has everything" &&
           status.shards(1).journal_replica() == whole;
  });
  const int port = replicas[1]->port();
  replicas[1].reset();
  const auto alarm_of = [](const v1::ClusterStatus& status) {
    return absl::c_find_if(status.alarms(), [](const v1::Alarm& alarm) {
      return absl::StrContains(alarm.text(), "until the replica has everything again");
    });
  };
  wait_for([&](const v1::ClusterStatus& status) {
    const std::string& replica = status.shards(1).journal_replica();
    return absl::StartsWith(replica, addresses[1] + ": ") &&
           !absl::StrContains(replica, "replica " + addresses[1]) &&
           absl::StartsWith(
               status.open_round().waiting_for(),
               absl::StrCat("the journal of shard 1 cannot be written: replica ", addresses[1])) &&
           status.shards(0).journal_replica() == addresses[0] + " has everything" &&
           alarm_of(status) != status.alarms().end() && !alarm_of(status)->has_over_age_seconds();
  });
  ASSERT_OK(start_replica(1, port));
  wait_for([&](const v1::ClusterStatus& status) {
    return status.shards(1).journal_replica() == whole &&
           alarm_of(status) != status.alarms().end() && alarm_of(status)->has_over_age_seconds();
  });
  for (const int shard : {1, 0}) servers[shard]->Stop(server::Server::StopKind::kImmediate);
}

TEST_F(RestartTest, WhoIsNotTheLeaderAnyMorePublishesNothing) {
  ASSERT_OK_AND_ASSIGN(const auto server, StartLeader());
  WireClient worker(server->address(), "only", 1);
  ASSERT_OK(Enter(worker));
  ASSERT_OK(Train(worker, 1));
  ASSERT_OK(worker.Leave(report_));
  ASSERT_OK_AND_ASSIGN(const v1::ClusterStatus status, FetchStatus(server->address()));
  EXPECT_EQ(status.leader_lease(), config_.cluster.leader_lease);
  is_leader_ = false;
  EXPECT_THAT(Checkpoint(server->address()).status().ToString(), HasSubstr("another server leads"));
  server->Stop(server::Server::StopKind::kImmediate);
  ASSERT_OK_AND_ASSIGN(const std::vector<std::string> left,
                       storage::FileSystem::Real().List(config_.durability.checkpoint_dir));
  EXPECT_THAT(left, Not(Contains("round-00000001")));
}

TEST_F(RestartTest, KilledCoordinatorGoesOnFromItsCheckpoint) {
  config_.durability.checkpoint_every = 3;
  std::vector<float> undisturbed;
  {
    ASSERT_OK_AND_ASSIGN(const auto cluster, InProcessCluster::Start(config_, 2));
    WireClient worker(cluster->address(), "only", 1);
    ASSERT_OK(Enter(worker));
    ASSERT_OK(Train(worker, 6));
    ASSERT_OK_AND_ASSIGN(undisturbed, worker.Pull(6));
  }
  std::filesystem::remove_all(config_.durability.checkpoint_dir);
  ASSERT_OK_AND_ASSIGN(const auto cluster, InProcessCluster::Start(config_, 2));
  WireClient worker(cluster->address(), "only", 1);
  ASSERT_OK(Enter(worker));
  ASSERT_OK(Train(worker, 4));
  const std::string saved = config_.durability.checkpoint_dir + "/round-00000003/MANIFEST.json";
  while (!std::filesystem::exists(saved)) ASSERT_OK(worker.Heartbeat());
  const uint64_t first_life = worker.registration().server_incarnation();

  cluster->Stop(0, server::Server::StopKind::kImmediate);
  ASSERT_OK(cluster->StartAgain(0));

  ASSERT_OK(Enter(worker));
  EXPECT_GT(worker.registration().server_incarnation(), first_life);
  EXPECT_FALSE(worker.registration().needs_initial_weights());
  ASSERT_OK(Train(worker, 3));
  ASSERT_OK_AND_ASSIGN(const std::vector<float> weights, worker.Pull(6));
  EXPECT_EQ(weights, undisturbed);
}

TEST_F(RestartTest, LostShardServerBringsTheWholeClusterBackToTheCheckpoint) {
  ASSERT_OK_AND_ASSIGN(const auto cluster, InProcessCluster::Start(config_, 2));
  WireClient worker(cluster->address(), "only", 1);
  ASSERT_OK(Enter(worker));
  ASSERT_OK(Train(worker, 2));
  ASSERT_OK_AND_ASSIGN(const std::vector<float> before, worker.Pull(2));
  ASSERT_OK(worker.Leave(report_));
  ASSERT_OK_AND_ASSIGN(const v1::CheckpointReply saved, Checkpoint(cluster->address()));
  EXPECT_THAT(saved.path(), HasSubstr("round-"));

  cluster->Stop(1, server::Server::StopKind::kImmediate);
  ASSERT_OK(cluster->StartAgain(1));
  WireClient again(cluster->address(), "again", 2);
  // Until the coordinator notices the loss, it lets clients in, and they find nothing to pull. It
  // may also notice the loss between Register and Join.
  absl::StatusOr<std::vector<float>> after;
  do {
    const absl::Status entered = Enter(again);
    after = entered.ok() ? again.Pull(0) : entered;
  } while (absl::IsUnavailable(after.status()) || absl::IsAborted(after.status()));
  ASSERT_OK(after.status());
  EXPECT_EQ(*after, before);
}

TEST_F(RestartTest, GracefulStopSavesBeforeItGoes) {
  {
    ASSERT_OK_AND_ASSIGN(const auto cluster, InProcessCluster::Start(config_, 1));
    WireClient worker(cluster->address(), "only", 1);
    ASSERT_OK(Enter(worker));
    ASSERT_OK(Train(worker, 2));
    ASSERT_OK(worker.Leave(report_));
    cluster->Stop(0, server::Server::StopKind::kGraceful);
  }
  ASSERT_OK_AND_ASSIGN(const auto cluster, InProcessCluster::Start(config_, 2));
  WireClient worker(cluster->address(), "only", 2);
  ASSERT_OK(Enter(worker));
  ASSERT_OK_AND_ASSIGN(const std::vector<float> weights, worker.Pull(2));
  // With momentum 0.9 the steps are 1 and 1.9.
  EXPECT_THAT(weights, Each(testing::FloatEq(-2.9f)));
}

// Orders in which the servers of two shards are told to stop. kTogether means at the same time.
enum class StopOrder { kCoordinatorFirst, kCoordinatorLast, kTogether };

class StopOrderTest : public RestartTest, public testing::WithParamInterface<StopOrder> {};

TEST_P(StopOrderTest, NothingThatWasTrainedIsLost) {
  {
    ASSERT_OK_AND_ASSIGN(const auto cluster, InProcessCluster::Start(config_, 2));
    WireClient worker(cluster->address(), "only", 1);
    ASSERT_OK(Enter(worker));
    ASSERT_OK(Train(worker, 2));
    ASSERT_OK(worker.Leave(report_));
    const auto stop = [&](int shard) {
      cluster->server(shard).Stop(server::Server::StopKind::kGraceful);
      EXPECT_OK(cluster->server(shard).loss());
    };
    if (GetParam() == StopOrder::kTogether) {
      std::thread other([&] { stop(1); });
      stop(0);
      other.join();
    } else {
      const int first = GetParam() == StopOrder::kCoordinatorFirst ? 0 : 1;
      stop(first);
      stop(1 - first);
    }
  }
  ASSERT_OK_AND_ASSIGN(const auto cluster, InProcessCluster::Start(config_, 2));
  WireClient worker(cluster->address(), "only", 2);
  ASSERT_OK(Enter(worker));
  ASSERT_OK_AND_ASSIGN(const std::vector<float> weights, worker.Pull(2));
  EXPECT_THAT(weights, Each(testing::FloatEq(-2.9f)));
}

INSTANTIATE_TEST_SUITE_P(Orders, StopOrderTest,
                         testing::Values(StopOrder::kCoordinatorFirst, StopOrder::kCoordinatorLast,
                                         StopOrder::kTogether));

TEST_F(RestartTest, AStopThatCannotSaveInTimeSaysWhatIsLost) {
  config_.cluster.stop_timeout = absl::Milliseconds(300);
  ASSERT_OK_AND_ASSIGN(const auto cluster, InProcessCluster::Start(config_, 2));
  WireClient worker(cluster->address(), "only", 1);
  ASSERT_OK(Enter(worker));
  ASSERT_OK(Train(worker, 2));
  ASSERT_OK(worker.Leave(report_));
  std::filesystem::remove_all(config_.durability.checkpoint_dir);
  std::ofstream(config_.durability.checkpoint_dir) << "a file where the folder was";
  for (int shard : {1, 0}) {
    cluster->server(shard).Stop(server::Server::StopKind::kGraceful);
    EXPECT_THAT(cluster->server(shard).loss(),
                StatusIs(absl::StatusCode::kDataLoss, HasSubstr("rounds 0 to 1 are in no checkp")));
  }
}

TEST_F(RestartTest, ExportIsOneFileWithTheWeightsOfAllServers) {
  ASSERT_OK_AND_ASSIGN(const auto cluster, InProcessCluster::Start(config_, 2));
  WireClient worker(cluster->address(), "only", 1);
  ASSERT_OK(Enter(worker));
  ASSERT_OK(Train(worker, 1));
  ASSERT_OK_AND_ASSIGN(const std::vector<float> weights, worker.Pull(1));
  const auto stub = v1::AdminService::NewStub(
      grpc::CreateChannel(cluster->address(), grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  const auto reader = stub->Export(&context, {});
  const std::string path = testing::TempDir() + "/export.safetensors";
  {
    std::ofstream file(path, std::ios::binary);
    v1::ExportChunk chunk;
    while (reader->Read(&chunk)) file << chunk.data();
  }
  ASSERT_OK(wire::FromGrpcStatus(reader->Finish()));
  ASSERT_OK_AND_ASSIGN(const auto exported,
                       storage::SafetensorsReader::Open(storage::FileSystem::Real(), path));
  ASSERT_OK_AND_ASSIGN(const absl::Span<const float> first, exported->Floats("tensor0"));
  ASSERT_OK_AND_ASSIGN(const absl::Span<const float> second, exported->Floats("tensor1"));
  std::vector<float> all(first.begin(), first.end());
  all.insert(all.end(), second.begin(), second.end());
  EXPECT_EQ(all, weights);
}

}  // namespace
}  // namespace lodestar
