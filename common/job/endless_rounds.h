// SPDX-License-Identifier: Apache-2.0

// A job with kEndlessRounds or more rounds does not end by itself. Examples are a job in its trial,
// and a job that an operator will stop. Messages do not show this number.
#pragma once

#include <cstdint>

namespace lodestar::job {

inline constexpr int64_t kEndlessRounds = 1'000'000'000;

}  // namespace lodestar::job
