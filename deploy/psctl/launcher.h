// Starts a whole cluster on this machine: servers and workers as child processes, their output
// prefixed by role, ended together. No child outlives the launcher, however it ends.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace lodestar {

struct ProcessSpec {
  std::string role;                    // prefix of its lines: "server", "worker-0"
  std::vector<std::string> arguments;  // arguments[0]: the program
  bool ends_cluster = false;           // when it ends with 0 the others are told to end, too
  bool ends_last = false;              // told to end once those without it have ended
};

class Launcher {
 public:
  // Blocks the signals that Wait() takes, and ignores SIGPIPE. Called before any thread exists.
  static void BlockSignals();

  Launcher() = default;
  ~Launcher();
  Launcher(const Launcher&) = delete;
  Launcher& operator=(const Launcher&) = delete;

  // Errors: NotFound for a program that cannot be run.
  absl::Status Start(const ProcessSpec& spec);

  // Blocks until all processes have ended. The first that fails, or a stop signal to this process,
  // ends the others with SIGTERM: first those that do not end last, after `grace_seconds` with
  // SIGKILL; then those that do, which have a limit of their own. A second signal ends all with
  // SIGKILL. Returns the exit code of the first failure that trying again does not cure (1 to 127);
  // else 128 + signal if this process was told to end while others than those that end last were
  // running; else the code of the first failure, 0 if there was none. `on_only_last_left` is called
  // once nobody else runs and nobody was told to end. Requires BlockSignals().
  int Wait(int grace_seconds, const std::function<void()>& on_only_last_left);

 private:
  struct Process {
    ProcessSpec spec;
    pid_t pid = 0;
    std::thread output;
    bool running = false;
    bool is_told_to_end = false;
  };
  void SignalAll(int signal);
  // Those that end last, or the others.
  void Signal(bool ends_last, int signal);
  bool AreRunning(bool ends_last) const;
  // Collects ended children; updates *exit_code and returns whether the others should end.
  bool Reap(int* exit_code);
  bool AnyRunning() const;

  std::vector<Process> processes_;
};

}  // namespace lodestar
