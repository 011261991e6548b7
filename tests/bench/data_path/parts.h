// SPDX-License-Identifier: Apache-2.0

// Times the work on the elements of a push and a pull other than moving them, each part by itself.
#pragma once

#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace lodestar {

struct PartTime {
  absl::string_view name;       // a name of one word
  double seconds_per_gigabyte;  // seconds per GB of fp32
};

// Runs each part once over all of `gradient`, on the calling thread, chunk by chunk. `weights` has
// the same number of elements and is changed. If the caches do not hold the tensor, it comes from
// memory here, while a server finds the bytes that it has just copied in its caches.
std::vector<PartTime> TimeParts(absl::Span<const float> gradient, absl::Span<float> weights);

}  // namespace lodestar
