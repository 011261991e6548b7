// SPDX-License-Identifier: Apache-2.0

#include "kernels/cuda/emulator/emulator.h"

#include <cuda_runtime.h>

#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cuda/compiler_seam.h"
#include "kernels/cuda/launch.h"

namespace lodestar::cuda {
namespace {

constexpr unsigned kAllLanes = 0xffffffffu;

__global__ void SumOfBlock(float* sums, const float* values) {
  __shared__ float parts[8];
  float sum = values[blockIdx.x * blockDim.x + threadIdx.x];
  for (int lanes = 16; lanes > 0; lanes /= 2) sum += __shfl_xor_sync(kAllLanes, sum, lanes);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x != 0) return;
  float total = 0.0f;
  for (unsigned i = 0; i < blockDim.x / 32; ++i) total += parts[i];
  sums[blockIdx.x] = total;
}

// Each thread reads the value of its right neighbour. The values are correct only with the barrier.
__global__ void Rotate(int* out, bool with_barrier) {
  int* shared = DynamicShared<int>();
  shared[threadIdx.x] = static_cast<int>(threadIdx.x);
  if (with_barrier) __syncthreads();
  out[threadIdx.x] = shared[(threadIdx.x + 1) % blockDim.x];
}

__global__ void LeaveBeforeBarrier() {
  if (threadIdx.x == 5) return;
  __syncthreads();
}

__global__ void TwoBarriers() {
  if (threadIdx.x < 32) {
    __syncthreads();
  } else {
    __syncthreads();
  }
}

__global__ void ShuffleWithoutHalf(int* out) {
  if (threadIdx.x < 16) out[threadIdx.x] = __shfl_sync(kAllLanes, 1, 0);
}

__global__ void WriteBeyond(char* memory, int bytes) { memory[bytes] = 1; }

__global__ void Lanes(int* down, int* up, int* at, unsigned* ballot, int* count) {
  const int lane = static_cast<int>(threadIdx.x);
  down[lane] = __shfl_down_sync(kAllLanes, lane, 3, 8);
  up[lane] = __shfl_up_sync(kAllLanes, lane, 3, 8);
  at[lane] = __shfl_sync(kAllLanes, lane, 2, 8);
  ballot[lane] = __ballot_sync(kAllLanes, lane % 3 == 0);
  atomicAdd(count, 2);
}

class EmulatorTest : public testing::TestWithParam<emulator::ThreadOrder> {
 protected:
  EmulatorTest() {
    emulator::Configure({.threads = GetParam()});
    emulator::ClearStickyError();
    EXPECT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess);
    EXPECT_EQ(cudaStreamCreateWithFlags(&other_, cudaStreamNonBlocking), cudaSuccess);
  }
  ~EmulatorTest() override {
    emulator::ClearStickyError();
    for (void* memory : memory_) cudaFree(memory);
    cudaStreamDestroy(stream_);
    cudaStreamDestroy(other_);
  }

  template <typename T>
  T* Device(const std::vector<T>& values) {
    void* memory = nullptr;
    EXPECT_EQ(cudaMalloc(&memory, values.size() * sizeof(T)), cudaSuccess);
    std::copy(values.begin(), values.end(), static_cast<T*>(memory));
    memory_.push_back(memory);
    return static_cast<T*>(memory);
  }
  // Returns the error that stopped the kernel.
  std::string Failure() {
    EXPECT_EQ(cudaStreamSynchronize(stream_), cudaErrorLaunchFailure);
    return emulator::KernelFailure();
  }

  cudaStream_t stream_ = nullptr;
  cudaStream_t other_ = nullptr;
  std::vector<void*> memory_;
};

TEST_P(EmulatorTest, SumsOverWarpsAndBlocks) {
  std::vector<float> values(3 * 96);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  float* sums = Device(std::vector<float>(3));
  ASSERT_EQ(Launch(SumOfBlock, {.grid = 3, .block = 96, .stream = stream_}, sums, Device(values)),
            cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  EXPECT_EQ(std::vector<float>(sums, sums + 3), (std::vector<float>{4560, 13776, 22992}));
}

TEST_P(EmulatorTest, AMissingBarrierShows) {
  for (bool with_barrier : {true, false}) {
    int* out = Device(std::vector<int>(64));
    ASSERT_EQ(Launch(Rotate, {.grid = 1, .block = 64, .shared_bytes = 256, .stream = stream_}, out,
                     with_barrier),
              cudaSuccess);
    ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
    int wrong = 0;
    for (int i = 0; i < 64; ++i) wrong += out[i] != (i + 1) % 64;
    EXPECT_EQ(wrong > 0, !with_barrier);
  }
}

TEST_P(EmulatorTest, BarriersThatCannotBeMetAreErrors) {
  ASSERT_EQ(Launch(LeaveBeforeBarrier, {.grid = 1, .block = 64, .stream = stream_}), cudaSuccess);
  const std::string failure = Failure();
  EXPECT_NE(failure.find("emulator_test.cc"), std::string::npos) << failure;
  EXPECT_NE(failure.find("1 of 64"), std::string::npos) << failure;
}

TEST_P(EmulatorTest, BarriersAtTwoPlacesAreErrors) {
  ASSERT_EQ(Launch(TwoBarriers, {.grid = 1, .block = 64, .stream = stream_}), cudaSuccess);
  EXPECT_NE(Failure().find("two places"), std::string::npos);
}

TEST_P(EmulatorTest, AWarpOperationWithoutAllItsLanesIsAnError) {
  int* out = Device(std::vector<int>(32));
  ASSERT_EQ(Launch(ShuffleWithoutHalf, {.grid = 1, .block = 32, .stream = stream_}, out),
            cudaSuccess);
  EXPECT_NE(Failure().find("lane 16"), std::string::npos) << emulator::KernelFailure();
}

TEST_P(EmulatorTest, ShufflesFollowTheirDefinitions) {
  int* down = Device(std::vector<int>(32));
  int* up = Device(std::vector<int>(32));
  int* at = Device(std::vector<int>(32));
  unsigned* ballot = Device(std::vector<unsigned>(32));
  int* count = Device(std::vector<int>{0});
  ASSERT_EQ(Launch(Lanes, {.grid = 1, .block = 32, .stream = stream_}, down, up, at, ballot, count),
            cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess) << emulator::KernelFailure();
  for (int lane = 0; lane < 32; ++lane) {
    EXPECT_EQ(down[lane], lane % 8 < 5 ? lane + 3 : lane);
    EXPECT_EQ(up[lane], lane % 8 >= 3 ? lane - 3 : lane);
    EXPECT_EQ(at[lane], lane / 8 * 8 + 2);
    EXPECT_EQ(ballot[lane], 0x49249249u);
  }
  EXPECT_EQ(*count, 64);
}

TEST_P(EmulatorTest, AKernelMustAskForMoreSharedMemoryThanTheDefault) {
  constexpr size_t kMoreBytes = 49 * 1024;
  const auto launch = [this](size_t shared_bytes) {
    const cudaLaunchConfig_t config{
        .gridDim = 1, .blockDim = 64, .dynamicSmemBytes = shared_bytes, .stream = stream_};
    return cudaLaunchKernelEx(&config, Rotate, Device(std::vector<int>(64)), true);
  };
  const auto ask = [](size_t bytes) {
    return cudaFuncSetAttribute(reinterpret_cast<const void*>(Rotate),
                                cudaFuncAttributeMaxDynamicSharedMemorySize,
                                static_cast<int>(bytes));
  };
  EXPECT_EQ(launch(48 * 1024), cudaSuccess);
  EXPECT_EQ(ask(48 * 1024), cudaSuccess);
  EXPECT_EQ(launch(kMoreBytes), cudaErrorInvalidValue);
  EXPECT_EQ(ask(kMoreBytes), cudaSuccess);
  EXPECT_EQ(launch(kMoreBytes), cudaSuccess);
  emulator::Configure({.threads = GetParam(), .compute_capability = 75});
  EXPECT_EQ(ask(65 * 1024), cudaErrorInvalidValue) << "more than the card has";
  ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess) << emulator::KernelFailure();
}

TEST_P(EmulatorTest, WritingBeyondAnAllocationIsAnError) {
  char* memory = Device(std::vector<char>(100));
  ASSERT_EQ(Launch(WriteBeyond, {.grid = 1, .block = 1, .stream = stream_}, memory, 100),
            cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(stream_), cudaErrorIllegalAddress);
  EXPECT_EQ(cudaMemcpyAsync(memory, memory, 1, cudaMemcpyDefault, stream_), cudaErrorIllegalAddress)
      << "the error sticks";
}

// The copy on the other stream must come after the kernel. Without an event, one of the two stream
// orders copies old memory.
TEST_P(EmulatorTest, AMissingEventShows) {
  int wrong = 0;
  for (bool with_event : {true, false}) {
    for (auto streams :
         {emulator::StreamOrder::kOnlyWhatIsNeeded, emulator::StreamOrder::kOthersFirst}) {
      emulator::Configure({.threads = GetParam(), .streams = streams});
      int* out = Device(std::vector<int>(64, -1));
      std::vector<int> host(64);
      cudaEvent_t event = nullptr;
      ASSERT_EQ(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), cudaSuccess);
      ASSERT_EQ(Launch(Rotate, {.grid = 1, .block = 64, .shared_bytes = 256, .stream = stream_},
                       out, true),
                cudaSuccess);
      ASSERT_EQ(cudaEventRecord(event, stream_), cudaSuccess);
      EXPECT_EQ(cudaEventQuery(event), cudaErrorNotReady);
      if (with_event) {
        ASSERT_EQ(cudaStreamWaitEvent(other_, event), cudaSuccess);
      }
      ASSERT_EQ(cudaMemcpyAsync(host.data(), out, 256, cudaMemcpyDefault, other_), cudaSuccess);
      ASSERT_EQ(cudaStreamSynchronize(other_), cudaSuccess);
      if (host[0] == 1) {
        EXPECT_EQ(cudaEventQuery(event), cudaSuccess);
      } else {
        EXPECT_FALSE(with_event);
        ++wrong;
      }
      EXPECT_EQ(cudaEventDestroy(event), cudaSuccess);
    }
  }
  EXPECT_EQ(wrong, 1);
}

TEST_P(EmulatorTest, AGraphRunsWhatWasRecordedEachTimeItIsLaunched) {
  int* count = Device(std::vector<int>{0});
  int* scratch = Device(std::vector<int>(32));
  unsigned* ballot = Device(std::vector<unsigned>(32));
  ASSERT_EQ(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  ASSERT_EQ(Launch(Lanes, {.grid = 1, .block = 32, .stream = stream_}, scratch, scratch, scratch,
                   ballot, count),
            cudaSuccess);
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  ASSERT_EQ(cudaStreamEndCapture(stream_, &graph), cudaSuccess);
  ASSERT_EQ(cudaGraphInstantiate(&executable, graph), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  EXPECT_EQ(*count, 0);
  for (int i = 0; i < 2; ++i) ASSERT_EQ(cudaGraphLaunch(executable, stream_), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  EXPECT_EQ(*count, 128);
  EXPECT_EQ(cudaGraphExecDestroy(executable), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
}

TEST_P(EmulatorTest, WaitingSpoilsACapture) {
  ASSERT_EQ(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(stream_), cudaErrorStreamCaptureUnsupported);
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(stream_, &graph), cudaErrorStreamCaptureInvalidated);
}

TEST_P(EmulatorTest, HostMemoryIsRegisteredByPagesAndOnce) {
  constexpr size_t kPage = 4096;
  alignas(kPage) static char memory[4 * kPage];
  const int64_t before = emulator::num_allocations();
  EXPECT_EQ(cudaHostRegister(memory + 1, kPage, cudaHostRegisterPortable), cudaErrorInvalidValue);
  EXPECT_EQ(cudaHostRegister(memory, 0, cudaHostRegisterPortable), cudaErrorInvalidValue);
  EXPECT_EQ(cudaHostUnregister(memory), cudaErrorHostMemoryNotRegistered);
  ASSERT_EQ(cudaHostRegister(memory, 2 * kPage, cudaHostRegisterPortable), cudaSuccess);
  EXPECT_EQ(emulator::num_allocations(), before + 1);
  for (char* overlapping : {memory, memory + kPage}) {
    EXPECT_EQ(cudaHostRegister(overlapping, 2 * kPage, cudaHostRegisterPortable),
              cudaErrorHostMemoryAlreadyRegistered);
  }
  EXPECT_EQ(cudaHostRegister(memory + 2 * kPage, kPage, cudaHostRegisterPortable), cudaSuccess);
  EXPECT_EQ(cudaFreeHost(memory), cudaErrorInvalidValue) << "it is nobody's to free";
  EXPECT_EQ(cudaHostUnregister(memory), cudaSuccess);
  EXPECT_EQ(cudaHostUnregister(memory + 2 * kPage), cudaSuccess);
  EXPECT_EQ(emulator::num_allocations(), before);
  emulator::Configure({.threads = GetParam(), .registrable_bytes = kPage});
  EXPECT_EQ(cudaHostRegister(memory, 2 * kPage, cudaHostRegisterPortable),
            cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaGetLastError(), cudaErrorMemoryAllocation);
}

TEST_P(EmulatorTest, UnregisteringMemoryThatACopyStillUsesIsAnError) {
  constexpr size_t kPage = 4096;
  alignas(kPage) static char memory[kPage];
  char* device = Device(std::vector<char>(64));
  for (const bool waits : {true, false}) {
    ASSERT_EQ(cudaHostRegister(memory, kPage, cudaHostRegisterPortable), cudaSuccess);
    ASSERT_EQ(cudaMemcpyAsync(memory + 100, device, 64, cudaMemcpyDefault, stream_), cudaSuccess);
    if (waits) {
      ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
    }
    EXPECT_EQ(cudaHostUnregister(memory), waits ? cudaSuccess : cudaErrorIllegalAddress);
  }
}

TEST_P(EmulatorTest, MemoryEnds) {
  emulator::Configure({.threads = GetParam(), .memory_bytes = 1000});
  void* memory = nullptr;
  EXPECT_EQ(cudaMalloc(&memory, 1001), cudaErrorMemoryAllocation);
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  EXPECT_EQ(cudaMemGetInfo(&free_bytes, &total_bytes), cudaSuccess);
  EXPECT_EQ(free_bytes, 1000);
}

INSTANTIATE_TEST_SUITE_P(Orders, EmulatorTest,
                         testing::Values(emulator::ThreadOrder::kForward,
                                         emulator::ThreadOrder::kReversed),
                         [](const auto& info) {
                           return info.param == emulator::ThreadOrder::kForward ? "Forward"
                                                                                : "Reversed";
                         });

}  // namespace
}  // namespace lodestar::cuda
