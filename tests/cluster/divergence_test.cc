// SPDX-License-Identifier: Apache-2.0

// Tests runs in which numbers stop being finite, on whole clusters: who is told, what is saved, and
// how the run goes on.
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/params/model_spec.h"
#include "common/runtime/clock.h"
#include "common/runtime/status_macros.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/status_mapping.h"
#include "tests/cluster/in_process_cluster.h"
#include "tests/cluster/training_data.h"
#include "tests/cluster/wire_client.h"
#include "worker/built_in_workload.h"
#include "worker/data/testing/test_folder.h"
#include "worker/worker.h"

namespace lodestar {
namespace {

using ::testing::Contains;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Property;
using ::testing::StartsWith;

// The layout has parts on both of two servers. Only the last tensor has weight decay.
const v1::Layout& TestLayout() {
  static const v1::Layout& layout = *[] {
    auto* const flat = new v1::Layout(FlatLayout({3000, 1500, 7}));
    flat->mutable_tensors(2)->set_decay(true);
    return flat;
  }();
  return layout;
}
constexpr size_t kElements = 4507;

std::vector<float> Filled(float value) { return std::vector<float>(kElements, value); }

constexpr float kLearningRate = 1 << 19;
// A gradient of this size moves a weight by 1.
constexpr float kStep = 1.0f / kLearningRate;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

server::ServerConfig TestConfig(job::Mode mode = job::Mode::kSync) {
  server::ServerConfig config = SmallJobConfig();
  config.job.mode = mode;
  config.job.bucket_bytes = 8192;
  config.job.schedule.peak = kLearningRate;
  return config;
}

class DivergenceTest : public testing::Test {
 protected:
  void Start(const server::ServerConfig& config, int num_workers = 1) {
    ASSERT_OK_AND_ASSIGN(cluster_, InProcessCluster::Start(config, 2));
    kind_ = config.job.mode == job::Mode::kLocalSgd ? v1::CONTRIBUTION_KIND_PSEUDO_GRADIENT
                                                    : v1::CONTRIBUTION_KIND_GRADIENT;
    for (int i = 0; i < num_workers; ++i) {
      workers_.push_back(
          std::make_unique<WireClient>(cluster_->address(), absl::StrCat("w", i), i + 1));
      ComeBack(i);
    }
  }
  void ComeBack(int worker) {
    ASSERT_OK(workers_[worker]->Register(TestLayout()));
    ASSERT_OK(workers_[worker]->SupplyAndJoin(first_weights_));
  }
  // Trains the next round of the only worker. Its report is sent with the next request.
  absl::Status Train(const std::vector<float>& gradient) {
    const absl::StatusOr<v1::Grant> grant = workers_[0]->NextGrant(report_);
    RETURN_IF_ERROR(grant.status());
    report_.reset();
    EXPECT_EQ(grant->kind(), v1::Grant::KIND_TRAIN);
    RETURN_IF_ERROR(
        workers_[0]->Push(kind_, grant->round(), grant->min_round(), gradient).status());
    report_ = ReportOf(*grant);
    return absl::OkStatus();
  }
  v1::ClusterStatus Status() { return *FetchStatus(cluster_->address()); }
  void AwaitState(const std::string& state) {
    while (Status().state() != state) std::this_thread::yield();
  }

  std::unique_ptr<InProcessCluster> cluster_;
  std::vector<std::unique_ptr<WireClient>> workers_;
  std::vector<float> first_weights_ = Filled(0.0f);
  std::optional<v1::RoundReport> report_;
  v1::ContributionKind kind_ = v1::CONTRIBUTION_KIND_GRADIENT;
};

TEST_F(DivergenceTest, StopEndsServersAndWorkersAndSavesNothingInEveryMode) {
  // The large weight decay makes huge steps, and the second step overflows.
  first_weights_.back() = 1e17f;
  for (const job::Mode mode : {job::Mode::kSync, job::Mode::kAsync, job::Mode::kLocalSgd}) {
    const data::TestFolder folder;
    server::ServerConfig config = TestConfig(mode);
    config.durability.checkpoint_dir = folder.root();
    config.job.optimizer.weight_decay = 1e6;
    workers_.clear();
    report_.reset();
    Start(config);
    ASSERT_OK(Train(Filled(kStep)));
    const absl::StatusOr<v1::Grant> grant = workers_[0]->NextGrant(report_);
    ASSERT_OK(grant);
    // Only shard 1 fails. In local_sgd no update of the servers can overflow, so the contribution
    // itself has a NaN.
    std::vector<float> gradient = Filled(kStep);
    if (mode == job::Mode::kLocalSgd) gradient.back() = kNan;
    workers_[0]->Push(kind_, grant->round(), grant->min_round(), gradient).IgnoreError();
    AwaitState("diverged");
    if (mode == job::Mode::kLocalSgd) {
      EXPECT_THAT(Status().divergence().text(), HasSubstr("shard 1: worker 1, tensor '"));
    } else {
      EXPECT_THAT(Status().divergence().text(), HasSubstr("shard 1: round 1 made the numbers of"));
      EXPECT_THAT(workers_[0]->Pull(1).status(), StatusIs(absl::StatusCode::kAborted));
    }
    ASSERT_OK(workers_[0]->Register(TestLayout()));
    const absl::StatusOr<v1::Grant> last = workers_[0]->NextGrant(std::nullopt);
    ASSERT_OK(last);
    EXPECT_EQ(last->kind(), v1::Grant::KIND_DONE) << "no fault of the worker";
    EXPECT_THAT(last->reason(), HasSubstr("diverged at round 1"));
    EXPECT_OK(workers_[0]->Leave());
    for (int shard : {0, 1}) {
      EXPECT_THAT(cluster_->server(shard).Wait(), StatusIs(absl::StatusCode::kFailedPrecondition,
                                                           HasSubstr("diverged at round 1")));
    }
    cluster_->Stop(0, server::Server::StopKind::kGraceful);
    for (const auto& entry : std::filesystem::directory_iterator(folder.root())) {
      EXPECT_THAT(entry.path().filename().string(), Not(StartsWith("round-"))) << NameOf(mode);
    }
    cluster_.reset();
  }
}

TEST_F(DivergenceTest, RollbackGoesOnFromTheLastCheckpointWithALowerLearningRate) {
  for (const job::Mode mode : {job::Mode::kSync, job::Mode::kAsync}) {
    const data::TestFolder folder;
    server::ServerConfig config = TestConfig(mode);
    config.durability.checkpoint_dir = folder.root();
    config.divergence.action = faults::DivergenceAction::kRollback;
    config.divergence.learning_rate_factor = 0.25;
    // In async mode the job diverges after the grant of the fifth round, after which no checkpoint
    // is due.
    config.durability.checkpoint_every = 3;
    workers_.clear();
    report_.reset();
    Start(config);
    for (int round = 0; round < 3; ++round) ASSERT_OK(Train(Filled(kStep)));
    ASSERT_OK(workers_[0]->NextGrant(report_));
    report_.reset();
    while (Status().last_checkpoint().round() < 3) std::this_thread::yield();
    const std::string checkpoint = Status().last_checkpoint().path();
    // One more round is trained first. If the very weights of the checkpoint gave a NaN, the job
    // would not go back to that checkpoint.
    ASSERT_OK(Train(Filled(kStep)));
    Train(Filled(kNan)).IgnoreError();
    report_.reset();
    while (Status().rollbacks() == 0 || Status().state() != "waiting_for_workers") {
      std::this_thread::yield();
    }
    EXPECT_EQ(Status().learning_rate_scale(), 0.25);
    EXPECT_THAT(Status().divergence().text(), HasSubstr(checkpoint));
    ComeBack(0);
    ASSERT_OK_AND_ASSIGN(const std::vector<float> before, workers_[0]->Pull(0));
    if (mode == job::Mode::kSync) {
      EXPECT_THAT(before, Each(-3.0f));
    }
    ASSERT_OK(Train(Filled(kStep)));
    ASSERT_OK(workers_[0]->NextGrant(report_));
    ASSERT_OK_AND_ASSIGN(const std::vector<float> after,
                         workers_[0]->Pull(mode == job::Mode::kSync ? 4 : 0));
    for (size_t i = 0; i < kElements; ++i) {
      ASSERT_EQ(after[i], before[i] - 0.25f) << NameOf(mode) << " element " << i;
    }
    cluster_.reset();
  }
}

TEST_F(DivergenceTest, OneSickWorkerIsNamedAndTheOtherGoesOn) {
  server::ServerConfig config = TestConfig();
  config.job.min_workers = 2;
  Start(config, 2);
  std::thread sick([&] {
    const absl::StatusOr<v1::Grant> grant = workers_[1]->NextGrant(std::nullopt);
    ASSERT_OK(grant);
    std::vector<float> gradient = Filled(kStep);
    gradient.back() = kNan;  // this part is on the server of shard 1
    EXPECT_THAT(workers_[1]->Push(kind_, 0, 0, gradient),
                StatusIs(absl::StatusCode::kAborted, HasSubstr("NaN")));
  });
  ASSERT_OK(Train(Filled(kStep)));
  ASSERT_OK(workers_[0]->NextGrant(report_));
  sick.join();
  ASSERT_OK(workers_[0]->Pull(1).status());
  const v1::ClusterStatus status = Status();
  EXPECT_EQ(status.state(), "training");
  EXPECT_EQ(status.workers(1).state(), "dropped");
  EXPECT_THAT(status.workers(1).reason(), HasSubstr("shard 1: worker 2"));
  EXPECT_THAT(status.alarms(),
              Contains(Property(&v1::Alarm::text, HasSubstr("worker 'w1' has sent"))));
}

TEST_F(DivergenceTest, WorkerThatReportsWithoutPushingIsDroppedAndNothingHangs) {
  Start(TestConfig());
  ASSERT_OK_AND_ASSIGN(const v1::Grant grant, workers_[0]->NextGrant(std::nullopt));
  workers_[0]->AskForGrant(ReportOf(grant), absl::Milliseconds(1)).IgnoreError();
  while (Status().workers(0).state() != "dropped") std::this_thread::yield();
  EXPECT_THAT(Status().workers(0).reason(), HasSubstr("has reported round 0 but has not sent"));
  const auto stub = v1::AdminService::NewStub(
      grpc::CreateChannel(cluster_->address(), grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() +
                       absl::ToChronoSeconds(WireClient::kCallDeadline));
  const auto reader = stub->Export(&context, {});
  v1::ExportChunk chunk;
  while (reader->Read(&chunk)) {
  }
  EXPECT_OK(wire::FromGrpcStatus(reader->Finish()));
}

// Real workers. The weight decay makes too large steps, so that their weights overflow, and then
// their losses and gradients.
class DivergingWorkerTest : public testing::Test {
 protected:
  DivergingWorkerTest() { WriteImages(images_); }

  static server::ServerConfig Config(job::Mode mode) {
    server::ServerConfig config = SmallJobConfig();
    config.job.model = {"mlp", params::MlpSpec{{kImageSide * kImageSide, 8, kImageClasses}}};
    config.job.mode = mode;
    if (mode == job::Mode::kLocalSgd) config.job.local_steps = 2;
    config.job.optimizer.kind = job::OptimizerKind::kMomentum;
    config.job.schedule.peak = 1e6;
    config.job.optimizer.weight_decay = 1e6;
    config.job.schedule.total_rounds = 8;
    config.exit_when_done = true;
    return config;
  }

  absl::Status RunWorker(const std::string& coordinator) {
    worker::Worker::Config config;
    config.coordinator = net::AddressList::Of(coordinator);
    config.name = "worker";
    config.instance_id = 1;
    config.device = {.kind = "cpu", .threads = 1};
    config.life.first_backoff = absl::Milliseconds(5);
    ASSIGN_OR_RETURN(
        const std::unique_ptr<worker::Worker> worker,
        worker::MakeBuiltInWorker(config, {.data = {.path = images_.root()}}, &Clock::Real()));
    return worker->Run();
  }

  const data::TestFolder images_;
};

TEST_F(DivergingWorkerTest, IsToldThatTheRunIsOver) {
  for (const job::Mode mode : {job::Mode::kSync, job::Mode::kAsync, job::Mode::kLocalSgd}) {
    ASSERT_OK_AND_ASSIGN(const auto cluster, InProcessCluster::Start(Config(mode), 1));
    EXPECT_THAT(RunWorker(cluster->address()),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         HasSubstr("the job has failed: diverged at round")))
        << NameOf(mode);
    EXPECT_THAT(cluster->server(0).Wait(),
                StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("diverged at round")));
  }
}

TEST_F(DivergingWorkerTest, GoesOnAfterARollback) {
  for (const job::Mode mode : {job::Mode::kSync, job::Mode::kAsync, job::Mode::kLocalSgd}) {
    server::ServerConfig config = Config(mode);
    config.divergence = {.action = faults::DivergenceAction::kRollback,
                         .learning_rate_factor = 1e-6};
    ASSERT_OK_AND_ASSIGN(const auto cluster, InProcessCluster::Start(config, 2));
    EXPECT_OK(RunWorker(cluster->address())) << NameOf(mode);
    EXPECT_OK(cluster->server(0).Wait()) << NameOf(mode);
    EXPECT_GT(FetchStatus(cluster->address())->rollbacks(), 0) << NameOf(mode);
  }
}

}  // namespace
}  // namespace lodestar
