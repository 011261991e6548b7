// Speed of the operations that memory bounds, on a CUDA device, at the sizes of GPT-2 124M, timed
// by the device:
//   bazel run -c opt //kernels:memory_benchmark -- --benchmark_filter=Norm
// GB/s count what an operation must read and write of its large arguments, once each, whatever is
// executed; compare with Copy. Inputs are random.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "benchmark/benchmark.h"
#include "common/check.h"
#include "kernels/device.h"
#include "kernels/device_factory.h"

namespace lodestar {
namespace {

constexpr int64_t kWidth = 768;
constexpr int64_t kHidden = 4 * kWidth;
constexpr int64_t kContext = 1024;
constexpr int64_t kVocabulary = 50257;
constexpr int64_t kPaddedVocabulary = 50304;
constexpr int64_t kParameters = 124'475'904;

// A device, and memory that is released with this.
class Bench {
 public:
  explicit Bench(std::unique_ptr<Device> device) : device_(std::move(device)) {
    std::minstd_rand generator(1);
    std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
    std::vector<float> host(kPattern);
    for (float& value : host) value = uniform(generator);
    pattern_ = Allocate(kPattern, DType::kF32);
    Upload(pattern_, host.data());
  }
  ~Bench() {
    for (void* memory : memory_) device_->Release(memory);
    for (void* memory : host_memory_) device_->ReleaseHost(memory);
  }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  Device& device() { return *device_; }
  DType compute() const { return device_->capabilities().compute; }
  int64_t compute_bytes() const { return static_cast<int64_t>(DTypeBytes(compute())); }

  Buf Allocate(int64_t n, DType dtype) {
    auto memory = device_->Allocate(n * DTypeBytes(dtype));
    LODESTAR_CHECK(memory.ok()) << memory.status().ToString();
    memory_.push_back(*memory);
    return Buf{*memory, dtype, n};
  }
  void* AllocateHost(size_t bytes) {
    auto memory = device_->AllocateHost(bytes);
    LODESTAR_CHECK(memory.ok()) << memory.status().ToString();
    host_memory_.push_back(*memory);
    return *memory;
  }
  // Random numbers that repeat, in [-scale, scale).
  Buf Random(int64_t n, DType dtype, double scale = 1.0) {
    const Buf result = Allocate(n, dtype);
    for (int64_t begin = 0; begin < n; begin += kPattern) {
      const int64_t size = std::min(kPattern, n - begin);
      device_->Cast(result.Slice(begin, size), pattern_.Slice(0, size), scale,
                    StreamKind::kCompute);
    }
    return result;
  }
  // In [0, end), the low ones more often, as tokens of text are.
  Buf Integers(int64_t n, int64_t end) {
    std::minstd_rand generator(2);
    std::uniform_real_distribution<double> uniform(0.0, 1.0);
    std::vector<int32_t> host(n);
    for (int32_t& value : host) {
      const double x = uniform(generator);
      value = static_cast<int32_t>(x * x * x * static_cast<double>(end));
    }
    const Buf result = Allocate(n, DType::kI32);
    Upload(result, host.data());
    return result;
  }

  // Times `run`, which reads and writes `bytes`.
  template <typename Run>
  void Time(benchmark::State& state, int64_t bytes, Run run,
            StreamKind stream = StreamKind::kCompute) {
    run();  // workspaces grow, cuBLASLt chooses
    for (auto _ : state) {
      const EventId from = device_->RecordTimed(stream);
      run();
      const EventId to = device_->RecordTimed(stream);
      const absl::StatusOr<double> seconds = device_->SecondsBetween(from, to);
      if (!seconds.ok()) {
        state.SkipWithError(seconds.status().ToString().c_str());
        return;
      }
      state.SetIterationTime(*seconds);
    }
    state.counters["GB/s"] = benchmark::Counter(static_cast<double>(bytes) * 1e-9,
                                                benchmark::Counter::kIsIterationInvariantRate);
    state.SetLabel(device_->capabilities().name);
  }

 private:
  static constexpr int64_t kPattern = int64_t{1} << 22;

  void Upload(Buf to, const void* from) {
    device_->Copy(to.data, from, to.num_elements * DTypeBytes(to.dtype), StreamKind::kCompute);
    const absl::Status done = device_->Synchronize(device_->Record(StreamKind::kCompute));
    LODESTAR_CHECK(done.ok()) << done.ToString();
  }

  std::unique_ptr<Device> device_;
  std::vector<void*> memory_;
  std::vector<void*> host_memory_;
  Buf pattern_;
};

// Null, and the benchmark is skipped, where there is no card.
std::unique_ptr<Bench> MakeBench(benchmark::State& state, DType compute) {
  auto device = MakeDevice({.kind = "cuda", .compute = compute}, nullptr);
  if (device.ok()) return std::make_unique<Bench>(*std::move(device));
  state.SkipWithError(device.status().ToString().c_str());
  return nullptr;
}

// The arguments of the benchmarks below: samples of 1024 tokens.
int64_t Rows(const benchmark::State& state) { return state.range(0) * kContext; }

void Copy(benchmark::State& state) {
  const auto bench = MakeBench(state, DType::kF32);
  if (bench == nullptr) return;
  const Buf x = bench->Random(kParameters, DType::kF32);
  const Buf y = bench->Allocate(kParameters, DType::kF32);
  const int64_t bytes = 4 * kParameters;
  bench->Time(state, 2 * bytes,
              [&] { bench->device().Copy(y.data, x.data, bytes, StreamKind::kCompute); });
}

void CopyToHost(benchmark::State& state, bool back) {
  const auto bench = MakeBench(state, DType::kF32);
  if (bench == nullptr) return;
  const int64_t bytes = int64_t{32} << 20;
  const Buf x = bench->Random(bytes / 4, DType::kF32);
  void* host = bench->AllocateHost(bytes);
  const StreamKind stream = back ? StreamKind::kHostToDevice : StreamKind::kDeviceToHost;
  bench->Time(
      state, bytes,
      [&] { bench->device().Copy(back ? x.data : host, back ? host : x.data, bytes, stream); },
      stream);
}

void CastToBf16(benchmark::State& state) {
  const auto bench = MakeBench(state, DType::kF32);
  if (bench == nullptr) return;
  const Buf x = bench->Random(kParameters, DType::kF32);
  const Buf y = bench->Allocate(kParameters, DType::kBf16);
  bench->Time(state, 6 * kParameters,
              [&] { bench->device().Cast(y, x, 0.5, StreamKind::kCompute); });
}

void SumOfSquares(benchmark::State& state) {
  const auto bench = MakeBench(state, DType::kF32);
  if (bench == nullptr) return;
  const Buf x = bench->Random(kParameters, DType::kF32);
  const Buf sum = bench->Allocate(1, DType::kF64);
  bench->Time(state, 4 * kParameters, [&] { bench->device().SumOfSquares(sum, x); });
}

void AdamW(benchmark::State& state) {
  const auto bench = MakeBench(state, DType::kF32);
  if (bench == nullptr) return;
  const Buf w = bench->Random(kParameters, DType::kF32);
  const Buf m = bench->Random(kParameters, DType::kF32, 0.0);
  const Buf v = bench->Random(kParameters, DType::kF32, 0.0);
  const Buf g = bench->Random(kParameters, DType::kF32, 1e-3);
  const Buf shadow = bench->Allocate(kParameters, DType::kBf16);
  const AdamWStep step{
      .learning_rate = 1e-4, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1};
  bench->Time(state, 30 * kParameters,
              [&] { bench->device().AdamWUpdate(w, m, v, g, shadow, step); });
}

void Gelu(benchmark::State& state, DType compute) {
  const auto bench = MakeBench(state, compute);
  if (bench == nullptr) return;
  const int64_t n = Rows(state) * kHidden;
  const Buf x = bench->Random(n, compute);
  const Buf y = bench->Allocate(n, compute);
  bench->Time(state, 2 * n * bench->compute_bytes(),
              [&] { bench->device().Activate(y, x, Activation::kGeluTanh); });
}

void Dropout(benchmark::State& state, DType compute) {
  const auto bench = MakeBench(state, compute);
  if (bench == nullptr) return;
  const int64_t n = Rows(state) * kWidth;
  const Buf x = bench->Random(n, compute);
  bench->Time(state, 2 * n * bench->compute_bytes(),
              [&] { bench->device().Dropout(x, x, {.rate = 0.1, .key = 1}); });
}

void NormForward(benchmark::State& state, DType compute) {
  const auto bench = MakeBench(state, compute);
  if (bench == nullptr) return;
  const int64_t rows = Rows(state);
  const int64_t width = state.range(1);
  const Buf a = bench->Random(rows * width, compute);
  const Buf b = bench->Random(rows * width, compute, 0.5);
  const Buf y = bench->Allocate(rows * width, compute);
  const Buf sum = bench->Allocate(rows * width, compute);
  const Buf statistics = bench->Allocate(2 * rows, DType::kF32);
  const Buf weights = bench->Random(2 * width, compute);
  bench->Time(state, 4 * rows * width * bench->compute_bytes(), [&] {
    bench->device().ResidualNormForward(y, sum, statistics.Slice(0, rows),
                                        statistics.Slice(rows, rows), a, b, weights.Slice(0, width),
                                        weights.Slice(width, width), rows, width);
  });
}

void NormBackward(benchmark::State& state, DType compute) {
  const auto bench = MakeBench(state, compute);
  if (bench == nullptr) return;
  const int64_t rows = Rows(state);
  const int64_t width = state.range(1);
  const Buf dy = bench->Random(rows * width, compute);
  const Buf sum = bench->Random(rows * width, compute);
  const Buf dx = bench->Random(rows * width, compute, 0.5);
  const Buf mean = bench->Random(rows, DType::kF32, 0.0);
  const Buf rstd = bench->Random(rows, DType::kF32, 0.0);
  bench->device().Fill(rstd, 1.7);
  const Buf gamma = bench->Random(width, compute);
  const Buf gradients = bench->Random(2 * width, DType::kF32);
  bench->Time(state, 4 * rows * width * bench->compute_bytes(), [&] {
    bench->device().NormBackward(dx, gradients.Slice(0, width), gradients.Slice(width, width), dy,
                                 sum, mean, rstd, gamma, rows, width, Accumulate::kAdd,
                                 Accumulate::kAdd);
  });
}

void CrossEntropy(benchmark::State& state, DType compute) {
  const auto bench = MakeBench(state, compute);
  if (bench == nullptr) return;
  const int64_t rows = Rows(state);
  const Buf logits = bench->Random(rows * kPaddedVocabulary, compute, 4.0);
  const Buf losses = bench->Allocate(rows, DType::kF32);
  const Buf targets = bench->Integers(rows, kVocabulary);
  bench->Time(state, 2 * rows * kPaddedVocabulary * bench->compute_bytes(), [&] {
    bench->device().SoftmaxCrossEntropy(losses, {}, logits, targets, rows, kVocabulary,
                                        kPaddedVocabulary, 1e-3);
  });
}

void EmbedForward(benchmark::State& state, DType compute) {
  const auto bench = MakeBench(state, compute);
  if (bench == nullptr) return;
  const int64_t rows = Rows(state);
  const Buf tokens = bench->Integers(rows, kVocabulary);
  const Buf token_table = bench->Random(kVocabulary * kWidth, compute);
  const Buf position_table = bench->Random(kContext * kWidth, compute);
  const Buf y = bench->Allocate(rows * kWidth, compute);
  bench->Time(state, 3 * rows * kWidth * bench->compute_bytes(), [&] {
    bench->device().EmbedForward(y, tokens, token_table, position_table, rows, kContext, kWidth);
  });
}

void EmbedBackward(benchmark::State& state, DType compute) {
  const auto bench = MakeBench(state, compute);
  if (bench == nullptr) return;
  const int64_t rows = Rows(state);
  const Buf tokens = bench->Integers(rows, kVocabulary);
  const Buf token_table = bench->Random(kVocabulary * kWidth, DType::kF32);
  const Buf position_table = bench->Random(kContext * kWidth, DType::kF32);
  const Buf dy = bench->Random(rows * kWidth, compute);
  bench->Time(state, rows * kWidth * bench->compute_bytes(), [&] {
    bench->device().EmbedBackward(token_table, position_table, dy, tokens, rows, kContext, kWidth,
                                  kVocabulary);
  });
}

void Timed(benchmark::internal::Benchmark* benchmark) {
  benchmark->UseManualTime()->Unit(benchmark::kMicrosecond);
}
void Batches(benchmark::internal::Benchmark* benchmark) {
  Timed(benchmark);
  for (int64_t samples : {64, 16, 4}) benchmark->Args({samples});
}
// 1600 is beyond what a warp keeps of a row when it goes backward, 767 are not whole vectors.
void Widths(benchmark::internal::Benchmark* benchmark) {
  Timed(benchmark);
  for (int64_t samples : {64, 4}) benchmark->Args({samples, kWidth});
  for (int64_t width : {1024, 1600, 767}) benchmark->Args({16, width});
}

BENCHMARK(Copy)->Apply(Timed);
BENCHMARK_CAPTURE(CopyToHost, DeviceToHost, false)->Apply(Timed);
BENCHMARK_CAPTURE(CopyToHost, HostToDevice, true)->Apply(Timed);
BENCHMARK(CastToBf16)->Apply(Timed);
BENCHMARK(SumOfSquares)->Apply(Timed);
BENCHMARK(AdamW)->Apply(Timed);
BENCHMARK_CAPTURE(Gelu, Bf16, DType::kBf16)->Apply(Batches);
BENCHMARK_CAPTURE(Gelu, F32, DType::kF32)->Apply(Batches);
BENCHMARK_CAPTURE(Dropout, Bf16, DType::kBf16)->Apply(Batches);
BENCHMARK_CAPTURE(NormForward, Bf16, DType::kBf16)->Apply(Widths);
BENCHMARK_CAPTURE(NormForward, F32, DType::kF32)->Apply(Widths);
BENCHMARK_CAPTURE(NormBackward, Bf16, DType::kBf16)->Apply(Widths);
BENCHMARK_CAPTURE(NormBackward, F32, DType::kF32)->Apply(Widths);
BENCHMARK_CAPTURE(CrossEntropy, Bf16, DType::kBf16)->Apply(Batches);
BENCHMARK_CAPTURE(EmbedForward, Bf16, DType::kBf16)->Apply(Batches);
BENCHMARK_CAPTURE(EmbedBackward, Bf16, DType::kBf16)->Apply(Batches);

}  // namespace
}  // namespace lodestar

BENCHMARK_MAIN();
