// SPDX-License-Identifier: Apache-2.0

// A ComputePool is a fixed set of threads that share the parts of one loop at a time. It is made
// for loops that take microseconds: idle threads spin for about 30 us before they sleep. Any thread
// may run any part, so the result must depend only on the part.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"

namespace lodestar::cpu {

class ComputePool {
 public:
  // `thread` is in [0, num_threads()). Calls that run at the same time have different values, so it
  // can be the index of scratch memory.
  using Work = absl::FunctionRef<void(int64_t part, int thread)>;

  // `threads` includes the thread that calls Run(). It is at least 1.
  explicit ComputePool(int threads);
  ~ComputePool();
  ComputePool(const ComputePool&) = delete;
  ComputePool& operator=(const ComputePool&) = delete;

  int num_threads() const { return static_cast<int>(threads_.size()) + 1; }

  // Calls work once for every part in [0, parts), and returns when all calls have returned. Only
  // one thread may call Run() at a time.
  void Run(int64_t parts, Work work);

 private:
  void Loop(int thread);
  // Takes the next part of the current loop. Returns false if no part is left.
  bool Claim(int64_t* part);
  void WorkOff(int thread);

  // Three numbers: the generation of the current loop (24 bits), the number of its parts (20 bits),
  // and the next part (20 bits). A thread may wake up late, during a later loop. The generation
  // prevents it from taking a part of that loop.
  std::atomic<uint64_t> ticket_{0};
  std::atomic<int64_t> finished_parts_{0};
  // Number of loops that the threads have shared. Also increased when the pool stops. Sleeping
  // threads wait until it changes.
  std::atomic<int32_t> generation_{0};
  std::atomic<bool> stopping_{false};
  // Valid while parts are unfinished.
  const Work* work_ = nullptr;
  std::vector<std::thread> threads_;
};

}  // namespace lodestar::cpu
