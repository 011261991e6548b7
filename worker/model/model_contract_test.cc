// SPDX-License-Identifier: Apache-2.0

// Tests of the rules that every model must follow, on every architecture and device.
#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/match.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/factory/device_factory.h"
#include "worker/model/model.h"
#include "worker/model/testing/synthetic_training.h"
#include "worker/model/testing/test_devices.h"

namespace lodestar::model {
namespace {

using testing::HasSubstr;

// Number of steps after which a device with graphs has run a step without a graph, has recorded it,
// and has run the graph.
constexpr int kStepsToRecord = 3;

struct ContractCase {
  params::ModelSpec spec;
  std::string device;
};

std::vector<ContractCase> AllCases() {
  std::vector<ContractCase> cases;
  for (const params::ModelSpec& spec : SmallModelSpecs()) {
    for (const char* device : {"cpu", "oracle"}) cases.push_back({spec, device});
    for (const char* device : kCudaTestDevices) cases.push_back({spec, device});
  }
  return cases;
}

// Records each block in a shared journal when the model first waits for it. Fails at
// `failing_block`.
class JournalGate : public WeightsGate {
 public:
  explicit JournalGate(std::vector<int>* journal, int failing_block = -1)
      : journal_(journal), failing_block_(failing_block) {}
  absl::Status WaitForBlock(int block) override {
    // WaitForParts() has already recorded this block.
    if (parted_.erase(block) > 0) return absl::OkStatus();
    return Note(block);
  }
  absl::Status WaitForParts(int block, absl::Span<const params::ElementRange>) override {
    EXPECT_TRUE(parted_.insert(block).second);
    return Note(block);
  }
  // Must be called after each step.
  void Reset() {
    journal_->clear();
    parted_.clear();
  }

 private:
  absl::Status Note(int block) {
    if (block == failing_block_) return absl::UnavailableError("no weights");
    journal_->push_back(block);
    return absl::OkStatus();
  }

  std::vector<int>* journal_;
  std::set<int> parted_;
  int failing_block_;
};

class JournalSink : public GradientSink {
 public:
  explicit JournalSink(std::vector<int>* journal, int failing_block = -1)
      : journal_(journal), failing_block_(failing_block) {}
  absl::Status BlockReady(int block) override {
    if (block == failing_block_) return absl::AbortedError("no taker");
    journal_->push_back(block);
    return absl::OkStatus();
  }

 private:
  std::vector<int>* journal_;
  int failing_block_;
};

// Copies each gradient when it is reported.
class SnapshotSink : public GradientSink {
 public:
  SnapshotSink(kernels::Device* device, Model* model)
      : device_(device),
        model_(model),
        gradient_(model->layout().num_elements()),
        is_told_(gradient_.size(), false) {}
  absl::Status BlockReady(int block) override {
    return PartsReady(block, {model_->layout().block(block)});
  }
  absl::Status PartsReady(int, absl::Span<const params::ElementRange> parts) override {
    const std::vector<double> now = ReadBuf(device_, model_->gradients());
    for (const params::ElementRange& range : parts) {
      for (int64_t i = range.begin; i < range.end; ++i) {
        if (!is_told_[i]) gradient_[i] = now[i];
        is_told_[i] = true;
      }
    }
    return absl::OkStatus();
  }
  const std::vector<double>& gradient() const { return gradient_; }

 private:
  kernels::Device* device_;
  Model* model_;
  std::vector<double> gradient_;
  std::vector<bool> is_told_;
};

class ModelContractTest : public testing::TestWithParam<ContractCase> {
 protected:
  void SetUp() override { device_ = MakeTestDevice(GetParam().device, /*threads=*/1); }

  std::unique_ptr<Model> MakeReadyModel(int64_t max_batch) {
    std::unique_ptr<Model> model = *MakeModel({GetParam().spec, max_batch}, device_.get());
    WriteBuf(device_.get(), model->parameters(),
             RandomParameters(model->layout(), /*noise=*/0.1, /*seed=*/3));
    model->RefreshNarrowParameters();
    return model;
  }

  data::HostBatch Batch(int64_t num_samples) const {
    return RandomBatch(GetParam().spec, num_samples, /*seed=*/9);
  }

  // Maximum relative error between two ways to compute the same sums. On most devices, only the
  // order of a few hundred terms differs. In bf16, a card uses another algorithm if the number of
  // rows differs. Each of ten to twenty operations then rounds differently, by 2e-3 on average.
  // These errors are independent, so the total error is below 1e-2.
  double tolerance() const {
    if (GetParam().device == "oracle") return 1e-12;
    return absl::StrContains(GetParam().device, "bf16") ? 1e-2 : 2e-5;
  }

  // Evaluation keeps no values for backward. So a card that fuses kernels may use another algorithm
  // than in training, which rounds differently in bf16. On all other devices the bits are equal.
  void ExpectSameLoss(double evaluated, double trained) {
    const double off = GetParam().device == "cuda-bf16-always" ? tolerance() * trained : 0.0;
    EXPECT_NEAR(evaluated, trained, off);
  }

  void ExpectNearGradients(const std::vector<double>& got, const std::vector<double>& want) {
    ASSERT_EQ(got.size(), want.size());
    double largest = 0.0;
    for (double value : want) largest = std::max(largest, std::abs(value));
    ASSERT_GT(largest, 0.0);
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_NEAR(got[i], want[i], tolerance() * largest) << "element " << i;
    }
  }

  std::unique_ptr<kernels::Device> device_;
};

TEST_P(ModelContractTest, MicroBatchesGiveTheGradientOfTheWholeBatch) {
  const data::HostBatch batch = Batch(7);
  auto whole = MakeReadyModel(7);
  const BatchResult expected = *whole->TrainStep(batch, nullptr, nullptr);
  const std::vector<double> gradient = ReadBuf(device_.get(), whole->gradients());
  for (const int64_t max_batch : {1, 2, 3, 10}) {
    auto cut = MakeReadyModel(max_batch);
    const BatchResult result = *cut->TrainStep(batch, nullptr, nullptr);
    EXPECT_EQ(result.num_predictions, expected.num_predictions);
    EXPECT_NEAR(result.loss_sum, expected.loss_sum, tolerance() * expected.loss_sum);
    ExpectNearGradients(ReadBuf(device_.get(), cut->gradients()), gradient);
  }
}

TEST_P(ModelContractTest, SecondStepDoesNotSeeTheFirst) {
  auto model = MakeReadyModel(3);
  const data::HostBatch batch = Batch(5);
  const BatchResult first = *model->TrainStep(batch, nullptr, nullptr);
  const std::vector<double> gradient = ReadBuf(device_.get(), model->gradients());
  ASSERT_TRUE(model->TrainStep(Batch(2), nullptr, nullptr).ok());
  const BatchResult again = *model->TrainStep(batch, nullptr, nullptr);
  EXPECT_EQ(again.loss_sum, first.loss_sum);
  EXPECT_EQ(ReadBuf(device_.get(), model->gradients()), gradient);
}

TEST_P(ModelContractTest, GateIsAskedInOrderOncePerStep) {
  auto model = MakeReadyModel(2);
  std::vector<int> wanted(model->layout().num_blocks());
  std::iota(wanted.begin(), wanted.end(), 0);
  std::vector<int> journal;
  JournalGate gate(&journal);
  for (int step = 0; step < kStepsToRecord; ++step) {
    ASSERT_TRUE(model->TrainStep(Batch(5), &gate, nullptr).ok());
    EXPECT_EQ(journal, wanted);
    gate.Reset();
  }
  ASSERT_TRUE(model->Evaluate(Batch(5), &gate).ok());
  EXPECT_EQ(journal, wanted);
}

TEST_P(ModelContractTest, SinkIsToldInReverseOrderOncePerStep) {
  auto model = MakeReadyModel(2);
  std::vector<int> wanted(model->layout().num_blocks());
  std::iota(wanted.rbegin(), wanted.rend(), 0);
  std::vector<int> journal;
  JournalSink sink(&journal);
  for (int step = 0; step < kStepsToRecord; ++step) {
    ASSERT_TRUE(model->TrainStep(Batch(5), nullptr, &sink).ok());
    EXPECT_EQ(journal, wanted);
    journal.clear();
  }
}

TEST_P(ModelContractTest, ReportedBlocksAndPartsAreFinal) {
  auto model = MakeReadyModel(2);
  for (int step = 0; step < kStepsToRecord; ++step) {
    SnapshotSink sink(device_.get(), model.get());
    ASSERT_TRUE(model->TrainStep(Batch(5), nullptr, &sink).ok());
    EXPECT_EQ(sink.gradient(), ReadBuf(device_.get(), model->gradients()));
    ASSERT_TRUE(model->TrainStep(Batch(5), nullptr, nullptr).ok());
    EXPECT_EQ(ReadBuf(device_.get(), model->gradients()), sink.gradient()) << "told of nothing";
  }
}

TEST_P(ModelContractTest, WeightsAreNotReadBeforeTheGate) {
  // Writes the weights of a block, or of parts of it, only when forward waits for them. Before
  // that, the parameters are garbage (see `spoil` below).
  class FillingGate : public WeightsGate {
   public:
    FillingGate(kernels::Device* device, Model* model, std::vector<double> values)
        : device_(device), model_(model), values_(std::move(values)) {}
    absl::Status WaitForBlock(int block) override {
      return WaitForParts(block, {model_->layout().block(block)});
    }
    absl::Status WaitForParts(int, absl::Span<const params::ElementRange> parts) override {
      for (const params::ElementRange& range : parts) {
        WriteBuf(device_, model_->parameters().Slice(range.begin, range.size()),
                 {values_.begin() + range.begin, values_.begin() + range.end});
      }
      return absl::OkStatus();
    }

   private:
    kernels::Device* device_;
    Model* model_;
    std::vector<double> values_;
  };
  const data::HostBatch batch = Batch(3);
  const BatchResult expected = *MakeReadyModel(2)->TrainStep(batch, nullptr, nullptr);
  auto model = MakeReadyModel(2);
  const std::vector<double> weights = ReadBuf(device_.get(), model->parameters());
  FillingGate gate(device_.get(), model.get(), weights);
  const auto spoil = [&] {
    WriteBuf(device_.get(), model->parameters(), std::vector<double>(weights.size(), 1e3));
    model->RefreshNarrowParameters();
  };
  spoil();
  ExpectSameLoss(model->Evaluate(batch, &gate)->loss_sum, expected.loss_sum);
  for (int step = 0; step < kStepsToRecord; ++step) {
    spoil();
    EXPECT_EQ(model->TrainStep(batch, &gate, nullptr)->loss_sum, expected.loss_sum);
  }
}

TEST_P(ModelContractTest, ErrorsOfGateAndSinkEndTheStep) {
  auto model = MakeReadyModel(2);
  std::vector<int> journal;
  JournalGate gate(&journal, /*failing_block=*/1);
  EXPECT_EQ(model->TrainStep(Batch(2), &gate, nullptr).status().code(),
            absl::StatusCode::kUnavailable);
  EXPECT_EQ(journal, std::vector<int>({0}));
  JournalSink sink(&journal, /*failing_block=*/0);
  EXPECT_EQ(model->TrainStep(Batch(2), nullptr, &sink).status().code(), absl::StatusCode::kAborted);
}

TEST_P(ModelContractTest, EvaluateGivesTheLossOfTrainStepAndKeepsGradients) {
  auto model = MakeReadyModel(3);
  const data::HostBatch batch = Batch(7);
  const BatchResult trained = *model->TrainStep(batch, nullptr, nullptr);
  const std::vector<double> gradient = ReadBuf(device_.get(), model->gradients());
  const BatchResult evaluated = *model->Evaluate(batch, nullptr);
  ExpectSameLoss(evaluated.loss_sum, trained.loss_sum);
  EXPECT_EQ(ReadBuf(device_.get(), model->gradients()), gradient);
}

TEST_P(ModelContractTest, EvaluateCountsWhatIsPredictedRightAndTrainStepDoesNot) {
  auto model = MakeReadyModel(3);
  data::HostBatch batch = Batch(7);
  int64_t correct = 0;
  int64_t predictions = 0;
  // Tries all classes as the target of every sample, until the model refuses the target. Each
  // prediction is correct for exactly one class.
  for (int32_t target = 0;; ++target) {
    std::fill(batch.targets.begin(), batch.targets.end(), target);
    const absl::StatusOr<BatchResult> result = model->Evaluate(batch, nullptr);
    if (!result.ok()) break;
    correct += result->num_correct;
    predictions = result->num_predictions;
    EXPECT_EQ(model->TrainStep(batch, nullptr, nullptr)->num_correct, 0);
  }
  EXPECT_GT(predictions, 0);
  EXPECT_EQ(correct, predictions);
}

TEST_P(ModelContractTest, RefusesBatchesThatDoNotFit) {
  auto model = MakeReadyModel(2);
  const auto expect_refused = [&](const data::HostBatch& batch, const char* text) {
    const absl::Status trained = model->TrainStep(batch, nullptr, nullptr).status();
    EXPECT_EQ(trained.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(trained.message()), HasSubstr(text));
    EXPECT_EQ(model->Evaluate(batch, nullptr).status(), trained);
  };
  const data::HostBatch good = Batch(2);
  const bool takes_tokens = !good.tokens.empty();
  expect_refused(data::HostBatch{}, "at least 1");
  data::HostBatch bad = good;
  bad.num_samples = 3;
  expect_refused(bad, "for 3 samples");
  bad = good;
  bad.targets.pop_back();
  expect_refused(bad, "targets");
  bad = good;
  bad.targets.back() = -1;
  expect_refused(bad, "-1");
  bad = good;
  takes_tokens ? bad.features.push_back(0.0f) : bad.tokens.push_back(0);
  expect_refused(bad, "needs 0");
  if (takes_tokens) {
    bad = good;
    bad.tokens[3] = 40;
    expect_refused(bad, "position 3");
  }
}

TEST_P(ModelContractTest, RefusesAMicroBatchOfNothing) {
  EXPECT_EQ(MakeModel({GetParam().spec, 0}, device_.get()).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_P(ModelContractTest, NamesTheModelWhenMemoryIsShort) {
  const absl::Status status =
      MakeModel({GetParam().spec, int64_t{1} << 44}, device_.get()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr(GetParam().spec.name));
  EXPECT_THAT(std::string(status.message()), HasSubstr("smaller micro-batch"));
}

INSTANTIATE_TEST_SUITE_P(ArchitecturesAndDevices, ModelContractTest, testing::ValuesIn(AllCases()),
                         [](const testing::TestParamInfo<ContractCase>& info) {
                           std::string name = info.param.spec.name + info.param.device;
                           name.erase(std::remove(name.begin(), name.end(), '-'), name.end());
                           return name;
                         });

TEST(MakeModelTest, RefusesAModelThatItsClientComputes) {
  auto device = *factory::MakeDevice("oracle", 0, nullptr);
  EXPECT_EQ(MakeModel({{"client", params::ClientModelSpec{}}, 1}, device.get()).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace lodestar::model
