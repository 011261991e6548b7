// SPDX-License-Identifier: Apache-2.0

// Measures the speed of the codecs on one core, in bytes of fp32 per second. The vector is larger
// than the caches.
#include <string>
#include <vector>

#include "benchmark/benchmark.h"
#include "kernels/codec/encoded_vectors.h"

namespace lodestar::codec {
namespace {

constexpr int64_t kElements = int64_t{16} << 20;

std::vector<float> Values() {
  std::vector<float> values(kElements);
  for (int64_t i = 0; i < kElements; ++i) values[i] = static_cast<float>(i % 997 - 498) * 1e-3f;
  return values;
}

void Report(benchmark::State& state, params::Encoding encoding) {
  state.SetBytesProcessed(state.iterations() * kElements * static_cast<int64_t>(sizeof(float)));
  state.SetLabel(params::EncodingText(encoding));
}

// Measures how fast a worker encodes a vector and computes the residual.
void EncodeAndKeepRest(benchmark::State& state) {
  const auto encoding = params::kAllEncodings[state.range(0)];
  const std::vector<float> values = Values();
  const std::vector<float> residual = Values();
  std::vector<float> next_residual(kElements);
  std::vector<std::byte> bytes(params::EncodedBytes(encoding, kElements));
  for (auto _ : state) {
    EncodeAndUpdate(encoding, values.data(), 1.0f, residual.data(), kElements, {}, 1.0f,
                    bytes.data(), next_residual.data());
  }
  Report(state, encoding);
}

// Measures how fast a server encodes the change of its weights.
void EncodeWeightChange(benchmark::State& state) {
  const auto encoding = params::kAllEncodings[state.range(0)];
  const std::vector<float> weights = Values();
  std::vector<float> shadow(kElements);
  std::vector<std::byte> bytes(params::EncodedBytes(encoding, kElements));
  for (auto _ : state) {
    EncodeChangeAndAdvance(encoding, weights.data(), shadow.data(), kElements, {}, bytes.data());
  }
  Report(state, encoding);
}

void DecodeVector(benchmark::State& state) {
  const auto encoding = params::kAllEncodings[state.range(0)];
  std::vector<float> values = Values();
  std::vector<std::byte> bytes(params::EncodedBytes(encoding, kElements));
  CodecOf(encoding).Encode(values.data(), kElements, {}, bytes.data());
  for (auto _ : state) {
    AccumulateDecoded(encoding, bytes.data(), kElements, 0.5f, values.data(),
                      kernels::Accumulate::kAdd);
  }
  Report(state, encoding);
}

// Measures how fast a server checks a contribution, with and without computing its norm.
void CheckVector(benchmark::State& state) {
  const auto encoding = params::kAllEncodings[state.range(0)];
  const bool wants_norm = state.range(1) != 0;
  const std::vector<float> values = Values();
  std::vector<std::byte> bytes(params::EncodedBytes(encoding, kElements));
  CodecOf(encoding).Encode(values.data(), kElements, {}, bytes.data());
  double square_sum = 0.0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(
        wants_norm ? FirstNotBelow(encoding, bytes.data(), 1e18f, kElements, &square_sum)
                   : FirstNotBelow(encoding, bytes.data(), 1e18f, kElements));
  }
  Report(state, encoding);
}

BENCHMARK(CheckVector)->ArgsProduct({{0, 1, 2, 3, 4, 5, 6}, {0, 1}})->Unit(benchmark::kMillisecond);
BENCHMARK(EncodeAndKeepRest)->DenseRange(0, 6)->Unit(benchmark::kMillisecond);
// EncodeWeightChange() takes the encodings that weights may have: bf16, fp16, int8, int4.
BENCHMARK(EncodeWeightChange)->DenseRange(1, 4)->Unit(benchmark::kMillisecond);
BENCHMARK(DecodeVector)->DenseRange(0, 6)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace lodestar::codec

BENCHMARK_MAIN();
