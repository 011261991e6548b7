// SPDX-License-Identifier: Apache-2.0

// Signals that ask a program to stop, or to save and go on. For programs that wait for signals with
// sigwait() or a SignalWaiter. A library in another program must not wait for signals.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <csignal>
#include <functional>
#include <thread>

#include "absl/time/time.h"

namespace lodestar::process {

// Returns the signals that ask to stop:
// - SIGTERM and SIGINT;
// - SIGHUP, which is sent when the terminal is gone;
// - SIGXCPU, which is sent each second after the soft limit of processor time is reached.
//
// Signals that were ignored when the program began are left out, such as SIGHUP under nohup. SIGINT
// stays if SIGQUIT is ignored too: a shell ignores both if a script starts a program with `&`, and
// scripts end such programs with `kill -INT`.
sigset_t StopSignals();

// Returns the signals that ask to save: SIGUSR1 and SIGUSR2, which batch systems send some time
// before a job ends. Signals that were ignored when the program began are left out.
sigset_t SaveSignals();

// Blocks SaveSignals() in the calling thread and in threads that it starts later.
void BlockSaveSignals();

// Blocks StopSignals() and SaveSignals() in the calling thread and in threads that it starts later.
// Must be called once at the top of main(), before any thread is started.
void BlockStopSignals();

// Returns a signal of StopSignals() that has arrived and is still pending. The signal stays
// pending. 0 means that there is none.
int PendingStopSignal();

// Sends SIGTERM to the process `pid`, with a mark that our programs know. If the process is already
// stopping, it does not count the signal as a second request.
void AskToStop(pid_t pid);

// Tells new requests from repeats of a request. One request may arrive as several signals. For
// example, timeout(1) signals its child, then the whole group. Pure: the caller passes the time.
// Not thread-safe.
class SignalFilter {
 public:
  enum class Meaning { kRepeat, kStop, kSave };

  // Maximum time between signals of the same request.
  static constexpr absl::Duration kSameWish = absl::Seconds(1);

  // Returns what `signal` means, which is one of StopSignals() or SaveSignals(). After the first
  // kStop:
  // - SIGXCPU, the signal of AskToStop() and all of SaveSignals() mean kRepeat;
  // - each other signal means kRepeat within kSameWish of the last kStop, and kStop after that.
  Meaning Take(const siginfo_t& signal, absl::Time now);

  // Returns how often Take() has returned kStop.
  int num_stops() const { return num_stops_; }

 private:
  int num_stops_ = 0;
  absl::Time last_stop_ = absl::InfinitePast();
  absl::Time last_save_ = absl::InfinitePast();
};

// Waits for the signals on a thread of its own. Requires that BlockStopSignals() was called before
// any thread was started.
class SignalWaiter {
 public:
  // Both callbacks run on the waiter's thread. `count` is 1 for the first request to stop.
  using OnStop = std::function<void(int count, int signal)>;
  using OnSave = std::function<void(int signal)>;

  SignalWaiter(OnStop on_stop, OnSave on_save);
  ~SignalWaiter();  // joins the thread; must not run inside a callback

 private:
  void WaitForSignals();

  const OnStop on_stop_;
  const OnSave on_save_;
  std::atomic<bool> ending_ = false;
  std::thread thread_;
};

}  // namespace lodestar::process
