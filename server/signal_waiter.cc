#include "server/signal_waiter.h"

#include <pthread.h>

#include <chrono>
#include <csignal>
#include <optional>
#include <utility>

#include "common/stop_signals.h"

namespace lodestar {

int PendingStopSignal() {
  const sigset_t signals = StopSignals();
  sigset_t pending;
  sigpending(&pending);
  for (int signal = 1; signal < NSIG; ++signal) {
    if (sigismember(&signals, signal) == 1 && sigismember(&pending, signal) == 1) return signal;
  }
  return 0;
}

SignalWaiter::SignalWaiter(std::function<void(int, int)> on_signal)
    : on_signal_(std::move(on_signal)), thread_([this] { WaitForSignals(); }) {}

SignalWaiter::~SignalWaiter() {
  ending_ = true;
  // Only this thread can take it, as it is directed at it; the flag tells it apart from a real one.
  pthread_kill(thread_.native_handle(), SIGTERM);
  thread_.join();
}

void SignalWaiter::WaitForSignals() {
  constexpr std::chrono::seconds kSameWish(1);
  using Clock = std::chrono::steady_clock;
  const sigset_t signals = StopSignals();
  std::optional<Clock::time_point> last;
  for (int count = 1;;) {
    int signal = 0;
    if (sigwait(&signals, &signal) != 0 || ending_) return;
    const Clock::time_point now = Clock::now();
    if (last.has_value() && now - *last < kSameWish) continue;
    last = now;
    on_signal_(count++, signal);
  }
}

}  // namespace lodestar
