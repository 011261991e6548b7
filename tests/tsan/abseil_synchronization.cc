// SPDX-License-Identifier: Apache-2.0

// Tells ThreadSanitizer what Abseil's mutexes order. Debian's Abseil is not built with
// ThreadSanitizer, which would therefore report a race wherever only a mutex prevents one. Every
// program of --config=tsan links this file. The functions here take precedence over those of the
// library, and call them.
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>

#include "absl/base/options.h"
#include "absl/synchronization/blocking_counter.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"

extern "C" {
// Functions of ThreadSanitizer: a release at an address is ordered before later acquires at that
// address.
void __tsan_acquire(void* address);
void __tsan_release(void* address);
void AnnotateIgnoreReadsBegin(const char* file, int line);
void AnnotateIgnoreReadsEnd(const char* file, int line);
}

namespace {

// A thread that unlocks a mutex reads the conditions of waiting threads, on their stacks, while it
// still holds the mutex. Nothing here can tell ThreadSanitizer that, so these reads are ignored.
class WithoutReads {
 public:
  WithoutReads() { AnnotateIgnoreReadsBegin(__FILE__, __LINE__); }
  ~WithoutReads() { AnnotateIgnoreReadsEnd(__FILE__, __LINE__); }
  WithoutReads(const WithoutReads&) = delete;
  WithoutReads& operator=(const WithoutReads&) = delete;
};

void Acquire(const void* address) { __tsan_acquire(const_cast<void*>(address)); }
void Release(const void* address) { __tsan_release(const_cast<void*>(address)); }

// Calls the library's function. Member functions take the object as the first argument.
template <typename Result, typename... Arguments>
Result Call(const char* symbol, Arguments... arguments) {
  auto* const function = reinterpret_cast<Result (*)(Arguments...)>(dlsym(RTLD_NEXT, symbol));
  if (function == nullptr) {
    std::fprintf(stderr, "Abseil has no %s: its version is not the one of the headers\n", symbol);
    std::abort();
  }
  WithoutReads without_reads;
  return function(arguments...);
}

}  // namespace

#define LODESTAR_TEXT(name) #name
#define LODESTAR_TEXT_OF(name) LODESTAR_TEXT(name)
// Symbols contain the inline namespace: "_ZN4absl7debian35Mutex4LockEv".
#define LODESTAR_ABSL "_ZN4absl7" LODESTAR_TEXT_OF(ABSL_OPTION_INLINE_NAMESPACE_NAME)
#define LODESTAR_ABSL_CONST "_ZNK4absl7" LODESTAR_TEXT_OF(ABSL_OPTION_INLINE_NAMESPACE_NAME)

namespace absl {
ABSL_NAMESPACE_BEGIN

void Mutex::Lock() {
  Call<void>(LODESTAR_ABSL "5Mutex4LockEv", this);
  Acquire(this);
}
void Mutex::ReaderLock() {
  Call<void>(LODESTAR_ABSL "5Mutex10ReaderLockEv", this);
  Acquire(this);
}
bool Mutex::TryLock() {
  const bool locked = Call<bool>(LODESTAR_ABSL "5Mutex7TryLockEv", this);
  if (locked) Acquire(this);
  return locked;
}
void Mutex::Unlock() {
  Release(this);
  Call<void>(LODESTAR_ABSL "5Mutex6UnlockEv", this);
}
void Mutex::ReaderUnlock() {
  Release(this);
  Call<void>(LODESTAR_ABSL "5Mutex12ReaderUnlockEv", this);
}

void Mutex::LockWhen(const Condition& condition) {
  Release(this);  // for the reads of the condition
  Call<void>(LODESTAR_ABSL "5Mutex8LockWhenERKNS0_9ConditionE", this, &condition);
  Acquire(this);
}
void Mutex::Await(const Condition& condition) {
  Release(this);
  Call<void>(LODESTAR_ABSL "5Mutex5AwaitERKNS0_9ConditionE", this, &condition);
  Acquire(this);
}
bool Mutex::AwaitWithTimeout(const Condition& condition, Duration timeout) {
  Release(this);
  const bool happened =
      Call<bool>(LODESTAR_ABSL "5Mutex16AwaitWithTimeoutERKNS0_9ConditionENS0_8DurationE", this,
                 &condition, timeout);
  Acquire(this);
  return happened;
}
bool Mutex::AwaitWithDeadline(const Condition& condition, Time deadline) {
  Release(this);
  const bool happened =
      Call<bool>(LODESTAR_ABSL "5Mutex17AwaitWithDeadlineERKNS0_9ConditionENS0_4TimeE", this,
                 &condition, deadline);
  Acquire(this);
  return happened;
}

void CondVar::Wait(Mutex* mutex) {
  Release(mutex);
  Call<void>(LODESTAR_ABSL "7CondVar4WaitEPNS0_5MutexE", this, mutex);
  Acquire(mutex);
}
bool CondVar::WaitWithTimeout(Mutex* mutex, Duration timeout) {
  Release(mutex);
  const bool timed_out = Call<bool>(
      LODESTAR_ABSL "7CondVar15WaitWithTimeoutEPNS0_5MutexENS0_8DurationE", this, mutex, timeout);
  Acquire(mutex);
  return timed_out;
}
bool CondVar::WaitWithDeadline(Mutex* mutex, Time deadline) {
  Release(mutex);
  const bool timed_out = Call<bool>(
      LODESTAR_ABSL "7CondVar16WaitWithDeadlineEPNS0_5MutexENS0_4TimeE", this, mutex, deadline);
  Acquire(mutex);
  return timed_out;
}

void Notification::Notify() {
  Release(this);
  Call<void>(LODESTAR_ABSL "12Notification6NotifyEv", this);
}
void Notification::WaitForNotification() const {
  Call<void>(LODESTAR_ABSL_CONST "12Notification19WaitForNotificationEv", this);
  Acquire(this);
}
bool Notification::WaitForNotificationWithTimeout(Duration timeout) const {
  const bool notified = Call<bool>(LODESTAR_ABSL_CONST
                                   "12Notification30WaitForNotificationWithTimeoutENS0_8DurationE",
                                   this, timeout);
  if (notified) Acquire(this);
  return notified;
}

bool BlockingCounter::DecrementCount() {
  Release(this);
  return Call<bool>(LODESTAR_ABSL "15BlockingCounter14DecrementCountEv", this);
}
void BlockingCounter::Wait() {
  Call<void>(LODESTAR_ABSL "15BlockingCounter4WaitEv", this);
  Acquire(this);
}

ABSL_NAMESPACE_END
}  // namespace absl
