// SPDX-License-Identifier: Apache-2.0

// Tests the emulator's functions of compiler_seam.h against plain loops.
#include "kernels/cuda/compiler_seam.h"

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cuda/emulator/emulator.h"
#include "kernels/cuda/launch.h"

namespace lodestar::cuda {
namespace {

// Computes c[16,8] = a[16,16] b[16,8], all row-major. A is loaded row by row, B through the
// transposed load.
__global__ void Multiply(float* c, const __nv_bfloat16* a, const __nv_bfloat16* b) {
  __nv_bfloat16* tile_a = DynamicShared<__nv_bfloat16>();
  __nv_bfloat16* tile_b = tile_a + 16 * 16;
  const int lane = static_cast<int>(threadIdx.x);
  CopyAsync16(tile_a + lane * 8, a + lane * 8);
  if (lane < 16) CopyAsync16(tile_b + lane * 8, b + lane * 8);
  CopyAsyncCommit();
  // These copies are in no group, so CopyAsyncWait() must not make them. They would overwrite B by
  // zeros.
  if (lane >= 16) CopyAsync16(tile_b + lane % 16 * 8, b, false);
  CopyAsyncWait<0>();
  __syncwarp();
  uint32_t fragment_a[4];
  LoadMatrixX4(fragment_a, tile_a + lane % 16 * 16 + lane / 16 * 8);
  // Only two of the four loaded matrices are used. So lanes 16 to 31 pass the same addresses as
  // lanes 0 to 15.
  uint32_t loaded_b[4];
  LoadMatrixX4Transposed(loaded_b, tile_b + lane % 16 * 8);
  const uint32_t fragment_b[2] = {loaded_b[0], loaded_b[1]};
  float sums[4] = {};
  MultiplyAdd(sums, fragment_a, fragment_b);
  for (int i = 0; i < 4; ++i) c[(lane / 4 + i / 2 * 8) * 8 + lane % 4 * 2 + i % 2] = sums[i];
}

// Loads the same rows with both load functions, so that the layouts can be compared.
__global__ void Load(uint32_t* plain, uint32_t* transposed, const uint16_t* rows) {
  uint16_t* tile = DynamicShared<uint16_t>();
  for (int i = 0; i < 8; ++i) tile[threadIdx.x * 8 + i] = rows[threadIdx.x * 8 + i];
  __syncwarp();
  uint32_t four[4];
  LoadMatrixX4(four, tile + threadIdx.x * 8);
  for (int i = 0; i < 4; ++i) plain[i * 32 + threadIdx.x] = four[i];
  LoadMatrixX4Transposed(four, tile + threadIdx.x * 8);
  for (int i = 0; i < 4; ++i) transposed[i * 32 + threadIdx.x] = four[i];
}

class CompilerSeamTest : public testing::Test {
 protected:
  CompilerSeamTest() { cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking); }
  ~CompilerSeamTest() override {
    for (void* memory : memory_) cudaFree(memory);
    cudaStreamDestroy(stream_);
  }
  template <typename T>
  T* Device(const std::vector<T>& values) {
    void* memory = nullptr;
    EXPECT_EQ(cudaMalloc(&memory, values.size() * sizeof(T)), cudaSuccess);
    std::copy(values.begin(), values.end(), static_cast<T*>(memory));
    memory_.push_back(memory);
    return static_cast<T*>(memory);
  }
  cudaStream_t stream_ = nullptr;
  std::vector<void*> memory_;
};

TEST_F(CompilerSeamTest, MultipliesByTheFragmentLayouts) {
  // Small integers are exact in bf16, and so are all sums of their products.
  std::vector<__nv_bfloat16> a, b;
  for (int i = 0; i < 256; ++i) a.push_back(__float2bfloat16_rn(static_cast<float>(i * 7 % 23)));
  for (int i = 0; i < 128; ++i) b.push_back(__float2bfloat16_rn(static_cast<float>(i * 5 % 19)));
  float* c = Device(std::vector<float>(128));
  ASSERT_EQ(Launch(Multiply, {.grid = 1, .block = 32, .shared_bytes = 768, .stream = stream_}, c,
                   Device(a), Device(b)),
            cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess) << emulator::KernelFailure();
  for (int row = 0; row < 16; ++row) {
    for (int column = 0; column < 8; ++column) {
      float want = 0.0f;
      for (int k = 0; k < 16; ++k) {
        want += __bfloat162float(a[row * 16 + k]) * __bfloat162float(b[k * 8 + column]);
      }
      EXPECT_EQ(c[row * 8 + column], want) << row << ", " << column;
    }
  }
}

TEST_F(CompilerSeamTest, LoadsMatricesStraightAndTransposed) {
  std::vector<uint16_t> rows(256);
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<uint16_t>(i);
  uint32_t* plain = Device(std::vector<uint32_t>(128));
  uint32_t* transposed = Device(std::vector<uint32_t>(128));
  ASSERT_EQ(Launch(Load, {.grid = 1, .block = 32, .shared_bytes = 512, .stream = stream_}, plain,
                   transposed, Device(rows)),
            cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess) << emulator::KernelFailure();
  for (int matrix = 0; matrix < 4; ++matrix) {
    for (int lane = 0; lane < 32; ++lane) {
      const uint32_t group = lane / 4;
      const uint32_t pair = lane % 4 * 2;
      const auto element = [&](uint32_t row, uint32_t column) {
        return matrix * 64u + row * 8 + column;
      };
      const uint32_t want = element(group, pair) | element(group, pair + 1) << 16;
      EXPECT_EQ(plain[matrix * 32 + lane], want);
      EXPECT_EQ(transposed[matrix * 32 + lane], element(pair, group) | element(pair + 1, group)
                                                                           << 16);
    }
  }
}

}  // namespace
}  // namespace lodestar::cuda
