// SPDX-License-Identifier: Apache-2.0

// Measures the speed of attention on a CUDA device, with the device's clock:
//   bazel run -c opt //kernels/factory:attention_benchmark -- --benchmark_filter=Forward
// TFLOP/s count multiplications and additions of the causal half of the score matrix, as
// FlashAttention does, even if the device computes more:
// - The forward pass has two products for each head: 2 * batch * heads * tokens^2 * head_width.
// - The backward pass has five products: 2.5 times that number.
//
// Inputs are random, because with zeros a card uses less power and is faster. "Own" uses our
// kernels, like --fusion=never. "Library" uses cuDNN's kernels if cuDNN is installed, like
// --fusion=always. The label is the text of DescribeChoices().
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_replace.h"
#include "benchmark/benchmark.h"
#include "common/runtime/check.h"
#include "kernels/device.h"
#include "kernels/factory/device_factory.h"

namespace lodestar::factory {
namespace {

// Holds the tensors of one call on the first CUDA device.
class AttentionBench {
 public:
  // `device` must outlive this object.
  AttentionBench(kernels::Device* device, const kernels::AttentionShape& shape)
      : device_(device), shape_(shape) {
    const kernels::DType compute = device_->capabilities().compute;
    const int64_t outputs = shape.batch * shape.tokens * shape.heads * shape.head_width;
    qkv_ = Random(3 * outputs, compute);
    dy_ = Random(outputs, compute);
    y_ = Allocate(outputs, compute);
    dqkv_ = Allocate(3 * outputs, compute);
    log_sum_exp_ =
        Allocate(shape.batch * shape.heads * shape.tokens, kernels::StatisticsDType(compute));
    workspace_ = Allocate(device_->AttentionWorkspaceElements(shape), compute);
  }
  ~AttentionBench() {
    for (void* memory : memory_) device_->Release(memory);
  }
  AttentionBench(const AttentionBench&) = delete;
  AttentionBench& operator=(const AttentionBench&) = delete;

  void Forward() { device_->AttentionForward(y_, log_sum_exp_, qkv_, workspace_, shape_); }
  void Backward() {
    device_->AttentionBackward(dqkv_, dy_, y_, log_sum_exp_, qkv_, workspace_, shape_);
  }

 private:
  kernels::Buf Allocate(int64_t n, kernels::DType dtype) {
    auto memory = device_->Allocate(n * kernels::DTypeBytes(dtype));
    LODESTAR_CHECK(memory.ok()) << memory.status().ToString();
    memory_.push_back(*memory);
    return kernels::Buf{*memory, dtype, n};
  }
  kernels::Buf Random(int64_t n, kernels::DType dtype) {
    std::minstd_rand generator(1);
    std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
    std::vector<float> host(n);
    for (float& value : host) value = uniform(generator);
    const kernels::Buf floats = Allocate(n, kernels::DType::kF32);
    device_->Copy(floats.data, host.data(), n * sizeof(float), kernels::StreamKind::kCompute);
    const kernels::Buf result = dtype == kernels::DType::kF32 ? floats : Allocate(n, dtype);
    if (dtype != kernels::DType::kF32)
      device_->Cast(result, floats, 1.0, kernels::StreamKind::kCompute);
    const absl::Status done = device_->Synchronize(device_->Record(kernels::StreamKind::kCompute));
    LODESTAR_CHECK(done.ok()) << done.ToString();
    return result;
  }

  kernels::Device* device_;
  kernels::AttentionShape shape_;
  std::vector<void*> memory_;
  kernels::Buf qkv_, dy_, y_, dqkv_, log_sum_exp_, workspace_;
};

enum class Direction { kForward, kBackward };

// The arguments are: batch, tokens, heads, head width, and percentage of dropped probabilities.
void Attention(benchmark::State& state, Direction direction, kernels::DType compute,
               FusionPolicy fusion) {
  auto device = MakeDevice({.kind = "cuda", .compute = compute, .fusion = fusion}, nullptr);
  if (!device.ok()) {
    state.SkipWithError(device.status().ToString().c_str());
    return;
  }
  const kernels::AttentionShape shape{
      state.range(0), state.range(1), state.range(2), state.range(3),
      kernels::DropoutMask{.rate = state.range(4) / 100.0, .key = 1}};
  AttentionBench bench(device->get(), shape);
  bench.Forward();
  const auto run = [&] { direction == Direction::kForward ? bench.Forward() : bench.Backward(); };
  run();
  for (auto _ : state) {
    const kernels::EventId from = (*device)->RecordTimed(kernels::StreamKind::kCompute);
    run();
    const kernels::EventId to = (*device)->RecordTimed(kernels::StreamKind::kCompute);
    const absl::StatusOr<double> seconds = (*device)->SecondsBetween(from, to);
    if (!seconds.ok()) {
      state.SkipWithError(seconds.status().ToString().c_str());
      return;
    }
    state.SetIterationTime(*seconds);
  }
  const double forward = 2.0 * shape.batch * shape.heads * shape.tokens * shape.tokens *
                         static_cast<double>(shape.head_width);
  const double flops = direction == Direction::kForward ? forward : 2.5 * forward;
  state.counters["TFLOP/s"] =
      benchmark::Counter(flops * 1e-12, benchmark::Counter::kIsIterationInvariantRate);
  const std::string choices = (*device)->DescribeChoices();
  state.SetLabel((*device)->capabilities().name + (choices.empty() ? "" : "; ") +
                 absl::StrReplaceAll(choices, {{"\n", "; "}}));
}

void Shapes(benchmark::internal::Benchmark* benchmark) {
  benchmark->UseManualTime()->Unit(benchmark::kMicrosecond);
  benchmark->Args({64, 1024, 12, 64, 0});  // GPT-2 124M
  benchmark->Args({64, 1024, 12, 64, 10});
  benchmark->Args({16, 1024, 12, 64, 0});
  benchmark->Args({4, 1024, 12, 64, 0});
  benchmark->Args({8, 2048, 16, 64, 0});
  benchmark->Args({8, 2048, 16, 128, 0});
  benchmark->Args({2, 8192, 16, 64, 0});
}
BENCHMARK_CAPTURE(Attention, ForwardBf16Own, Direction::kForward, kernels::DType::kBf16,
                  FusionPolicy::kNever)
    ->Apply(Shapes);
BENCHMARK_CAPTURE(Attention, BackwardBf16Own, Direction::kBackward, kernels::DType::kBf16,
                  FusionPolicy::kNever)
    ->Apply(Shapes);
BENCHMARK_CAPTURE(Attention, ForwardBf16Library, Direction::kForward, kernels::DType::kBf16,
                  FusionPolicy::kAlways)
    ->Apply(Shapes);
BENCHMARK_CAPTURE(Attention, BackwardBf16Library, Direction::kBackward, kernels::DType::kBf16,
                  FusionPolicy::kAlways)
    ->Apply(Shapes);

void FloatShapes(benchmark::internal::Benchmark* benchmark) {
  benchmark->UseManualTime()->Unit(benchmark::kMicrosecond);
  benchmark->Args({16, 1024, 12, 64, 0});
}
BENCHMARK_CAPTURE(Attention, ForwardF32, Direction::kForward, kernels::DType::kF32,
                  FusionPolicy::kNever)
    ->Apply(FloatShapes);
BENCHMARK_CAPTURE(Attention, BackwardF32, Direction::kBackward, kernels::DType::kF32,
                  FusionPolicy::kNever)
    ->Apply(FloatShapes);

}  // namespace
}  // namespace lodestar::factory

BENCHMARK_MAIN();
