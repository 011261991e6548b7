// SPDX-License-Identifier: Apache-2.0

// Decides how long a program tries to start a thread or a process while the system refuses it.
// Other processes of the same user, control group or container may have used up a limit (ulimit -u,
// TasksMax=, pids.max), often for a few seconds only.
#pragma once

#include "absl/functional/function_ref.h"
#include "absl/time/time.h"

namespace lodestar::process {

enum class StartNews { kRefused, kNotRefused };

// The functions that StartPatiently() calls. If `start` calls pthread_create(), none of them may
// allocate memory, because there may be none left.
struct StartEffects {
  absl::FunctionRef<int()> start;  // returns 0, or an errno
  absl::FunctionRef<absl::Time()> now;
  absl::FunctionRef<void(absl::Duration)> pause;
  absl::FunctionRef<void(StartNews)> tell;
};

// If refusals last less than this time, `tell` is not called.
inline constexpr absl::Duration kUntoldRefusal = absl::Seconds(1);

// Maximum time that a start is tried. The calling thread does nothing else meanwhile.
inline constexpr absl::Duration kStartPatience = absl::Minutes(1);

// Calls `start` again while it returns EAGAIN or ENOMEM, for at most kStartPatience. Returns the
// last result of `start`. If `start` is still refused after kUntoldRefusal, calls tell(kRefused)
// once. If it then returns 0 or another error, calls tell(kNotRefused).
int StartPatiently(const StartEffects& effects);

}  // namespace lodestar::process
