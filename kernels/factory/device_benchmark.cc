// SPDX-License-Identifier: Apache-2.0

// Measures the speed of the hot operations at the shapes of gpt-nano (batch 12) and gpt-mini (batch
// 4):
//   bazel run -c opt //kernels/factory:device_benchmark -- --benchmark_filter=Linear
// The last argument of each benchmark is the number of threads. GFLOP/s count multiplications and
// additions. GB/s count the minimum number of bytes that must be read and written.
#include <cstdint>
#include <memory>
#include <vector>

#include "benchmark/benchmark.h"
#include "common/runtime/check.h"
#include "kernels/device.h"
#include "kernels/factory/device_factory.h"

namespace lodestar::factory {
namespace {

struct GptShape {
  int64_t layers, heads, width, context, batch, vocabulary;
  int64_t rows() const { return batch * context; }
};

GptShape ShapeOf(int64_t index) {
  return index == 0 ? GptShape{4, 4, 128, 64, 12, 256} : GptShape{6, 6, 384, 256, 4, 256};
}

// Holds a device and memory on it. The memory has zeros or small values.
class Bench {
 public:
  explicit Bench(int64_t threads) {
    auto device = MakeDevice("cpu", static_cast<int>(threads), nullptr);
    LODESTAR_CHECK(device.ok()) << device.status().ToString();
    device_ = *std::move(device);
  }
  ~Bench() {
    for (void* memory : memory_) device_->Release(memory);
  }
  kernels::Device& device() { return *device_; }
  kernels::Buf Floats(int64_t n, double value = 0.01) {
    return Filled(n, kernels::DType::kF32, value);
  }
  kernels::Buf Integers(int64_t n) { return Filled(n, kernels::DType::kI32, 1.0); }

 private:
  kernels::Buf Filled(int64_t n, kernels::DType dtype, double value) {
    auto memory = device_->Allocate(n * kernels::DTypeBytes(dtype));
    LODESTAR_CHECK(memory.ok()) << memory.status().ToString();
    memory_.push_back(*memory);
    const kernels::Buf buf{*memory, dtype, n};
    device_->Fill(buf, value);
    return buf;
  }

  std::unique_ptr<kernels::Device> device_;
  std::vector<void*> memory_;
};

void CountFlops(benchmark::State& state, double flops_per_iteration) {
  state.counters["GFLOP/s"] =
      benchmark::Counter(flops_per_iteration * 1e-9, benchmark::Counter::kIsIterationInvariantRate);
}
void CountBytes(benchmark::State& state, double bytes_per_iteration) {
  state.counters["GB/s"] =
      benchmark::Counter(bytes_per_iteration * 1e-9, benchmark::Counter::kIsIterationInvariantRate);
}

// The arguments are: rows, in, out, activation, threads.
void LinearForward(benchmark::State& state) {
  Bench bench(state.range(4));
  const int64_t rows = state.range(0), in = state.range(1), out = state.range(2);
  const auto activation = static_cast<kernels::Activation>(state.range(3));
  const kernels::Buf x = bench.Floats(rows * in), w = bench.Floats(in * out), b = bench.Floats(out);
  const kernels::Buf y = bench.Floats(rows * out), pre = bench.Floats(rows * out);
  for (auto _ : state)
    bench.device().LinearForward(y, pre, x, w, b, rows, in, out, activation,
                                 kernels::WeightOrder::kInOut);
  CountFlops(state, 2.0 * rows * in * out);
}

void LinearBackward(benchmark::State& state) {
  Bench bench(state.range(4));
  const int64_t rows = state.range(0), in = state.range(1), out = state.range(2);
  const auto activation = static_cast<kernels::Activation>(state.range(3));
  const kernels::Buf x = bench.Floats(rows * in), w = bench.Floats(in * out);
  const kernels::Buf dx = bench.Floats(rows * in), dw = bench.Floats(in * out),
                     db = bench.Floats(out);
  const kernels::Buf dy = bench.Floats(rows * out, 0.0), pre = bench.Floats(rows * out);
  for (auto _ : state) {
    bench.device().LinearBackward(dx, dw, db, dy, pre, x, w, rows, in, out, activation,
                                  kernels::WeightOrder::kInOut, kernels::Accumulate::kAdd);
  }
  CountFlops(state, 4.0 * rows * in * out);
}

void LinearShapes(benchmark::internal::Benchmark* benchmark) {
  constexpr auto kNone = static_cast<int64_t>(kernels::Activation::kNone);
  constexpr auto kGelu = static_cast<int64_t>(kernels::Activation::kGeluTanh);
  for (int64_t threads : {1, 2}) {
    for (int64_t model : {0, 1}) {
      const GptShape s = ShapeOf(model);
      benchmark->Args({s.rows(), s.width, 3 * s.width, kNone, threads});
      benchmark->Args({s.rows(), s.width, s.width, kNone, threads});
      benchmark->Args({s.rows(), s.width, 4 * s.width, kGelu, threads});
      benchmark->Args({s.rows(), 4 * s.width, s.width, kNone, threads});
      benchmark->Args({s.rows(), s.width, s.vocabulary, kNone, threads});
    }
  }
}
BENCHMARK(LinearForward)->Apply(LinearShapes)->UseRealTime();
BENCHMARK(LinearBackward)->Apply(LinearShapes)->UseRealTime();

// The arguments are: model, threads. GFLOP/s count only the causal half of the score matrix.
void Attention(benchmark::State& state) {
  Bench bench(state.range(1));
  const GptShape g = ShapeOf(state.range(0));
  const kernels::AttentionShape s{g.batch, g.context, g.heads, g.width / g.heads};
  const int64_t n = g.rows() * g.width;
  const kernels::Buf qkv = bench.Floats(3 * n), y = bench.Floats(n), dqkv = bench.Floats(3 * n);
  const kernels::Buf dy = bench.Floats(n), log_sum_exp = bench.Floats(g.rows() * g.heads);
  const kernels::Buf workspace = bench.Floats(bench.device().AttentionWorkspaceElements(s));
  for (auto _ : state) {
    bench.device().AttentionForward(y, log_sum_exp, qkv, workspace, s);
    bench.device().AttentionBackward(dqkv, dy, y, log_sum_exp, qkv, workspace, s);
  }
  CountFlops(state, 7.0 * g.rows() * g.context * g.width);
}
BENCHMARK(Attention)->ArgsProduct({{0, 1}, {1, 2}})->UseRealTime();

void Norm(benchmark::State& state) {
  Bench bench(state.range(1));
  const GptShape g = ShapeOf(state.range(0));
  const int64_t n = g.rows() * g.width;
  const kernels::Buf a = bench.Floats(n), b = bench.Floats(n), sum = bench.Floats(n),
                     y = bench.Floats(n);
  const kernels::Buf mean = bench.Floats(g.rows()), rstd = bench.Floats(g.rows());
  const kernels::Buf gamma = bench.Floats(g.width), beta = bench.Floats(g.width);
  for (auto _ : state) {
    bench.device().ResidualNormForward(y, sum, mean, rstd, a, b, gamma, beta, g.rows(), g.width);
    bench.device().NormBackward(b, gamma, beta, y, sum, mean, rstd, gamma, g.rows(), g.width,
                                kernels::Accumulate::kAdd, kernels::Accumulate::kSet);
  }
  CountBytes(state, 8.0 * 4 * n);
}
BENCHMARK(Norm)->ArgsProduct({{0, 1}, {1, 2}})->UseRealTime();

void CrossEntropy(benchmark::State& state) {
  Bench bench(state.range(1));
  const GptShape g = ShapeOf(state.range(0));
  const kernels::Buf logits = bench.Floats(g.rows() * g.vocabulary),
                     losses = bench.Floats(g.rows());
  const kernels::Buf targets = bench.Integers(g.rows()), correct = bench.Integers(g.rows());
  for (auto _ : state) {
    bench.device().SoftmaxCrossEntropy(losses, correct, logits, targets, g.rows(), g.vocabulary,
                                       g.vocabulary, 1.0);
  }
  CountBytes(state, 2.0 * 4 * g.rows() * g.vocabulary);
}
BENCHMARK(CrossEntropy)->ArgsProduct({{0, 1}, {1, 2}})->UseRealTime();

// The arguments are: elements, threads. For each parameter, 28 bytes are read or written.
void AdamW(benchmark::State& state) {
  Bench bench(state.range(1));
  const int64_t n = state.range(0);
  const kernels::Buf w = bench.Floats(n), m = bench.Floats(n), v = bench.Floats(n),
                     g = bench.Floats(n);
  const kernels::AdamWStep step{
      .learning_rate = 1e-4, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1};
  for (auto _ : state) bench.device().AdamWUpdate(w, m, v, g, /*narrow=*/{}, step);
  CountBytes(state, 28.0 * n);
}
BENCHMARK(AdamW)->ArgsProduct({{1 << 20, 1 << 25}, {1, 2}})->UseRealTime();

// Runs the operations of one training step of a gpt in their order, with AdamW. Each tensor has its
// real size, so each layer uses the caches as in the model. All layers share one set of weights and
// activations.
class GptStep {
 public:
  GptStep(const GptShape& shape, int64_t threads) : bench_(threads), s_(shape) {
    const int64_t n = s_.rows() * s_.width;
    x_ = bench_.Floats(n), normed_ = bench_.Floats(n), residual_ = bench_.Floats(n);
    grad_ = bench_.Floats(n, 0.0), wide_ = bench_.Floats(4 * n), wide_pre_ = bench_.Floats(4 * n);
    wide_grad_ = bench_.Floats(4 * n), mean_ = bench_.Floats(s_.rows());
    rstd_ = bench_.Floats(s_.rows()), log_sum_exp_ = bench_.Floats(s_.rows() * s_.heads);
    logits_ = bench_.Floats(s_.rows() * s_.vocabulary), losses_ = bench_.Floats(s_.rows());
    ids_ = bench_.Integers(s_.rows());
    table_ = bench_.Floats(s_.vocabulary * s_.width);
    positions_ = bench_.Floats(s_.context * s_.width);
    weights_ = bench_.Floats(4 * s_.width * s_.width), bias_ = bench_.Floats(4 * s_.width);
    attention_ = kernels::AttentionShape{s_.batch, s_.context, s_.heads, s_.width / s_.heads};
    workspace_ = bench_.Floats(bench_.device().AttentionWorkspaceElements(attention_));
    const int64_t parameters = NumParameters();
    for (kernels::Buf* buf : {&w_, &m_, &v_, &g_}) *buf = bench_.Floats(parameters);
  }

  int64_t NumParameters() const {
    return s_.layers * 12 * s_.width * s_.width + (s_.vocabulary + s_.context) * s_.width;
  }

  void Run() {
    kernels::Device& d = bench_.device();
    d.EmbedForward(x_, ids_, table_, positions_, s_.rows(), s_.context, s_.width);
    for (int64_t layer = 0; layer < s_.layers; ++layer) Forward(d);
    Linear(d, logits_, normed_, s_.width, s_.vocabulary, kernels::Activation::kNone);
    d.SoftmaxCrossEntropy(losses_, ids_, logits_, ids_, s_.rows(), s_.vocabulary, s_.vocabulary,
                          1e-3);
    LinearGradient(d, grad_, logits_, normed_, s_.width, s_.vocabulary, kernels::Activation::kNone);
    for (int64_t layer = 0; layer < s_.layers; ++layer) Backward(d);
    d.EmbedBackward(table_, positions_, grad_, ids_, s_.rows(), s_.context, s_.width,
                    s_.vocabulary);
    d.AdamWUpdate(
        w_, m_, v_, g_, /*narrow=*/{},
        {.learning_rate = 1e-4, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1});
  }

 private:
  void Linear(kernels::Device& d, kernels::Buf y, kernels::Buf x, int64_t in, int64_t out,
              kernels::Activation activation) {
    d.LinearForward(y, wide_pre_, x, weights_, bias_, s_.rows(), in, out, activation,
                    kernels::WeightOrder::kInOut);
  }
  void LinearGradient(kernels::Device& d, kernels::Buf dx, kernels::Buf dy, kernels::Buf x,
                      int64_t in, int64_t out, kernels::Activation activation) {
    d.LinearBackward(dx, g_, bias_, dy, wide_pre_, x, weights_, s_.rows(), in, out, activation,
                     kernels::WeightOrder::kInOut, kernels::Accumulate::kSet);
  }
  void Norm(kernels::Device& d) {
    d.ResidualNormForward(normed_, residual_, mean_, rstd_, x_, normed_, bias_, bias_, s_.rows(),
                          s_.width);
  }
  void NormGradient(kernels::Device& d) {
    d.NormBackward(grad_, bias_, bias_, normed_, residual_, mean_, rstd_, bias_, s_.rows(),
                   s_.width, kernels::Accumulate::kAdd, kernels::Accumulate::kSet);
  }
  void Forward(kernels::Device& d) {
    Norm(d);
    Linear(d, wide_, normed_, s_.width, 3 * s_.width, kernels::Activation::kNone);
    d.AttentionForward(normed_, log_sum_exp_, wide_, workspace_, attention_);
    Linear(d, x_, normed_, s_.width, s_.width, kernels::Activation::kNone);
    Norm(d);
    Linear(d, wide_, normed_, s_.width, 4 * s_.width, kernels::Activation::kGeluTanh);
    Linear(d, x_, wide_, 4 * s_.width, s_.width, kernels::Activation::kNone);
  }
  void Backward(kernels::Device& d) {
    LinearGradient(d, wide_grad_, grad_, wide_, 4 * s_.width, s_.width, kernels::Activation::kNone);
    LinearGradient(d, normed_, wide_grad_, x_, s_.width, 4 * s_.width,
                   kernels::Activation::kGeluTanh);
    NormGradient(d);
    LinearGradient(d, normed_, grad_, x_, s_.width, s_.width, kernels::Activation::kNone);
    d.AttentionBackward(wide_grad_, normed_, x_, log_sum_exp_, wide_, workspace_, attention_);
    LinearGradient(d, normed_, wide_grad_, x_, s_.width, 3 * s_.width, kernels::Activation::kNone);
    NormGradient(d);
  }

  Bench bench_;
  GptShape s_;
  kernels::AttentionShape attention_;
  kernels::Buf x_, normed_, residual_, grad_, wide_, wide_pre_, wide_grad_, mean_, rstd_,
      log_sum_exp_;
  kernels::Buf logits_, losses_, ids_, table_, positions_, weights_, bias_, workspace_, w_, m_, v_,
      g_;
};

void GptTrainingStep(benchmark::State& state) {
  const GptShape shape = ShapeOf(state.range(0));
  GptStep step(shape, state.range(1));
  for (auto _ : state) step.Run();
  const double rows = static_cast<double>(shape.rows());
  CountFlops(state, 6.0 * rows *
                            (12.0 * shape.layers * shape.width * shape.width +
                             shape.vocabulary * shape.width) +
                        7.0 * rows * shape.layers * shape.context * shape.width);
}
BENCHMARK(GptTrainingStep)
    ->ArgsProduct({{0, 1}, {1, 2}})
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace lodestar::factory

BENCHMARK_MAIN();
