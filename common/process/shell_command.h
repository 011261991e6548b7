// Runs a command of the operator in a shell, beside a process with many threads.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/runtime/clock.h"

namespace lodestar {

struct ShellCommand {
  std::string command;                             // for /bin/sh -c
  std::map<std::string, std::string> environment;  // added to that of this process
};

struct ShellCommandDeps {
  Clock* clock = &Clock::Real();
  // Asked every 50 ms. Once it is true, the command and what it has started get SIGTERM, and
  // SIGKILL two seconds later.
  std::function<bool()> must_end = [] { return false; };
  // Called with each line that the command writes to its standard output or error, without its end.
  std::function<void(absl::string_view)> on_line = [](absl::string_view) {};
};

// Blocks until the command has ended. It reads nothing (/dev/null), has no open files of this
// process and a process group of its own. Errors: Aborted with the exit code or the signal, and the
// last line that was written; Cancelled if `must_end` was true; Internal or ResourceExhausted if no
// process can be started.
absl::Status RunShellCommand(const ShellCommand& command, const ShellCommandDeps& deps);

}  // namespace lodestar
