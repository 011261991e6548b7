// SPDX-License-Identifier: Apache-2.0

#include "deploy/psctl/terminal_screen.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/output/output_file.h"
#include "common/process/stop_signals.h"

namespace lodestar::psctl {
namespace {

// Control sequences of xterm, which every terminal in use understands.
constexpr absl::string_view kEnter = "\033[?1049h\033[?25l";
constexpr absl::string_view kLeave = "\033[?25h\033[?1049l";
constexpr absl::string_view kHome = "\033[H";
constexpr absl::string_view kClearLine = "\033[K";
constexpr absl::string_view kClearBelow = "\033[J";
constexpr char kCtrlC = 3;

}  // namespace

absl::StatusOr<std::unique_ptr<TerminalScreen>> TerminalScreen::Open() {
  termios before{};
  if (isatty(STDOUT_FILENO) == 0 || tcgetattr(STDIN_FILENO, &before) != 0) {
    return absl::FailedPreconditionError("the output is not a terminal");
  }
  termios raw = before;
  raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO | ISIG);
  raw.c_cc[VMIN] = 0;
  raw.c_cc[VTIME] = 0;
  // A stop signal that ended the program here would leave the terminal as it is now. So the signals
  // are blocked, and AwaitKey() takes them.
  const sigset_t stop = process::StopSignals();
  sigset_t signals_before;
  pthread_sigmask(SIG_BLOCK, &stop, &signals_before);
  std::unique_ptr<TerminalScreen> screen(new TerminalScreen(before, signals_before));
  if (tcsetattr(STDIN_FILENO, TCSANOW, &raw) != 0 || !output::WriteToStandardOutput(kEnter).ok()) {
    return absl::FailedPreconditionError(
        "this terminal cannot show a moving page; set TERM to a terminal type such as xterm");
  }
  return screen;
}

TerminalScreen::~TerminalScreen() {
  output::WriteToStandardOutput(kLeave).IgnoreError();
  tcsetattr(STDIN_FILENO, TCSANOW, &before_);
  pthread_sigmask(SIG_SETMASK, &signals_before_, nullptr);
}

TerminalScreen::Size TerminalScreen::size() const {
  winsize window{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) != 0 || window.ws_col == 0 || window.ws_row == 0) {
    return Size();
  }
  return {.columns = window.ws_col, .rows = window.ws_row};
}

bool TerminalScreen::Draw(absl::string_view text) {
  return output::WriteToStandardOutput(ScreenBytes(text, size().rows)).ok();
}

std::optional<char> TerminalScreen::AwaitKey(absl::Duration patience) {
  pollfd input = {.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
  const int readable = poll(&input, 1, static_cast<int>(absl::ToInt64Milliseconds(patience)));
  const sigset_t stop = process::StopSignals();
  constexpr timespec kNow = {};
  if (sigtimedwait(&stop, nullptr, &kNow) > 0) return 'q';
  if (readable != 1) return std::nullopt;
  char key = 0;
  // If the terminal is gone, it counts as readable, and read() returns no byte.
  if (read(STDIN_FILENO, &key, 1) != 1) return 'q';
  return key == kCtrlC ? 'q' : key;
}

std::string ScreenBytes(absl::string_view text, int rows) {
  std::vector<absl::string_view> lines = absl::StrSplit(text, '\n');
  if (!lines.empty() && lines.back().empty()) lines.pop_back();
  lines.resize(std::min(lines.size(), static_cast<size_t>(std::max(rows, 1))));
  return absl::StrCat(kHome, absl::StrJoin(lines, absl::StrCat(kClearLine, "\n")), kClearLine,
                      kClearBelow);
}

}  // namespace lodestar::psctl
