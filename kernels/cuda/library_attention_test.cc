// SPDX-License-Identifier: Apache-2.0

// Tests which attention is used if there is a library: the choice, refusals and their effects. The
// library is a fake, and the card is emulated.
#include "kernels/cuda/library_attention.h"

#include <cuda_runtime_api.h>

#include <bit>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cuda/attention.h"
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/emulator/emulator.h"
#include "kernels/testing/device_test_rig.h"

namespace lodestar::cuda {
namespace {

constexpr kernels::AttentionShape kShape = {6, 5, 2, 16};
constexpr size_t kMiB = size_t{1} << 20;

// Says what the fake library does, and counts its calls.
struct Behaviour {
  absl::Status load;
  absl::Status plan;
  int runs_before_failure = 1 << 30;
  bool breaks_the_card = false;
  // Workspace that a backward pass needs for each sample.
  size_t workspace_bytes_per_sample = 0;
  // How a run of a plan computes.
  // - 0 means that each run uses our emulated kernels.
  // - Otherwise the first run of a plan uses them and stores its outputs on the host. Each run then
  //   copies the stored outputs to the card. A later run queues `marks` operations, each of a
  //   microsecond, but at least two in the forward pass.
  //
  // If the batch has more than kMarkedSample + 1 samples, each byte of sample kMarkedSample of the
  // stored y or dqkv is kMark. No comparison looks at this sample.
  int marks = 0;
  // Compute capability of the card for which the fake's kernels are made. Below 80, these kernels
  // compute with fp32 arithmetic only.
  int compute_capability = 90;
  // Called with the tensors of a pass after the fake has computed it.
  std::function<void(AttentionPass, const AttentionTensors&, cudaStream_t)> corrupt;

  int loads = 0;
  std::vector<int64_t> planned_samples;
  int runs = 0;
};

constexpr int kMark = 0x40;      // each byte of a marked output
constexpr double kMarked = 3.0;  // the bf16 with the bits 0x4040
constexpr int64_t kMarkedSample = 2;

class FakePlan final : public AttentionPlan {
 public:
  FakePlan(Behaviour* behaviour, AttentionPass pass, const kernels::AttentionShape& shape)
      : behaviour_(behaviour), pass_(pass), shape_(shape) {}

  size_t workspace_bytes() const override {
    return pass_ != AttentionPass::kForward
               ? behaviour_->workspace_bytes_per_sample * shape_.batch + kDeltaBytes
               : 0;
  }
  size_t zeroed_bytes() const override {
    return pass_ == AttentionPass::kUnorderedBackward ? kDeltaBytes / 2 : 0;
  }
  absl::Status Run(const AttentionTensors& tensors, void* workspace, cudaStream_t stream) override {
    if (zeroed_bytes() > 0) cudaStreamSynchronize(stream);
    for (size_t i = 0; i < zeroed_bytes(); ++i) {
      EXPECT_EQ(static_cast<const char*>(workspace)[i], 0) << i;
    }
    if (++behaviour_->runs > behaviour_->runs_before_failure) {
      return absl::InternalError("fake 1.0: it does not run");
    }
    if (behaviour_->breaks_the_card) emulator::FailLaunchAfter(0);
    const cudaError_t error = behaviour_->marks > 0 ? Mark(tensors, workspace, stream)
                                                    : Compute(tensors, workspace, stream);
    EXPECT_EQ(error, cudaSuccess);
    if (behaviour_->corrupt) behaviour_->corrupt(pass_, tensors, stream);
    return absl::OkStatus();
  }

 private:
  static constexpr size_t kDeltaBytes = 8192;

  int64_t outputs() const {
    return shape_.batch * shape_.tokens * shape_.heads * shape_.head_width;
  }
  cudaError_t Mark(const AttentionTensors& tensors, void* workspace, cudaStream_t stream) {
    const bool is_forward = pass_ == AttentionPass::kForward;
    void* const matrix = is_forward ? tensors.y : tensors.dqkv;
    const size_t bytes = static_cast<size_t>(outputs()) * 2 * (is_forward ? 1 : 3);
    const size_t sample_bytes = bytes / shape_.batch;
    const size_t rows_bytes = shape_.batch * shape_.tokens * shape_.heads * sizeof(float);
    if (matrix_.empty()) {
      const cudaError_t error = Compute(tensors, workspace, stream);
      if (error != cudaSuccess) return error;
      matrix_.resize(bytes);
      log_sum_exp_.resize(rows_bytes);
      cudaMemcpyAsync(matrix_.data(), matrix, bytes, cudaMemcpyDefault, stream);
      cudaMemcpyAsync(log_sum_exp_.data(), tensors.log_sum_exp, rows_bytes, cudaMemcpyDefault,
                      stream);
      cudaStreamSynchronize(stream);
      if (shape_.batch > kMarkedSample + 1) {
        std::memset(matrix_.data() + kMarkedSample * sample_bytes, kMark, sample_bytes);
      }
    }
    for (int i = 1 + (is_forward ? 1 : 0); i < behaviour_->marks; ++i) {
      cudaMemsetAsync(matrix, 0, 0, stream);
    }
    if (is_forward) {
      cudaMemcpyAsync(tensors.log_sum_exp, log_sum_exp_.data(), rows_bytes, cudaMemcpyDefault,
                      stream);
    }
    return cudaMemcpyAsync(matrix, matrix_.data(), bytes, cudaMemcpyDefault, stream);
  }
  cudaError_t Compute(const AttentionTensors& tensors, void* workspace, cudaStream_t stream) const {
    const CudaAttention kernels(behaviour_->compute_capability);
    const auto buf = [&](const void* data, int64_t n) {
      return kernels::Buf{const_cast<void*>(data), kernels::DType::kBf16, n};
    };
    const kernels::Buf y = buf(tensors.y, outputs()), qkv = buf(tensors.qkv, 3 * outputs());
    const kernels::Buf log_sum_exp{tensors.log_sum_exp, kernels::DType::kF32,
                                   shape_.batch * shape_.heads * shape_.tokens};
    if (pass_ == AttentionPass::kForward) {
      return kernels.Forward(y, log_sum_exp, qkv, shape_, stream);
    }
    return kernels.Backward(buf(tensors.dqkv, 3 * outputs()), buf(tensors.dy, outputs()), y,
                            log_sum_exp, qkv, buf(workspace, kDeltaBytes / 2), shape_, stream);
  }

  Behaviour* behaviour_;
  const AttentionPass pass_;
  const kernels::AttentionShape shape_;
  std::vector<char> matrix_;  // bytes of y or dqkv after the first run, if later runs copy them
  std::vector<char> log_sum_exp_;  // bytes of log_sum_exp after the first run
};

class FakeLibrary final : public AttentionLibrary {
 public:
  explicit FakeLibrary(Behaviour* behaviour) : behaviour_(behaviour) {}
  std::string name() const override { return "fake 1.0"; }
  absl::StatusOr<std::unique_ptr<AttentionPlan>> Plan(
      AttentionPass pass, const kernels::AttentionShape& shape) override {
    if (!behaviour_->plan.ok()) return behaviour_->plan;
    behaviour_->planned_samples.push_back(shape.batch);
    return std::make_unique<FakePlan>(behaviour_, pass, shape);
  }

 private:
  Behaviour* behaviour_;
};

bool Contains(absl::string_view text, absl::string_view part) {
  return text.find(part) != absl::string_view::npos;
}

// Returns true if the first and the last element of sample kMarkedSample are kMarked. `values` is y
// or dqkv for kShape.
bool IsMarked(const std::vector<double>& values) {
  const size_t sample = values.size() / kShape.batch;
  return values[kMarkedSample * sample] == kMarked &&
         values[(kMarkedSample + 1) * sample - 1] == kMarked;
}

class LibraryAttentionTest : public testing::Test {
 protected:
  LibraryAttentionTest() {
    emulator::ClearStickyError();
    emulator::Configure({});
  }
  ~LibraryAttentionTest() override {
    emulator::ClearStickyError();
    emulator::Configure({});
  }

  std::unique_ptr<kernels::Device> Make(factory::FusionPolicy policy,
                                        kernels::DType compute = kernels::DType::kBf16,
                                        std::optional<std::string> tuning = std::nullopt) {
    auto device = CudaDevice::Create(
        {.compute = compute, .fusion = policy, .tuning = std::move(tuning)},
        {.load_attention = [this]() -> absl::StatusOr<std::unique_ptr<AttentionLibrary>> {
          ++behaviour_.loads;
          if (!behaviour_.load.ok()) return behaviour_.load;
          return std::make_unique<FakeLibrary>(&behaviour_);
        }});
    EXPECT_TRUE(device.ok()) << device.status();
    return std::move(*device);
  }
  std::unique_ptr<kernels::Device> Make() { return Make(factory::FusionPolicy::kAlways); }
  std::unique_ptr<kernels::Device> MakeUnrepeatable() {
    auto device = CudaDevice::Create(
        {.compute = kernels::DType::kBf16,
         .fusion = factory::FusionPolicy::kAlways,
         .is_repeatable = false},
        {.load_attention = [this]() -> absl::StatusOr<std::unique_ptr<AttentionLibrary>> {
          return std::make_unique<FakeLibrary>(&behaviour_);
        }});
    EXPECT_TRUE(device.ok()) << device.status();
    return std::move(*device);
  }
  static absl::Status Wait(kernels::Device& device) {
    return device.Synchronize(device.Record(kernels::StreamKind::kCompute));
  }

  // Runs both passes `times` times. The tensors begin `skew` elements after an aligned address.
  static kernels::Outputs Run(kernels::Device& device,
                              const kernels::AttentionShape& shape = kShape, int times = 1,
                              int64_t skew = 0, bool dy_is_zero = false) {
    kernels::DeviceTestRig rig(&device, device.capabilities().compute);
    const int64_t n = shape.batch * shape.tokens * shape.heads * shape.head_width;
    const kernels::Buf qkv = rig.Random(3 * n + skew).Slice(skew, 3 * n);
    const kernels::Buf dy = dy_is_zero ? rig.Values(std::vector<double>(n, 0.0)) : rig.Random(n);
    const kernels::Buf y = rig.Output("y", n);
    const kernels::Buf log_sum_exp =
        rig.Output("log_sum_exp", shape.batch * shape.heads * shape.tokens, kernels::DType::kF32);
    const kernels::Buf dqkv = rig.Output("dqkv", 3 * n);
    const kernels::Buf workspace = rig.Workspace(device.AttentionWorkspaceElements(shape));
    for (int i = 0; i < times; ++i) {
      device.AttentionForward(y, log_sum_exp, qkv, workspace, shape);
      device.AttentionBackward(dqkv, dy, y, log_sum_exp, qkv, workspace, shape);
    }
    return rig.Collect();
  }
  static kernels::Outputs OfOwnKernels(const kernels::AttentionShape& shape = kShape,
                                       bool dy_is_zero = false) {
    auto device = CudaDevice::Create(
        {.compute = kernels::DType::kBf16, .fusion = factory::FusionPolicy::kNever});
    EXPECT_TRUE(device.ok());
    return Run(**device, shape, /*times=*/1, /*skew=*/0, dy_is_zero);
  }
  // Expects that `device` uses our kernels, and that the description of its choices has the reason
  // `why`.
  static void ExpectOwnKernels(kernels::Device& device, const std::string& why, int times = 1) {
    EXPECT_EQ(Run(device, kShape, times), OfOwnKernels());
    EXPECT_TRUE(Contains(device.DescribeChoices(), why)) << device.DescribeChoices();
    EXPECT_TRUE(Wait(device).ok()) << Wait(device);
    EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
  }

  Behaviour behaviour_;
};

TEST_F(LibraryAttentionTest, ServesBothPassesWithoutMeasuring) {
  const auto device = Make();
  EXPECT_EQ(Run(*device), OfOwnKernels());
  EXPECT_EQ(behaviour_.loads, 1);
  EXPECT_EQ(behaviour_.runs, 4) << "tried once, then used";
  Run(*device);
  EXPECT_EQ(behaviour_.runs, 6);
  EXPECT_EQ(behaviour_.planned_samples, (std::vector<int64_t>{6, 6}));
  EXPECT_EQ(device->DescribeChoices(),
            "attention backward 6 x 5 tokens, 2 heads of 16, fake 1.0: library (--fusion=always)\n"
            "attention forward 6 x 5 tokens, 2 heads of 16, fake 1.0: library (--fusion=always)\n"
            "attention: fake 1.0 is there");
  EXPECT_EQ(device->num_refused_outputs(), 0);
}

TEST_F(LibraryAttentionTest, AddsInAnyOrderWhereResultsNeedNotRepeat) {
  const auto device = MakeUnrepeatable();
  EXPECT_EQ(Run(*device, kShape, /*times=*/2), OfOwnKernels());
  EXPECT_TRUE(Contains(device->DescribeChoices(),
                       "attention unordered backward 6 x 5 tokens, 2 heads of 16, fake 1.0: "
                       "library"))
      << device->DescribeChoices();
}

// A wrong element in the library's output, in the first or the last sample.
struct WrongValue {
  std::string name;
  AttentionPass pass;
  int64_t element;   // index in y or dqkv
  double factor;     // The right value is multiplied by `factor`. 0 means that NaN is written.
  std::string what;  // text that the message must have
};

// Multiplies one bf16 of device memory by wrong.factor, or sets it to NaN if the factor is 0.
void Spoil(void* tensor, const WrongValue& wrong, cudaStream_t stream) {
  uint16_t bits = 0;
  auto* const at = static_cast<uint16_t*>(tensor) + wrong.element;
  cudaMemcpyAsync(&bits, at, sizeof(bits), cudaMemcpyDefault, stream);
  cudaStreamSynchronize(stream);
  const auto value = static_cast<float>(std::bit_cast<float>(uint32_t{bits} << 16) * wrong.factor);
  bits = wrong.factor == 0.0 ? uint16_t{0x7fff}
                             : static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16);
  cudaMemcpyAsync(at, &bits, sizeof(bits), cudaMemcpyDefault, stream);
  cudaStreamSynchronize(stream);
}

TEST_F(LibraryAttentionTest, RefusesALibraryWhoseOutputsAreNotOurs) {
  constexpr int64_t kHead = 16, kToken = 2 * kHead, kSample = 5 * kToken;
  const std::vector<WrongValue> wrongs = {
      {"y", AttentionPass::kForward, 4 * kToken + kHead, 30.0, "y of token 4, head 1 is off by"},
      {"last_y", AttentionPass::kForward, 5 * kSample + 3 * kToken, 30.0,
       "y of token 3, head 0 is off by"},
      {"nan_y", AttentionPass::kForward, 0, 0.0, "y of token 0, head 0 is off by nan"},
      {"dq", AttentionPass::kBackward, 3 * 3 * kToken, 30.0, "dq of token 3, head 0 is off by"},
      {"dk", AttentionPass::kBackward, 3 * 2 * kToken + kToken, 30.0,
       "dk of token 2, head 0 is off by"},
      {"last_dv", AttentionPass::kBackward, 3 * 5 * kSample + 2 * kToken + kHead, 30.0,
       "dv of token 0, head 1 is off by"},
      {"nan_dv", AttentionPass::kBackward, 2 * kToken, 0.0, "dv of token 0, head 0 is off by nan"},
  };
  for (const WrongValue& wrong : wrongs) {
    SCOPED_TRACE(wrong.name);
    behaviour_.corrupt = [&](AttentionPass pass, const AttentionTensors& tensors,
                             cudaStream_t stream) {
      if (pass != wrong.pass) return;
      Spoil(pass == AttentionPass::kForward ? tensors.y : tensors.dqkv, wrong, stream);
    };
    const auto device = Make();
    ExpectOwnKernels(*device, wrong.what, /*times=*/2);
    EXPECT_EQ(device->num_refused_outputs(), 1);
  }
}

// Our kernels round probabilities and their gradients to bf16. The library of this test rounds only
// results.
TEST_F(LibraryAttentionTest, TakesALibraryThatRoundsDifferently) {
  behaviour_.compute_capability = 75;
  for (const kernels::AttentionShape& shape :
       {kernels::AttentionShape{2, 1, 2, 64}, kernels::AttentionShape{3, 130, 2, 64},
        kernels::AttentionShape{1, 65, 1, 128}}) {
    const auto device = Make();
    const kernels::Outputs got = Run(*device, shape);
    if (shape.tokens > 1) {
      EXPECT_NE(got.at("dqkv"), OfOwnKernels(shape).at("dqkv"));
    }
    EXPECT_FALSE(Contains(device->DescribeChoices(), "own kernels")) << device->DescribeChoices();
    EXPECT_EQ(device->num_refused_outputs(), 0);
  }
}

TEST_F(LibraryAttentionTest, RefusesALibraryWithAnotherLogSumExp) {
  behaviour_.corrupt = [](AttentionPass pass, const AttentionTensors& tensors,
                          cudaStream_t stream) {
    if (pass != AttentionPass::kForward) return;
    float value = 0.0f;
    float* const at = tensors.log_sum_exp + 7;  // log_sum_exp of token 2, head 1
    cudaMemcpyAsync(&value, at, sizeof(value), cudaMemcpyDefault, stream);
    cudaStreamSynchronize(stream);
    value += 0.01f;
    cudaMemcpyAsync(at, &value, sizeof(value), cudaMemcpyDefault, stream);
    cudaStreamSynchronize(stream);
  };
  for (const factory::FusionPolicy policy :
       {factory::FusionPolicy::kMeasure, factory::FusionPolicy::kAlways}) {
    const auto device = Make(policy);
    ExpectOwnKernels(*device, "log_sum_exp of token 2, head 1 is off by 0.01");
    EXPECT_EQ(device->num_refused_outputs(), 1);
  }
}

// If dy is zero, the gradients are zero in every library, so comparing them proves nothing.
TEST_F(LibraryAttentionTest, ADyOfZerosPostponesTheComparison) {
  const auto device = Make();
  EXPECT_EQ(Run(*device, kShape, /*times=*/1, /*skew=*/0, /*dy_is_zero=*/true),
            OfOwnKernels(kShape, /*dy_is_zero=*/true));
  EXPECT_FALSE(Contains(device->DescribeChoices(), "backward")) << device->DescribeChoices();
  EXPECT_EQ(Run(*device), OfOwnKernels());
  EXPECT_TRUE(Contains(device->DescribeChoices(),
                       "attention backward 6 x 5 tokens, 2 heads of 16, fake 1.0: library"))
      << device->DescribeChoices();
}

TEST_F(LibraryAttentionTest, WhatAFileHasChosenIsComparedAgain) {
  behaviour_.marks = 1;
  const auto first = Make(factory::FusionPolicy::kMeasure, kernels::DType::kBf16, /*tuning=*/"");
  EXPECT_TRUE(IsMarked(Run(*first).at("dqkv")));
  const std::string kept = first->MergeTuning("");
  const std::string backward = "fusion bf16 attention backward 6 x 5 tokens";
  ASSERT_TRUE(Contains(kept, backward)) << kept;
  const auto good = Make(factory::FusionPolicy::kMeasure, kernels::DType::kBf16, kept);
  EXPECT_TRUE(IsMarked(Run(*good).at("dqkv")));
  EXPECT_EQ(good->num_refused_outputs(), 0);
  EXPECT_EQ(good->MergeTuning(kept), kept);
  behaviour_.corrupt = [](AttentionPass pass, const AttentionTensors& tensors,
                          cudaStream_t stream) {
    if (pass == AttentionPass::kBackward) {
      Spoil(tensors.dqkv, {"", pass, /*element=*/0, /*factor=*/0.0, ""}, stream);
    }
  };
  const auto bad = Make(factory::FusionPolicy::kMeasure, kernels::DType::kBf16, kept);
  ExpectOwnKernels(*bad, "backward 6 x 5 tokens, 2 heads of 16, fake 1.0: own kernels (refused");
  EXPECT_EQ(bad->num_refused_outputs(), 1);
  EXPECT_FALSE(Contains(bad->MergeTuning(kept), backward))
      << "the next process compares again: " << bad->MergeTuning(kept);
}

TEST_F(LibraryAttentionTest, KeepsTheFasterOfTheTwo) {
  behaviour_.marks = 1;  // 2 us forward and 1 us backward; our kernels take 1 and 3 us
  const auto device = Make(factory::FusionPolicy::kMeasure);
  const kernels::Outputs got = Run(*device);
  EXPECT_FALSE(IsMarked(got.at("y")));
  EXPECT_TRUE(IsMarked(got.at("dqkv")));
  EXPECT_TRUE(Contains(device->DescribeChoices(),
                       "attention forward 6 x 5 tokens, 2 heads of 16, fake 1.0: own kernels "
                       "(library 2.0 us, own kernels 1.0 us)"))
      << device->DescribeChoices();
  EXPECT_TRUE(Contains(device->DescribeChoices(),
                       "attention backward 6 x 5 tokens, 2 heads of 16, fake 1.0: library "
                       "(library 1.0 us, own kernels 3.0 us)"))
      << device->DescribeChoices();
  const int runs = behaviour_.runs;
  Run(*device);
  EXPECT_EQ(behaviour_.runs, runs + 1) << "backward only";
  behaviour_.marks = 5;
  Run(*device, {2, 5, 2, 16});
  EXPECT_TRUE(Contains(device->DescribeChoices(),
                       "attention backward 2 x 5 tokens, 2 heads of 16, fake 1.0: own kernels "
                       "(library 5.0 us, own kernels 3.0 us)"))
      << device->DescribeChoices();
}

TEST_F(LibraryAttentionTest, ComputesAFewSamplesAtATimeWhereScratchIsShort) {
  // The scratch memory is enough for three of the six samples.
  behaviour_.workspace_bytes_per_sample = 64 * kMiB;
  const auto device = Make();
  EXPECT_EQ(Run(*device), OfOwnKernels());
  EXPECT_EQ(behaviour_.planned_samples, (std::vector<int64_t>{6, 6, 3}));
  EXPECT_EQ(behaviour_.runs, 6) << "tried once, then used: forward 1 run, backward 2";
}

TEST_F(LibraryAttentionTest, WhatNeedsTooMuchForOneSampleIsOurs) {
  behaviour_.workspace_bytes_per_sample = 257 * kMiB;
  const auto device = Make();
  ExpectOwnKernels(*device, "bytes of scratch memory for one sample, at most 268435456 are given");
  EXPECT_EQ(behaviour_.planned_samples, (std::vector<int64_t>{6, 6, 1}));
}

TEST_F(LibraryAttentionTest, WithoutMemoryForItItIsOurs) {
  behaviour_.workspace_bytes_per_sample = 30 * kMiB;
  emulator::Configure({.memory_bytes = 150 * kMiB});
  const auto device = Make();
  ExpectOwnKernels(*device, "bytes of scratch memory: ");
}

TEST_F(LibraryAttentionTest, IsNotLoadedWhereItIsNotWanted) {
  const auto device = Make(factory::FusionPolicy::kNever);
  ExpectOwnKernels(*device, "");
  EXPECT_EQ(behaviour_.loads, 0);
  EXPECT_EQ(device->DescribeChoices(), "");
}

TEST_F(LibraryAttentionTest, WhatIsNotThereIsLookedForOnce) {
  behaviour_.load = absl::NotFoundError("the fake is not there");
  const auto device = Make(factory::FusionPolicy::kMeasure);
  ExpectOwnKernels(*device, "attention: own kernels (the fake is not there)", /*times=*/2);
  EXPECT_EQ(device->DescribeChoices(), "attention: own kernels (the fake is not there)");
  EXPECT_EQ(behaviour_.loads, 1);
}

TEST_F(LibraryAttentionTest, WithoutAPlanItIsOurs) {
  behaviour_.plan = absl::UnimplementedError("fake 1.0: it has nothing for this");
  for (const factory::FusionPolicy policy :
       {factory::FusionPolicy::kMeasure, factory::FusionPolicy::kAlways}) {
    const auto device = Make(policy);
    ExpectOwnKernels(*device,
                     "attention backward 6 x 5 tokens, 2 heads of 16, fake 1.0: own kernels "
                     "(fake 1.0: it has nothing for this)",
                     /*times=*/2);
  }
}

TEST_F(LibraryAttentionTest, WhatFailsIsDoneAgainByOurs) {
  // The library fails after `runs` successful runs: in its first run, while its speed is measured,
  // between two parts of a batch, or later.
  behaviour_.workspace_bytes_per_sample = 64 * kMiB;
  for (const factory::FusionPolicy policy :
       {factory::FusionPolicy::kMeasure, factory::FusionPolicy::kAlways}) {
    for (const int runs : {0, 1, 2, 3, 5}) {
      behaviour_.runs = 0;
      behaviour_.runs_before_failure = runs;
      const auto device = Make(policy);
      ExpectOwnKernels(*device, "own kernels (fake 1.0: it does not run)", /*times=*/3);
    }
  }
}

TEST_F(LibraryAttentionTest, ACallThatBreaksTheCardIsNamed) {
  behaviour_.breaks_the_card = true;
  const auto device = Make(factory::FusionPolicy::kMeasure);
  kernels::DeviceTestRig rig(device.get(), kernels::DType::kBf16);
  const int64_t n = kShape.batch * kShape.tokens * kShape.heads * kShape.head_width;
  device->AttentionForward(rig.Output("y", n), rig.Output("log_sum_exp", 60, kernels::DType::kF32),
                           rig.Random(3 * n),
                           rig.Workspace(device->AttentionWorkspaceElements(kShape)), kShape);
  const absl::Status status = Wait(*device);
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  for (const char* part : {"attention forward 6 x 5 tokens, 2 heads of 16, fake 1.0 has broken the "
                           "card: cudaErrorLaunchFailure",
                           "--fusion=never"}) {
    EXPECT_TRUE(Contains(status.message(), part)) << status;
  }
}

TEST_F(LibraryAttentionTest, IsPartOfAGraphOnceItHasRun) {
  behaviour_.marks = 1;
  const auto device = Make();
  const auto record = [&](const kernels::AttentionShape& shape) {
    kernels::DeviceTestRig rig(device.get(), kernels::DType::kBf16);
    const int64_t n = shape.batch * shape.tokens * shape.heads * shape.head_width;
    const kernels::Buf y = rig.Output("y", n);
    const kernels::Buf log_sum_exp =
        rig.Output("log_sum_exp", shape.batch * shape.heads * shape.tokens, kernels::DType::kF32);
    const kernels::Buf qkv = rig.Random(3 * n);
    const kernels::Buf workspace = rig.Workspace(device->AttentionWorkspaceElements(shape));
    device->BeginGraph();
    device->AttentionForward(y, log_sum_exp, qkv, workspace, shape);
    const auto graph = device->EndGraph();
    EXPECT_TRUE(graph.ok()) << graph.status();
    device->LaunchGraph(*graph);
    return rig.Collect();
  };
  EXPECT_FALSE(IsMarked(record(kShape).at("y")));
  EXPECT_EQ(behaviour_.loads, 0) << "while a graph is recorded";
  Run(*device);
  EXPECT_TRUE(IsMarked(record(kShape).at("y")));
  const size_t plans = behaviour_.planned_samples.size();
  EXPECT_FALSE(IsMarked(record({1, 5, 2, 16}).at("y")));
  EXPECT_EQ(behaviour_.planned_samples.size(), plans) << "while a graph is recorded";
}

TEST_F(LibraryAttentionTest, IsNotAskedForWhatItCannotBeGiven) {
  const auto device = Make();
  kernels::AttentionShape dropping = kShape;
  dropping.dropout = {0.5, 1, 1, 0};
  EXPECT_EQ(Run(*device, dropping), OfOwnKernels(dropping));
  Run(*device, {2, 3, 1, 12});
  Run(*device, kShape, /*times=*/1, /*skew=*/1);
  EXPECT_TRUE(Run(*device, {0, 5, 2, 16}).at("y").empty());
  EXPECT_TRUE(behaviour_.planned_samples.empty());
  for (const char* why : {"do not drop what our mask drops", "heads of 12 are not whole vectors",
                          "a tensor is not at a multiple of 16 bytes"}) {
    EXPECT_TRUE(Contains(device->DescribeChoices(), why)) << device->DescribeChoices();
  }
  const auto fp32 = Make(factory::FusionPolicy::kAlways, kernels::DType::kF32);
  Run(*fp32);
  EXPECT_EQ(fp32->DescribeChoices(),
            "attention: own kernels (libraries have attention in bf16 only)");
}

}  // namespace
}  // namespace lodestar::cuda
