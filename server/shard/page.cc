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
#include "common/check.h"

namespace lodestar {
namespace {

constexpr int64_t kHugePageBytes = 2 << 20;

}  // namespace

Page::Page(int64_t elements) : size_(elements) {
  LODESTAR_CHECK(elements >= 0) << "elements=" << elements;
  const bool is_huge = elements * static_cast<int64_t>(sizeof(float)) >= kHugePageBytes;
  const int64_t alignment = is_huge ? kHugePageBytes : kAlignmentBytes;
  const int64_t wanted = elements * static_cast<int64_t>(sizeof(float));
  // aligned_alloc wants a multiple of the alignment; a cache line is enough for our own use.
  const int64_t bytes = (wanted + kAlignmentBytes - 1) / kAlignmentBytes * kAlignmentBytes;
  void* memory = nullptr;
  const int error = posix_memalign(&memory, alignment, std::max<int64_t>(bytes, kAlignmentBytes));
  LODESTAR_CHECK(error == 0) << "out of memory: " << bytes << " bytes for a page";
  // Fewer faults on first touch; without the feature nothing is lost.
  if (is_huge) madvise(memory, bytes, MADV_HUGEPAGE);
  std::memset(memory, 0, bytes);
  data_ = static_cast<float*>(memory);
}

Page::~Page() { std::free(data_); }

std::shared_ptr<const Page> Page::Lend(const std::shared_ptr<Page>& page) {
  page->lent_.fetch_add(1, std::memory_order_relaxed);
  // The handle owns the page through its deleter.
  return {page.get(),
          [page](const Page* lent) { lent->lent_.fetch_sub(1, std::memory_order_release); }};
}

// Outlives the pool as long as a page does.
struct PagePool::Shelves {
  mutable absl::Mutex mutex;
  std::map<int64_t, std::vector<std::unique_ptr<Page>>> by_size ABSL_GUARDED_BY(mutex);
  int64_t resident_elements ABSL_GUARDED_BY(mutex) = 0;
};

PagePool::PagePool() : shelves_(std::make_shared<Shelves>()) {}

std::shared_ptr<Page> PagePool::Allocate(int64_t elements) {
  std::unique_ptr<Page> page;
  {
    absl::MutexLock lock(&shelves_->mutex);
    std::vector<std::unique_ptr<Page>>& shelf = shelves_->by_size[elements];
    if (!shelf.empty()) {
      page = std::move(shelf.back());
      shelf.pop_back();
    } else {
      shelves_->resident_elements += elements;
    }
  }
  if (page == nullptr) page = std::make_unique<Page>(elements);
  return {page.release(), [shelves = shelves_](Page* returned) {
            absl::MutexLock lock(&shelves->mutex);
            shelves->by_size[returned->size()].push_back(std::unique_ptr<Page>(returned));
          }};
}

int64_t PagePool::resident_bytes() const {
  absl::MutexLock lock(&shelves_->mutex);
  return shelves_->resident_elements * static_cast<int64_t>(sizeof(float));
}

}  // namespace lodestar
