// SPDX-License-Identifier: Apache-2.0

// Owns a file descriptor and closes it in the destructor.
#pragma once

#include <unistd.h>

#include <utility>

namespace lodestar {

class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}  // a negative `fd` means no file
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(other.Release()) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    Reset(other.Release());
    return *this;
  }
  ~FileDescriptor() { Reset(); }

  int get() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }
  // Returns the descriptor, which the caller must close from now on.
  int Release() { return std::exchange(fd_, -1); }
  void Reset(int fd = -1) {
    if (fd_ >= 0) close(fd_);
    fd_ = fd;
  }

 private:
  int fd_ = -1;
};

}  // namespace lodestar
