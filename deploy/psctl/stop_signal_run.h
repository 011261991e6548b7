// SPDX-License-Identifier: Apache-2.0

// Runs commands that write files, so that a signal to stop leaves no half-written file.
#pragma once

#include <stop_token>

#include "absl/functional/function_ref.h"

namespace lodestar::psctl {

// Runs `command` and returns its exit code. Call this before any thread is started. Stop signals
// have these effects:
// - The first one requests a stop through `stop`. If `command` then returns an error code, the
//   process dies of that signal, as shells and scripts expect.
// - The second one ends the process at once.
int RunUntilStopSignal(absl::FunctionRef<int(std::stop_token stop)> command);

}  // namespace lodestar::psctl
