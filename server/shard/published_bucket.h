// What a read of a bucket brings.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "common/encoding.h"
#include "common/ids.h"
#include "server/shard/page.h"

namespace lodestar {

// Which of a bucket's numbers are read: the weights, or what workers have of them where weights
// travel as encoded changes.
struct ReadView {
  bool shadow = false;
  std::optional<Version> held = {};  // of the shadow; the changes since then are enough
};

// A bucket's weights, or their shadow, at one version; immutable and whole as long as it is held.
struct PublishedBucket {
  std::shared_ptr<const Page> page;
  int64_t num_elements = 0;
  Version version;
  // Instead of a page: the changes of the shadow that lead to `version`, oldest first.
  Encoding encoding = Encoding::kFp32;
  std::vector<std::shared_ptr<const Page>> changes = {};

  absl::Span<const float> data() const { return {page->data(), static_cast<size_t>(num_elements)}; }
};

}  // namespace lodestar
