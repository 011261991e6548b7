// SPDX-License-Identifier: Apache-2.0

#include "common/process/stop_signals.h"

#include <pthread.h>

#include <utility>

#include "common/runtime/clock.h"

namespace lodestar::process {
namespace {

// Value that AskToStop() attaches to its signal.
constexpr int kAsksOnce = 0x10de57a6;
// Signal that wakes the thread of a SignalWaiter to end it. The signal is always blocked, so that
// it cannot be lost.
constexpr int kWakeSignal = SIGTERM;

bool IsIgnored(int signal) {
  struct sigaction action = {};
  return sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

void AddUnlessIgnored(int signal, sigset_t& signals) {
  if (!IsIgnored(signal)) sigaddset(&signals, signal);
}

// Returns all signals that a SignalWaiter waits for.
sigset_t AllSignals() {
  const sigset_t stop = StopSignals();
  const sigset_t save = SaveSignals();
  sigset_t signals;
  sigorset(&signals, &stop, &save);
  sigaddset(&signals, kWakeSignal);
  return signals;
}

bool IsOfAskToStop(const siginfo_t& signal) {
  return signal.si_signo == SIGTERM && signal.si_code == SI_QUEUE &&
         signal.si_value.sival_int == kAsksOnce;
}

}  // namespace

sigset_t StopSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGTERM, SIGHUP, SIGXCPU}) AddUnlessIgnored(signal, signals);
  if (!IsIgnored(SIGINT) || IsIgnored(SIGQUIT)) sigaddset(&signals, SIGINT);
  return signals;
}

sigset_t SaveSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  AddUnlessIgnored(SIGUSR1, signals);
  AddUnlessIgnored(SIGUSR2, signals);
  return signals;
}

void BlockSaveSignals() {
  const sigset_t signals = SaveSignals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
}

void BlockStopSignals() {
  const sigset_t signals = AllSignals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
}

int PendingStopSignal() {
  const sigset_t signals = StopSignals();
  sigset_t pending;
  sigpending(&pending);
  for (int signal = 1; signal < NSIG; ++signal) {
    if (sigismember(&signals, signal) == 1 && sigismember(&pending, signal) == 1) return signal;
  }
  return 0;
}

void AskToStop(pid_t pid) { sigqueue(pid, SIGTERM, {.sival_int = kAsksOnce}); }

SignalFilter::Meaning SignalFilter::Take(const siginfo_t& signal, absl::Time now) {
  if (signal.si_signo == SIGUSR1 || signal.si_signo == SIGUSR2) {
    if (num_stops_ > 0 || now - last_save_ < kSameWish) return Meaning::kRepeat;
    last_save_ = now;
    return Meaning::kSave;
  }
  const bool counts_once = signal.si_signo == SIGXCPU || IsOfAskToStop(signal);
  if (num_stops_ > 0 && (counts_once || now - last_stop_ < kSameWish)) return Meaning::kRepeat;
  last_stop_ = now;
  ++num_stops_;
  return Meaning::kStop;
}

SignalWaiter::SignalWaiter(OnStop on_stop, OnSave on_save)
    : on_stop_(std::move(on_stop)),
      on_save_(std::move(on_save)),
      thread_([this] { WaitForSignals(); }) {}

SignalWaiter::~SignalWaiter() {
  ending_ = true;
  // The signal is for that thread only. No other thread can receive it.
  pthread_kill(thread_.native_handle(), kWakeSignal);
  thread_.join();
}

void SignalWaiter::WaitForSignals() {
  const sigset_t signals = AllSignals();
  SignalFilter filter;
  while (true) {
    siginfo_t info = {};
    const int signal = sigwaitinfo(&signals, &info);
    if (ending_) return;
    // sigwaitinfo() may fail, for example if a debugger interrupts it. kWakeSignal may arrive
    // although the program ignores it, and then means nothing.
    if (signal < 0 || (signal == kWakeSignal && IsIgnored(kWakeSignal))) continue;
    switch (filter.Take(info, Clock::Real().Now())) {
      case SignalFilter::Meaning::kRepeat:
        break;
      case SignalFilter::Meaning::kStop:
        on_stop_(filter.num_stops(), signal);
        break;
      case SignalFilter::Meaning::kSave:
        on_save_(signal);
        break;
    }
  }
}

}  // namespace lodestar::process
