// kEndlessRounds: a job of so many rounds or more has no end of its own, as one that is still in
// its trial or that people stop. Texts leave the number out.
#pragma once

#include <cstdint>

namespace lodestar {

inline constexpr int64_t kEndlessRounds = 1'000'000'000;

}  // namespace lodestar
