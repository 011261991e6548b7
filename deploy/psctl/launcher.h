// Starts a whole cluster: servers and workers as child processes, or what runs them elsewhere,
// their output prefixed by role, ended together. If the launcher is killed, the system tells its
// children to end with SIGTERM, and servers save.
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

namespace lodestar {

struct ProcessSpec {
  std::string role;                    // prefix of its lines: "server", "worker-0"
  std::vector<std::string> arguments;  // arguments[0]: the program
  bool ends_cluster = false;           // when it ends with 0 the others are told to end, too
  bool ends_last = false;              // saves what the others hand in, and has its own limit
  // What it reads first, if it reads anything: its input then stays open, and its end tells it to
  // end in place of SIGTERM.
  std::optional<std::string> input = std::nullopt;
  // How often it is started again after a failure that trying again may cure.
  int restarts = 0;
  // What to do if it ends with 127, by which shells say that they have not found a program.
  std::string not_found_advice = "";
};

// "ended with code 1", or "was killed by signal 9 (SIGKILL)". `wait_status`: that of waitpid().
std::string EndText(int wait_status);

class Launcher {
 public:
  // Blocks the signals that Wait() takes. Called before any thread exists.
  static void BlockSignals();

  Launcher() = default;
  ~Launcher();
  Launcher(const Launcher&) = delete;
  Launcher& operator=(const Launcher&) = delete;

  // Errors: NotFound for a program that cannot be run.
  absl::Status Start(const ProcessSpec& spec);

  // Whether all are to end: one has failed for good, or this process is told to. Starts again what
  // Wait() would. Requires BlockSignals().
  bool IsToEnd();

  // Blocks until all processes have ended. The first that fails for good, or a stop signal to this
  // process, ends the others with SIGTERM: those that end last a second later, or once all others
  // have ended. Those that do not end last get SIGKILL after `grace_seconds`; those that do have a
  // limit of their own. A second wish to stop, see SignalFilter, ends all with SIGKILL. SIGUSR1 and
  // SIGUSR2 are passed on to those that end last, which are the ones that save. Returns the exit
  // code of the first failure that trying again does not cure (1 to 127); else 128 + signal if this
  // process was told to end while others than those that end last were running; else the code of
  // the first failure, 0 if there was none. `on_only_last_left` is called once nobody else runs and
  // nobody was told to end; `on_tick` about once a second until all are to end. Requires
  // BlockSignals().
  int Wait(int grace_seconds, const std::function<void()>& on_only_last_left,
           const std::function<void()>& on_tick);

 private:
  struct Process {
    ProcessSpec spec;
    pid_t pid = 0;
    std::thread output;
    bool running = false;
    bool is_told_to_end = false;
    int input = -1;        // the other end of its standard input
    int times_failed = 0;  // and was, or is to be, started again
    absl::Time starts_again_at = absl::InfiniteFuture();
  };
  static absl::Status Run(Process& process);
  static void TellToEnd(Process& process);
  void SignalAll(int signal);
  void TellToSave(int signal);
  // Those that end last, or the others.
  void TellToEnd(bool ends_last);
  void Kill(bool ends_last);
  // For people: those that run, in the order of their start.
  std::string RunningRoles(bool with_last) const;
  bool AreRunning(bool ends_last) const;
  // Collects ended children; updates exit_code_ and are_to_end_.
  void Reap();
  void StartAgain(absl::Time now);
  bool AnyRunning() const;

  std::vector<Process> processes_;
  int exit_code_ = 0;
  bool are_to_end_ = false;  // then nothing is started again
};

}  // namespace lodestar
