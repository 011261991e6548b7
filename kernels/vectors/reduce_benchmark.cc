// SPDX-License-Identifier: Apache-2.0

// Measures the operations of a server on contributions, on one core, in bytes read per second. The
// vectors together are larger than the caches.
#include <string>
#include <vector>

#include "benchmark/benchmark.h"
#include "kernels/vectors/reduce.h"

namespace lodestar::vectors {
namespace {

constexpr int64_t kElements = int64_t{1} << 20;  // the size of a bucket
constexpr int kVectors = 32;

std::vector<std::vector<float>> Vectors(int count) {
  std::vector<std::vector<float>> vectors(count, std::vector<float>(kElements));
  uint32_t state = 1;
  for (std::vector<float>& vector : vectors) {
    for (float& value : vector) {
      state = state * 1664525u + 1013904223u;
      value = static_cast<float>(static_cast<int32_t>(state)) * 0x1p-31f;
    }
  }
  return vectors;
}

void Report(benchmark::State& state, int vectors) {
  state.SetBytesProcessed(state.iterations() * vectors * kElements *
                          static_cast<int64_t>(sizeof(float)));
}

// Measures the plain mean of as many vectors, for comparison with the trimmed mean.
void Mean(benchmark::State& state) {
  const auto count = static_cast<int>(state.range(0));
  const std::vector<std::vector<float>> vectors = Vectors(count);
  std::vector<float> out(kElements);
  for (auto _ : state) {
    for (int i = 0; i < count; ++i) {
      AccumulateScaled(out.data(), vectors[i].data(), 0.25f, kElements,
                       i == 0 ? kernels::Accumulate::kSet : kernels::Accumulate::kAdd);
    }
  }
  Report(state, count);
}

void RobustMean(benchmark::State& state) {
  const auto count = static_cast<int>(state.range(0));
  const auto trim = static_cast<int>(state.range(1));
  const bool is_weighted = state.range(2) != 0;
  const std::vector<std::vector<float>> vectors = Vectors(count);
  std::vector<const float*> values;
  for (const std::vector<float>& vector : vectors) values.push_back(vector.data());
  const std::vector<float> weights(is_weighted ? count : 0, 3.0f);
  std::vector<float> out(kElements);
  for (auto _ : state) TrimmedMean(out.data(), values, weights, trim, kElements);
  Report(state, count);
  state.SetLabel(is_weighted ? "weighted" : "equal weights");
}

// Measures one pass over the vectors of many workers.
void SquareSum(benchmark::State& state) {
  const std::vector<std::vector<float>> vectors = Vectors(kVectors);
  double sum = 0.0;
  for (auto _ : state) {
    for (const std::vector<float>& vector : vectors) sum += SumOfSquares(vector.data(), kElements);
  }
  benchmark::DoNotOptimize(sum);
  Report(state, kVectors);
}

BENCHMARK(Mean)->Arg(4)->Arg(32)->Unit(benchmark::kMillisecond);
BENCHMARK(RobustMean)
    ->ArgsProduct({{4}, {1}, {0, 1}})
    ->ArgsProduct({{8}, {1, 3}, {0, 1}})
    ->ArgsProduct({{32}, {1, 15}, {0, 1}})
    ->Unit(benchmark::kMillisecond);
BENCHMARK(SquareSum)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace lodestar::vectors

BENCHMARK_MAIN();
