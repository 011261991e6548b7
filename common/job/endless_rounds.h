// kEndlessRounds: a job with this number of rounds or more has no end of its own. Examples are a
// job that is still in its trial and a job that an operator will stop. Messages leave the number
// out.
#pragma once

#include <cstdint>

namespace lodestar {

inline constexpr int64_t kEndlessRounds = 1'000'000'000;

}  // namespace lodestar
