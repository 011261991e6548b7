// SPDX-License-Identifier: Apache-2.0

// Aligned buffers of floats for weights, optimizer state, accumulators and staging space.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"

namespace lodestar::shard {

// A Page is a buffer of floats that starts on a cache line. Its owner may lend it to readers. While
// any reader holds it, no thread may write to it.
class Page {
 public:
  static constexpr int kAlignmentBytes = 64;

  // Returns a page of zeros. Returns null if the system has no memory for it.
  static std::unique_ptr<Page> Create(int64_t elements);
  ~Page();
  Page(const Page&) = delete;
  Page& operator=(const Page&) = delete;

  int64_t size() const { return size_; }
  const float* data() const { return data_; }
  float* data() { return data_; }
  absl::Span<const float> span() const { return {data_, static_cast<size_t>(size_)}; }
  absl::Span<float> mutable_span() { return {data_, static_cast<size_t>(size_)}; }

  // Returns a handle for a reader, which keeps the page alive. The caller must hold the lock under
  // which the owner checks is_lent() before it writes.
  static std::shared_ptr<const Page> Lend(const std::shared_ptr<Page>& page);
  // Returns true while a handle from Lend() exists. If it returns false, all reads through handles
  // happened before this call, so the owner may write.
  bool is_lent() const { return lent_.load(std::memory_order_acquire) != 0; }
  // Returns the CRC-32C of `size` bytes from `begin`. The caller must hold a handle. Results are
  // stored while any handle exists, so a later call for the same range need not read the bytes
  // again.
  uint32_t Crc32cOf(size_t begin, size_t size) const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  Page(float* data, int64_t size) : data_(data), size_(size) {}

  struct KnownChecksum {
    size_t begin;
    size_t size;
    uint32_t crc32c;
  };

  float* const data_;
  const int64_t size_;
  mutable std::atomic<int64_t> lent_{0};
  mutable absl::Mutex mutex_;
  // Checksums computed since the page was lent. No thread has written to the page since then.
  mutable std::vector<KnownChecksum> checksums_ ABSL_GUARDED_BY(mutex_);
};

// A PagePool hands out pages and takes them back for reuse, so that memory is mapped and touched
// only once. It is thread-safe. A page may outlive its pool.
class PagePool {
 public:
  enum class Shortage {
    kLimit,   // more pages exist than max_bytes allows; the page was given nevertheless
    kSystem,  // the system had no memory, and the page was not given
  };
  struct Config {
    // Maximum number of bytes of all pages together. 0 means that the pool has no limit of its own.
    // A page beyond the limit is still given, so that no work is lost. The pool then calls
    // on_shortage, and its owner can end the program properly.
    int64_t max_bytes = 0;
    // Called once for each kind of shortage, from any thread, possibly with locks held. So it must
    // only pass the message on.
    std::function<void(Shortage shortage, int64_t wanted_bytes)> on_shortage = [](Shortage,
                                                                                  int64_t) {};
    std::function<std::unique_ptr<Page>(int64_t elements)> create = &Page::Create;
  };

  PagePool() : PagePool(Config{}) {}
  explicit PagePool(Config config);

  // Returns a page with unspecified contents, which returns to the pool when its last handle goes.
  // Returns null if the system has no memory for it.
  std::shared_ptr<Page> Allocate(int64_t elements);

  // Returns true if there has been a shortage of any kind.
  bool has_run_short() const;
  // Returns the bytes of all pages that exist, in use or not.
  int64_t resident_bytes() const;

 private:
  struct Shelves;

  std::unique_ptr<Page> CreatePage(int64_t elements);

  const Config config_;
  const std::shared_ptr<Shelves> shelves_;
};

}  // namespace lodestar::shard
