// SPDX-License-Identifier: Apache-2.0

#include "common/process/shell_command.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstddef>
#include <optional>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/logging/logging.h"
#include "common/process/patient_start.h"
#include "common/runtime/file_descriptor.h"
#include "common/runtime/file_io.h"
#include "common/runtime/peer_text.h"

extern char** environ;

namespace lodestar::process {
namespace {

constexpr absl::Duration kPause = absl::Milliseconds(50);
constexpr absl::Duration kPatienceAfterTerm = absl::Seconds(2);
constexpr size_t kMaxLineBytes = 1000;

// Cuts the command's output into lines.
class Lines {
 public:
  explicit Lines(const std::function<void(absl::string_view)>& on_line) : on_line_(on_line) {}

  void Add(absl::string_view bytes) {
    for (const char c : bytes) {
      if (c == '\n') {
        End();
      } else if (line_.size() < kMaxLineBytes) {
        line_.push_back(c);
      }
    }
  }
  void End() {
    if (line_.empty()) return;
    last_ = PeerText(line_, kMaxLineBytes);
    line_.clear();
    on_line_(last_);
  }
  const std::string& last() const { return last_; }

 private:
  const std::function<void(absl::string_view)>& on_line_;
  std::string line_;
  std::string last_;
};

// Passes to `lines` all output that can be read from `fd` without blocking. Waits up to `pause` for
// the first byte.
void ReadLines(int fd, absl::Duration pause, Lines& lines) {
  pollfd ready = {.fd = fd, .events = POLLIN, .revents = 0};
  int timeout = static_cast<int>(absl::ToInt64Milliseconds(pause));
  char buffer[4096];
  while (poll(&ready, 1, timeout) > 0) {
    const ssize_t count = read(fd, buffer, sizeof(buffer));
    if (count <= 0) {
      // The command has closed its output, but may still run. This function waits nevertheless, so
      // that the caller does not call it again at once.
      if (timeout > 0) poll(nullptr, 0, timeout);
      return;
    }
    lines.Add(absl::string_view(buffer, count));
    timeout = 0;
  }
}

// Returns this process's environment with `added`. If both have a variable, the value of `added` is
// used.
std::vector<std::string> Environment(const std::map<std::string, std::string>& added) {
  std::vector<std::string> variables;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const absl::string_view text = *variable;
    if (added.count(std::string(text.substr(0, text.find('=')))) == 0) variables.emplace_back(text);
  }
  for (const auto& [name, value] : added) variables.push_back(absl::StrCat(name, "=", value));
  return variables;
}

std::vector<char*> Pointers(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

// Starts the shell with `output` as its standard output and standard error. Returns 0 or an errno.
int Spawn(const ShellCommand& command, int output, pid_t* pid) {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&actions);
  posix_spawnattr_init(&attributes);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, output, STDERR_FILENO);
  posix_spawn_file_actions_addclosefrom_np(&actions, STDERR_FILENO + 1);
  sigset_t all;
  sigset_t none;
  sigfillset(&all);
  sigemptyset(&none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP);
  std::vector<std::string> arguments = {"/bin/sh", "-c", command.command};
  std::vector<std::string> environment = Environment(command.environment);
  const int error = posix_spawn(pid, arguments[0].c_str(), &actions, &attributes,
                                Pointers(arguments).data(), Pointers(environment).data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  return error;
}

absl::Status StatusOf(int wait_status, bool was_ended, const std::string& last_line) {
  if (was_ended) return absl::CancelledError("was stopped before it finished");
  if (WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == 0) return absl::OkStatus();
  return absl::AbortedError(absl::StrCat(
      WIFSIGNALED(wait_status) ? absl::StrCat("ended with signal ", WTERMSIG(wait_status))
                               : absl::StrCat("ended with exit code ", WEXITSTATUS(wait_status)),
      last_line.empty() ? "" : absl::StrCat(" (", last_line, ")")));
}

}  // namespace

absl::Status RunShellCommand(const ShellCommand& command, const ShellCommandDeps& deps) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return ErrnoStatus(errno, "open", "a pipe for the command");
  const FileDescriptor input(ends[0]);
  FileDescriptor output(ends[1]);
  pid_t pid = 0;
  const int error = StartPatiently({
      .start = [&] { return Spawn(command, output.get(), &pid); },
      .now = [&] { return deps.clock->Now(); },
      .pause = [&](absl::Duration pause) { deps.clock->Sleep(pause); },
      .tell =
          [](StartNews news) {
            if (news == StartNews::kNotRefused) return;
            logging::LogWarn(
                "cannot start /bin/sh and tries again for a minute: the number of processes is at "
                "its limit (ulimit -u, TasksMax=, pids.max); raise the limit");
          },
  });
  if (error != 0) return ErrnoStatus(error, "start", "/bin/sh");
  output.Reset();
  Lines lines(deps.on_line);
  std::optional<absl::Time> told_to_end;
  int wait_status = 0;
  while (true) {
    ReadLines(input.get(), kPause, lines);
    const pid_t ended = waitpid(pid, &wait_status, WNOHANG);
    if (ended == pid) break;
    if (ended < 0 && errno != EINTR) {
      return ErrnoStatus(errno, "wait for", "/bin/sh; its exit code is not known");
    }
    const absl::Time now = deps.clock->Now();
    if (!told_to_end.has_value() && deps.must_end()) {
      told_to_end = now;
      kill(-pid, SIGTERM);
    } else if (told_to_end.has_value() && now >= *told_to_end + kPatienceAfterTerm) {
      kill(-pid, SIGKILL);
    }
  }
  ReadLines(input.get(), absl::ZeroDuration(), lines);
  lines.End();
  return StatusOf(wait_status, told_to_end.has_value(), lines.last());
}

}  // namespace lodestar::process
