// Aligned buffers of floats: weights, optimizer state, accumulators and staging space.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "absl/types/span.h"

namespace lodestar {

// A buffer of floats that starts on a cache line. Its owner may lend it to readers; while any
// reader holds it, nobody may write to it.
class Page {
 public:
  static constexpr int kAlignmentBytes = 64;

  explicit Page(int64_t elements);
  ~Page();
  Page(const Page&) = delete;
  Page& operator=(const Page&) = delete;

  int64_t size() const { return size_; }
  const float* data() const { return data_; }
  float* data() { return data_; }
  absl::Span<const float> span() const { return {data_, static_cast<size_t>(size_)}; }
  absl::Span<float> mutable_span() { return {data_, static_cast<size_t>(size_)}; }

  // A handle for a reader; keeps the page alive by itself. Call it only under the lock that also
  // guards the decision to write.
  static std::shared_ptr<const Page> Lend(const std::shared_ptr<Page>& page);
  // True while a handle from Lend() is held. False means that all reads through handles are over
  // and visible, so the owner may write.
  bool is_lent() const { return lent_.load(std::memory_order_acquire) != 0; }

 private:
  float* data_;
  int64_t size_;
  mutable std::atomic<int64_t> lent_{0};
};

// Hands out pages and takes them back for reuse, so that memory is mapped and touched once.
// Thread-safe. A page may outlive its pool.
class PagePool {
 public:
  PagePool();

  // Contents are unspecified. The page returns to the pool when the last handle goes.
  std::shared_ptr<Page> Allocate(int64_t elements);

  // Of all pages that exist, in use or not.
  int64_t resident_bytes() const;

 private:
  struct Shelves;
  std::shared_ptr<Shelves> shelves_;
};

}  // namespace lodestar
