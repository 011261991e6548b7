// gpu_worker: flags in, one Worker, signals.

#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/clock.h"
#include "common/command_line.h"
#include "common/float_setup.h"
#include "common/logging.h"
#include "common/malloc_setup.h"
#include "common/mutex_setup.h"
#include "common/output_file.h"
#include "common/stop_signals.h"
#include "common/version.h"
#include "worker/worker.h"
#include "worker/worker_flags.h"

namespace lodestar {
namespace {

constexpr int kExitBadFlags = 2;
constexpr int kExitPermanent = 1;
constexpr int kExitRetry = 129;
constexpr int kExitNotHandedIn = 200;  // above those of signals

// The first signal asks the worker to stop, the second ends the process.
void HandleSignals(const sigset_t& signals, Worker* worker) {
  int signal = 0;
  if (sigwait(&signals, &signal) != 0) return;
  LogInfo("signal {}: finishing the step at hand (once more to stop at once)", signal);
  worker->RequestStop();
  if (sigwait(&signals, &signal) != 0) return;
  FlushLog();
  _exit(128 + signal);
}

// Another process may hold the name only for as long as its lease; everything else is for good.
int ExitCode(const absl::Status& status) {
  if (status.ok()) return 0;
  if (absl::IsDeadlineExceeded(status)) return kExitNotHandedIn;
  return absl::IsAlreadyExists(status) ? kExitRetry : kExitPermanent;
}

int BadUsage(const absl::Status& error) {
  std::fprintf(stderr, "gpu_worker: %s\n", std::string(error.message()).c_str());
  return kExitBadFlags;
}

int Print(const std::string& text) {
  const absl::Status written = WriteToStandardOutput(text);
  if (written.ok()) return 0;
  LogError("{}", written.message());
  return kExitPermanent;
}

int RunWorker() {
  absl::StatusOr<WorkerFlags> flags = ReadWorkerFlags();
  if (!flags.ok()) return BadUsage(flags.status());
  InitLogging(flags->worker.name, flags->log_level);
  const sigset_t signals = StopSignals();
  BlockStopSignals();
  absl::StatusOr<std::unique_ptr<Worker>> worker = Worker::Create(flags->worker, &Clock::Real());
  if (!worker.ok()) {
    LogError("{}", worker.status().message());
    return kExitPermanent;
  }
  std::thread(HandleSignals, signals, worker->get()).detach();
  const absl::Status status = (*worker)->Run();
  if (!status.ok()) LogError("{}", status.message());
  FlushLog();
  // The signal thread still points at the worker: leave without running destructors.
  _exit(ExitCode(status));
}

int Main(const std::vector<std::string>& arguments) {
  const absl::StatusOr<CommandLine> command_line = ParseCommandLine(arguments);
  if (!command_line.ok()) return BadUsage(command_line.status());
  switch (command_line->request) {
    case CommandLineRequest::kHelp:
      return Print(WorkerHelp());
    case CommandLineRequest::kVersion:
      return Print(VersionText("gpu_worker"));
    case CommandLineRequest::kRun:
      break;
  }
  if (const absl::Status words = CheckOnlyFlags(*command_line); !words.ok()) return BadUsage(words);
  return RunWorker();
}

}  // namespace
}  // namespace lodestar

int main(int argc, char** argv) {
  lodestar::SetUpMalloc();
  lodestar::SetUpMutexes();
  lodestar::FlushDenormals();
  return lodestar::Main(std::vector<std::string>(argv + 1, argv + argc));
}
