// SPDX-License-Identifier: Apache-2.0

// Tests a card that copies directly to and from the memory that worker and server share. Training
// must give the same bits as over TCP, even if pushes are cut, memory is refused or calls are given
// up. No memory may stay registered.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/testing/status_matchers.h"
#include "kernels/cuda/testing/emulated_device.h"
#include "tests/cluster/shard_server.h"
#include "worker/client/bulk_grpc_transport.h"
#include "worker/client/shared_memory_plan.h"
#include "worker/trainer/device_registry.h"
#include "worker/trainer/testing/training_rig.h"

namespace lodestar {
namespace {

using ::testing::HasSubstr;

constexpr int kRounds = 3;
constexpr size_t kSmallChunk = 1024;  // several chunks per bucket, and more chunks than blocks
constexpr double kLearningRate = 0.1;

job::JobSpec GradientJob(params::Encoding push_encoding = params::Encoding::kFp32) {
  job::JobSpec job;
  job.mode = job::Mode::kSync;
  job.optimizer.kind = job::OptimizerKind::kAdamW;
  job.push_encoding = push_encoding;
  job.min_workers = 1;
  return job;
}

job::JobSpec LocalStepsJob(job::OuterOptimizerKind outer) {
  job::JobSpec job;
  job.mode = job::Mode::kLocalSgd;
  job.local_steps = 2;
  job.outer_optimizer = outer;
  job.min_workers = 1;
  return job;
}

job::JobSpec OverlappedJob() {
  job::JobSpec job = LocalStepsJob(job::OuterOptimizerKind::kNesterov);
  job.overlap_steps = 1;
  return job;
}

// Records what a transport has reported about its shared memory. Thread-safe.
class Settlement {
 public:
  void OnShared(const absl::Status& status) {
    absl::MutexLock lock(&mutex_);
    is_shared_ = status.ok();
    is_settled_ = !status.ok() || !awaits_registration_;
  }
  void OnRegistered(const absl::Status& status) {
    absl::MutexLock lock(&mutex_);
    registered_ = status;
    is_settled_ = true;
  }
  void Begin(bool awaits_registration) {
    absl::MutexLock lock(&mutex_);
    awaits_registration_ = awaits_registration;
    is_settled_ = false;
    is_shared_ = false;
    registered_ = absl::UnknownError("nobody has told");
  }
  void Await() {
    absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(&is_settled_));
  }
  bool is_shared() {
    absl::MutexLock lock(&mutex_);
    return is_shared_;
  }
  absl::Status registered() {
    absl::MutexLock lock(&mutex_);
    return registered_;
  }

 private:
  absl::Mutex mutex_;
  bool awaits_registration_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_settled_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_shared_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status registered_ ABSL_GUARDED_BY(mutex_) = absl::UnknownError("nobody has told");
};

// Cuts the pushes that `cuts_` selects: cancels them while data are under way, and returns the
// error of a broken connection.
class CuttingTransport final : public client::ParameterTransport {
 public:
  explicit CuttingTransport(std::unique_ptr<client::ParameterTransport> inner)
      : inner_(std::move(inner)) {}

  std::function<bool()> cuts_ = [] { return false; };

  std::unique_ptr<client::PushSession> StartPush(
      const client::ContributionHeader& header) override {
    return std::make_unique<Push>(inner_->StartPush(header), cuts_());
  }
  std::unique_ptr<client::PullSession> StartPull(client::PullSpec spec,
                                                 BucketCallback on_bucket) override {
    return inner_->StartPull(std::move(spec), std::move(on_bucket));
  }
  bool ReachesDevice(uint32_t bucket) override { return inner_->ReachesDevice(bucket); }
  uint64_t bytes_pushed() const override { return inner_->bytes_pushed(); }
  uint64_t bytes_pulled() const override { return inner_->bytes_pulled(); }

 private:
  class Push final : public client::PushSession {
   public:
    Push(std::unique_ptr<client::PushSession> inner, bool is_cut)
        : inner_(std::move(inner)), is_cut_(is_cut) {}
    void AddBucket(uint32_t bucket, Version base_version,
                   absl::Span<const std::byte> data) override {
      inner_->AddBucket(bucket, base_version, data);
    }
    void AddDeviceBucket(uint32_t bucket, Version base_version,
                         const client::DevicePayload& payload) override {
      inner_->AddDeviceBucket(bucket, base_version, payload);
    }
    absl::StatusOr<client::PushResult> Finish() override {
      if (is_cut_) inner_->Cancel();
      absl::StatusOr<client::PushResult> result = inner_->Finish();
      if (is_cut_) return absl::UnavailableError("it was cut");
      return result;
    }
    void Cancel() override { inner_->Cancel(); }

   private:
    const std::unique_ptr<client::PushSession> inner_;
    const bool is_cut_;
  };

  const std::unique_ptr<client::ParameterTransport> inner_;
};

struct Outcome {
  std::vector<float> weights;
  std::vector<double> losses;
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

class DeviceCopiesTest : public ::testing::Test {
 protected:
  enum class Path : uint8_t { kTcp, kSharedMemory };

  ~DeviceCopiesTest() override {
    emulator::ClearStickyError();
    emulator::Configure({});
  }

  // A worker with a card and a server of its own.
  struct Cluster {
    std::unique_ptr<kernels::Device> card;
    std::unique_ptr<client::HostMemoryRegistry> registry;
    std::unique_ptr<ShardServer> server;
    std::unique_ptr<Settlement> settlement = std::make_unique<Settlement>();
    std::unique_ptr<CuttingTransport> transport;
    std::unique_ptr<trainer::TrainingRig>
        rig;  // must be destroyed first: an open window uses the transport
  };

  static Cluster Make(const job::JobSpec& job, Path path, const emulator::Settings& settings = {}) {
    Cluster cluster;
    cluster.card = cuda::MakeEmulatedDevice({.fusion = factory::FusionPolicy::kNever}, settings);
    cluster.registry = trainer::MakeDeviceRegistry(cluster.card.get());
    cluster.rig = std::make_unique<trainer::TrainingRig>(job, cluster.card.get(), /*overlap=*/true);
    const messages::Registration& registration = cluster.rig->server().registration();
    ShardServer::Config config;
    config.job = registration.job;
    config.layout = registration.layout();
    cluster.server = std::make_unique<ShardServer>(std::move(config));
    cluster.transport = std::make_unique<CuttingTransport>(Connect(cluster, path));
    if (path == Path::kSharedMemory && settings.registrable_bytes > 0) {
      EXPECT_OK(cluster.settlement->registered());
    }
    cluster.rig->UseTransport(cluster.transport.get());
    return cluster;
  }

  static std::unique_ptr<client::ParameterTransport> Connect(Cluster& cluster, Path path) {
    client::BulkGrpcTransportConfig config = cluster.server->TransportConfig(WorkerId(1));
    config.chunk_bytes = kSmallChunk;
    config.shared_block_bytes = kSmallChunk;
    config.shared_memory = path == Path::kSharedMemory;
    config.registry = cluster.registry.get();
    Settlement* const settlement = cluster.settlement.get();
    settlement->Begin(/*awaits_registration=*/config.shared_memory);
    config.on_shared_memory = [settlement](int, const absl::Status& status) {
      settlement->OnShared(status);
    };
    config.on_registered = [settlement](int, const absl::Status& status) {
      settlement->OnRegistered(status);
    };
    auto transport = client::MakeBulkGrpcTransport(std::move(config));
    if (path == Path::kSharedMemory) settlement->Await();
    return transport;
  }

  static void RunRounds(Cluster& cluster, Outcome& outcome) {
    for (int round = 0; round < kRounds; ++round) {
      cluster.server->OpenRound(Round(round), 1, kLearningRate, /*num_samples=*/trainer::kRigBatch);
      const absl::StatusOr<messages::RoundReport> report = cluster.rig->RunRound(round);
      ASSERT_OK(report);
      outcome.losses.push_back(report->loss_sum);
      outcome.losses.push_back(report->heldout_loss_sum);
    }
  }

  // Returns the server's weights at the end.
  static std::vector<float> WeightsOf(const Cluster& cluster) {
    std::vector<float> weights(cluster.server->layout().num_elements());
    client::PullSpec spec{Round(kRounds), {}};
    for (const params::Bucket& bucket : cluster.server->buckets()) {
      spec.targets.push_back(
          {bucket.index, absl::MakeSpan(weights).subspan(bucket.range.begin, bucket.range.size())});
    }
    EXPECT_OK(cluster.transport->StartPull(std::move(spec), nullptr)->Wait());
    return weights;
  }

  static Outcome Train(Cluster& cluster) {
    Outcome outcome;
    RunRounds(cluster, outcome);
    outcome.weights = WeightsOf(cluster);
    return outcome;
  }
  static Outcome Train(const job::JobSpec& job, Path path,
                       const emulator::Settings& settings = {}) {
    Cluster cluster = Make(job, path, settings);
    return Train(cluster);
  }

  static int64_t VectorBytes(const Cluster& cluster) {
    return cluster.server->layout().num_elements() * static_cast<int64_t>(sizeof(float));
  }
};

struct NamedJob {
  std::string name;
  job::JobSpec job;
};
void PrintTo(const NamedJob& named, std::ostream* out) { *out << named.name; }

class DeviceCopiesOfJobsTest : public DeviceCopiesTest,
                               public ::testing::WithParamInterface<NamedJob> {};

INSTANTIATE_TEST_SUITE_P(
    Jobs, DeviceCopiesOfJobsTest,
    ::testing::Values(NamedJob{"Gradients", GradientJob()},
                      NamedJob{"Bf16", GradientJob(params::Encoding::kBf16)},
                      NamedJob{"Int8", GradientJob(params::Encoding::kInt8)},
                      NamedJob{"Weights", LocalStepsJob(job::OuterOptimizerKind::kAverage)},
                      NamedJob{"PseudoGradients",
                               LocalStepsJob(job::OuterOptimizerKind::kNesterov)},
                      NamedJob{"Overlapped", OverlappedJob()}),
    [](const auto& info) { return info.param.name; });

TEST_P(DeviceCopiesOfJobsTest, SameBitsAsOverTcp) {
  const job::JobSpec& job = GetParam().job;
  const int64_t allocations = emulator::num_allocations();
  const int64_t before = emulator::registered_bytes_copied();
  const Outcome over_tcp = Train(job, Path::kTcp);
  EXPECT_EQ(emulator::registered_bytes_copied(), before);
  EXPECT_GT(over_tcp.losses.size(), 0);
  for (const auto order :
       {emulator::StreamOrder::kOnlyWhatIsNeeded, emulator::StreamOrder::kOthersFirst}) {
    EXPECT_EQ(Train(job, Path::kSharedMemory, {.streams = order}), over_tcp);
  }
  EXPECT_GT(emulator::registered_bytes_copied(), before);
  EXPECT_EQ(emulator::num_allocations(), allocations) << "memory stays registered";
  EXPECT_EQ(emulator::KernelFailure(), "");
}

// The first push of each round is cut. The region is gone when the push is sent again. The data
// then come from the vector on the card, because there is no copy on the host.
TEST_P(DeviceCopiesOfJobsTest, PushesThatAreCutAreSentAgainFromTheCard) {
  const job::JobSpec& job = GetParam().job;
  const Outcome undisturbed = Train(job, Path::kTcp);
  const int64_t allocations = emulator::num_allocations();
  {
    Cluster cluster = Make(job, Path::kSharedMemory);
    int pushes = 0;
    cluster.transport->cuts_ = [&pushes] { return ++pushes % 2 != 0; };
    EXPECT_EQ(Train(cluster), undisturbed);
    EXPECT_EQ(pushes, 2 * kRounds);
  }
  EXPECT_EQ(emulator::num_allocations(), allocations);
  EXPECT_EQ(emulator::KernelFailure(), "");
}

// Pulls must not use copies on the host. Pushes may now and then find no free block and go without
// the region.
TEST_F(DeviceCopiesTest, BothWaysGoStraightThroughTheRegion) {
  const int64_t copied = emulator::registered_bytes_copied();
  const int64_t pageable = emulator::num_pageable_copies();
  Cluster cluster = Make(GradientJob(), Path::kSharedMemory);
  Outcome outcome;
  RunRounds(cluster, outcome);
  EXPECT_GT(emulator::registered_bytes_copied() - copied, kRounds * VectorBytes(cluster));
  EXPECT_LE(emulator::registered_bytes_copied() - copied, 2 * kRounds * VectorBytes(cluster));
  EXPECT_EQ(emulator::num_pageable_copies(), pageable);
}

TEST_F(DeviceCopiesTest, RegisteredMemoryIsAsForetold) {
  Cluster cluster = Make(GradientJob(), Path::kTcp);
  const int64_t before = emulator::pinned_bytes();
  const auto transport = Connect(cluster, Path::kSharedMemory);
  ASSERT_OK(cluster.settlement->registered());
  EXPECT_EQ(emulator::pinned_bytes() - before,
            client::SharedMemoryBytes(cluster.server->buckets(), kSmallChunk));
}

TEST_F(DeviceCopiesTest, WithoutRegistrationAllGoesOnAsBefore) {
  const Outcome over_tcp = Train(GradientJob(), Path::kTcp);
  const int64_t copied = emulator::registered_bytes_copied();
  Cluster cluster = Make(GradientJob(), Path::kSharedMemory, {.registrable_bytes = 0});
  EXPECT_THAT(cluster.settlement->registered(),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("cudaHostRegister")));
  EXPECT_TRUE(cluster.settlement->is_shared());
  EXPECT_EQ(cluster.server->rpc().num_shared_regions(), 1);
  EXPECT_EQ(Train(cluster), over_tcp);
  EXPECT_EQ(emulator::registered_bytes_copied(), copied);
}

// A vector on the card, which is copied to and from directly.
class CardVector final : public client::PayloadSource, public client::PayloadSink {
 public:
  CardVector(kernels::Device* card, int64_t bytes) : card_(card), memory_(*card->Allocate(bytes)) {}
  ~CardVector() override { card_->Release(memory_); }

  absl::Status CopyOut(absl::Span<std::byte> destination, int64_t begin) override {
    return card_->CopyNow(destination.data(), At(begin), destination.size(),
                          kernels::StreamKind::kDeviceToHost, [] {});
  }
  absl::StatusOr<absl::Span<const std::byte>> Fetch(int64_t, int64_t) override {
    return absl::FailedPreconditionError("the host has no place for it");
  }
  absl::Status CopyIn(int64_t begin, absl::Span<const std::byte> source,
                      absl::FunctionRef<void()> meanwhile) override {
    return card_->CopyNow(At(begin), source.data(), source.size(),
                          kernels::StreamKind::kHostToDevice, meanwhile);
  }

 private:
  std::byte* At(int64_t begin) const { return static_cast<std::byte*>(memory_) + begin; }

  kernels::Device* const card_;
  void* const memory_;
};

TEST_F(DeviceCopiesTest, RegionsMayGoWhileCopiesAreUnderWay) {
  Cluster cluster = Make(GradientJob(), Path::kTcp);
  cluster.server->OpenRound(Round(0), 1, kLearningRate);
  CardVector vector(cluster.card.get(), VectorBytes(cluster));
  CardVector weights(cluster.card.get(), VectorBytes(cluster));
  std::vector<float> host(cluster.server->layout().num_elements());
  const int64_t allocations = emulator::num_allocations();
  for (int i = 0; i < 30; ++i) {
    const auto transport = Connect(cluster, Path::kSharedMemory);
    ASSERT_OK(cluster.settlement->registered());
    client::PullSpec spec{Round(0), {}};
    for (const params::Bucket& bucket : cluster.server->buckets()) {
      spec.targets.push_back(
          {.bucket = bucket.index,
           .destination = absl::MakeSpan(host).subspan(bucket.range.begin, bucket.range.size()),
           .device = &weights,
           .device_begin = bucket.range.begin * 4});
    }
    const auto pull = transport->StartPull(std::move(spec), nullptr);
    const auto push = transport->StartPush({Round(0), messages::ContributionKind::kGradient, 1.0f});
    for (const params::Bucket& bucket : cluster.server->buckets()) {
      if (static_cast<int>(bucket.index) > i) break;
      push->AddDeviceBucket(bucket.index, Version(0),
                            {&vector, bucket.range.begin * 4, bucket.range.size() * 4});
    }
    // Both sessions are destroyed while data are under way, and the region with them.
  }
  EXPECT_EQ(emulator::num_allocations(), allocations) << "memory stays registered";
  EXPECT_EQ(emulator::KernelFailure(), "");
  EXPECT_OK(cluster.card->Synchronize(cluster.card->Record(kernels::StreamKind::kCompute)));
}

// Changes the memory between the server's checksum and the card's copy.
class DamagingSink final : public client::PayloadSink {
 public:
  absl::Status CopyIn(int64_t, absl::Span<const std::byte> source,
                      absl::FunctionRef<void()> meanwhile) override {
    const_cast<std::byte&>(source.back()) ^= std::byte{1};
    meanwhile();
    return absl::OkStatus();
  }
};

TEST_F(DeviceCopiesTest, ADamagedBucketDoesNotCountAsArrived) {
  Cluster cluster = Make(GradientJob(), Path::kSharedMemory);
  cluster.server->OpenRound(Round(0), 1, kLearningRate);
  const params::Bucket& bucket = cluster.server->buckets()[0];
  std::vector<float> host(bucket.range.size());
  DamagingSink sink;
  client::PullSpec spec{Round(0), {}};
  spec.targets.push_back(
      {.bucket = bucket.index, .destination = absl::MakeSpan(host), .device = &sink});
  int arrived = 0;
  const auto pull = cluster.transport->StartPull(
      std::move(spec), [&arrived](const client::PulledBucket&) { ++arrived; });
  EXPECT_THAT(pull->Wait(), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("crc32c")));
  EXPECT_EQ(arrived, 0);
}

// A failure of the card must not be retried: another connection would not repair the card.
TEST_F(DeviceCopiesTest, AFailureOfTheCardEndsTheRound) {
  Cluster cluster = Make(GradientJob(), Path::kSharedMemory);
  cluster.server->OpenRound(Round(0), 1, kLearningRate, trainer::kRigBatch);
  emulator::FailLaunchAfter(5);
  const absl::StatusOr<messages::RoundReport> report = cluster.rig->RunRound(0);
  ASSERT_FALSE(report.ok());
  EXPECT_THAT(std::string(report.status().message()), HasSubstr("CUDA device 0"));
  // A failed card does not recover. This clears the error, so that the next test has a working
  // card.
  emulator::ClearStickyError();
}

}  // namespace
}  // namespace lodestar
