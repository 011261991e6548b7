// What the programs do to the elements of a push and a pull besides moving them, each part alone.
#pragma once

#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace lodestar {

struct PartTime {
  absl::string_view name;       // one word
  double seconds_per_gigabyte;  // of fp32
};

// Runs each part once over all of `gradient`, on the calling thread, chunk by chunk as they travel.
// `weights` has as many elements and is changed. A tensor that the caches do not hold comes from
// memory, while a server finds in its caches what it has just copied there.
std::vector<PartTime> TimeParts(absl::Span<const float> gradient, absl::Span<float> weights);

}  // namespace lodestar
