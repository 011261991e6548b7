// The signals that ask a program to stop, or to save and go on, for programs that wait for them
// with sigwait() or a SignalWaiter. A library in a program that is not ours takes no signals.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <csignal>
#include <functional>
#include <thread>

#include "absl/time/time.h"

namespace lodestar {

// SIGTERM, SIGINT, SIGHUP, which comes when the terminal is gone, and SIGXCPU, which comes each
// second from the soft limit of processor time on. Without those that were ignored when the program
// began, as SIGHUP is under nohup. SIGINT also counts if SIGQUIT is ignored with it: shells do that
// to each program that a script starts with `&`, and scripts end such programs with `kill -INT`.
sigset_t StopSignals();

// SIGUSR1 and SIGUSR2, which batch systems send some time before a job's end; without those that
// were ignored when the program began.
sigset_t SaveSignals();

// Blocks SaveSignals() for the calling thread and those it starts later.
void BlockSaveSignals();

// Blocks StopSignals() and SaveSignals() for the calling thread and those it starts later. Called
// once at the top of main(), before any thread.
void BlockStopSignals();

// Returns one of StopSignals() that has come and that nothing has taken yet. 0 means none.
int PendingStopSignal();

// Asks the process `pid` to stop, which is no second wish where it is stopping already: SIGTERM
// with a mark that our programs know.
void AskToStop(pid_t pid);

// Tells new wishes from repeats of one. One wish may come as several signals: timeout(1) signals
// its child and then its group; npm, systemd and slurmstepd signal all processes of a group, and so
// does the one among them that started the others. Pure: the time is given. Not thread-safe.
class SignalFilter {
 public:
  enum class Meaning { kRepeat, kStop, kSave };

  // Signals within this time after a wish are the same wish.
  static constexpr absl::Duration kSameWish = absl::Seconds(1);

  // `signal` is one of StopSignals() or SaveSignals(). SIGXCPU and what AskToStop() has sent mean
  // kStop only if nothing has before. After kStop nothing means kSave.
  Meaning Take(const siginfo_t& signal, absl::Time now);

  // How often Take() has returned kStop.
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
  // Both are called on the waiter's thread. `count` is 1 for the first wish to stop.
  using OnStop = std::function<void(int count, int signal)>;
  using OnSave = std::function<void(int signal)>;

  SignalWaiter(OnStop on_stop, OnSave on_save);
  ~SignalWaiter();  // joins; must not run inside a callback

 private:
  void WaitForSignals();

  const OnStop on_stop_;
  const OnSave on_save_;
  std::atomic<bool> ending_ = false;
  std::thread thread_;
};

}  // namespace lodestar
