// SPDX-License-Identifier: Apache-2.0

// Makes file permissions apply to the current thread, even if tests run as root.
#pragma once

#include <linux/capability.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace lodestar {

// While an object of this class lives, the thread that made it does not have root's privileges over
// files.
class UnprivilegedThread {
 public:
  UnprivilegedThread() {
    syscall(SYS_capget, &header_, had_);
    __user_cap_data_struct less[2] = {had_[0], had_[1]};
    less[0].effective &= ~((1U << CAP_DAC_OVERRIDE) | (1U << CAP_DAC_READ_SEARCH));
    syscall(SYS_capset, &header_, less);
  }
  ~UnprivilegedThread() { syscall(SYS_capset, &header_, had_); }
  UnprivilegedThread(const UnprivilegedThread&) = delete;
  UnprivilegedThread& operator=(const UnprivilegedThread&) = delete;

 private:
  __user_cap_header_struct header_ = {.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
  __user_cap_data_struct had_[2] = {};
};

}  // namespace lodestar
