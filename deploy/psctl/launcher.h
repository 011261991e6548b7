// Starts a whole cluster: servers and workers as child processes, or programs that run them
// elsewhere. Their output is prefixed by role, and they are ended together. If the launcher is
// killed, the system tells its children to end with SIGTERM, and servers save.
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
  std::string role;                    // The prefix of its lines, such as "server" or "worker-0".
  std::vector<std::string> arguments;  // arguments[0] is the program.
  bool ends_cluster = false;           // If it ends with 0, the other processes are told to end.
  bool ends_last = false;  // It saves what the other processes hand in, and has its own limit.
  // The input that the process reads first, if it reads anything. Its input then stays open, and
  // the end of the input tells it to end in place of SIGTERM.
  std::optional<std::string> input = std::nullopt;
  // How often it is started again after a failure that another try may cure.
  int restarts = 0;
  // Returns arguments that are added when the process is started again. Null means none.
  std::function<std::vector<std::string>()> more_arguments_of_restart = nullptr;
  // The advice if it ends with 127, the code by which shells say that they have not found a
  // program.
  std::string not_found_advice = "";
};

// Returns "ended with code 1", or "was killed by signal 9 (SIGKILL)". `wait_status` is that of
// waitpid().
std::string EndText(int wait_status);

class Launcher {
 public:
  // Blocks the signals that Wait() takes. It must be called before any thread exists.
  static void BlockSignals();

  Launcher() = default;
  ~Launcher();
  Launcher(const Launcher&) = delete;
  Launcher& operator=(const Launcher&) = delete;

  // Errors: NotFound for a program that cannot be run.
  absl::Status Start(const ProcessSpec& spec);

  // Whether all processes are to end: one has failed for good, or this process is told to end.
  // Starts again what Wait() would start again. Requires BlockSignals().
  bool IsToEnd();

  // Blocks until all processes have ended, and returns an exit code. Requires BlockSignals().
  //
  // The first process that fails for good, or a stop signal to this process, ends the others with
  // SIGTERM. Those that end last get it a second later, or once all others have ended. Those that
  // do not end last get SIGKILL after `grace_seconds`; those that do have a limit of their own. A
  // second wish to stop, see SignalFilter, ends all with SIGKILL. SIGUSR1 and SIGUSR2 are passed on
  // to those that end last, which are the ones that save.
  //
  // The code is that of the first failure that another try does not cure (1 to 127). If there is
  // none, and this process was told to end while processes ran that do not end last, it is 128 +
  // signal. Else it is the code of the first failure, and 0 means that there was none.
  //
  // `on_only_last_left` is called once only processes that end last run and none was told to end.
  // `on_tick` is called about once a second until all are to end.
  int Wait(int grace_seconds, const std::function<void()>& on_only_last_left,
           const std::function<void()>& on_tick);

 private:
  struct Process {
    ProcessSpec spec;
    pid_t pid = 0;
    std::thread output;
    bool running = false;
    bool is_told_to_end = false;
    int input = -1;        // The other end of its standard input.
    int times_failed = 0;  // How often it failed and was, or is to be, started again.
    absl::Time starts_again_at = absl::InfiniteFuture();
  };
  static absl::Status Run(Process& process);
  static void TellToEnd(Process& process);
  void SignalAll(int signal);
  void TellToSave(int signal);
  // Tells those that end last, or the others, to end.
  void TellToEnd(bool ends_last);
  void Kill(bool ends_last);
  // Names the processes that run, in the order of their start, for people.
  std::string RunningRoles(bool with_last) const;
  bool AreRunning(bool ends_last) const;
  // Collects ended children; updates exit_code_ and are_to_end_.
  void Reap();
  void StartAgain(absl::Time now);
  bool AnyRunning() const;

  std::vector<Process> processes_;
  int exit_code_ = 0;
  bool are_to_end_ = false;  // Once it is set, nothing is started again.
};

}  // namespace lodestar
