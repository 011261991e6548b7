#include "server/signal_waiter.h"

#include <pthread.h>

#include <csignal>
#include <utility>

namespace lodestar {
namespace {

sigset_t StopSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  return signals;
}

}  // namespace

void BlockStopSignals() {
  const sigset_t signals = StopSignals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
}

int PendingStopSignal() {
  sigset_t pending;
  sigpending(&pending);
  for (int signal : {SIGTERM, SIGINT}) {
    if (sigismember(&pending, signal) == 1) return signal;
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
  const sigset_t signals = StopSignals();
  for (int count = 1;; ++count) {
    int signal = 0;
    if (sigwait(&signals, &signal) != 0 || ending_) return;
    on_signal_(count, signal);
  }
}

}  // namespace lodestar
