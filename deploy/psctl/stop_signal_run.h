// SPDX-License-Identifier: Apache-2.0

// Runs commands that write files, so that a signal to stop leaves no half-written file.
#pragma once

#include <stop_token>

#include "absl/functional/function_ref.h"

namespace lodestar::psctl {

// Blocks the stop signals, runs `command`, and returns its exit code. The first stop signal
// requests a stop of the token that `command` has. If the command then fails, it cleans up, and the
// process dies of that signal, as shells and scripts expect. A second signal ends the process at
// once. Call this before any thread is started.
int RunUntilStopSignal(absl::FunctionRef<int(std::stop_token stop)> command);

}  // namespace lodestar::psctl
