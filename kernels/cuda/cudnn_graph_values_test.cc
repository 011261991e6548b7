// SPDX-License-Identifier: Apache-2.0

// Tests that our graphs compute attention. An emulation of cuDNN's backend API computes the graphs
// node by node in fp64, and the results must be those of the oracle.
#include <gtest/gtest.h>

#ifdef LODESTAR_HAS_CUDNN
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/cuda/cudnn_attention.h"
#include "kernels/cuda/testing/emulated_cudnn.h"
#include "kernels/oracle/oracle_device.h"
#include "kernels/testing/device_test_rig.h"

namespace lodestar::cuda {
namespace {

// Results in bf16 are rounded once. log_sum_exp and the sums of dy * y are rounded to fp32.
constexpr double kBf16Rounding = 1.0 / 256;
constexpr double kFloatRounding = 1e-6;

uint16_t Bf16Of(double value) {
  const auto bits = std::bit_cast<uint32_t>(static_cast<float>(value));
  return static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}
double ValueOf(uint16_t bf16) { return std::bit_cast<float>(uint32_t{bf16} << 16); }

struct Aligned {
  alignas(256) std::byte bytes[256];
};

// Values in memory that begins at a multiple of 256 bytes.
template <typename T>
class Tensor {
 public:
  explicit Tensor(size_t elements)
      : elements_(elements), memory_(elements * sizeof(T) / sizeof(Aligned) + 1) {
    std::fill_n(reinterpret_cast<uint8_t*>(memory_.data()), memory_.size() * sizeof(Aligned),
                uint8_t{0xff});
  }
  T* data() { return reinterpret_cast<T*>(memory_.data()); }
  size_t size() const { return elements_; }
  T operator[](size_t i) { return data()[i]; }

 private:
  size_t elements_;
  std::vector<Aligned> memory_;
};

struct Numbers {
  std::vector<double> qkv, y, log_sum_exp, dy, dqkv;
};

Tensor<uint16_t> Rounded(const std::vector<double>& values) {
  Tensor<uint16_t> tensor(values.size());
  std::transform(values.begin(), values.end(), tensor.data(), Bf16Of);
  return tensor;
}

// Returns inputs rounded to bf16, and the oracle's results. The backward pass uses y rounded to
// bf16.
Numbers OfOracle(const kernels::AttentionShape& shape) {
  const std::unique_ptr<kernels::Device> oracle = oracle::MakeOracleDevice();
  kernels::DeviceTestRig rig(oracle.get(), kernels::DType::kBf16);
  const int64_t n = shape.batch * shape.tokens * shape.heads * shape.head_width;
  const kernels::Buf qkv = rig.Random(3 * n);
  const kernels::Buf dy = rig.Random(n);
  const kernels::Buf y = rig.Output("y", n);
  const kernels::Buf log_sum_exp =
      rig.Output("log_sum_exp", shape.batch * shape.heads * shape.tokens, kernels::DType::kF64);
  const kernels::Buf dqkv = rig.Output("dqkv", 3 * n);
  const kernels::Buf workspace = rig.Workspace(oracle->AttentionWorkspaceElements(shape));
  const auto values = [](kernels::Buf buf) {
    return std::vector<double>(buf.as<double>(), buf.as<double>() + buf.num_elements);
  };
  oracle->AttentionForward(y, log_sum_exp, qkv, workspace, shape);
  Numbers numbers{.qkv = values(qkv),
                  .y = values(y),
                  .log_sum_exp = values(log_sum_exp),
                  .dy = values(dy),
                  .dqkv = {}};
  for (int64_t i = 0; i < n; ++i) y.as<double>()[i] = ValueOf(Bf16Of(y.as<double>()[i]));
  oracle->AttentionBackward(dqkv, dy, y, log_sum_exp, qkv, workspace, shape);
  numbers.dqkv = values(dqkv);
  return numbers;
}

void ExpectNear(const char* name, Tensor<uint16_t>& got, const std::vector<double>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    ASSERT_NEAR(ValueOf(got[i]), want[i], kBf16Rounding * std::abs(want[i]) + kFloatRounding)
        << name << " " << i;
  }
}

class CudnnGraphValuesTest : public testing::TestWithParam<kernels::AttentionShape> {
 protected:
  static std::unique_ptr<CudnnAttention> Make() {
    auto target = CudnnTarget::PresentDevice(EmulatedCudnn<91600>());
    EXPECT_TRUE(target.ok()) << target.status();
    return std::make_unique<CudnnAttention>(*target);
  }
};

TEST_P(CudnnGraphValuesTest, ForwardIsTheOracles) {
  const kernels::AttentionShape shape = GetParam();
  const Numbers want = OfOracle(shape);
  Tensor<uint16_t> qkv = Rounded(want.qkv), y(want.y.size());
  Tensor<float> log_sum_exp(want.log_sum_exp.size());
  const auto plan = Make()->Plan(AttentionPass::kForward, shape);
  ASSERT_TRUE(plan.ok()) << plan.status();
  Tensor<char> workspace((*plan)->workspace_bytes());
  const int runs = num_cudnn_runs();
  const absl::Status ran =
      (*plan)->Run({.qkv = qkv.data(), .y = y.data(), .log_sum_exp = log_sum_exp.data()},
                   workspace.data(), /*stream=*/nullptr);
  ASSERT_TRUE(ran.ok()) << ran;
  EXPECT_EQ(num_cudnn_runs(), runs + 1);
  ExpectNear("y", y, want.y);
  for (size_t i = 0; i < want.log_sum_exp.size(); ++i) {
    ASSERT_NEAR(log_sum_exp[i], want.log_sum_exp[i], kFloatRounding) << "log_sum_exp " << i;
  }
}

void ExpectBackwardIsTheOracles(CudnnAttention& attention, AttentionPass pass,
                                const kernels::AttentionShape& shape) {
  const Numbers want = OfOracle(shape);
  Tensor<uint16_t> qkv = Rounded(want.qkv), y = Rounded(want.y), dy = Rounded(want.dy),
                   dqkv(want.dqkv.size());
  Tensor<float> log_sum_exp(want.log_sum_exp.size());
  std::copy(want.log_sum_exp.begin(), want.log_sum_exp.end(), log_sum_exp.data());
  const auto plan = attention.Plan(pass, shape);
  ASSERT_TRUE(plan.ok()) << plan.status();
  Tensor<char> workspace((*plan)->workspace_bytes());
  EXPECT_EQ((*plan)->zeroed_bytes() > 0, pass == AttentionPass::kUnorderedBackward);
  std::fill_n(workspace.data(), (*plan)->zeroed_bytes(), char{0});
  const absl::Status ran = (*plan)->Run({.qkv = qkv.data(),
                                         .y = y.data(),
                                         .log_sum_exp = log_sum_exp.data(),
                                         .dy = dy.data(),
                                         .dqkv = dqkv.data()},
                                        workspace.data(), /*stream=*/nullptr);
  ASSERT_TRUE(ran.ok()) << ran;
  ExpectNear("dqkv", dqkv, want.dqkv);
}

TEST_P(CudnnGraphValuesTest, BackwardIsTheOracles) {
  ExpectBackwardIsTheOracles(*Make(), AttentionPass::kBackward, GetParam());
}

TEST_P(CudnnGraphValuesTest, UnorderedBackwardIsTheOracles) {
  ExpectBackwardIsTheOracles(*Make(), AttentionPass::kUnorderedBackward, GetParam());
}

INSTANTIATE_TEST_SUITE_P(Shapes, CudnnGraphValuesTest,
                         testing::Values(kernels::AttentionShape{1, 1, 1, 8},
                                         kernels::AttentionShape{2, 5, 3, 8},
                                         kernels::AttentionShape{3, 17, 2, 24},
                                         kernels::AttentionShape{1, 40, 2, 64}),
                         [](const auto& info) {
                           const kernels::AttentionShape& shape = info.param;
                           return std::to_string(shape.batch) + "x" + std::to_string(shape.tokens) +
                                  "tokens" + std::to_string(shape.heads) + "headsOf" +
                                  std::to_string(shape.head_width);
                         });

TEST(CudnnVersionTest, NeedsWholeBlocksOfTokensBefore9_16) {
  for (const auto& [api, takes_all] :
       {std::pair{EmulatedCudnn<91500>(), false}, std::pair{EmulatedCudnn<91600>(), true}}) {
    const auto target = CudnnTarget::PresentDevice(api);
    ASSERT_TRUE(target.ok()) << target.status();
    CudnnAttention attention(*target);
    for (const AttentionPass pass : {AttentionPass::kForward, AttentionPass::kBackward}) {
      EXPECT_TRUE(attention.Plan(pass, {2, 1024, 12, 64}).ok());
      for (const int64_t tokens : {17, 127, 1000}) {
        const absl::Status status = attention.Plan(pass, {2, tokens, 12, 64}).status();
        EXPECT_EQ(status.code(),
                  takes_all ? absl::StatusCode::kOk : absl::StatusCode::kUnimplemented)
            << CudnnName(*api) << ", " << tokens << " tokens: " << status;
      }
    }
  }
}

}  // namespace
}  // namespace lodestar::cuda

#else

TEST(CudnnGraphValuesTest, IsBuiltWhereCudnnIs) {
  GTEST_SKIP() << "this machine has no headers of cuDNN 9 (cudnn_graph.h): nothing was tested";
}

#endif
