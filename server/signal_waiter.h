// Signals that ask to stop as calls on a thread of our own: the first asks to stop in order, the
// second to stop at once. What comes within a second is the same wish: timeout(1), for example,
// signals its child and then its group.
#pragma once

#include <atomic>
#include <functional>
#include <thread>

namespace lodestar {

// One of StopSignals() that has come and that no SignalWaiter has taken, as there is none yet; 0:
// none.
int PendingStopSignal();

// BlockStopSignals() was called before any thread was started, so that only this one sees them.
class SignalWaiter {
 public:
  // `on_signal` is called on the waiter's thread with the count of signals so far (1, 2, ...).
  explicit SignalWaiter(std::function<void(int count, int signal)> on_signal);
  ~SignalWaiter();  // joins; must not run inside on_signal

 private:
  void WaitForSignals();

  const std::function<void(int, int)> on_signal_;
  std::atomic<bool> ending_ = false;
  std::thread thread_;
};

}  // namespace lodestar
