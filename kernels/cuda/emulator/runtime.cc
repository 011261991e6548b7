// SPDX-License-Identifier: Apache-2.0

#include "kernels/cuda/emulator/runtime.h"

#include <cuda_runtime.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/runtime/check.h"

namespace lodestar::emulator {
namespace {

constexpr size_t kAlignment = 256;
constexpr size_t kPageBytes = 4096;
constexpr size_t kCanaryBytes = 256;
constexpr unsigned char kCanary = 0x5a;
constexpr unsigned char kPoison = 0xff;
// Maximum number of bytes of an allocation that are filled with NaN. Filling workspaces of many MiB
// would take long.
constexpr size_t kMaxPoisonBytes = 1 << 20;
// Minimum size of an allocation that only reserves addresses. Such an allocation uses memory only
// where it is read or written. So an emulated card can have more memory than the machine.
constexpr size_t kReservedBytes = size_t{256} << 20;
constexpr unsigned kMaxBlockThreads = 1024;
constexpr unsigned kMaxGridYz = 65535;
// Maximum dynamic shared memory of a block, unless the kernel has asked for more.
constexpr size_t kDefaultSharedBytes = 48 * 1024;

unsigned char* AllocateAligned(size_t bytes) {
  if (bytes < kReservedBytes) {
    return static_cast<unsigned char*>(std::aligned_alloc(kAlignment, bytes));
  }
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<unsigned char*>(memory);
}

void FreeAligned(void* memory, size_t bytes) {
  if (bytes < kReservedBytes) return std::free(memory);
  munmap(memory, bytes);
}

// Returns the size of an allocation including its canary. The canary also separates the allocation
// from other memory of the host.
size_t WholeBytes(size_t bytes) {
  return (bytes + kCanaryBytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

Card& Card::Get() {
  static Card& card = *new Card;
  return card;
}

cudaError_t Card::Result(cudaError_t error) {
  if (sticky != cudaSuccess) error = sticky;
  if (error != cudaSuccess) last = error;
  return error;
}

void Card::Break(cudaError_t error, const std::string& why) {
  if (sticky != cudaSuccess) return;
  sticky = error;
  kernel_failure = why;
}

cudaError_t Card::RefuseIfCapturing() {
  for (cudaStream_t stream : streams) {
    if (stream->captured == nullptr || stream->capturing_thread != std::this_thread::get_id()) {
      continue;
    }
    stream->captured->is_valid = false;
    return cudaErrorStreamCaptureUnsupported;
  }
  return cudaSuccess;
}

size_t Card::MaxSharedBytes() const {
  if (settings.compute_capability >= 90) return 227 * 1024;
  if (settings.compute_capability >= 80) return 163 * 1024;
  return 64 * 1024;
}

cudaError_t Card::Queue(cudaStream_t stream, Operation operation) {
  // The emulator does not order the default stream with other streams, so our code must not use it.
  if (stream == nullptr) return cudaErrorInvalidResourceHandle;
  if (stream->captured != nullptr) {
    stream->captured->operations.push_back(std::move(operation));
    return cudaSuccess;
  }
  stream->queue.push_back(std::move(operation));
  ++stream->queued;
  return cudaSuccess;
}

void Card::Drain(StreamPoint point) {
  CUstream_st& stream = *point.stream;
  while (stream.done < point.operations) {
    const Operation operation = std::move(stream.queue.front());
    stream.queue.pop_front();
    if (operation.after.stream != nullptr) Drain(operation.after);
    microseconds += operation.microseconds;
    if (operation.run && sticky == cudaSuccess) operation.run();
    ++stream.done;
  }
}

void Card::RunUntil(StreamPoint point) {
  if (point.stream == nullptr) return;
  if (settings.streams == StreamOrder::kOthersFirst) {
    for (cudaStream_t stream : streams) {
      if (stream != point.stream) Drain({stream, stream->queued});
    }
  }
  Drain(point);
}

void Card::RunKernel(dim3 grid, dim3 block, size_t shared_bytes,
                     const std::function<void()>& body) {
  for (unsigned z = 0; z < grid.z; ++z) {
    for (unsigned y = 0; y < grid.y; ++y) {
      for (unsigned x = 0; x < grid.x; ++x) {
        const std::string failure =
            block_.Run(grid, block, {x, y, z}, shared_bytes, body, settings.threads);
        if (failure.empty()) continue;
        Break(cudaErrorLaunchFailure, failure);
        return;
      }
    }
  }
  CheckCanaries();
}

int& Card::CurrentDevice() {
  thread_local int device = 0;
  return device;
}

size_t Card::free_bytes() const {
  const auto used = used_bytes_.find(CurrentDevice());
  return settings.memory_bytes - (used == used_bytes_.end() ? 0 : used->second);
}

void* Card::AllocateDevice(size_t bytes) {
  if (allocations_until_failure == 0 || bytes > free_bytes()) return nullptr;
  if (allocations_until_failure > 0) --allocations_until_failure;
  unsigned char* const memory = AllocateAligned(WholeBytes(bytes));
  LODESTAR_CHECK(memory != nullptr);
  std::memset(memory, kPoison, std::min(bytes, kMaxPoisonBytes));
  std::memset(memory + bytes, kCanary, kCanaryBytes);
  allocations_[memory] = {bytes, Kind::kDevice, CurrentDevice()};
  used_bytes_[CurrentDevice()] += bytes;
  return memory;
}

void* Card::AllocateHost(size_t bytes) {
  void* const memory = AllocateAligned(WholeBytes(bytes));
  LODESTAR_CHECK(memory != nullptr);
  allocations_[memory] = {bytes, Kind::kPinned, CurrentDevice()};
  return memory;
}

bool Card::Release(void* memory, Kind kind) {
  const auto it = allocations_.find(memory);
  if (it == allocations_.end() || it->second.kind != kind) return false;
  // Queued operations may still use the memory, so they run before it is freed, as on a card.
  for (cudaStream_t stream : streams) RunUntil({stream, stream->queued});
  CheckCanaries();
  if (kind == Kind::kDevice) used_bytes_[it->second.device] -= it->second.bytes;
  FreeAligned(memory, WholeBytes(it->second.bytes));
  allocations_.erase(it);
  return true;
}

cudaError_t Card::Register(void* memory, size_t bytes) {
  if (memory == nullptr || bytes == 0 || reinterpret_cast<uintptr_t>(memory) % kPageBytes != 0) {
    return cudaErrorInvalidValue;
  }
  const auto after = allocations_.lower_bound(static_cast<const char*>(memory) + bytes);
  if (after != allocations_.begin()) {
    const auto& [begin, allocation] = *std::prev(after);
    if (static_cast<const char*>(begin) + allocation.bytes > memory) {
      return cudaErrorHostMemoryAlreadyRegistered;
    }
  }
  if (bytes > settings.registrable_bytes) return cudaErrorMemoryAllocation;
  allocations_[memory] = {bytes, Kind::kRegistered, CurrentDevice()};
  return cudaSuccess;
}

cudaError_t Card::Unregister(void* memory) {
  const auto it = allocations_.find(memory);
  if (it == allocations_.end() || it->second.kind != Kind::kRegistered) {
    return cudaErrorHostMemoryNotRegistered;
  }
  if (IsQueued(memory, it->second.bytes)) {
    Break(cudaErrorIllegalAddress, absl::StrCat(it->second.bytes,
                                                " bytes of host memory were unregistered before a "
                                                "copy to or from them had run"));
  }
  allocations_.erase(it);
  return sticky;
}

bool Card::IsQueued(const void* begin, size_t bytes) const {
  const auto is_inside = [begin, bytes](const void* place) {
    return place >= begin && place < static_cast<const char*>(begin) + bytes;
  };
  return std::any_of(streams.begin(), streams.end(), [&](cudaStream_t stream) {
    return std::any_of(stream->queue.begin(), stream->queue.end(), [&](const Operation& operation) {
      return std::any_of(operation.copies.begin(), operation.copies.end(), is_inside);
    });
  });
}

bool Card::LeavesAllocation(const void* memory, size_t bytes) const {
  auto it = allocations_.upper_bound(memory);
  if (it == allocations_.begin()) return false;
  --it;
  const auto offset =
      static_cast<size_t>(static_cast<const char*>(memory) - static_cast<const char*>(it->first));
  // An address after the allocation and its canary is in no allocation. Registered memory has no
  // canary.
  const size_t canary_bytes = it->second.kind == Kind::kRegistered ? 0 : kCanaryBytes;
  if (offset >= it->second.bytes + canary_bytes) return false;
  return offset + bytes > it->second.bytes;
}

bool Card::IsAllocated(const void* memory) const {
  const auto it = allocations_.upper_bound(memory);
  if (it == allocations_.begin()) return false;
  const auto& [begin, allocation] = *std::prev(it);
  return static_cast<const char*>(memory) < static_cast<const char*>(begin) + allocation.bytes;
}

bool Card::IsOn(int device, const void* memory) const {
  const auto it = allocations_.upper_bound(memory);
  if (!IsAllocated(memory)) return false;
  const Allocation& allocation = std::prev(it)->second;
  return allocation.kind == Kind::kDevice && allocation.device == device;
}

bool Card::IsRegistered(const void* memory) const {
  const auto it = allocations_.upper_bound(memory);
  return IsAllocated(memory) && std::prev(it)->second.kind == Kind::kRegistered;
}

int64_t Card::pinned_bytes() const {
  int64_t bytes = 0;
  for (const auto& [memory, allocation] : allocations_) {
    if (allocation.kind != Kind::kDevice) bytes += static_cast<int64_t>(allocation.bytes);
  }
  return bytes;
}

void Card::CheckCanaries() {
  for (const auto& [memory, allocation] : allocations_) {
    if (allocation.kind != Kind::kDevice) continue;
    const unsigned char* canary = static_cast<const unsigned char*>(memory) + allocation.bytes;
    if (std::all_of(canary, canary + kCanaryBytes,
                    [](unsigned char byte) { return byte == kCanary; })) {
      continue;
    }
    Break(cudaErrorIllegalAddress, absl::StrCat("something wrote beyond the end of ",
                                                allocation.bytes, " bytes of device memory"));
  }
}

cudaError_t LaunchKernel(const void* kernel, const cudaLaunchConfig_t& config,
                         std::function<void()> body) {
  Card& card = Card::Get();
  const std::lock_guard lock(card.mutex());
  if (card.sticky != cudaSuccess) return card.Result(card.sticky);
  if (config.stream != nullptr && config.stream->device != Card::CurrentDevice()) {
    return card.Result(cudaErrorInvalidResourceHandle);
  }
  const dim3 grid = config.gridDim;
  const dim3 block = config.blockDim;
  const unsigned threads = block.x * block.y * block.z;
  if (threads == 0 || threads > kMaxBlockThreads || block.z > 64 || grid.y > kMaxGridYz ||
      grid.z > kMaxGridYz || grid.x > 0x7fffffffu || grid.x * grid.y * grid.z == 0) {
    return card.Result(cudaErrorInvalidConfiguration);
  }
  const size_t shared_bytes = config.dynamicSmemBytes;
  const auto asked_for = card.shared_bytes_of_kernels.find(kernel);
  if (shared_bytes >
      (asked_for == card.shared_bytes_of_kernels.end() ? kDefaultSharedBytes : asked_for->second)) {
    return card.Result(cudaErrorInvalidValue);
  }
  ++card.launches;
  if (card.launches_until_failure >= 0 && card.launches_until_failure-- == 0) {
    body = [] { Block::Running().Fail("a failure that was asked for"); };
  }
  return card.Result(card.Queue(
      config.stream,
      {.run = [=,
               body = std::move(body)] { Card::Get().RunKernel(grid, block, shared_bytes, body); },
       .after = {},
       .microseconds = 1.0}));
}

void Configure(const Settings& settings) {
  const std::lock_guard lock(Card::Get().mutex());
  Card::Get().settings = settings;
}

const Settings& settings() { return Card::Get().settings; }

void FailAllocationsAfter(int count) {
  const std::lock_guard lock(Card::Get().mutex());
  Card::Get().allocations_until_failure = count;
}

void FailLaunchAfter(int count) {
  const std::lock_guard lock(Card::Get().mutex());
  Card::Get().launches_until_failure = count;
}

void PassTime(double microseconds) {
  Card& card = Card::Get();
  const std::lock_guard lock(card.mutex());
  const double end = card.microseconds + microseconds;
  for (cudaStream_t stream : card.streams) card.RunUntil({stream, stream->queued});
  card.microseconds = std::max(card.microseconds, end);
}

void ClearStickyError() {
  const std::lock_guard lock(Card::Get().mutex());
  Card::Get().sticky = cudaSuccess;
  Card::Get().last = cudaSuccess;
  Card::Get().kernel_failure.clear();
  Card::Get().allocations_until_failure = -1;
  Card::Get().launches_until_failure = -1;
}

std::string KernelFailure() {
  const std::lock_guard lock(Card::Get().mutex());
  return Card::Get().kernel_failure;
}

int64_t num_launches() {
  const std::lock_guard lock(Card::Get().mutex());
  return Card::Get().launches;
}

int64_t num_heuristics() {
  const std::lock_guard lock(Card::Get().mutex());
  return Card::Get().heuristics;
}

int64_t num_products() {
  const std::lock_guard lock(Card::Get().mutex());
  return Card::Get().products;
}

int64_t num_allocations() {
  const std::lock_guard lock(Card::Get().mutex());
  return Card::Get().num_allocations();
}

int64_t pinned_bytes() {
  const std::lock_guard lock(Card::Get().mutex());
  return Card::Get().pinned_bytes();
}

int64_t num_pageable_copies() {
  const std::lock_guard lock(Card::Get().mutex());
  return Card::Get().pageable_copies;
}

int64_t registered_bytes_copied() {
  const std::lock_guard lock(Card::Get().mutex());
  return Card::Get().registered_bytes_copied;
}

}  // namespace lodestar::emulator
