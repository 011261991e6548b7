// SPDX-License-Identifier: Apache-2.0

// Runs an operator's command in a shell, from a process with many threads.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/runtime/clock.h"

namespace lodestar::process {

struct ShellCommand {
  std::string command;                             // passed to /bin/sh -c
  std::map<std::string, std::string> environment;  // added to the environment of this process
};

struct ShellCommandDeps {
  Clock* clock = &Clock::Real();
  // RunShellCommand() calls this every 50 ms. If it returns true, the command and all processes
  // that it started get SIGTERM, and two seconds later SIGKILL.
  std::function<bool()> must_end = [] { return false; };
  // RunShellCommand() calls this with each line that the command writes to standard output or
  // standard error. The line has no newline.
  std::function<void(absl::string_view)> on_line = [](absl::string_view) {};
};

// Blocks until the command has ended. The command's input is /dev/null. It has its own process
// group and none of this process's open files. Errors: Aborted with the exit code or signal and the
// last line of output (the command failed); Cancelled (`must_end` returned true); Internal or
// ResourceExhausted (no process can be started).
absl::Status RunShellCommand(const ShellCommand& command, const ShellCommandDeps& deps);

}  // namespace lodestar::process
