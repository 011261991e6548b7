// SPDX-License-Identifier: Apache-2.0

#include "deploy/psctl/launcher.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "common/logging/line_output.h"
#include "common/process/stop_signals.h"
#include "common/runtime/clock.h"

namespace lodestar::psctl {
namespace {

constexpr int kNotFound = 127;  // the code that shells use
// Minimum exit code which means that another try may succeed.
constexpr int kMayCureItself = 128;
constexpr absl::Duration kRestartPause = absl::Seconds(2);

sigset_t WaitedSignals() {
  const sigset_t stop = process::StopSignals();
  const sigset_t save = process::SaveSignals();
  sigset_t signals;
  sigorset(&signals, &stop, &save);
  sigaddset(&signals, SIGCHLD);
  return signals;
}

// Runs in the child of `launcher`, and never returns.
[[noreturn]] void Execute(const std::vector<std::string>& arguments, pid_t launcher, int input,
                          int output) {
  // The kernel sends SIGTERM to the child if the launcher dies. A server then saves before it ends.
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != launcher) _exit(128 + SIGTERM);  // the launcher has died before
  // Keeps a Ctrl-C of the terminal from the child: only the launcher gets it, and passes it on.
  setpgid(0, 0);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  for (const int ignored : {SIGPIPE, SIGXFSZ}) std::signal(ignored, SIG_DFL);
  if (input >= 0) dup2(input, STDIN_FILENO);
  dup2(output, STDOUT_FILENO);
  dup2(output, STDERR_FILENO);
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  execvp(argv[0], argv.data());
  std::fprintf(stderr, "cannot run %s: %s\n", argv[0], std::strerror(errno));
  _exit(kNotFound);
}

// Returns the output to which the launcher writes and to which it copies the output of all roles.
// If the reader of this output stops reading, no role is blocked.
logging::LineOutput& Output() {
  static auto* const output = new logging::LineOutput(STDOUT_FILENO);
  return *output;
}

void Say(absl::string_view text) { Output().Write(absl::StrCat("[launch] ", text, "\n")); }

// Copies each line of `input` to stdout, after the name of the role. Writes of other roles never
// split a line.
void CopyOutput(int input, const std::string& role) {
  std::FILE* stream = fdopen(input, "r");
  char* line = nullptr;
  size_t capacity = 0;
  while (getline(&line, &capacity, stream) > 0) {
    Output().Write(absl::StrCat("[", role, "] ", line));
  }
  std::free(line);
  std::fclose(stream);
}

int ExitCodeOf(int wait_status) {
  return WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
}

}  // namespace

std::string EndText(int wait_status) {
  if (!WIFSIGNALED(wait_status)) {
    const int code = WEXITSTATUS(wait_status);
    return absl::StrCat(code == 128 + SIGTERM ? "ended as requested by SIGTERM, with exit code "
                                              : "ended with exit code ",
                        code);
  }
  const int signal = WTERMSIG(wait_status);
  const char* const name = sigabbrev_np(signal);
  return absl::StrCat("was killed by signal ", signal,
                      name == nullptr ? "" : absl::StrCat(" (SIG", name, ")"));
}

void Launcher::BlockSignals() {
  process::BlockStopSignals();
  const sigset_t signals = WaitedSignals();
  sigprocmask(SIG_BLOCK, &signals, nullptr);
}

Launcher::~Launcher() {
  SignalAll(SIGKILL);
  for (Process& process : processes_) {
    if (process.running) waitpid(process.pid, nullptr, 0);
    if (process.output.joinable()) process.output.join();
  }
}

absl::Status Launcher::Start(const ProcessSpec& spec) {
  Process process;
  process.spec = spec;
  if (const absl::Status run = Run(process); !run.ok()) return run;
  processes_.push_back(std::move(process));
  return absl::OkStatus();
}

absl::Status Launcher::Run(Process& process) {
  int output[2];
  int input[2] = {-1, -1};
  if (pipe2(output, O_CLOEXEC) != 0 ||
      (process.spec.input.has_value() && pipe2(input, O_CLOEXEC) != 0)) {
    return absl::ResourceExhaustedError(absl::StrCat("pipe: ", std::strerror(errno)));
  }
  const pid_t launcher = getpid();
  const pid_t pid = fork();
  if (pid < 0) return absl::ResourceExhaustedError(absl::StrCat("fork: ", std::strerror(errno)));
  if (pid == 0) Execute(process.spec.arguments, launcher, input[0], output[1]);
  close(output[1]);
  if (process.spec.input.has_value()) {
    close(input[0]);
    process.input = input[1];
    // The input is a line or two, which fit into the pipe even if the child does not read yet.
    const std::string& text = *process.spec.input;
    if (write(process.input, text.data(), text.size()) < 0) {
      Say(absl::StrCat(
          process.spec.role,
          " does not read the lines that psctl launch sends it; its own messages say why"));
    }
  }
  process.pid = pid;
  process.running = true;
  process.starts_again_at = absl::InfiniteFuture();
  if (process.output.joinable()) process.output.join();
  process.output = std::thread(CopyOutput, output[0], process.spec.role);
  return absl::OkStatus();
}

void Launcher::TellToEnd(Process& process) {
  process.is_told_to_end = true;
  process.starts_again_at = absl::InfiniteFuture();
  if (!process.running) return;
  if (process.input < 0) {
    process::AskToStop(process.pid);
  } else {
    close(std::exchange(process.input, -1));
  }
}

void Launcher::SignalAll(int signal) {
  for (const Process& process : processes_) {
    if (process.running) kill(process.pid, signal);
  }
}

void Launcher::TellToEnd(bool ends_last) {
  for (Process& process : processes_) {
    if (process.spec.ends_last == ends_last && !process.is_told_to_end) TellToEnd(process);
  }
}

void Launcher::TellToSave(int signal) {
  for (const Process& process : processes_) {
    if (process.running && process.spec.ends_last) kill(process.pid, signal);
  }
}

void Launcher::Kill(bool ends_last) {
  for (const Process& process : processes_) {
    if (process.running && process.spec.ends_last == ends_last) kill(process.pid, SIGKILL);
  }
}

std::string Launcher::RunningRoles(bool with_last) const {
  std::vector<std::string> roles;
  for (const Process& process : processes_) {
    if (process.running && (with_last || !process.spec.ends_last)) {
      roles.push_back(process.spec.role);
    }
  }
  return absl::StrJoin(roles, ", ");
}

bool Launcher::AreRunning(bool ends_last) const {
  return std::any_of(processes_.begin(), processes_.end(), [&](const Process& process) {
    const bool is_there = process.running || process.starts_again_at != absl::InfiniteFuture();
    return is_there && process.spec.ends_last == ends_last;
  });
}

bool Launcher::AnyRunning() const { return AreRunning(false) || AreRunning(true); }

void Launcher::Reap() {
  for (Process& process : processes_) {
    int status = 0;
    if (!process.running || waitpid(process.pid, &status, WNOHANG) != process.pid) continue;
    process.running = false;
    if (process.input >= 0) close(std::exchange(process.input, -1));
    const int code = ExitCodeOf(status);
    if (code >= kMayCureItself && !process.is_told_to_end && !are_to_end_ &&
        process.times_failed < process.spec.restarts) {
      ++process.times_failed;
      Say(absl::StrCat(process.spec.role, " ", EndText(status), ", and is started again (restart ",
                       process.times_failed, " of at most ", process.spec.restarts, ")"));
      process.starts_again_at = absl::Now() + kRestartPause;
      continue;
    }
    // A process that was told to end may exit with this code. Only the process with `ends_cluster`
    // may not, because its exit code says whether the job was over.
    const bool did_as_told =
        process.is_told_to_end && code == 128 + SIGTERM && !process.spec.ends_cluster;
    if (code != 0 && !did_as_told) {
      const bool has_advice = code == kNotFound && !process.spec.not_found_advice.empty();
      Say(absl::StrCat(process.spec.role, " ", EndText(status),
                       has_advice ? absl::StrCat(": ", process.spec.not_found_advice) : ""));
      if (exit_code_ == 0 || (exit_code_ >= kMayCureItself && code < kMayCureItself)) {
        exit_code_ = code;
      }
    }
    are_to_end_ = are_to_end_ || code != 0 || process.spec.ends_cluster;
  }
}

bool Launcher::IsToEnd() {
  Reap();
  StartAgain(absl::Now());
  return are_to_end_ || process::PendingStopSignal() != 0;
}

void Launcher::StartAgain(absl::Time now) {
  for (Process& process : processes_) {
    if (are_to_end_) process.starts_again_at = absl::InfiniteFuture();
    if (now < process.starts_again_at) continue;
    if (process.spec.more_arguments_of_restart != nullptr) {
      std::vector<std::string> more = process.spec.more_arguments_of_restart();
      // The new arguments stay in `arguments` for all later restarts. So the function is not called
      // again.
      if (!more.empty()) process.spec.more_arguments_of_restart = nullptr;
      for (std::string& argument : more) process.spec.arguments.push_back(std::move(argument));
    }
    if (const absl::Status run = Run(process); !run.ok()) {
      Say(absl::StrCat(process.spec.role, ": ", run.message()));
      process.starts_again_at = now + kRestartPause;
    }
  }
}

int Launcher::Wait(int grace_seconds, const std::function<void()>& on_only_last_left,
                   const std::function<void()>& on_tick) {
  const sigset_t signals = WaitedSignals();
  bool is_only_last_left = false;
  enum class Stage { kRunning, kEndingFirst, kEndingLast } stage = Stage::kRunning;
  constexpr int kTellSeconds = 10;
  constexpr absl::Duration kTimeToHear = absl::Seconds(1);
  timespec told_at{};
  timespec begun_at{};
  timespec deadline{};
  bool is_killing = false;
  process::SignalFilter filter;
  while (AnyRunning()) {
    timespec patience{.tv_sec = 1, .tv_nsec = 0};
    siginfo_t info = {};
    const int signal = sigtimedwait(&signals, &info, &patience);
    Reap();
    const process::SignalFilter::Meaning meaning = signal > 0 && signal != SIGCHLD
                                                       ? filter.Take(info, Clock::Real().Now())
                                                       : process::SignalFilter::Meaning::kRepeat;
    if (meaning == process::SignalFilter::Meaning::kSave) TellToSave(signal);
    if (meaning == process::SignalFilter::Meaning::kStop) {
      // If only processes with `ends_last` are left, the signal does not change the exit code.
      // Their exit codes say how the job went.
      if (exit_code_ == 0 && !is_only_last_left) exit_code_ = 128 + signal;
      if (filter.num_stops() > 1) SignalAll(SIGKILL);
      are_to_end_ = true;
    }
    StartAgain(absl::Now());
    if (!are_to_end_) on_tick();
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (are_to_end_ && stage == Stage::kRunning) {
      stage = Stage::kEndingFirst;
      told_at = now;
      deadline = now;
      deadline.tv_sec += grace_seconds;
      begun_at = now;
      TellToEnd(/*ends_last=*/false);
    }
    // Processes with `ends_last` are told to end after kTimeToHear, even if others still run. They
    // must begin to save early, because a kill may follow within seconds. They save once more what
    // the others deliver later. The delay is for workers on other hosts, which hear of the stop
    // later.
    const bool have_heard =
        absl::DurationFromTimespec(now) - absl::DurationFromTimespec(begun_at) >= kTimeToHear;
    if (stage == Stage::kEndingFirst && (have_heard || !AreRunning(/*ends_last=*/false))) {
      TellToEnd(/*ends_last=*/true);
    }
    if (stage == Stage::kRunning && !is_only_last_left && !AreRunning(/*ends_last=*/false) &&
        AnyRunning()) {
      is_only_last_left = true;
      on_only_last_left();
    }
    if (stage != Stage::kRunning && now.tv_sec >= told_at.tv_sec + kTellSeconds) {
      told_at = now;
      // The last process may have ended just now.
      if (const std::string roles = RunningRoles(/*with_last=*/true); !roles.empty()) {
        Say(absl::StrCat("waits for the end of ", roles,
                         "; a second Ctrl-C kills the programs that still run"));
      }
    }
    if (stage != Stage::kEndingFirst) continue;
    if (now.tv_sec >= deadline.tv_sec && AreRunning(/*ends_last=*/false)) {
      if (!std::exchange(is_killing, true)) {
        Say(absl::StrCat("these programs did not end within ", grace_seconds,
                         " s and are killed: ", RunningRoles(/*with_last=*/false)));
      }
      Kill(/*ends_last=*/false);
    }
    if (AreRunning(/*ends_last=*/false)) continue;
    stage = Stage::kEndingLast;
  }
  for (Process& process : processes_) {
    if (process.output.joinable()) process.output.join();
  }
  return exit_code_;
}

}  // namespace lodestar::psctl
