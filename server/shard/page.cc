// SPDX-License-Identifier: Apache-2.0

#include "server/shard/page.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/crc32c/crc32c.h"
#include "common/runtime/check.h"

namespace lodestar::shard {
namespace {

constexpr int64_t kHugePageBytes = 2 << 20;
constexpr size_t kMostKnownChecksums = 32;

int64_t BytesOf(int64_t elements) { return elements * static_cast<int64_t>(sizeof(float)); }

}  // namespace

std::unique_ptr<Page> Page::Create(int64_t elements) {
  LODESTAR_CHECK(elements >= 0) << "elements=" << elements;
  const bool is_huge = BytesOf(elements) >= kHugePageBytes;
  const int64_t alignment = is_huge ? kHugePageBytes : kAlignmentBytes;
  // The size is a multiple of the cache line, so that two pages never share a cache line.
  const int64_t bytes =
      (BytesOf(elements) + kAlignmentBytes - 1) / kAlignmentBytes * kAlignmentBytes;
  void* memory = nullptr;
  if (posix_memalign(&memory, alignment, std::max<int64_t>(bytes, kAlignmentBytes)) != 0) {
    return nullptr;
  }
  // Huge pages cause fewer faults on first touch. If the system has none, nothing else changes.
  if (is_huge) madvise(memory, bytes, MADV_HUGEPAGE);
  std::memset(memory, 0, bytes);
  return std::unique_ptr<Page>(new Page(static_cast<float*>(memory), elements));
}

Page::~Page() { std::free(data_); }

std::shared_ptr<const Page> Page::Lend(const std::shared_ptr<Page>& page) {
  if (page->lent_.fetch_add(1, std::memory_order_relaxed) == 0) {
    absl::MutexLock lock(&page->mutex_);
    page->checksums_.clear();
  }
  // The deleter has a reference to the page, so the handle keeps the page alive.
  return {page.get(),
          [page](const Page* lent) { lent->lent_.fetch_sub(1, std::memory_order_release); }};
}

uint32_t Page::Crc32cOf(size_t begin, size_t size) const {
  const auto compute = [&] {
    return crc32c::Crc32c(reinterpret_cast<const char*>(data_) + begin, size);
  };
  if (!is_lent()) return compute();
  {
    absl::MutexLock lock(&mutex_);
    for (const KnownChecksum& known : checksums_) {
      if (known.begin == begin && known.size == size) return known.crc32c;
    }
  }
  const uint32_t crc32c = compute();
  absl::MutexLock lock(&mutex_);
  // Only the first checksums are stored, so that the list stays short. Most readers ask for the
  // same few ranges.
  if (checksums_.size() < kMostKnownChecksums) checksums_.push_back({begin, size, crc32c});
  return crc32c;
}

// Shelves has the free pages of a pool. The pool and each of its pages keep this object alive.
struct PagePool::Shelves {
  // Takes a free page of this size. Returns null if there is none.
  std::unique_ptr<Page> TakeFree(int64_t elements) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    std::vector<std::unique_ptr<Page>>& shelf = by_size[elements];
    if (shelf.empty()) return nullptr;
    std::unique_ptr<Page> page = std::move(shelf.back());
    shelf.pop_back();
    return page;
  }

  // Gives free pages back to the system, until at most max_elements are left or no page is free.
  void Trim(int64_t max_elements) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    for (auto& [size, shelf] : by_size) {
      while (resident_elements > max_elements && !shelf.empty()) {
        shelf.pop_back();
        resident_elements -= size;
      }
    }
  }

  mutable absl::Mutex mutex;
  std::map<int64_t, std::vector<std::unique_ptr<Page>>> by_size ABSL_GUARDED_BY(mutex);
  int64_t resident_elements ABSL_GUARDED_BY(mutex) = 0;
  bool has_told_limit ABSL_GUARDED_BY(mutex) = false;
  bool has_told_system ABSL_GUARDED_BY(mutex) = false;
};

PagePool::PagePool(Config config)
    : config_(std::move(config)), shelves_(std::make_shared<Shelves>()) {}

std::unique_ptr<Page> PagePool::CreatePage(int64_t elements) {
  bool is_beyond = false;
  {
    absl::MutexLock lock(&shelves_->mutex);
    shelves_->resident_elements += elements;
    if (config_.max_bytes > 0) {
      const int64_t max_elements = config_.max_bytes / static_cast<int64_t>(sizeof(float));
      shelves_->Trim(max_elements);
      is_beyond = shelves_->resident_elements > max_elements &&
                  !std::exchange(shelves_->has_told_limit, true);
    }
  }
  if (is_beyond) config_.on_shortage(Shortage::kLimit, BytesOf(elements));
  if (auto page = config_.create(elements); page != nullptr) return page;
  {
    absl::MutexLock lock(&shelves_->mutex);
    shelves_->Trim(0);
  }
  if (auto page = config_.create(elements); page != nullptr) return page;
  bool is_first = false;
  {
    absl::MutexLock lock(&shelves_->mutex);
    shelves_->resident_elements -= elements;
    is_first = !std::exchange(shelves_->has_told_system, true);
  }
  if (is_first) config_.on_shortage(Shortage::kSystem, BytesOf(elements));
  return nullptr;
}

std::shared_ptr<Page> PagePool::Allocate(int64_t elements) {
  std::unique_ptr<Page> page;
  {
    absl::MutexLock lock(&shelves_->mutex);
    page = shelves_->TakeFree(elements);
  }
  if (page == nullptr) page = CreatePage(elements);
  if (page == nullptr) return nullptr;
  return {page.release(), [shelves = shelves_](Page* returned) {
            absl::MutexLock lock(&shelves->mutex);
            shelves->by_size[returned->size()].push_back(std::unique_ptr<Page>(returned));
          }};
}

bool PagePool::has_run_short() const {
  absl::MutexLock lock(&shelves_->mutex);
  return shelves_->has_told_limit || shelves_->has_told_system;
}

int64_t PagePool::resident_bytes() const {
  absl::MutexLock lock(&shelves_->mutex);
  return BytesOf(shelves_->resident_elements);
}

}  // namespace lodestar::shard
