// SPDX-License-Identifier: Apache-2.0

// Decides how long a program tries to start a thread or a process while the system refuses it.
// Other processes of the same user, control group or container may hold the last ones (ulimit -u,
// TasksMax=, pids.max), often for a few seconds only.
#pragma once

#include "absl/functional/function_ref.h"
#include "absl/time/time.h"

namespace lodestar::process {

enum class StartNews { kRefused, kStarted };

// What StartPatiently() calls. If `start` is pthread_create(), no function may allocate memory:
// there may be none left.
struct StartEffects {
  absl::FunctionRef<int()> start;  // returns 0, or an errno
  absl::FunctionRef<absl::Time()> now;
  absl::FunctionRef<void(absl::Duration)> pause;
  absl::FunctionRef<void(StartNews)> tell;
};

// Refusals of less than this time are not told.
inline constexpr absl::Duration kUntoldRefusal = absl::Seconds(1);

// Maximum time that a start is tried. A program that waits stands still, and its supervisor may
// know better.
inline constexpr absl::Duration kStartPatience = absl::Minutes(1);

// Calls `start` until it returns anything but EAGAIN and ENOMEM, or kStartPatience is over.
// Returns what `start` returned last. Tells kRefused once, after kUntoldRefusal, and kStarted if
// `start` returns 0 after that.
int StartPatiently(const StartEffects& effects);

}  // namespace lodestar::process
