// SPDX-License-Identifier: Apache-2.0

// Tests the attention kernels under the emulator against the fp64 oracle: their results, that
// results do not depend on the order of threads, and which version is used for a call.
#include "kernels/cuda/attention.h"

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cuda/emulator/emulator.h"
#include "kernels/device.h"
#include "kernels/oracle/oracle_device.h"

namespace lodestar::cuda {
namespace {

using Values = std::vector<double>;
using Results = std::map<std::string, Values>;  // keys: y, log_sum_exp, dq, dk, dv

double Rounded(double x) { return __bfloat162float(__float2bfloat16_rn(static_cast<float>(x))); }

struct Problem {
  kernels::AttentionShape shape;
  kernels::DType dtype;
  Values qkv;
  Values dy;
  int64_t outputs() const { return dy.size(); }
  int64_t rows() const { return shape.batch * shape.heads * shape.tokens; }
};

// Makes queries and keys with a standard deviation of 1.2, so that a few keys get most of the
// weight.
Problem MakeProblem(const kernels::AttentionShape& shape, kernels::DType dtype) {
  Problem p{shape, dtype, {}, {}};
  std::mt19937 generator(7);
  std::uniform_real_distribution<double> uniform(-2.0, 2.0);
  const auto fill = [&](Values& values, int64_t n) {
    values.resize(n);
    for (double& value : values) {
      value = uniform(generator);
      value = dtype == kernels::DType::kBf16 ? Rounded(value) : static_cast<float>(value);
    }
  };
  const int64_t outputs = shape.batch * shape.tokens * shape.heads * shape.head_width;
  fill(p.qkv, 3 * outputs);
  fill(p.dy, outputs);
  return p;
}

// Splits dqkv [batch * tokens, 3, heads * width] into dq, dk and dv.
void Split(const Problem& p, const Values& dqkv, Results& results) {
  const int64_t width = p.shape.heads * p.shape.head_width;
  const char* names[] = {"dq", "dk", "dv"};
  for (int64_t i = 0; i < static_cast<int64_t>(dqkv.size()); ++i) {
    results[names[i / width % 3]].push_back(dqkv[i]);
  }
}

Results OnOracle(const Problem& p) {
  const std::unique_ptr<kernels::Device> oracle = oracle::MakeOracleDevice();
  Values qkv = p.qkv, dy = p.dy, y(p.outputs()), log_sum_exp(p.rows()), dqkv(3 * p.outputs());
  Values workspace(oracle->AttentionWorkspaceElements(p.shape));
  const auto buf = [](Values& values) {
    return kernels::Buf{values.data(), kernels::DType::kF64, static_cast<int64_t>(values.size())};
  };
  oracle->AttentionForward(buf(y), buf(log_sum_exp), buf(qkv), buf(workspace), p.shape);
  oracle->AttentionBackward(buf(dqkv), buf(dy), buf(y), buf(log_sum_exp), buf(qkv), buf(workspace),
                            p.shape);
  Results results{{"y", y}, {"log_sum_exp", log_sum_exp}};
  Split(p, dqkv, results);
  return results;
}

// Computes attention in bf16 in the simplest way: with products of whole matrices whose sums are in
// fp32. Rounds probabilities and their gradients to bf16 before the next product.
Results Naive(const Problem& p) {
  const auto& [batch, tokens, heads, width, mask] = p.shape;
  const float scale = 1.0f / std::sqrt(static_cast<float>(width));
  Values y(p.outputs()), dqkv(3 * p.outputs());
  std::vector<float> sums(3 * p.outputs());
  for (int64_t part = 0; part < batch * heads; ++part) {
    const int64_t at = part / heads * tokens * heads * width + part % heads * width;
    const double* q = p.qkv.data() + 3 * at - 2 * (part % heads) * width;
    const int64_t step = 3 * heads * width, out_step = heads * width;
    const auto dot = [width = width](const double* a, const double* b) {
      float sum = 0.0f;
      for (int64_t i = 0; i < width; ++i) sum += static_cast<float>(a[i] * b[i]);
      return sum;
    };
    for (int64_t i = 0; i < tokens; ++i) {
      std::vector<float> score(i + 1), kept(i + 1, 1.0f);
      float largest = -INFINITY, total = 0.0f;
      for (int64_t j = 0; j <= i; ++j) {
        score[j] = dot(q + i * step, q + j * step + out_step) * scale;
        largest = std::max(largest, score[j]);
        if (mask.rate > 0.0) {
          kept[j] = kernels::IsKept(mask, (part * tokens + i) * tokens + j)
                        ? 1.0 / (1.0 - mask.rate)
                        : 0.0;
        }
      }
      for (float& s : score) total += s = std::exp(s - largest);
      std::vector<float> mix(width);
      for (int64_t j = 0; j <= i; ++j) {
        score[j] /= total;
        const float weight = static_cast<float>(Rounded(score[j] * kept[j]));
        const double* v = q + j * step + 2 * out_step;
        for (int64_t d = 0; d < width; ++d) mix[d] += weight * static_cast<float>(v[d]);
      }
      double* out = y.data() + at + i * out_step;
      for (int64_t d = 0; d < width; ++d) out[d] = Rounded(mix[d]);
      const double* g = p.dy.data() + at + i * out_step;
      const float delta = dot(g, out);
      float* dq = sums.data() + (q - p.qkv.data());
      for (int64_t j = 0; j <= i; ++j) {
        const float dp = kept[j] * dot(g, q + j * step + 2 * out_step);
        const float weight = static_cast<float>(Rounded(score[j] * kept[j]));
        const float ds = static_cast<float>(Rounded(score[j] * (dp - delta) * scale));
        for (int64_t d = 0; d < width; ++d) {
          dq[i * step + d] += ds * static_cast<float>(q[j * step + out_step + d]);
          dq[j * step + out_step + d] += ds * static_cast<float>(q[i * step + d]);
          dq[j * step + 2 * out_step + d] += weight * static_cast<float>(g[d]);
        }
      }
    }
  }
  for (size_t i = 0; i < sums.size(); ++i) dqkv[i] = Rounded(sums[i]);
  Results results{{"y", y}};
  Split(p, dqkv, results);
  return results;
}

class AttentionTest : public testing::Test {
 protected:
  AttentionTest() { cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking); }
  ~AttentionTest() override {
    Free();
    cudaStreamDestroy(stream_);
    emulator::Configure({});
  }

  // `skew` is the number of elements by which tensors are shifted from an aligned address.
  Results OnCard(const Problem& p, int compute_capability = 80, int64_t skew = 0) {
    const CudaAttention attention(compute_capability);
    const kernels::Buf qkv = Upload(p.qkv, p.dtype, skew);
    const kernels::Buf dy = Upload(p.dy, p.dtype, skew);
    const kernels::Buf y = Allocate(p.outputs(), p.dtype, skew);
    const kernels::Buf log_sum_exp = Allocate(p.rows(), kernels::DType::kF32, 0);
    const kernels::Buf dqkv = Allocate(3 * p.outputs(), p.dtype, skew);
    const kernels::Buf workspace =
        Allocate(CudaAttention::WorkspaceElements(p.shape, p.dtype), p.dtype, skew);
    EXPECT_EQ(attention.Forward(y, log_sum_exp, qkv, p.shape, stream_), cudaSuccess);
    EXPECT_EQ(attention.Backward(dqkv, dy, y, log_sum_exp, qkv, workspace, p.shape, stream_),
              cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess) << emulator::KernelFailure();
    Results results{{"y", Download(y)}, {"log_sum_exp", Download(log_sum_exp)}};
    Split(p, Download(dqkv), results);
    Free();
    return results;
  }
  Results OnCardReversed(const Problem& p, int compute_capability = 80) {
    emulator::Configure({.threads = emulator::ThreadOrder::kReversed});
    Results results = OnCard(p, compute_capability);
    emulator::Configure({});
    return results;
  }

 private:
  kernels::Buf Allocate(int64_t n, kernels::DType dtype, int64_t skew) {
    void* memory = nullptr;
    EXPECT_EQ(cudaMalloc(&memory, (n + skew) * kernels::DTypeBytes(dtype)), cudaSuccess);
    memory_.push_back(memory);
    return kernels::Buf{memory, dtype, n + skew}.Slice(skew, n);
  }
  kernels::Buf Upload(const Values& values, kernels::DType dtype, int64_t skew) {
    const kernels::Buf buf = Allocate(values.size(), dtype, skew);
    for (size_t i = 0; i < values.size(); ++i) {
      if (dtype == kernels::DType::kBf16) {
        buf.as<__nv_bfloat16>()[i] = __float2bfloat16_rn(static_cast<float>(values[i]));
      } else {
        buf.as<float>()[i] = static_cast<float>(values[i]);
      }
    }
    return buf;
  }
  static Values Download(const kernels::Buf& buf) {
    Values values(buf.num_elements);
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = buf.dtype == kernels::DType::kBf16 ? __bfloat162float(buf.as<__nv_bfloat16>()[i])
                                                     : buf.as<float>()[i];
    }
    return values;
  }
  void Free() {
    for (void* memory : memory_) EXPECT_EQ(cudaFree(memory), cudaSuccess);
    memory_.clear();
  }

  cudaStream_t stream_ = nullptr;
  std::vector<void*> memory_;
};

double Distance(const Values& a, const Values& b) {
  EXPECT_EQ(a.size(), b.size());
  double sum = 0.0;
  for (size_t i = 0; i < a.size(); ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return std::sqrt(sum);  // NaN if an output that began as NaN was not written
}

bool SameBits(const Results& a, const Results& b) { return a == b; }

// Both values are fp32 and have some rounding errors. The error of a rounding is 2^-24 of a score,
// and scores are up to 30.
void ExpectSameLogSumExp(const Values& got, const Values& want) {
  for (size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(got[i], want[i], 2e-5) << i;
}

// Compares our errors with those of a naive implementation in the same type. Ours may be twice as
// large, for gradients three times. This is the rule of FlashAttention's tests. If the terms of a
// result cancel, the naive error may be smaller than one of fp32. So `rounding` is added to the
// limit.
void ExpectAsGoodAsNaive(const Problem& p, const Results& got) {
  const Results want = OnOracle(p);
  const Results naive = Naive(p);
  for (const auto& [name, factor] :
       std::map<std::string, double>{{"y", 2.0}, {"dq", 3.0}, {"dk", 3.0}, {"dv", 3.0}}) {
    const double rounding = 1e-6 * std::sqrt(static_cast<double>(got.at(name).size()));
    EXPECT_LE(Distance(got.at(name), want.at(name)),
              factor * Distance(naive.at(name), want.at(name)) + rounding)
        << name << " of tokens=" << p.shape.tokens << " head_width=" << p.shape.head_width;
  }
  ExpectSameLogSumExp(got.at("log_sum_exp"), want.at("log_sum_exp"));
}

void ExpectNearInFloat(const Problem& p, const Results& got) {
  for (const auto& [name, want] : OnOracle(p)) {
    // The limit allows for the sum of a few hundred random rounding errors of 2^-24.
    const double size = Distance(want, Values(want.size())) + std::sqrt(double(want.size()));
    EXPECT_LE(Distance(got.at(name), want), 2e-6 * size)
        << name << " of tokens=" << p.shape.tokens << " head_width=" << p.shape.head_width;
  }
}

TEST_F(AttentionTest, TensorCoresAreAsGoodAsNaiveBf16) {
  for (const kernels::AttentionShape& shape :
       {kernels::AttentionShape{2, 1, 2, 64}, kernels::AttentionShape{1, 7, 3, 64},
        kernels::AttentionShape{2, 16, 1, 64}, kernels::AttentionShape{1, 63, 1, 64},
        kernels::AttentionShape{1, 64, 2, 64}, kernels::AttentionShape{1, 65, 1, 64},
        kernels::AttentionShape{1, 128, 1, 64}, kernels::AttentionShape{1, 200, 1, 64},
        kernels::AttentionShape{2, 1, 1, 128}, kernels::AttentionShape{1, 16, 2, 128},
        kernels::AttentionShape{1, 65, 1, 128}, kernels::AttentionShape{1, 136, 1, 128},
        kernels::AttentionShape{1, 515, 1, 128}}) {
    const Problem p = MakeProblem(shape, kernels::DType::kBf16);
    const Results got = OnCard(p);
    ExpectAsGoodAsNaive(p, got);
    EXPECT_TRUE(SameBits(got, OnCardReversed(p))) << "tokens=" << shape.tokens;
  }
}

TEST_F(AttentionTest, TensorCoresDropWhatTheMaskDrops) {
  const auto shape = [](int64_t batch, int64_t tokens, int64_t heads, int64_t width, double rate,
                        int64_t first_element) {
    return kernels::AttentionShape{batch, tokens, heads, width, {rate, 42, 3, first_element}};
  };
  for (const kernels::AttentionShape& s :
       {shape(2, 68, 1, 64, 0.3, 8), shape(1, 67, 2, 64, 0.1, 0), shape(1, 36, 1, 64, 0.5, 1),
        shape(1, 68, 1, 128, 0.3, 4)}) {
    const Problem p = MakeProblem(s, kernels::DType::kBf16);
    ExpectAsGoodAsNaive(p, OnCard(p));
  }
}

TEST_F(AttentionTest, AnyHeadWidthInBf16) {
  for (int64_t width : {1, 8, 16, 33, 80}) {
    const Problem p = MakeProblem({2, 37, 2, width}, kernels::DType::kBf16);
    ExpectAsGoodAsNaive(p, OnCard(p));
  }
}

TEST_F(AttentionTest, AnyHeadWidthInFloat) {
  for (const kernels::AttentionShape& shape :
       {kernels::AttentionShape{2, 1, 2, 1}, kernels::AttentionShape{2, 33, 2, 7},
        kernels::AttentionShape{1, 64, 1, 64}, kernels::AttentionShape{1, 130, 1, 32},
        kernels::AttentionShape{1, 70, 2, 100}, kernels::AttentionShape{1, 65, 1, 150}}) {
    const Problem p = MakeProblem(shape, kernels::DType::kF32);
    const Results got = OnCard(p);
    ExpectNearInFloat(p, got);
    EXPECT_TRUE(SameBits(got, OnCardReversed(p))) << "tokens=" << shape.tokens;
  }
}

TEST_F(AttentionTest, FloatDropsWhatTheMaskDrops) {
  const Problem p = MakeProblem({2, 67, 2, 10, {0.4, 9, 1, 2}}, kernels::DType::kF32);
  ExpectNearInFloat(p, OnCard(p));
}

TEST_F(AttentionTest, Bf16WithoutTensorCoresOrAlignment) {
  const Problem p = MakeProblem({1, 65, 2, 64}, kernels::DType::kBf16);
  const Results old_card = OnCard(p, /*compute_capability=*/75);
  ExpectAsGoodAsNaive(p, old_card);
  const Results skewed = OnCard(p, 80, /*skew=*/1);
  ExpectAsGoodAsNaive(p, skewed);
  EXPECT_EQ(old_card.at("y"), skewed.at("y"));
  EXPECT_NE(old_card.at("y"), OnCard(p).at("y"));
}

TEST_F(AttentionTest, RepeatsToTheBit) {
  const Problem p = MakeProblem({1, 100, 1, 64, {0.2, 1, 1, 0}}, kernels::DType::kBf16);
  EXPECT_TRUE(SameBits(OnCard(p), OnCard(p)));
}

TEST_F(AttentionTest, NothingToAttendTo) {
  for (const kernels::AttentionShape& shape :
       {kernels::AttentionShape{0, 8, 2, 64}, kernels::AttentionShape{2, 0, 2, 64}}) {
    const Results got = OnCard(MakeProblem(shape, kernels::DType::kBf16));
    EXPECT_TRUE(got.at("y").empty());
  }
}

TEST(AttentionVersionTest, OneTablePerTypeWidthAndCard) {
  const CudaAttention turing(75), ampere(80), hopper(90);
  for (int64_t width : {64, 128}) {
    EXPECT_EQ(turing.VersionFor(kernels::DType::kBf16, width), AttentionVersion::kFloat);
    EXPECT_EQ(ampere.VersionFor(kernels::DType::kBf16, width), AttentionVersion::kTensorCore);
    EXPECT_EQ(hopper.VersionFor(kernels::DType::kBf16, width), AttentionVersion::kTensorCore);
    EXPECT_EQ(hopper.VersionFor(kernels::DType::kF32, width), AttentionVersion::kFloat);
  }
  EXPECT_EQ(hopper.VersionFor(kernels::DType::kBf16, 32), AttentionVersion::kFloat);
  EXPECT_EQ(hopper.VersionFor(kernels::DType::kBf16, 96), AttentionVersion::kFloat);
}

// The kernels are only recorded into a graph, because running them on an emulated card would take
// hours. Recording checks the sizes of grids and shared memory.
TEST(AttentionVersionTest, EightThousandTokensAreTaken) {
  emulator::Configure({});
  emulator::ClearStickyError();
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  const kernels::Buf f32{nullptr, kernels::DType::kF32, 0};
  for (const kernels::DType dtype : {kernels::DType::kBf16, kernels::DType::kF32}) {
    const kernels::Buf buf{nullptr, dtype, 0};
    for (const int64_t width : {64, 128}) {
      for (const double rate : {0.0, 0.1}) {
        const kernels::AttentionShape shape{64, 8192, 25, width, {rate, 1, 1, 0}};
        const CudaAttention attention(90);
        ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
        EXPECT_EQ(attention.Forward(buf, f32, buf, shape, stream), cudaSuccess) << width;
        EXPECT_EQ(attention.Backward(buf, buf, buf, f32, buf, buf, shape, stream), cudaSuccess)
            << width;
        cudaGraph_t graph = nullptr;
        ASSERT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
        EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
      }
    }
  }
  EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
}

TEST(AttentionVersionTest, MoreTilesThanAGridHas) {
  const kernels::Buf buf{nullptr, kernels::DType::kF32, 0};
  EXPECT_EQ(CudaAttention(90).Forward(buf, buf, buf, {1 << 20, 1 << 20, 1 << 10, 64}, nullptr),
            cudaErrorInvalidConfiguration);
}

}  // namespace
}  // namespace lodestar::cuda
