// SPDX-License-Identifier: Apache-2.0

#include "common/logging/line_output.h"

#include <limits.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>

#include "absl/strings/str_cat.h"

namespace lodestar::logging {

void LineOutput::Write(absl::string_view line) {
  absl::MutexLock lock(&mutex_);
  if (num_dropped_ > 0) {
    const std::string told = absl::StrCat(
        is_cut_ ? "\n" : "", "(", num_dropped_, num_dropped_ == 1 ? " line was" : " lines were",
        " dropped here, because the reader of this output was too slow)\n");
    if (!WriteWhole(told)) {
      ++num_dropped_;
      return;
    }
    num_dropped_ = 0;
    is_cut_ = false;
  }
  if (!WriteWhole(line)) ++num_dropped_;
}

bool LineOutput::WriteWhole(absl::string_view text) {
  const size_t size = text.size();
  while (!text.empty()) {
    pollfd writable = {.fd = descriptor_, .events = POLLOUT, .revents = 0};
    const int patience_ms =
        num_dropped_ == 0 ? static_cast<int>(absl::ToInt64Milliseconds(kPatience)) : 0;
    const int ready = poll(&writable, 1, patience_ms);
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) break;
    // A writable pipe takes up to PIPE_BUF bytes without blocking.
    const size_t piece = std::min<size_t>(text.size(), PIPE_BUF);
    const ssize_t written = write(descriptor_, text.data(), piece);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) break;
    text.remove_prefix(static_cast<size_t>(written));
  }
  if (!text.empty() && text.size() < size) is_cut_ = true;
  return text.empty();
}

}  // namespace lodestar::logging
