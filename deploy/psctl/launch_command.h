// `psctl launch`: a whole cluster in one command, on this machine, or with workers on others.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "deploy/psctl/host_list.h"
#include "deploy/psctl/launcher.h"
#include "deploy/psctl/registration_watch.h"

namespace lodestar {

struct LaunchOptions {
  int servers = 1;
  int workers = 2;  // of hosts, as many as their file says
  int threads = 1;  // per worker, CPU devices
  std::string device = "auto";
  std::string data;
  std::string heldout_data;
  std::string data_format = "auto";
  std::string token_bytes = "auto";
  std::string data_partition = "shared";
  bool exit_when_done = false;  // else the servers stay until they are told to stop
  std::string address;          // of this machine, for those on hosts; empty: its name
  std::string hosts;            // file with those that workers run on; empty: this one
  std::string ssh = "ssh";      // program that runs a command on a host
  std::string worker_program = "gpu_worker";  // on the hosts
  int restarts = 0;                           // of each role: see ProcessSpec
  std::vector<std::string> server_flags;      // given to every ps_server as they are
  std::vector<std::string> worker_flags;      // to every gpu_worker, behind those from here
};

// What this machine has for a launch.
struct LaunchSite {
  std::string server_program;
  std::string worker_program;
  std::vector<int> ports;  // one per server, on the loopback address
  int num_cards = 0;       // CUDA devices
};

// The servers, and the workers of this machine, which are dealt out over its cards, if there is
// more than one and `device` does not name one; with cuda:all every card is somebody's. The job
// begins once all workers are there, unless the servers are given --min_workers; workers log as the
// servers are told to. Where workers are on other hosts, the servers listen for them, in TLS.
std::vector<ProcessSpec> PlanServers(const LaunchOptions& options, const LaunchSite& site);
std::vector<ProcessSpec> PlanWorkers(const LaunchOptions& options, const LaunchSite& site);
// On hosts: over ssh, which a secret passes in its input and in no list of processes. A worker is
// told to end, and hands in, when the connection ends.
std::vector<ProcessSpec> PlanHosts(const LaunchOptions& options, absl::Span<const WorkerHost> hosts,
                                   const std::string& join);

// The workers of PlanHosts().
std::vector<RegistrationWatch::Worker> WorkersOf(absl::Span<const WorkerHost> hosts);

// "--dtype=bf16 --recompute=block" as a list. Errors: InvalidArgument for what is no flag, or one
// that the launch gives to each worker itself.
absl::StatusOr<std::vector<std::string>> ParseWorkerFlags(const std::string& text);
// Errors: InvalidArgument for a device that gpu_worker does not know, or a card that this machine
// does not have, as far as the CUDA plugin beside this program tells: workers would end with it,
// one by one.
absl::Status CheckLaunchDevice(const std::string& device);

// Errors: InvalidArgument for a flag, also one in a flag file, that the launch gives to each server
// itself: workers would look for a server that is not there.
absl::Status CheckServerFlags(absl::Span<const std::string> server_flags);

// Runs until all roles have ended; returns the exit code of the first that failed. `program` is the
// path of psctl: the other binaries lie beside it or in the sibling folders of a Bazel build.
int RunLaunch(LaunchOptions options, const std::string& program);

}  // namespace lodestar
