// SPDX-License-Identifier: Apache-2.0

// Measures each wire encoding on one thread, in turns with memcpy of the same fp32 vectors:
//
//   tests/bench/encodings.sh --mebibytes=4,64 --repeats=7
//
// "encode" is a worker's work on a contribution: it encodes values + residual, and computes the
// next residual. Fp32 has no residual; its encoding is a copy. "add" is a server's work: sum +=
// decoded. Rates count the bytes of the fp32 vector, not the encoded bytes.

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/params/encoding.h"
#include "common/process/process_setup.h"
#include "common/runtime/random.h"
#include "kernels/buf.h"
#include "kernels/codec/codec.h"
#include "kernels/codec/encoded_vectors.h"
#include "kernels/operation_arguments.h"

ABSL_FLAG(std::vector<std::string>, mebibytes, std::vector<std::string>({"4", "64"}),
          "sizes of the fp32 vector; 4 is that of a bucket");
ABSL_FLAG(int, repeats, 7, "measurements of each kind");

namespace lodestar {
namespace {

constexpr int64_t kMebibyte = 1 << 20;
constexpr int64_t kMostMebibytes = 4096;
// small vectors are encoded again and again
constexpr int64_t kBytesPerMeasurement = 64 * kMebibyte;
constexpr int kWarmUps = 2;
constexpr float kTopKDecay = 0.95f;  // the default of --feedback_decay

const params::Encoding kMeasured[] = {
    params::Encoding::kFp32, params::Encoding::kBf16,       params::Encoding::kInt8,
    params::Encoding::kInt4, params::Encoding::TopK(64, 2), params::Encoding::TopK(256, 4)};

// Returns values of a normal distribution. The distribution matters because the time of top-k
// depends on the values.
std::vector<float> Normals(int64_t n) {
  std::vector<float> values(n);
  for (int64_t i = 0; i < n; i += 4) {
    const std::array<double, 4> some = NormalsFrom(Philox(/*key=*/1, /*stream=*/1, i / 4));
    for (int64_t k = 0; k < std::min<int64_t>(4, n - i); ++k) {
      values[i + k] = static_cast<float>(some[k]);
    }
  }
  return values;
}

class EncodingBench {
 public:
  EncodingBench(params::Encoding encoding, int64_t elements)
      : encoding_(encoding),
        n_(elements),
        values_(Normals(elements)),
        residual_(elements),
        next_residual_(elements),
        sum_(elements),
        copy_(elements),
        bytes_(params::EncodedBytes(encoding, elements)) {}

  double encode_rate() {
    return Rate([this] {
      const kernels::Rounding rounding = {.kind = kernels::Rounding::Kind::kToNearest};
      if (encoding_ == params::Encoding::kFp32) {
        return codec::CodecOf(encoding_).Encode(values_.data(), n_, rounding, bytes_.data());
      }
      codec::EncodeAndUpdate(encoding_, values_.data(), /*scale=*/1.0f, residual_.data(), n_,
                             rounding, encoding_.is_topk() ? kTopKDecay : 1.0f, bytes_.data(),
                             next_residual_.data());
      residual_.swap(next_residual_);
    });
  }
  double add_rate() {
    return Rate([this] {
      codec::AccumulateDecoded(encoding_, bytes_.data(), n_, /*scale=*/0.5f, sum_.data(),
                               kernels::Accumulate::kAdd);
    });
  }
  double copy_rate() {
    return Rate([this] { std::memcpy(copy_.data(), values_.data(), n_ * sizeof(float)); });
  }
  double share_of_fp32() const {
    return static_cast<double>(bytes_.size()) / static_cast<double>(n_ * sizeof(float));
  }

 private:
  // Returns GiB of the fp32 vector per second.
  double Rate(absl::FunctionRef<void()> work) const {
    const int64_t vector_bytes = n_ * static_cast<int64_t>(sizeof(float));
    const int64_t passes = std::max<int64_t>(1, kBytesPerMeasurement / vector_bytes);
    const auto start = std::chrono::steady_clock::now();
    for (int64_t i = 0; i < passes; ++i) {
      work();
      asm volatile("" ::: "memory");  // keeps the compiler from leaving out work
    }
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    return static_cast<double>(passes * vector_bytes) / (1024.0 * kMebibyte) / elapsed.count();
  }

  const params::Encoding encoding_;
  const int64_t n_;
  const std::vector<float> values_;
  std::vector<float> residual_, next_residual_, sum_, copy_;
  std::vector<std::byte> bytes_;
};

// Returns "median (lowest..highest)" with the numbers printed with `format`.
std::string Spread(std::vector<double> values, const char* format) {
  std::sort(values.begin(), values.end());
  const auto text = [format](double value) {
    char buffer[32];
    std::snprintf(buffer, sizeof(buffer), format, value);
    return std::string(buffer);
  };
  return absl::StrCat(text(values[values.size() / 2]), " (", text(values.front()), "..",
                      text(values.back()), ")");
}

void Measure(params::Encoding encoding, int64_t mebibytes) {
  EncodingBench bench(encoding, mebibytes * kMebibyte / static_cast<int64_t>(sizeof(float)));
  for (int i = 0; i < kWarmUps; ++i) {
    bench.encode_rate();
    bench.add_rate();
    bench.copy_rate();
  }
  std::vector<double> encodes, adds, copies, encode_ratios, add_ratios;
  for (int i = 0; i < absl::GetFlag(FLAGS_repeats); ++i) {
    encodes.push_back(bench.encode_rate());
    adds.push_back(bench.add_rate());
    copies.push_back(bench.copy_rate());
    encode_ratios.push_back(encodes.back() / copies.back());
    add_ratios.push_back(adds.back() / copies.back());
  }
  std::printf("| %d | %s | %.4f | %s | %s | %s | %s | %s |\n", static_cast<int>(mebibytes),
              params::EncodingText(encoding).c_str(), bench.share_of_fp32(),
              Spread(encodes, "%.2f").c_str(), Spread(adds, "%.2f").c_str(),
              Spread(copies, "%.2f").c_str(), Spread(encode_ratios, "%.2f").c_str(),
              Spread(add_ratios, "%.2f").c_str());
  std::fflush(stdout);
}

int Main() {
  std::vector<int64_t> sizes;
  for (const std::string& text : absl::GetFlag(FLAGS_mebibytes)) {
    int64_t size = 0;
    if (!absl::SimpleAtoi(text, &size) || size < 1 || size > kMostMebibytes) {
      std::fprintf(stderr, "encodings: --mebibytes=%s: give whole numbers from 1 to %d\n",
                   text.c_str(), static_cast<int>(kMostMebibytes));
      return 2;
    }
    sizes.push_back(size);
  }
  const int repeats = absl::GetFlag(FLAGS_repeats);
  if (repeats < 1) {
    std::fprintf(stderr, "encodings: --repeats=%d: give 1 or more\n", repeats);
    return 2;
  }
  std::printf(
      "| MiB of fp32 | encoding | bytes / fp32 | encode, GiB/s | add, GiB/s | memcpy, GiB/s | "
      "encode / memcpy | add / memcpy |\n"
      "| ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: |\n");
  for (const int64_t size : sizes) {
    for (const params::Encoding encoding : kMeasured) Measure(encoding, size);
  }
  std::printf(
      "\nOne thread, GiB of fp32 per second, normally distributed values; median (lowest..highest) "
      "of %d runs, the three in turns. Encode: the bytes of values + residual, and the residual "
      "that "
      "they leave (fp32 has none); topk(N,B): the N largest of each 4096 in B bits. Add: sum += "
      "decoded. Memcpy: one vector of that size to another.\n",
      repeats);
  return 0;
}

}  // namespace
}  // namespace lodestar

int main(int argc, char** argv) {
  lodestar::process::SetUpMalloc();
  absl::ParseCommandLine(argc, argv);
  return lodestar::Main();
}
