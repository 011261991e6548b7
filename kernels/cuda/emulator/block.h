// SPDX-License-Identifier: Apache-2.0

// Runs one block of an emulated kernel. The threads are fibers that run one after the other, each
// until it reaches a barrier. So a missing barrier gives wrong results, or results that change with
// the order of threads. It is an error if some threads cannot reach a barrier, or if threads wait
// at barriers at different places.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cuda/emulator/emulator.h"
#include "kernels/cuda/emulator/fiber.h"
#include "kernels/cuda/emulator/vector_types.h"

namespace lodestar::emulator {

inline constexpr int kWarpThreads = 32;

struct SourcePlace {
  const char* file;
  int line;
};

// The value that one lane passes to the other lanes of its warp.
struct alignas(16) LaneValue {
  std::array<std::byte, 64> bytes;
};

// A copy from global to shared memory by cp.async. The bytes are copied when the thread waits for
// the copy.
struct PendingCopy {
  void* to;
  const void* from;  // null means that zeros are written
  size_t bytes;
  int group;
};

class Block {
 public:
  static Block& Running();  // may be called only inside a kernel

  // Runs the block. Returns the error, or an empty string.
  std::string Run(dim3 grid, dim3 block, uint3 index, size_t shared_bytes,
                  const std::function<void()>& body, ThreadOrder order);

  // The following functions are called by the running thread, inside a kernel.

  std::byte* dynamic_shared() { return shared_.data() + shared_offset_; }
  void Barrier(SourcePlace place);
  // Does the same as Barrier(), and returns the sum of `value` over all threads of the block.
  int BarrierSum(int value, SourcePlace place);
  // Waits for all lanes of `mask`. Returns the values of these lanes, indexed by lane. The calling
  // lane must read them before it calls Exchange() or Barrier() again.
  const LaneValue* Exchange(unsigned mask, const void* value, size_t bytes, SourcePlace place);
  int lane() const { return running_ % kWarpThreads; }
  void BeginCopy(void* to, const void* from, size_t bytes);
  void CommitCopies();
  void WaitCopies(int groups_left);
  // Ends the kernel with an error. Does not return.
  void Fail(const std::string& what);

 private:
  enum class State { kReady, kAtBarrier, kAtWarp, kEnded };

  struct Thread {
    Fiber fiber;
    State state;
    uint3 index;
    unsigned mask;
    SourcePlace place;
    LaneValue value;
    size_t value_bytes;
    int barrier_value;
    std::vector<PendingCopy> copies;
    int copy_group;
  };

  void Start(dim3 block, const std::function<void()>& body);
  void RunReady(ThreadOrder order);
  bool RunWarp(int first, int last, ThreadOrder order);
  void Resume(int thread);
  bool ReleaseLanes(int first, int last);
  bool ReleaseBarrier();
  void ReportStuck();
  void Suspend(State state, SourcePlace place);
  std::string Describe(int thread) const;

  std::vector<std::unique_ptr<Thread>> threads_;
  std::vector<std::array<LaneValue, kWarpThreads>> exchanged_;  // per warp
  std::vector<std::byte> shared_;
  size_t shared_offset_ = 0;
  int num_threads_ = 0;
  int running_ = 0;
  int ended_ = 0;
  int barrier_sum_ = 0;
  uint3 index_ = {};
  std::string failure_;
};

}  // namespace lodestar::emulator
