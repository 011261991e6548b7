// SPDX-License-Identifier: Apache-2.0

// TerminalScreen takes over the whole terminal, for a picture that is redrawn again and again, and
// for keys without Enter. Its destructor restores the terminal.
#pragma once

#include <termios.h>

#include <csignal>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace lodestar::psctl {

class TerminalScreen {
 public:
  struct Size {
    int columns = 80;
    int rows = 24;
  };

  // Takes over standard input and output. Errors: FailedPrecondition (they are not a terminal).
  static absl::StatusOr<std::unique_ptr<TerminalScreen>> Open();
  TerminalScreen(const TerminalScreen&) = delete;
  TerminalScreen& operator=(const TerminalScreen&) = delete;
  ~TerminalScreen();

  Size size() const;
  // Replaces the picture in one write, so that it does not flicker. Lines beyond the last row are
  // left out. Returns false if the terminal cannot be written to.
  bool Draw(absl::string_view text);
  // Returns the key that is typed within `patience`, or nothing. Ctrl-C and a signal that ends the
  // program count as 'q'. May be called at the same time as Draw().
  std::optional<char> AwaitKey(absl::Duration patience);

 private:
  TerminalScreen(const termios& before, const sigset_t& signals_before)
      : before_(before), signals_before_(signals_before) {}

  const termios before_;
  const sigset_t signals_before_;
};

// Returns the bytes that Draw() writes: the first `rows` lines of `text`, each followed by the code
// that clears the rest of its line.
std::string ScreenBytes(absl::string_view text, int rows);

}  // namespace lodestar::psctl
