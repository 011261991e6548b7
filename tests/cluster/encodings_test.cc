// SPDX-License-Identifier: Apache-2.0

// Tests encoded contributions and weights: over the wire, in whole jobs, and over restarts.
#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/runtime/clock.h"
#include "common/runtime/status_macros.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/factory/device_factory.h"
#include "tests/cluster/in_process_cluster.h"
#include "tests/cluster/shard_server.h"
#include "tests/cluster/training_data.h"
#include "tests/cluster/training_reference.h"
#include "tests/cluster/training_run.h"
#include "worker/built_in_workload.h"
#include "worker/trainer/contribution_push.h"
#include "worker/trainer/exchange_state.h"
#include "worker/trainer/weights_pull.h"
#include "worker/worker.h"

namespace lodestar {
namespace {

// A worker's side of the exchange, without a model.
class Exchange {
 public:
  Exchange(const ShardServer& server, const job::JobSpec& job, uint32_t worker)
      : device_(*factory::MakeDevice("cpu", 1, nullptr)),
        transport_(server.Transport(WorkerId(worker))),
        weights_(server.layout().num_elements()),
        contribution_(server.layout().num_elements()),
        exchange_(*trainer::ExchangeState::Create(job, server.layout(), device_.get(),
                                                  View(weights_), View(contribution_))) {
    registration_.life = {WorkerId(worker), Incarnation(1)};
    registration_.server_incarnation = 1;
    registration_.job = job;
    auto map = std::make_shared<messages::ClusterMap>();
    map->layout = server.layout();
    map->buckets = server.buckets();
    registration_.map = std::move(map);
  }

  absl::Status Pull(int64_t version) {
    trainer::WeightsPull pull(registration_, Round(version), trainer::AllBuckets(registration_),
                              exchange_->weights(), exchange_->ShadowFor(registration_),
                              transport_.get(), &Clock::Real());
    return pull.WaitForAll();
  }
  absl::Status Push(int64_t round, float phase) {
    trainer::WeightsPull base(registration_, Round(0), trainer::AllBuckets(registration_),
                              exchange_->weights(), exchange_->ShadowFor(registration_),
                              transport_.get(), &Clock::Real());
    RETURN_IF_ERROR(base.WaitForAll());
    for (size_t i = 0; i < contribution_.size(); ++i) {
      contribution_[i] = std::sin(0.001f * static_cast<float>(i) + phase);
    }
    trainer::ContributionPush push(registration_, {.round = Round(round)},
                                   exchange_->contribution(), &base, transport_.get(),
                                   &Clock::Real());
    RETURN_IF_ERROR(push.AllBlocksReady());
    return push.Finish();
  }
  const std::vector<float>& weights() const { return weights_; }
  uint64_t bytes_pulled() const { return transport_->bytes_pulled(); }
  uint64_t bytes_pushed() const { return transport_->bytes_pushed(); }

 private:
  static kernels::Buf View(std::vector<float>& vector) {
    return {vector.data(), kernels::DType::kF32, static_cast<int64_t>(vector.size())};
  }

  const std::unique_ptr<kernels::Device> device_;
  messages::Registration registration_;
  std::unique_ptr<client::ParameterTransport> transport_;
  std::vector<float> weights_;
  std::vector<float> contribution_;
  const std::unique_ptr<trainer::ExchangeState> exchange_;
};

class EncodingsTest : public testing::TestWithParam<params::Encoding> {
 protected:
  EncodingsTest() { WriteImages(images_); }

  TrainingSetup Setup(int num_workers) const {
    TrainingSetup setup = {.job = {}, .data = images_.root(), .num_workers = num_workers};
    setup.job.model = {"mlp", params::MlpSpec{{kImageSide * kImageSide, 32, 16, kImageClasses}}};
    setup.job.optimizer.kind = job::OptimizerKind::kMomentum;
    setup.job.schedule = {.kind = job::ScheduleKind::kConstant,
                          .peak = 0.05,
                          .minimum = 0.0,
                          .warmup_rounds = 0,
                          .total_rounds = 20};
    setup.job.batch_size = 4;
    setup.job.seed = 3;
    setup.job.bucket_bytes = 4096;
    return setup;
  }

  // Checks that the encoded job ends much nearer to the weights of the plain job than to the
  // initial weights.
  void ExpectNearlyPlain(TrainingSetup setup) {
    ASSERT_OK_AND_ASSIGN(const std::vector<float> initial, InitialWeights(setup.job));
    ASSERT_OK_AND_ASSIGN(const std::vector<float> plain, RunTraining(setup));
    setup.job.push_encoding = GetParam();
    setup.job.pull_encoding = GetParam();
    ASSERT_OK_AND_ASSIGN(const std::vector<float> encoded, RunTraining(setup));
    const double moved = RelativeDistance(initial, plain);
    EXPECT_GT(moved, 0.01);
    EXPECT_LT(RelativeDistance(encoded, plain), 0.1 * moved);
    EXPECT_NE(encoded, plain);
  }

  const data::TestFolder images_;
};

INSTANTIATE_TEST_SUITE_P(Codecs, EncodingsTest,
                         testing::Values(params::Encoding::kBf16, params::Encoding::kInt8,
                                         params::Encoding::kInt4),
                         [](const auto& info) {
                           return std::string(params::EncodingName(info.param));
                         });

// In every encoding the bucket takes several chunks, and its last block is short with an odd number
// of elements.
TEST_P(EncodingsTest, WorkersOfOneVersionHoldTheSameBits) {
  ShardServer::Config config;
  config.layout = *params::Layout::FromTensors({{"w", {2601, 1001}, 0, 0, false, {}}});
  config.job.model = {"test", params::ClientModelSpec{}};
  config.job.optimizer.kind = job::OptimizerKind::kSgd;
  config.job.batch_size = 1;
  config.job.bucket_bytes = 16 << 20;
  config.job.push_encoding = GetParam();
  config.job.pull_encoding = GetParam();
  ShardServer server(config);
  Exchange steady(server, config.job, 1);
  Exchange other(server, config.job, 2);
  for (int round = 0; round < 4; ++round) {
    server.OpenRound(Round(round), 2, 0.1);
    std::thread pusher([&] { EXPECT_OK(other.Push(round, 1.0f)); });
    ASSERT_OK(steady.Push(round, 0.0f));
    pusher.join();
    ASSERT_OK(steady.Pull(round + 1));
  }
  ASSERT_OK(other.Pull(4));
  Exchange fresh(server, config.job, 1);
  ASSERT_OK(fresh.Pull(4));
  EXPECT_EQ(other.weights(), steady.weights());
  EXPECT_EQ(fresh.weights(), steady.weights());
  const int64_t elements = server.layout().num_elements();
  EXPECT_EQ(steady.bytes_pushed(), 4 * params::EncodedBytes(GetParam(), elements));
  EXPECT_EQ(fresh.bytes_pulled(), params::EncodedBytes(params::Encoding::kFp32, elements));
}

TEST_P(EncodingsTest, SyncGoesWhereFp32Goes) { ExpectNearlyPlain(Setup(2)); }

TEST_P(EncodingsTest, SyncOverSeveralServersGoesWhereFp32Goes) {
  TrainingSetup setup = Setup(2);
  setup.num_servers = 2;
  setup.job.clip_norm = 1.0;
  ExpectNearlyPlain(setup);
}

TEST_P(EncodingsTest, AsyncOfOneWorkerGoesWhereFp32Goes) {
  TrainingSetup setup = Setup(1);
  setup.job.mode = job::Mode::kAsync;
  setup.job.clip_norm = 1.0;  // applied by the worker before it encodes
  ExpectNearlyPlain(setup);
}

TEST_P(EncodingsTest, AsyncOfTwoWorkersEnds) {
  TrainingSetup setup = Setup(2);
  setup.job.mode = job::Mode::kAsync;
  setup.job.push_encoding = GetParam();
  setup.job.pull_encoding = GetParam();
  ASSERT_OK_AND_ASSIGN(const std::vector<float> weights, RunTraining(setup));
  for (float weight : weights) ASSERT_TRUE(std::isfinite(weight));
}

TEST_P(EncodingsTest, LocalStepsGoWhereFp32Goes) {
  TrainingSetup setup = Setup(2);
  setup.job.mode = job::Mode::kLocalSgd;
  setup.job.local_steps = 3;
  setup.job.schedule.total_rounds = 8;
  for (job::OuterOptimizerKind outer :
       {job::OuterOptimizerKind::kAverage, job::OuterOptimizerKind::kNesterov}) {
    setup.job.outer_optimizer = outer;
    ExpectNearlyPlain(setup);
  }
}

TEST_P(EncodingsTest, SyncGivesTheSameBitsAgain) {
  TrainingSetup setup = Setup(3);
  setup.job.push_encoding = GetParam();
  setup.job.pull_encoding = GetParam();
  ASSERT_OK_AND_ASSIGN(const std::vector<float> first, RunTraining(setup));
  ASSERT_OK_AND_ASSIGN(const std::vector<float> second, RunTraining(setup));
  EXPECT_EQ(first, second);
}

// The servers are lost in the middle and come back from a checkpoint. Then a worker is replaced.
TEST_P(EncodingsTest, JobEndsAfterLosingItsServersAndAWorker) {
  const TrainingSetup setup = Setup(2);
  server::ServerConfig config = SmallJobConfig();
  config.job = setup.job;
  config.job.push_encoding = GetParam();
  config.job.pull_encoding = GetParam();
  config.job.min_workers = 2;
  config.job.schedule.total_rounds = 200;
  config.durability.checkpoint_dir =
      testing::TempDir() + "/encodings_" + std::string(params::EncodingName(GetParam()));
  config.durability.checkpoint_every = 5;
  config.durability.keep = 1000;
  std::filesystem::remove_all(config.durability.checkpoint_dir);
  std::filesystem::create_directories(config.durability.checkpoint_dir);
  ASSERT_OK_AND_ASSIGN(const auto cluster, InProcessCluster::Start(config, 1));
  const auto start = [&](const std::string& name, uint64_t instance) {
    worker::Worker::Config worker;
    worker.coordinator = net::AddressList::Of(cluster->address());
    worker.name = name;
    worker.instance_id = instance;
    worker.device = {.kind = "cpu", .threads = 1};
    worker.life.first_backoff = absl::Milliseconds(5);
    return *worker::MakeBuiltInWorker(worker, {.data = {.path = setup.data}}, &Clock::Real());
  };
  // Waits for the checkpoint of this round or of a later one, because the checkpoint of a round is
  // skipped while another is written.
  const auto await_checkpoint = [&](const std::string& round) {
    const auto is_there = [&](const std::filesystem::directory_entry& entry) {
      return entry.path().extension().empty() && entry.path().filename() >= "round-" + round;
    };
    while (true) {
      const std::filesystem::directory_iterator entries(config.durability.checkpoint_dir);
      if (std::any_of(begin(entries), end(entries), is_there)) return;
      std::this_thread::yield();
    }
  };
  const std::unique_ptr<worker::Worker> stays = start("stays", 1);
  const std::unique_ptr<worker::Worker> leaves = start("leaves", 2);
  absl::Status stayed;
  std::thread stays_thread([&] { stayed = stays->Run(); });
  std::thread leaves_thread([&] { leaves->Run().IgnoreError(); });
  await_checkpoint("00000010");
  cluster->Stop(0, server::Server::StopKind::kImmediate);
  ASSERT_OK(cluster->StartAgain(0));
  await_checkpoint("00000050");
  leaves->RequestStop();
  leaves_thread.join();
  const std::unique_ptr<worker::Worker> joins = start("joins", 3);
  EXPECT_OK(joins->Run());
  stays_thread.join();
  EXPECT_OK(stayed);
}

class TopKTest : public EncodingsTest {};

INSTANTIATE_TEST_SUITE_P(
    Bits, TopKTest, testing::Values(params::Encoding::TopK(64, 2), params::Encoding::TopK(64, 4)),
    [](const auto& info) { return std::string(params::EncodingKindName(info.param.kind())); });

// A push must have the bytes that the formula of the format gives: for 64 of 4096 elements in 2
// bits, 0.227 bits per parameter.
TEST_P(TopKTest, TakesTheBytesOfTheFormulaAndWeightsComeAsInt4) {
  ShardServer::Config config;
  config.layout = *params::Layout::FromTensors({{"w", {2601, 1001}, 0, 0, false, {}}});
  config.job.model = {"test", params::ClientModelSpec{}};
  config.job.optimizer.kind = job::OptimizerKind::kSgd;
  config.job.batch_size = 1;
  config.job.bucket_bytes = 16 << 20;
  config.job.push_encoding = GetParam();
  config.job.pull_encoding = params::Encoding::kInt4;
  ShardServer server(config);
  Exchange steady(server, config.job, 1);
  Exchange other(server, config.job, 2);
  for (int round = 0; round < 3; ++round) {
    server.OpenRound(Round(round), 2, 0.1);
    std::thread pusher([&] { EXPECT_OK(other.Push(round, 1.0f)); });
    ASSERT_OK(steady.Push(round, 0.0f));
    pusher.join();
    ASSERT_OK(steady.Pull(round + 1));
  }
  ASSERT_OK(other.Pull(3));
  EXPECT_EQ(other.weights(), steady.weights());
  const double elements = static_cast<double>(server.layout().num_elements());
  const double bits_per_element = (32 + 64 * (12 + GetParam().topk_bits())) / 4096.0;
  const double formula = 3 * elements * bits_per_element / 8;
  EXPECT_NEAR(static_cast<double>(steady.bytes_pushed()), formula, 0.02 * formula);
}

// Training must get nearer to the plain job, though only a part of each tensor is sent in a round.
TEST_P(TopKTest, TrainsInSyncAndWithLocalSteps) {
  for (const job::Mode mode : {job::Mode::kSync, job::Mode::kLocalSgd}) {
    TrainingSetup setup = Setup(2);
    setup.job.mode = mode;
    setup.job.schedule.total_rounds = 40;
    if (mode == job::Mode::kLocalSgd) {
      setup.job.local_steps = 4;
      setup.job.outer_optimizer = job::OuterOptimizerKind::kSgd;
      setup.job.outer_learning_rate = 1.0;
      setup.job.schedule.total_rounds = 10;
    }
    ASSERT_OK_AND_ASSIGN(const std::vector<float> initial, InitialWeights(setup.job));
    ASSERT_OK_AND_ASSIGN(const std::vector<float> plain, RunTraining(setup));
    setup.job.push_encoding = GetParam();
    setup.job.pull_encoding = params::Encoding::kInt4;
    setup.job.feedback_decay = job::DefaultFeedbackDecay(GetParam());
    for (const job::TopKDivisor divisor :
         {job::TopKDivisor::kWorkers, job::TopKDivisor::kSenders}) {
      setup.job.topk_divisor = divisor;
      ASSERT_OK_AND_ASSIGN(const std::vector<float> encoded, RunTraining(setup));
      // The weights must move towards those of the plain job.
      EXPECT_LT(RelativeDistance(encoded, plain), 0.95 * RelativeDistance(initial, plain))
          << NameOf(mode) << " " << NameOf(divisor);
      ASSERT_OK_AND_ASSIGN(const std::vector<float> again, RunTraining(setup));
      EXPECT_EQ(again, encoded);
    }
  }
}

}  // namespace
}  // namespace lodestar
