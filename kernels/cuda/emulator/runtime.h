// The emulated cards: their memory, and streams as queues of what is still to run. Everything here
// is called with the lock held.
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

// A place in a stream: reached when that many of its operations are done.
struct StreamPoint {
  cudaStream_t stream = nullptr;
  int64_t operations = 0;
};

struct Operation {
  std::function<void()> run;
  StreamPoint after;  // on another stream; its stream may be null
  double microseconds = 0.0;
  std::array<const void*, 2> copies = {};  // where a copy begins and ends
};

}  // namespace lodestar::emulator

// NOLINTBEGIN: the names are CUDA's.
struct CUstream_st {
  int device = 0;
  std::deque<lodestar::emulator::Operation> queue;
  int64_t queued = 0;
  int64_t done = 0;
  CUgraph_st* captured = nullptr;  // being recorded; null: not capturing
  std::thread::id capturing_thread;
};
struct CUevent_st {
  int device = 0;
  lodestar::emulator::StreamPoint point;
  bool times = false;
  bool captured = false;
  std::shared_ptr<double> microseconds;  // of the card's own clock; negative: not reached
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
  cudaError_t sticky = cudaSuccess;  // after a kernel failed, every call returns it
  cudaError_t last = cudaSuccess;
  std::string kernel_failure;
  int64_t launches = 0;
  int64_t heuristics = 0;
  int64_t products = 0;
  int64_t pageable_copies = 0;
  int64_t registered_bytes_copied = 0;
  int64_t allocations_until_failure = -1;  // negative: never
  int64_t launches_until_failure = -1;
  double microseconds = 0.0;  // the card's clock: what the operations so far took
  std::vector<cudaStream_t> streams;
  // Dynamic shared memory that a kernel may be given, by kernel, where it has asked for more.
  std::map<const void*, size_t> shared_bytes_of_kernels;

  std::set<std::pair<int, int>> enabled_peers;  // device that reaches, device that is reached

  // Remembers and returns the error, or the sticky one.
  cudaError_t Result(cudaError_t error);
  // Fails the card as a kernel's wrong access does.
  void Break(cudaError_t error, const std::string& why);
  // Dynamic shared memory that a kernel may ask for.
  size_t MaxSharedBytes() const;
  cudaError_t Queue(cudaStream_t stream, Operation operation);
  // Runs what has to run before the point is reached, and more as settings.streams says.
  void RunUntil(StreamPoint point);
  // Waiting is refused to the thread that captures a stream, and spoils the capture.
  cudaError_t RefuseIfCapturing();
  void RunKernel(dim3 grid, dim3 block, size_t shared_bytes, const std::function<void()>& body);

  // Returns the current device of the calling thread, to be read or set.
  static int& CurrentDevice();

  // Registered: the host's own, pinned for the time being.
  enum class Kind : uint8_t { kDevice, kPinned, kRegistered };
  void* AllocateDevice(size_t bytes);  // on the current device
  void* AllocateHost(size_t bytes);
  bool Release(void* memory, Kind kind);
  cudaError_t Register(void* memory, size_t bytes);
  // Breaks the card if a copy to or from the memory has not run yet.
  cudaError_t Unregister(void* memory);
  // Whether [memory, memory + bytes) leaves the allocation that it begins in.
  bool LeavesAllocation(const void* memory, size_t bytes) const;
  // Whether it is on the device or pinned.
  bool IsAllocated(const void* memory) const;
  // Whether the memory was allocated on the device.
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
  std::map<int, size_t> used_bytes_;  // by device
  Block block_;
};

}  // namespace lodestar::emulator
