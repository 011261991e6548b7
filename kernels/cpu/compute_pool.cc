// SPDX-License-Identifier: Apache-2.0

#include "kernels/cpu/compute_pool.h"

#include "common/runtime/check.h"

namespace lodestar::cpu {
namespace {

constexpr int kPartBits = 20;
constexpr int64_t kMaxParts = (int64_t{1} << kPartBits) - 1;
constexpr uint64_t kPartMask = kMaxParts;
constexpr int kSpins = 2000;

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

ComputePool::ComputePool(int threads) {
  LODESTAR_CHECK(threads >= 1);
  for (int thread = 1; thread < threads; ++thread) {
    threads_.emplace_back([this, thread] { Loop(thread); });
  }
}

ComputePool::~ComputePool() {
  stopping_.store(true);
  generation_.fetch_add(1);
  generation_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ComputePool::Run(int64_t parts, Work work) {
  LODESTAR_CHECK(parts >= 0 && parts <= kMaxParts) << "parts=" << parts;
  if (parts <= 1 || threads_.empty()) {
    for (int64_t part = 0; part < parts; ++part) work(part, 0);
    return;
  }
  work_ = &work;
  finished_parts_.store(0, std::memory_order_relaxed);
  const uint64_t generation = generation_.load(std::memory_order_relaxed) + 1;
  ticket_.store(generation << (2 * kPartBits) | static_cast<uint64_t>(parts) << kPartBits,
                std::memory_order_release);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  WorkOff(0);
  for (int spins = 0; finished_parts_.load(std::memory_order_acquire) != parts; ++spins) {
    if (spins < kSpins) {
      Pause();
    } else {
      std::this_thread::yield();
    }
  }
}

bool ComputePool::Claim(int64_t* part) {
  uint64_t ticket = ticket_.load(std::memory_order_acquire);
  do {
    if ((ticket & kPartMask) >= (ticket >> kPartBits & kPartMask)) return false;
  } while (!ticket_.compare_exchange_weak(ticket, ticket + 1, std::memory_order_acq_rel,
                                          std::memory_order_acquire));
  *part = static_cast<int64_t>(ticket & kPartMask);
  return true;
}

void ComputePool::WorkOff(int thread) {
  int64_t part = 0;
  while (Claim(&part)) {
    (*work_)(part, thread);
    finished_parts_.fetch_add(1, std::memory_order_release);
  }
}

void ComputePool::Loop(int thread) {
  int32_t seen = 0;
  while (!stopping_.load(std::memory_order_relaxed)) {
    WorkOff(thread);
    int spins = 0;
    while (generation_.load(std::memory_order_acquire) == seen && spins < kSpins) {
      Pause();
      ++spins;
    }
    if (spins == kSpins) generation_.wait(seen, std::memory_order_acquire);
    seen = generation_.load(std::memory_order_acquire);
  }
}

}  // namespace lodestar::cpu
