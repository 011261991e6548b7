// ps_server: holds the weights that GPU workers train together.
#include <sys/time.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/logging.h"
#include "common/output_file.h"
#include "common/process_setup.h"
#include "common/status_macros.h"
#include "common/stop_signals.h"
#include "common/version.h"
#include "proto/bulk_options.h"
#include "server/leader_lease/leader_lease.h"
#include "server/leader_lease/lease_address.h"
#include "server/leader_lease/lease_store_factory.h"
#include "server/replica_server.h"
#include "server/server.h"
#include "server/server_flags.h"
#include "server/signal_waiter.h"

namespace lodestar {
namespace {

constexpr int kExitDone = 0;
constexpr int kExitFailed = 1;
constexpr int kExitBadFlags = 2;
constexpr int kExitNotSaved = 3;
// 128 and above, as shells count: the same command may succeed later.
// The port or a folder is held, the disk full, the leader lease lost.
constexpr int kExitRetry = 129;
constexpr int kExitSignalBase = 128;  // told to stop

bool IsToldToStop() { return PendingStopSignal() != 0; }

int ExitCodeOfStart(const absl::Status& failure) {
  if (absl::IsCancelled(failure)) return kExitSignalBase + PendingStopSignal();
  LogError("{}", failure);
  const bool may_retry = absl::IsUnavailable(failure) ||      // the port
                         absl::IsAlreadyExists(failure) ||    // the folder
                         absl::IsResourceExhausted(failure);  // the disk is full
  return may_retry ? kExitRetry : kExitFailed;
}

int RunReplica(const ServerConfig& config) {
  ReplicaServer::Deps deps;
  deps.is_interrupted = IsToldToStop;
  absl::StatusOr<std::unique_ptr<ReplicaServer>> replica = ReplicaServer::Create(config, deps);
  if (!replica.ok()) return ExitCodeOfStart(replica.status());
  std::atomic<int> first_signal = 0;
  SignalWaiter signals([&](int count, int signal) {
    if (count > 1) _exit(kExitSignalBase + signal);
    first_signal = signal;
    LogInfo("signal={} stopping; once more: without closing anything", signal);
    (*replica)->RequestStop();
  });
  const absl::Status outcome = (*replica)->Wait();
  const bool was_told = absl::IsCancelled(outcome);
  if (!was_told) LogError("{}", outcome);
  replica->reset();
  FlushLog();
  return was_told ? kExitSignalBase + first_signal : kExitFailed;
}

// Another server is about to go on in the place of this one: nothing is saved or closed any more.
void EndAtOnce(const absl::Status& lost) {
  // Ends the process where the log cannot be written, within the time that the lease leaves for it.
  const itimerval patience = {.it_interval = {}, .it_value = {.tv_sec = 0, .tv_usec = 200'000}};
  setitimer(ITIMER_REAL, &patience, nullptr);
  LogError("{}; ends at once", lost.message());
  FlushLog();
  _exit(kExitRetry);
}

// Null: there is none to be had.
absl::StatusOr<std::unique_ptr<LeaderLease>> TakeLeaderLease(const ClusterConfig& cluster) {
  if (cluster.leader_lease.empty()) return nullptr;
  ASSIGN_OR_RETURN(const LeaseAddress address, ParseLeaseAddress(cluster.leader_lease));
  LeaseCourse::Config course;
  course.name = absl::StrCat("the leader lease ", address.ToString());
  course.claim = {NewProcessIdentity(),
                  absl::StrCat("shard ", cluster.shard, "/", cluster.num_shards)};
  LeaderLease::Deps deps;
  deps.store = MakeLeaseStore(address);
  deps.is_interrupted = IsToldToStop;
  deps.on_lost = EndAtOnce;
  return LeaderLease::Take(std::move(course), std::move(deps));
}

int RunServer(const ServerConfig& config) {
  // Given back when the server is gone: the next one finds all that this one has written.
  const absl::StatusOr<std::unique_ptr<LeaderLease>> lease = TakeLeaderLease(config.cluster);
  if (!lease.ok()) return ExitCodeOfStart(lease.status());
  Server::Deps deps;
  deps.is_interrupted = IsToldToStop;
  if (*lease != nullptr) deps.confirm_leader = [&lease] { return (*lease)->CheckHeld(); };
  absl::StatusOr<std::unique_ptr<Server>> server = Server::Create(config, deps);
  if (!server.ok()) return ExitCodeOfStart(server.status());
  std::atomic<int> first_signal = 0;
  int exit_code = kExitDone;
  {
    SignalWaiter signals([&](int count, int signal) {
      if (count == 1) first_signal = signal;
      if (count > 2) _exit(kExitSignalBase + signal);
      LogInfo(
          "signal={} stopping {}", signal,
          count == 1 ? "in order; once more: at once" : "now; once more: without closing anything");
      (*server)->RequestStop(count == 1 ? Server::StopKind::kGraceful
                                        : Server::StopKind::kImmediate);
    });
    const absl::Status outcome = (*server)->Wait();
    if (outcome.ok()) {
      LogInfo("the job is over: {}", (*server)->ending());
    } else if (absl::IsCancelled(outcome)) {
      exit_code = (*server)->is_job_done() ? kExitDone : kExitSignalBase + first_signal;
    } else {
      LogError("{}", outcome);
      exit_code = kExitFailed;
    }
    (*server)->Stop(outcome.ok() || absl::IsCancelled(outcome) ? Server::StopKind::kGraceful
                                                               : Server::StopKind::kImmediate);
    if (!(*server)->loss().ok()) {
      LogError("{}", (*server)->loss().message());
      exit_code = kExitNotSaved;
    }
  }
  FlushLog();
  return exit_code;
}

int Print(const std::string& text) {
  const absl::Status written = WriteToStandardOutput(text);
  if (written.ok()) return kExitDone;
  LogError("{}", written.message());
  return kExitFailed;
}

int Main(const std::vector<std::string>& arguments) {
  const absl::StatusOr<ServerCommandLine> line = ParseServerCommandLine(arguments);
  if (!line.ok()) {
    std::fprintf(stderr, "ps_server: %s\n", std::string(line.status().message()).c_str());
    return kExitBadFlags;
  }
  if (line->request == CommandLineRequest::kHelp) return Print(ServerHelp());
  if (line->request == CommandLineRequest::kVersion) return Print(VersionText("ps_server"));
  InitLogging("ps_server", line->config.output.log_level);
  if (!line->ignored.empty()) {
    LogWarn("ignored, because {}: --{}",
            line->config.is_replica ? "a replica only keeps files" : "the coordinator decides",
            absl::StrJoin(line->ignored, ", --"));
  }
  return line->config.is_replica ? RunReplica(line->config) : RunServer(line->config);
}

}  // namespace
}  // namespace lodestar

int main(int argc, char** argv) {
  lodestar::SetUpMalloc();
  lodestar::SetUpMutexes();
  lodestar::FlushDenormals();
  lodestar::SetUpServerProcess();
  lodestar::BlockStopSignals();
  return lodestar::Main(std::vector<std::string>(argv + 1, argv + argc));
}
