// What a read of a bucket brings.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/types/span.h"
#include "common/ids.h"
#include "server/shard/page.h"

namespace lodestar {

// A bucket's weights at one version; immutable and whole as long as it is held.
struct PublishedBucket {
  std::shared_ptr<const Page> page;
  int64_t num_elements = 0;
  Version version;
  absl::Span<const float> data() const { return {page->data(), static_cast<size_t>(num_elements)}; }
};

}  // namespace lodestar
