// SPDX-License-Identifier: Apache-2.0

// gpu_worker: reads the flags, runs one Worker, and handles signals.

#include <unistd.h>

#include <cstdio>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/logging/logging.h"
#include "common/output/output_file.h"
#include "common/process/command_line.h"
#include "common/process/process_setup.h"
#include "common/process/service_manager.h"
#include "common/process/stop_signals.h"
#include "common/process/version.h"
#include "common/runtime/clock.h"
#include "common/runtime/join_secret.h"
#include "common/runtime/peer_text.h"
#include "common/runtime/status_macros.h"
#include "proto/bulk_options.h"
#include "proto/grpc_environment.h"
#include "worker/built_in_workload.h"
#include "worker/notice/notice_source_factory.h"
#include "worker/notice/notice_watch.h"
#include "worker/process_age.h"
#include "worker/service_reports.h"
#include "worker/worker.h"
#include "worker/worker_entry.h"
#include "worker/worker_flags.h"

namespace lodestar::worker {
namespace {

constexpr int kExitBadFlags = 2;
constexpr int kExitPermanent = 1;
constexpr int kExitRetry = 129;
constexpr int kExitNotHandedIn = 200;  // Higher than the codes of signals.

// Handles signals as long as the process lives. Before set_worker(), the first stop signal ends the
// process, because no work can be lost yet. After set_worker(), the first stop signal asks the
// worker to stop, and the second ends the process.
class StopSignalHandler {
 public:
  // Starts to handle signals. `grace` is the time that the worker has after a stop signal.
  // `manager` gets a message as soon as a stop signal arrives. Must be called before any other
  // thread is started.
  void Start(absl::Duration grace, const process::ServiceManager* manager) {
    grace_ = grace;
    manager_ = manager;
    process::BlockStopSignals();
    waiter_.emplace(
        [this](int count, int signal) { OnStop(count, signal); },
        [](int signal) {
          logging::LogInfo(
              "signal {}: this worker continues; the servers save what it has delivered", signal);
        });
  }

  void set_worker(Worker* worker) {
    absl::MutexLock lock(&mutex_);
    worker_ = worker;
  }

 private:
  void OnStop(int count, int signal) {
    manager_->TellStopping();
    if (count > 1) {
      logging::FlushLog();
      _exit(128 + signal);
    }
    absl::MutexLock lock(&mutex_);
    if (worker_ == nullptr) {
      logging::LogInfo("signal {}: the worker stopped before it was connected", signal);
      logging::FlushLog();
      _exit(0);
    }
    logging::LogInfo(
        "signal {}: the worker finishes its step, delivers its work and leaves within {}; send the "
        "signal again to stop at once",
        signal, absl::FormatDuration(grace_));
    worker_->RequestStop({.grace = grace_});
  }

  // grace_ and manager_ are set before the thread of waiter_ starts, and do not change later.
  absl::Duration grace_;
  const process::ServiceManager* manager_ = nullptr;
  absl::Mutex mutex_;
  Worker* worker_ ABSL_GUARDED_BY(mutex_) = nullptr;
  // waiter_ must be the last member, because its thread uses the other members.
  std::optional<process::SignalWaiter> waiter_;
};

// Returns the exit code for `status`. AlreadyExists means that another process has the name until
// its lease ends, and Unavailable that a server is away. These two errors are temporary.
int ExitCode(const absl::Status& status) {
  if (status.ok()) return 0;
  if (absl::IsDeadlineExceeded(status)) return kExitNotHandedIn;
  const bool may_pass = absl::IsAlreadyExists(status) || absl::IsUnavailable(status);
  return may_pass ? kExitRetry : kExitPermanent;
}

int BadUsage(const absl::Status& error) {
  std::fprintf(stderr, "gpu_worker: %s\n", PeerLines(WithoutJoinSecrets(error.message())).c_str());
  return kExitBadFlags;
}

int Print(const std::string& text) {
  const absl::Status written = output::WriteToStandardOutput(text);
  if (written.ok()) return 0;
  logging::LogError("{}", written.message());
  return kExitPermanent;
}

int RunWorker(const process::CommandLine& line) {
  absl::StatusOr<WorkerFlags> flags = ReadWorkerFlags(line.given);
  if (!flags.ok()) return BadUsage(flags.status());
  flags->worker.started_at = Clock::Real().Now() - ProcessAge();
  logging::InitLogging(flags->worker.name, flags->log_level, flags->log_format);
  for (const std::string& doubt : line.doubts) logging::LogWarn("{}", doubt);
  const process::ServiceManager manager = process::ServiceManager::FromEnvironment();
  StopSignalHandler signals;
  signals.Start(flags->worker.life.leave_timeout, &manager);
  ServiceReports reports(manager, "joins its cluster", flags->stall_timeout, &Clock::Real());
  // Never interrupted: there is no worker yet, so a stop signal ends the process at once.
  const auto credentials = WorkerCredentials::Await(
      flags->entrance, [] { return false; }, &flags->worker);
  if (!credentials.ok()) {
    logging::LogError("{}", credentials.status().message());
    logging::FlushLog();
    // AlreadyExists means that another worker has the name. This is permanent, because the name is
    // free only when the certificate of that worker expires.
    _exit(absl::IsUnavailable(credentials.status()) ? kExitRetry : kExitPermanent);
  }
  logging::InitLogging(flags->worker.name, flags->log_level, flags->log_format);
  // From here on, the service manager gets the worker's state. So it notices if the driver of a
  // card hangs while the device is opened.
  reports.Watch([] {
    return ServiceReports::State{
        .standing = "opens its device",
        .work = StallWatch::Work{.what = "opens its device", .first_factor = 1}};
  });
  absl::StatusOr<std::unique_ptr<Worker>> worker =
      MakeBuiltInWorker(flags->worker, flags->workload, &Clock::Real());
  absl::Status status = worker.status();
  std::optional<notice::NoticeWatch> notices;
  if (worker.ok()) {
    signals.set_worker(worker->get());
    reports.Watch([raw = worker->get()] { return raw->service_state(); });
    if (flags->notice.has_value()) {
      notices.emplace(
          notice::MakeNoticeSource(*flags->notice), flags->notice_watch, &Clock::Real(),
          [raw = worker->get()](const notice::MachineNotice& notice) {
            logging::LogInfo(
                "{}: the worker delivers its work and leaves within {}", notice.text,
                absl::FormatDuration(absl::Trunc(notice.left, absl::Milliseconds(100))));
            raw->RequestStop({.grace = notice.left, .machine_goes = true});
          });
    }
    status = (*worker)->Run();
  }
  if (!status.ok()) logging::LogError("{}", status.message());
  (*credentials)->OnEnd(status);
  logging::FlushLog();
  // The threads of the signal handler and of the notice watch still use these objects. So the
  // process ends without destructors, which might also wait for a metadata service.
  _exit(worker.ok() ? ExitCode(status) : kExitPermanent);
}

int Main(const std::vector<std::string>& arguments) {
  if (arguments.empty()) {
    std::fputs(absl::StrCat(WorkerShortHelp(), "\ngpu_worker: --data is missing\n").c_str(),
               stderr);
    return kExitBadFlags;
  }
  const absl::StatusOr<process::CommandLine> command_line = process::ParseCommandLine(arguments);
  if (!command_line.ok()) return BadUsage(command_line.status());
  switch (command_line->request) {
    case process::CommandLineRequest::kHelp:
      return Print(WorkerShortHelp());
    case process::CommandLineRequest::kHelpFull:
      return Print(WorkerHelp());
    case process::CommandLineRequest::kVersion:
      return Print(process::VersionText("gpu_worker"));
    case process::CommandLineRequest::kRun:
      break;
  }
  if (const absl::Status words = process::CheckOnlyFlags(*command_line); !words.ok())
    return BadUsage(words);
  return RunWorker(*command_line);
}

}  // namespace
}  // namespace lodestar::worker

int main(int argc, char** argv) {
  lodestar::process::SetUpProgram();
  lodestar::wire::ExitUnlessTransportWorks("gpu_worker");
  lodestar::process::SetUpMalloc();
  lodestar::process::SetUpMutexes();
  lodestar::process::RaiseFileLimit();
  lodestar::wire::SetUpGrpcProcess();
  lodestar::process::FlushDenormals();
  return lodestar::worker::Main(std::vector<std::string>(argv + 1, argv + argc));
}
