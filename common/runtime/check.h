// SPDX-License-Identifier: Apache-2.0

// LODESTAR_CHECK: aborts if an invariant of our own code is broken. Errors that a peer, a disk or
// an operator can cause are never checked with it, but returned as absl::Status.
#pragma once

#include <cstdlib>
#include <iostream>
#include <sstream>

namespace lodestar::check_internal {

// Collects the message. The destructor, at the end of the statement, prints the message and aborts.
class CheckFailure {
 public:
  CheckFailure(const char* file, int line, const char* condition) {
    message_ << file << ":" << line << ": check failed: " << condition << " ";
  }
  CheckFailure(const CheckFailure&) = delete;
  CheckFailure& operator=(const CheckFailure&) = delete;
  [[noreturn]] ~CheckFailure() {
    message_ << "\n";
    std::cerr << message_.str() << std::flush;
    std::abort();
  }
  std::ostream& stream() { return message_; }

 private:
  std::ostringstream message_;
};

// Makes both arms of the conditional in LODESTAR_CHECK void. The operator & is used because it
// binds less tightly than <<.
struct Voidify {
  void operator&(std::ostream&) const {}
};

}  // namespace lodestar::check_internal

// Example: LODESTAR_CHECK(begin <= end) << "begin=" << begin << " end=" << end;
#define LODESTAR_CHECK(condition)               \
  (condition)                                   \
      ? (void)0                                 \
      : ::lodestar::check_internal::Voidify() & \
            ::lodestar::check_internal::CheckFailure(__FILE__, __LINE__, #condition).stream()
