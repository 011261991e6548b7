// Whole rounds of one worker against a parameter server in memory: what a device of its own memory
// and streams computes is what the CPU computes, bit by bit, in every mode, with transfers that
// overlap and without.

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/file_io.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/device_factory.h"
#include "worker/model/synthetic_training.h"
#include "worker/trainer/round_runner_factory.h"
#include "worker/trainer/testing/delayed_device.h"
#include "worker/trainer/testing/local_parameter_server.h"

namespace lodestar {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int64_t kSamples = 48;
constexpr int64_t kHeldout = 5;
constexpr int64_t kBatch = 6;  // two micro-batches

class RandomDataset final : public Dataset {
 public:
  explicit RandomDataset(const ModelSpec& spec) : batch_(RandomBatch(spec, kSamples, 7)) {}
  int64_t num_train_samples() const override { return kSamples - kHeldout; }
  int64_t num_heldout_samples() const override { return kHeldout; }
  int64_t tokens_per_sample() const override { return 1; }
  const std::string& fingerprint() const override { return name_; }
  std::string Describe() const override { return name_; }
  absl::Status ReadTrain(absl::Span<const SampleRef> samples, HostBatch* batch) const override {
    *batch = SliceBatch(batch_, samples.front().index, 0);
    for (const SampleRef& sample : samples) Append(sample.index, batch);
    return absl::OkStatus();
  }
  absl::Status ReadHeldout(absl::Span<const int64_t> samples, HostBatch* batch) const override {
    *batch = SliceBatch(batch_, 0, 0);
    for (int64_t sample : samples) Append(kSamples - kHeldout + sample, batch);
    return absl::OkStatus();
  }

 private:
  void Append(int64_t index, HostBatch* batch) const {
    const HostBatch one = SliceBatch(batch_, index, 1);
    ++batch->num_samples;
    batch->tokens.insert(batch->tokens.end(), one.tokens.begin(), one.tokens.end());
    batch->targets.insert(batch->targets.end(), one.targets.begin(), one.targets.end());
  }

  const std::string name_ = "random";
  const HostBatch batch_;
};

JobSpec Job(Mode mode) {
  JobSpec job;
  job.model = SmallGptSpec();
  job.mode = mode;
  job.bucket_bytes = 4096;
  return job;
}

JobSpec SyncJob() { return Job(Mode::kSync); }

JobSpec ClippingJob() {
  JobSpec job = Job(Mode::kAsync);
  job.clip_norm = 0.05;
  return job;
}

JobSpec AverageJob() {
  JobSpec job = Job(Mode::kLocalSgd);
  job.local_steps = 3;
  job.outer_optimizer = OuterOptimizerKind::kAverage;
  return job;
}

JobSpec PseudoGradientJob() {
  JobSpec job = AverageJob();
  job.outer_optimizer = OuterOptimizerKind::kNesterov;
  job.optimizer.kind = OptimizerKind::kMomentum;
  job.clip_norm = 0.05;
  return job;
}

// One worker and its server.
class Training {
 public:
  Training(const JobSpec& job, Device* device, bool overlap, TraceRecorder* trace = nullptr)
      : job_(job),
        server(job, /*learning_rate=*/0.5),
        dataset_(job.model),
        order_(1, dataset_.num_train_samples()),
        model_(*MakeModel({.spec = job.model, .max_batch = 4}, device)),
        runner_(*MakeRoundRunner(job, {.model = model_.get(),
                                       .device = device,
                                       .dataset = &dataset_,
                                       .clock = &Clock::Real(),
                                       .overlap = overlap,
                                       .trace = trace,
                                       .stop_requested = [this] { return is_stopping_; },
                                       .on_activity = [](absl::string_view) {}})) {}

  absl::StatusOr<RoundReport> RunRound(int64_t round) {
    WorkGrant grant;
    grant.kind = GrantKind::kTrain;
    grant.round = Round(round);
    grant.first_sample = round * kBatch;
    grant.num_samples = kBatch;
    grant.local_steps = job_.local_steps;
    grant.learning_rates.assign(job_.local_steps, 0.01);
    grant.min_version = Version(round);
    if (round == 1) grant.num_heldout_samples = kHeldout;
    grant.evaluation_set_size = kHeldout;
    return runner_->Run({&server.registration(), &order_, &server}, grant);
  }

  const JobSpec job_;
  LocalParameterServer server;
  bool is_stopping_ = false;

 private:
  const RandomDataset dataset_;
  const SampleOrder order_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<RoundRunner> runner_;
};

struct Outcome {
  std::vector<float> weights;
  std::vector<double> losses;  // of training and evaluation
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

Outcome Train(const JobSpec& job, Device* device, bool overlap) {
  Training training(job, device, overlap);
  Outcome outcome;
  for (int64_t round = 0; round < 3; ++round) {
    const absl::StatusOr<RoundReport> report = training.RunRound(round);
    EXPECT_OK(report);
    if (!report.ok()) break;
    outcome.losses.push_back(report->loss_sum);
    outcome.losses.push_back(report->heldout_loss_sum);
    EXPECT_EQ(report->heldout_predictions > 0, round == 1);
  }
  outcome.weights = training.server.weights();
  return outcome;
}

class RoundRunnerTest : public ::testing::TestWithParam<JobSpec (*)()> {};

INSTANTIATE_TEST_SUITE_P(Jobs, RoundRunnerTest,
                         ::testing::Values(&SyncJob, &ClippingJob, &AverageJob,
                                           &PseudoGradientJob));

TEST_P(RoundRunnerTest, StreamsAndOverlapChangeNoBit) {
  const JobSpec job = GetParam()();
  const auto cpu = *MakeDevice("cpu", 1, nullptr);
  const Outcome expected = Train(job, cpu.get(), /*overlap=*/true);
  EXPECT_NE(expected.weights, LocalParameterServer(job, 0.5).weights());
  EXPECT_EQ(Train(job, cpu.get(), /*overlap=*/false), expected);
  for (const auto order : {DelayedDevice::Order::kLate, DelayedDevice::Order::kCopiesFirst}) {
    for (const bool overlap : {true, false}) {
      DelayedDevice device(order);
      EXPECT_EQ(Train(job, &device, overlap), expected)
          << "order " << static_cast<int>(order) << " overlap " << overlap;
    }
  }
}

TEST_P(RoundRunnerTest, AFailureOfTheDeviceEndsTheRoundWhereverItHappens) {
  const JobSpec job = GetParam()();
  for (const StreamKind stream :
       {StreamKind::kCompute, StreamKind::kDeviceToHost, StreamKind::kHostToDevice}) {
    for (const int count : {1, 2, 7}) {
      DelayedDevice device(DelayedDevice::Order::kLate);
      Training training(job, &device, /*overlap=*/true);
      ASSERT_OK(training.RunRound(0));
      device.FailAt(stream, count);
      absl::Status status = training.RunRound(1).status();
      // A copy of the last few may be needed by nobody in this round.
      if (status.ok()) status = training.RunRound(2).status();
      if (status.ok()) status = training.RunRound(3).status();
      EXPECT_THAT(status, StatusIs(absl::StatusCode::kInternal, HasSubstr("made to fail")))
          << "stream " << static_cast<int>(stream) << " count " << count;
    }
  }
}

// How much had been computed when each bucket left.
std::vector<int64_t> ComputedBeforeBuckets(bool overlap) {
  DelayedDevice device(DelayedDevice::Order::kLate);
  Training training(SyncJob(), &device, overlap);
  std::vector<int64_t> computed;
  training.server.on_add_ = [&](uint32_t) {
    computed.push_back(device.num_run(StreamKind::kCompute));
  };
  EXPECT_OK(training.RunRound(0));
  EXPECT_EQ(computed.size(), training.server.registration().buckets.size());
  return computed;
}

TEST(OverlapTest, EachBlockLeavesWhileTheBackwardOfEarlierBlocksIsAhead) {
  const std::vector<int64_t> computed = ComputedBeforeBuckets(/*overlap=*/true);
  ASSERT_FALSE(computed.empty());
  // A small gpt has two layers, a last norm, and the tables.
  std::vector<int64_t> distinct = computed;
  distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
  EXPECT_EQ(distinct.size(), 4u);
  EXPECT_TRUE(std::is_sorted(computed.begin(), computed.end()));
}

TEST(OverlapTest, WithoutItNothingLeavesBeforeBackwardHasEnded) {
  const std::vector<int64_t> computed = ComputedBeforeBuckets(/*overlap=*/false);
  ASSERT_FALSE(computed.empty());
  EXPECT_THAT(computed, Each(computed.back()));
}

TEST(LocalSgdTest, AStopHandsOverTheStepsThatAreDone) {
  const auto cpu = *MakeDevice("cpu", 1, nullptr);
  Training training(AverageJob(), cpu.get(), /*overlap=*/true);
  training.is_stopping_ = true;
  const absl::StatusOr<RoundReport> report = training.RunRound(0);
  ASSERT_OK(report);
  EXPECT_EQ(report->num_samples, kBatch / 3);
  EXPECT_EQ(training.server.version(), Version(1));
}

std::string TraceOf(const JobSpec& job, Device* device) {
  const std::string path = absl::StrCat(::testing::TempDir(), "/round_runner_trace.json");
  TraceRecorder trace({.path = path, .process = "test", .skip_rounds = 1, .num_rounds = 1},
                      &Clock::Real());
  Training training(job, device, /*overlap=*/true, &trace);
  for (int64_t round = 0; round < 3; ++round) {
    trace.BeginRound(round);
    EXPECT_OK(training.RunRound(round));
  }
  return ReadWholeFile(path, 1 << 24).value_or("");
}

TEST(RoundTraceTest, ShowsWhatTheHostAndTheStreamsDid) {
  DelayedDevice device(DelayedDevice::Order::kLate);
  const std::string trace = TraceOf(SyncJob(), &device);
  for (const char* name : {"read data", "upload", "forward", "backward", "evaluation", "pull wait",
                           "pull", "push wait", "copy wait"}) {
    EXPECT_THAT(trace, HasSubstr(absl::StrCat("\"name\":\"", name, "\""))) << name;
  }
  for (const char* lane : {"device: compute", "device: copy to host", "device: copy from host"}) {
    EXPECT_THAT(trace, HasSubstr(absl::StrCat("\"cat\":\"", lane, "\""))) << lane;
  }
  EXPECT_THAT(trace, AllOf(HasSubstr("\"round\":1"), Not(HasSubstr("\"round\":2"))));
}

TEST(RoundTraceTest, ADeviceThatRunsInlineHasNoStreamsToShow) {
  const auto cpu = *MakeDevice("cpu", 1, nullptr);
  const std::string trace = TraceOf(PseudoGradientJob(), cpu.get());
  EXPECT_THAT(trace, AllOf(HasSubstr("\"backward\""), HasSubstr("\"inner optimizer\""),
                           Not(HasSubstr("device: "))));
}

}  // namespace
}  // namespace lodestar
