// Commands that write files: a signal that asks the program to stop must leave no half of a file.
#pragma once

#include <stop_token>

#include "absl/functional/function_ref.h"

namespace lodestar {

// Blocks the stop signals, runs `command`, whose token is stopped by the first of them, and returns
// its exit code. If the command has failed after such a signal, the process dies of that signal
// once the command has cleaned up, as shells and scripts expect it. A second signal ends the
// process at once. Call it before any thread is started.
int RunUntilStopSignal(absl::FunctionRef<int(std::stop_token stop)> command);

}  // namespace lodestar
