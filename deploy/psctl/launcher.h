// SPDX-License-Identifier: Apache-2.0

// Launcher starts a whole cluster as child processes: servers and workers, or programs that run
// workers on other machines. It writes the role before each line of their output, and ends them
// together. If the launcher is killed, the kernel sends SIGTERM to its children, and servers save.
#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace lodestar::psctl {

struct ProcessSpec {
  std::string role;                    // The prefix of its lines, such as "server" or "worker-0".
  std::vector<std::string> arguments;  // arguments[0] is the program.
  bool ends_cluster = false;           // If this process exits with 0, the others are told to end.
  bool ends_last = false;              // It ends last, because it saves what the others deliver.
  // Text that is written to the process's standard input. If it is set, the input then stays open.
  // To tell the process to end, the launcher closes the input and sends no SIGTERM.
  std::optional<std::string> input = std::nullopt;
  // Maximum number of restarts after failures that another try may solve.
  int restarts = 0;
  // Called before each restart of the process. Returns more arguments for this restart and all
  // later ones. After it has returned some, it is not called again. Null means that restarts have
  // the same arguments.
  std::function<std::vector<std::string>()> more_arguments_of_restart = nullptr;
  // Advice that is printed if the process ends with 127, the code of shells for a program that was
  // not found.
  std::string not_found_advice = "";
};

// Returns "ended with code 1", or "was killed by signal 9 (SIGKILL)". `wait_status` comes from
// waitpid().
std::string EndText(int wait_status);

class Launcher {
 public:
  // Blocks the signals that Wait() takes. Call this before any thread exists.
  static void BlockSignals();

  Launcher() = default;
  ~Launcher();
  Launcher(const Launcher&) = delete;
  Launcher& operator=(const Launcher&) = delete;

  // Starts a process. Errors: NotFound (the program cannot be run).
  absl::Status Start(const ProcessSpec& spec);

  // Returns true if all processes are to end. The reason is a process that has failed for good or
  // has ended the cluster, or a stop signal to this process. Also restarts processes, as Wait()
  // does. Requires: BlockSignals().
  bool IsToEnd();

  // Blocks until all processes have ended, and returns an exit code. Requires: BlockSignals().
  //
  // All processes are told to end if one fails for good, if the one with `ends_cluster` ends, or if
  // this process gets a stop signal:
  // - Processes without `ends_last` are told at once. They get SIGKILL after `grace_seconds`.
  // - Processes with `ends_last` are told a second later, or once all others have ended. They have
  //   a time limit of their own.
  // - A second stop signal (see SignalFilter) kills all processes with SIGKILL.
  //
  // SIGUSR1 and SIGUSR2 are passed on to the processes with `ends_last`, which then save.
  //
  // The exit code is the first of these that applies:
  // - The code of the first failure that another try does not solve (1 to 127).
  // - 128 + signal, if a stop signal came before any failure and while processes without
  //   `ends_last` ran.
  // - The code of the first failure.
  // - 0, if nothing failed.
  //
  // `on_only_last_left` is called once, when only processes with `ends_last` are left and none was
  // told to end. `on_tick` is called about once a second until all are told to end.
  int Wait(int grace_seconds, const std::function<void()>& on_only_last_left,
           const std::function<void()>& on_tick);

 private:
  struct Process {
    ProcessSpec spec;
    pid_t pid = 0;
    std::thread output;
    bool running = false;
    bool is_told_to_end = false;
    int input = -1;        // The launcher's end of the child's standard input.
    int times_failed = 0;  // Number of failures after which it was or will be restarted.
    absl::Time starts_again_at = absl::InfiniteFuture();
  };
  static absl::Status Run(Process& process);
  static void TellToEnd(Process& process);
  void SignalAll(int signal);
  void TellToSave(int signal);
  // Tells the processes whose `ends_last` has this value to end.
  void TellToEnd(bool ends_last);
  void Kill(bool ends_last);
  // Returns the roles of the running processes as text for messages, in the order of their start.
  // Processes with `ends_last` are included only if `with_last`.
  std::string RunningRoles(bool with_last) const;
  bool AreRunning(bool ends_last) const;
  // Collects children that have ended. Updates exit_code_ and are_to_end_.
  void Reap();
  void StartAgain(absl::Time now);
  bool AnyRunning() const;

  std::vector<Process> processes_;
  int exit_code_ = 0;
  bool are_to_end_ = false;  // Once set, no process is restarted.
};

}  // namespace lodestar::psctl
