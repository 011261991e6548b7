// SPDX-License-Identifier: Apache-2.0

#include "kernels/cuda/emulator/block.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/runtime/check.h"
#include "kernels/cuda/emulator/device_language.h"

namespace lodestar::emulator {
namespace {

constexpr size_t kSharedAlignment = 128;
constexpr size_t kSharedCanaryBytes = 256;
// These bytes are NaN in every floating type. So if a kernel reads memory that was not written, its
// results are NaN.
constexpr std::byte kPoison{0xff};
constexpr std::byte kCanary{0xa5};

Block* running_block = nullptr;

std::string Text(SourcePlace place) { return absl::StrCat(place.file, ":", place.line); }

}  // namespace

Block& Block::Running() {
  LODESTAR_CHECK(running_block != nullptr) << "device code runs outside of a kernel";
  return *running_block;
}

std::string Block::Run(dim3 grid, dim3 block, uint3 index, size_t shared_bytes,
                       const std::function<void()>& body, ThreadOrder order) {
  running_block = this;
  failure_.clear();
  gridDim = grid;
  blockDim = block;
  blockIdx = index;
  index_ = index;
  shared_.assign(shared_bytes + kSharedAlignment + kSharedCanaryBytes, kPoison);
  const auto address = reinterpret_cast<uintptr_t>(shared_.data());
  shared_offset_ = (kSharedAlignment - address % kSharedAlignment) % kSharedAlignment;
  std::byte* canary = dynamic_shared() + shared_bytes;
  std::fill_n(canary, kSharedCanaryBytes, kCanary);
  Start(block, body);
  RunReady(order);
  if (failure_.empty() && std::count(canary, canary + kSharedCanaryBytes, kCanary) !=
                              static_cast<int64_t>(kSharedCanaryBytes)) {
    failure_ = absl::StrCat("wrote beyond its ", shared_bytes, " bytes of dynamic shared memory");
  }
  running_block = nullptr;
  return failure_;
}

void Block::Start(dim3 block, const std::function<void()>& body) {
  num_threads_ = static_cast<int>(block.x * block.y * block.z);
  ended_ = 0;
  while (static_cast<int>(threads_.size()) < num_threads_) {
    threads_.push_back(std::make_unique<Thread>());
  }
  exchanged_.resize((num_threads_ + kWarpThreads - 1) / kWarpThreads);
  for (int i = 0; i < num_threads_; ++i) {
    Thread& thread = *threads_[i];
    const unsigned n = static_cast<unsigned>(i);
    thread.index = {n % block.x, n / block.x % block.y, n / block.x / block.y};
    thread.state = State::kReady;
    thread.copies.clear();
    thread.copy_group = 0;
    thread.fiber.Start(
        [](void* argument) { (*static_cast<const std::function<void()>*>(argument))(); },
        const_cast<std::function<void()>*>(&body));
  }
}

void Block::RunReady(ThreadOrder order) {
  const int num_warps = static_cast<int>(exchanged_.size());
  while (ended_ < num_threads_) {
    bool moved = false;
    for (int i = 0; i < num_warps; ++i) {
      const int warp = order == ThreadOrder::kForward ? i : num_warps - 1 - i;
      const int first = warp * kWarpThreads;
      if (RunWarp(first, std::min(num_threads_, first + kWarpThreads), order)) moved = true;
      if (!failure_.empty()) return;
    }
    if (ended_ == num_threads_ || ReleaseBarrier()) continue;
    if (!moved) {
      ReportStuck();
      return;
    }
  }
}

// Runs the lanes of a warp until each of them has ended or waits for threads of other warps.
// Returns true if at least one lane has run.
bool Block::RunWarp(int first, int last, ThreadOrder order) {
  bool moved = false;
  do {
    for (int i = first; i < last; ++i) {
      const int thread = order == ThreadOrder::kForward ? i : last - 1 - (i - first);
      if (threads_[thread]->state != State::kReady) continue;
      Resume(thread);
      moved = true;
      if (!failure_.empty()) return true;
    }
  } while (ReleaseLanes(first, last));
  return moved;
}

void Block::Resume(int thread) {
  running_ = thread;
  threadIdx = threads_[thread]->index;
  if (threads_[thread]->fiber.Resume()) {
    threads_[thread]->state = State::kEnded;
    ++ended_;
  }
}

// Lets lanes that wait in Exchange() continue, if all lanes of their mask have arrived. These lanes
// must run and read their values before the next call of ReleaseLanes(). Returns true if at least
// one lane may continue.
bool Block::ReleaseLanes(int first, int last) {
  bool released = false;
  for (int i = first; i < last; ++i) {
    const Thread& leader = *threads_[i];
    if (leader.state != State::kAtWarp) continue;
    bool complete = true;
    for (int lane = 0; lane < kWarpThreads && complete; ++lane) {
      if ((leader.mask >> lane & 1) == 0) continue;
      if (first + lane >= last || threads_[first + lane]->state == State::kEnded ||
          threads_[first + lane]->state == State::kAtBarrier) {
        failure_ = absl::StrCat(Describe(i), " waits at ", Text(leader.place), " for lane ", lane,
                                ", which has left the kernel, waits at another barrier or is not "
                                "in the block");
        return false;
      }
      const Thread& other = *threads_[first + lane];
      complete = other.state == State::kAtWarp && other.mask == leader.mask;
      if (complete && (other.place.line != leader.place.line ||
                       std::strcmp(other.place.file, leader.place.file) != 0)) {
        failure_ = absl::StrCat(Describe(i), " waits at ", Text(leader.place), " for lane ", lane,
                                ", which waits at ", Text(other.place));
        return false;
      }
    }
    if (!complete) continue;
    released = true;
    for (int lane = 0; lane < kWarpThreads; ++lane) {
      if ((leader.mask >> lane & 1) == 0) continue;
      Thread& thread = *threads_[first + lane];
      std::memcpy(&exchanged_[first / kWarpThreads][lane], &thread.value, thread.value_bytes);
      thread.state = State::kReady;
    }
  }
  return released;
}

bool Block::ReleaseBarrier() {
  const auto waits = [](const auto& thread) { return thread->state == State::kAtBarrier; };
  const auto begin = threads_.begin();
  const auto end = begin + num_threads_;
  if (!std::all_of(begin, end, waits)) return false;
  barrier_sum_ = 0;
  for (auto it = begin; it != end; ++it) {
    if ((*it)->place.line != (*begin)->place.line ||
        std::strcmp((*it)->place.file, (*begin)->place.file) != 0) {
      failure_ = absl::StrCat("__syncthreads() at two places: ", Describe(0), " waits at ",
                              Text((*begin)->place), ", ", Describe(static_cast<int>(it - begin)),
                              " at ", Text((*it)->place));
      return false;
    }
    (*it)->state = State::kReady;
    barrier_sum_ += (*it)->barrier_value;
  }
  return true;
}

void Block::ReportStuck() {
  if (!failure_.empty()) return;
  for (int i = 0; i < num_threads_; ++i) {
    if (threads_[i]->state == State::kEnded) continue;
    failure_ = absl::StrCat(Describe(i), " waits at ", Text(threads_[i]->place), " for ever; ",
                            ended_, " of ", num_threads_, " threads have left the kernel");
    return;
  }
}

std::string Block::Describe(int thread) const {
  const uint3& t = threads_[thread]->index;
  return absl::StrCat("thread (", t.x, ",", t.y, ",", t.z, ") of block (", index_.x, ",", index_.y,
                      ",", index_.z, ")");
}

void Block::Suspend(State state, SourcePlace place) {
  Thread& self = *threads_[running_];
  self.state = state;
  self.place = place;
  self.fiber.Suspend();
}

void Block::Barrier(SourcePlace place) { BarrierSum(0, place); }

int Block::BarrierSum(int value, SourcePlace place) {
  threads_[running_]->barrier_value = value;
  Suspend(State::kAtBarrier, place);
  return barrier_sum_;
}

const LaneValue* Block::Exchange(unsigned mask, const void* value, size_t bytes,
                                 SourcePlace place) {
  Thread& self = *threads_[running_];
  if ((mask >> lane() & 1) == 0) {
    Fail(absl::StrCat("the mask ", absl::Hex(mask), " at ", Text(place),
                      " leaves out the calling lane"));
  }
  LODESTAR_CHECK(bytes <= sizeof(LaneValue));
  std::memcpy(&self.value, value, bytes);
  self.value_bytes = bytes;
  self.mask = mask;
  const int warp = running_ / kWarpThreads;
  Suspend(State::kAtWarp, place);
  return exchanged_[warp].data();
}

void Block::BeginCopy(void* to, const void* from, size_t bytes) {
  Thread& self = *threads_[running_];
  self.copies.push_back({to, from, bytes, self.copy_group});
}

void Block::CommitCopies() { ++threads_[running_]->copy_group; }

void Block::WaitCopies(int groups_left) {
  Thread& self = *threads_[running_];
  const auto is_due = [&](const PendingCopy& copy) {
    return copy.group < self.copy_group - groups_left;
  };
  for (const PendingCopy& copy : self.copies) {
    if (!is_due(copy)) continue;
    if (copy.from != nullptr) {
      std::memcpy(copy.to, copy.from, copy.bytes);
    } else {
      std::memset(copy.to, 0, copy.bytes);
    }
  }
  std::erase_if(self.copies, is_due);
}

void Block::Fail(const std::string& what) {
  failure_ = absl::StrCat(Describe(running_), ": ", what);
  for (;;) Suspend(State::kEnded, {"", 0});
}

}  // namespace lodestar::emulator
