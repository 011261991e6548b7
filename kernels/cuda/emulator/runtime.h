// SPDX-License-Identifier: Apache-2.0

// The emulated cards: their memory, and their streams, which are queues of operations that have not
// run yet. Callers must hold mutex().
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/cuda/emulator/block.h"
#include "kernels/cuda/emulator/emulator.h"

namespace lodestar::emulator {

// A place in a stream. It is reached when `operations` operations of the stream are done.
struct StreamPoint {
  cudaStream_t stream = nullptr;
  int64_t operations = 0;
};

struct Operation {
  std::function<void()> run;
  // The operation runs after this point of another stream. If the stream is null, the operation
  // does not wait.
  StreamPoint after;
  double microseconds = 0.0;
  std::array<const void*, 2> copies = {};  // source and destination of a copy
};

}  // namespace lodestar::emulator

// NOLINTBEGIN: the names are CUDA's.
struct CUstream_st {
  int device = 0;
  std::deque<lodestar::emulator::Operation> queue;
  int64_t queued = 0;
  int64_t done = 0;
  CUgraph_st* captured = nullptr;  // graph that is being recorded; null means that none is
  std::thread::id capturing_thread;
};
struct CUevent_st {
  int device = 0;
  lodestar::emulator::StreamPoint point;
  bool times = false;
  bool captured = false;
  // The time on the card's clock when the event was reached. Negative means that it was not reached
  // yet.
  std::shared_ptr<double> microseconds;
};
struct CUgraph_st {
  std::vector<lodestar::emulator::Operation> operations;
  bool is_valid = true;
};
struct CUgraphExec_st {
  std::vector<lodestar::emulator::Operation> operations;
};
// NOLINTEND

namespace lodestar::emulator {

class Card {
 public:
  static Card& Get();

  std::mutex& mutex() { return mutex_; }

  Settings settings;
  cudaError_t sticky = cudaSuccess;  // set when a kernel fails; then every call returns it
  cudaError_t last = cudaSuccess;
  std::string kernel_failure;
  int64_t launches = 0;
  int64_t heuristics = 0;
  int64_t products = 0;
  int64_t pageable_copies = 0;
  int64_t registered_bytes_copied = 0;
  int64_t allocations_until_failure = -1;  // negative means that allocations do not fail
  int64_t launches_until_failure = -1;
  double microseconds = 0.0;  // the card's clock: total time of the operations so far
  std::vector<cudaStream_t> streams;
  // Maximum dynamic shared memory of each kernel that has asked for more than the default.
  std::map<const void*, size_t> shared_bytes_of_kernels;

  // Pairs of devices. The first device may copy directly from and to memory of the second one.
  std::set<std::pair<int, int>> enabled_peers;

  // Stores and returns `error`. If the card has failed before, returns the sticky error instead.
  cudaError_t Result(cudaError_t error);
  // Makes the card fail, as a wrong memory access of a kernel does.
  void Break(cudaError_t error, const std::string& why);
  // Returns the maximum dynamic shared memory that a kernel may ask for.
  size_t MaxSharedBytes() const;
  cudaError_t Queue(cudaStream_t stream, Operation operation);
  // Runs the operations of the point's stream up to the point, and the operations of other streams
  // that these wait for. With StreamOrder::kOthersFirst, first runs all operations of other
  // streams.
  void RunUntil(StreamPoint point);
  // For calls that would wait for the card. If the calling thread is recording a stream, returns an
  // error and makes the recording invalid.
  cudaError_t RefuseIfCapturing();
  void RunKernel(dim3 grid, dim3 block, size_t shared_bytes, const std::function<void()>& body);

  // Returns a reference to the calling thread's current device. The caller may set it.
  static int& CurrentDevice();

  // kRegistered is ordinary host memory, which is pinned until it is unregistered.
  enum class Kind : uint8_t { kDevice, kPinned, kRegistered };
  void* AllocateDevice(size_t bytes);  // on the current device
  void* AllocateHost(size_t bytes);
  bool Release(void* memory, Kind kind);
  cudaError_t Register(void* memory, size_t bytes);
  // Unregisters host memory. If a copy to or from the memory is still queued, the card fails.
  cudaError_t Unregister(void* memory);
  // Returns true if [memory, memory + bytes) extends beyond the allocation in which it begins.
  bool LeavesAllocation(const void* memory, size_t bytes) const;
  // Returns true if the memory is device memory, pinned or registered.
  bool IsAllocated(const void* memory) const;
  // Returns true if the memory was allocated on the device `device`.
  bool IsOn(int device, const void* memory) const;
  bool IsRegistered(const void* memory) const;
  int64_t pinned_bytes() const;
  void CheckCanaries();
  // Returns the free bytes of the current device.
  size_t free_bytes() const;
  int64_t num_allocations() const { return static_cast<int64_t>(allocations_.size()); }

 private:
  struct Allocation {
    size_t bytes;
    Kind kind;
    int device;
  };

  bool IsQueued(const void* begin, size_t bytes) const;
  void Drain(StreamPoint point);

  std::mutex mutex_;
  std::map<const void*, Allocation> allocations_;
  std::map<int, size_t> used_bytes_;  // per device
  Block block_;
};

}  // namespace lodestar::emulator
