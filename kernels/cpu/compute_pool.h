// A fixed set of threads that share the parts of one loop at a time. Made for loops of some
// microseconds: idle threads spin for about 30 us before they sleep. Which thread runs a part is
// left to chance, so work must depend on the part only.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"

namespace lodestar::cpu {

class ComputePool {
 public:
  // `thread` in [0, num_threads()) is different for calls that overlap: an index of scratch memory.
  using Work = absl::FunctionRef<void(int64_t part, int thread)>;

  // `threads` >= 1 counts the thread that calls Run().
  explicit ComputePool(int threads);
  ~ComputePool();
  ComputePool(const ComputePool&) = delete;
  ComputePool& operator=(const ComputePool&) = delete;

  int num_threads() const { return static_cast<int>(threads_.size()) + 1; }

  // Calls work for every part in [0, parts) once and returns when all have returned. One caller at
  // a time.
  void Run(int64_t parts, Work work);

 private:
  void Loop(int thread);
  // Takes the next part of the current loop; false if there is none left.
  bool Claim(int64_t* part);
  void WorkOff(int thread);

  // [generation: 24 bits | parts: 20 | next part: 20], so that a thread that comes late cannot take
  // a part of a later loop by the numbers of an earlier one.
  std::atomic<uint64_t> ticket_{0};
  std::atomic<int64_t> finished_parts_{0};
  // Sleeping threads wait on it; raised by every loop and at the end.
  std::atomic<int32_t> generation_{0};
  std::atomic<bool> stopping_{false};
  // Valid while parts are unfinished.
  const Work* work_ = nullptr;
  std::vector<std::thread> threads_;
};

}  // namespace lodestar::cpu
