// Real workers, in this process, whose servers or fellow workers do not do as they should.
#include <memory>
#include <string>
#include <thread>

#include "absl/synchronization/notification.h"
#include "common/model_spec.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/convert.h"
#include "tests/cluster/in_process_cluster.h"
#include "tests/cluster/training_data.h"
#include "tests/cluster/wire_client.h"
#include "worker/data/testing/test_folder.h"
#include "worker/worker.h"

namespace lodestar {
namespace {

using ::testing::HasSubstr;

class WorkerLifeTest : public testing::Test {
 protected:
  WorkerLifeTest() { WriteImages(images_); }

  static ServerConfig Config() {
    ServerConfig config = SmallJobConfig();
    config.job.model = {"mlp", MlpSpec{{kImageSide * kImageSide, 8, kImageClasses}}};
    return config;
  }

  std::unique_ptr<Worker> MakeWorker(const std::string& coordinator, const std::string& name,
                                     Worker::Config config = {}) const {
    config.coordinator = coordinator;
    config.name = name;
    config.instance_id = 1;
    config.data.path = images_.root();
    config.device = {.kind = "cpu", .threads = 1};
    auto worker = Worker::Create(std::move(config), &Clock::Real());
    EXPECT_OK(worker);
    return *std::move(worker);
  }

  const TestFolder images_;
};

TEST_F(WorkerLifeTest, ToldToStopItGivesUpOnServersThatKeepItWaiting) {
  ServerConfig config = Config();
  config.job.min_workers = 2;
  config.cluster.lease = absl::Seconds(2);
  ASSERT_OK_AND_ASSIGN(const auto cluster, InProcessCluster::Start(config, 1));
  // Comes first in the order of summation and never pushes, so the worker's push stays unanswered.
  WireClient silent(cluster->address(), "silent", 1);
  ASSERT_OK_AND_ASSIGN(const Layout layout, BuildLayout(config.job.model));
  ASSERT_OK(silent.Register(ToProto(layout)));
  ASSERT_OK(silent.Join());
  Worker::Config impatient;
  impatient.leave_timeout = absl::Milliseconds(1);
  const std::unique_ptr<Worker> worker = MakeWorker(cluster->address(), "told", impatient);
  absl::Status left;
  std::thread run([&] { left = worker->Run(); });
  ASSERT_OK(silent.NextGrant(std::nullopt));  // both have one
  while (FetchStatus(cluster->address())->workers(1).activity() != "push") {
    ASSERT_OK(silent.Heartbeat());
  }
  worker->RequestStop();
  run.join();
  EXPECT_THAT(left, StatusIs(absl::StatusCode::kDeadlineExceeded,
                             HasSubstr("--leave_timeout): round 0 is not handed in")));
}

TEST_F(WorkerLifeTest, GivenTheAddressOfAnotherServerItFindsTheCoordinator) {
  ServerConfig config = Config();
  config.job.schedule.total_rounds = 2;
  ASSERT_OK_AND_ASSIGN(const auto cluster, InProcessCluster::Start(config, 2));
  EXPECT_OK(MakeWorker(cluster->server(1).address(), "astray")->Run());
  ASSERT_OK_AND_ASSIGN(const v1::ClusterStatus status, FetchStatus(cluster->address()));
  EXPECT_EQ(status.state(), "done");
}

TEST_F(WorkerLifeTest, StartedAgainWithinItsLeaseItWaitsForTheEndOfThatLease) {
  ServerConfig config = Config();
  config.job.schedule.total_rounds = 2;
  config.cluster.lease = absl::Milliseconds(300);
  ASSERT_OK_AND_ASSIGN(const auto cluster, InProcessCluster::Start(config, 1));
  WireClient killed(cluster->address(), "phoenix", 99);
  ASSERT_OK_AND_ASSIGN(const Layout layout, BuildLayout(config.job.model));
  ASSERT_OK(killed.Register(ToProto(layout)));
  EXPECT_OK(MakeWorker(cluster->address(), "phoenix")->Run());
}

TEST_F(WorkerLifeTest, NameOfAnotherLiveWorkerIsFinalAfterALease) {
  ServerConfig config = Config();
  config.cluster.lease = absl::Milliseconds(300);
  ASSERT_OK_AND_ASSIGN(const auto cluster, InProcessCluster::Start(config, 1));
  WireClient holder(cluster->address(), "taken", 99);
  ASSERT_OK_AND_ASSIGN(const Layout layout, BuildLayout(config.job.model));
  ASSERT_OK(holder.Register(ToProto(layout)));
  absl::Notification over;
  std::thread heart([&] {
    while (!over.HasBeenNotified() && holder.Heartbeat().ok()) {
    }
  });
  Worker::Config hasty;
  hasty.longest_backoff = absl::Milliseconds(10);
  EXPECT_THAT(MakeWorker(cluster->address(), "taken", hasty)->Run(),
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("the name 'taken' is held")));
  over.Notify();
  heart.join();
}

}  // namespace
}  // namespace lodestar
