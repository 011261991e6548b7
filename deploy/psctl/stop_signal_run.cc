// SPDX-License-Identifier: Apache-2.0

#include "deploy/psctl/stop_signal_run.h"

#include <pthread.h>

#include <atomic>
#include <csignal>

#include "common/process/stop_signals.h"

namespace lodestar::psctl {
namespace {

void DieOf(int signal) {
  std::signal(signal, SIG_DFL);
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, signal);
  pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
  raise(signal);
}

}  // namespace

int RunUntilStopSignal(absl::FunctionRef<int(std::stop_token stop)> command) {
  process::BlockStopSignals();
  std::stop_source stop;
  std::atomic<int> stop_signal = 0;
  int exit_code = 0;
  {
    const process::SignalWaiter waiter(
        [&](int count, int signal) {
          if (count > 1) DieOf(signal);
          stop_signal = signal;
          stop.request_stop();
        },
        /*on_save=*/[](int) {});
    exit_code = command(stop.get_token());
  }
  if (exit_code != 0 && stop_signal != 0) DieOf(stop_signal);
  return exit_code;
}

}  // namespace lodestar::psctl
