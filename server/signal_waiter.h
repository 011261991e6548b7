// SIGTERM and SIGINT as calls on a thread of our own: the first asks to stop in order, the second
// to stop at once.
#pragma once

#include <atomic>
#include <functional>
#include <thread>

namespace lodestar {

// Blocks both signals for the calling thread and those it starts later. Called in main() before any
// thread exists, so that only SignalWaiter sees them.
void BlockStopSignals();

// One that has come and that no SignalWaiter has taken, as there is none yet; 0: none.
int PendingStopSignal();

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
