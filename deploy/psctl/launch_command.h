// SPDX-License-Identifier: Apache-2.0

// `psctl launch` starts a whole cluster in one command, on this machine or with workers on other
// machines.
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

namespace lodestar::psctl {

struct LaunchOptions {
  int servers = 1;
  int workers = 2;  // If there are hosts, their file gives the number.
  int threads = 1;  // Number of threads of a worker on the CPU.
  std::string device = "auto";
  std::string data;
  std::string heldout_data;
  std::string data_format = "auto";
  std::string token_bytes = "auto";
  std::string data_partition = "shared";
  bool exit_when_done = false;  // Otherwise the servers stay until told to stop.
  // The address of this machine that workers on hosts connect to. Empty means the machine's name.
  std::string address;
  std::string hosts;  // The file with the hosts that workers run on. Empty means this machine.
  std::string ssh = "ssh";                    // The program that runs a command on a host.
  std::string worker_program = "gpu_worker";  // The worker's program on the hosts.
  int restarts = 0;                           // Maximum for each process: see ProcessSpec.
  std::vector<std::string> server_flags;      // These are passed to every ps_server unchanged.
  // Flags for every gpu_worker. They come after the flags that the launch itself gives.
  std::vector<std::string> worker_flags;
};

// Holds what a launch has found on this machine.
struct LaunchSite {
  std::string server_program;
  std::string worker_program;
  std::vector<int> ports;  // One port per server, on the loopback address.
  int num_cards = 0;       // The number of CUDA devices.
};

// Plan the servers and the workers of this machine:
// - If `device` names no card and there are several, each worker gets one of them.
// - With cuda:all, the workers get all cards.
// - The job begins once all workers are there, unless the servers' flags have --min_workers.
// - Workers log in the format and at the level of the servers.
// - If workers are on other hosts, the servers listen for them over TLS.
std::vector<ProcessSpec> PlanServers(const LaunchOptions& options, const LaunchSite& site);
std::vector<ProcessSpec> PlanWorkers(const LaunchOptions& options, const LaunchSite& site);
// Plans the workers on hosts, which ssh starts. The secret goes to their input, so that no list of
// processes shows it. If the connection ends, the worker delivers its steps and ends.
std::vector<ProcessSpec> PlanHosts(const LaunchOptions& options, absl::Span<const WorkerHost> hosts,
                                   const std::string& join);

// Returns the workers that PlanHosts() plans.
std::vector<RegistrationWatch::Worker> WorkersOf(absl::Span<const WorkerHost> hosts);

// Splits a text such as "--dtype=bf16 --recompute=block" into a list. Errors: InvalidArgument (a
// word is not a flag, or is a flag that the launch itself gives to each worker).
absl::StatusOr<std::vector<std::string>> ParseWorkerFlags(const std::string& text);
// Checks the device now, because otherwise each worker would fail with it. Errors: InvalidArgument
// (gpu_worker does not know the device, or this machine does not have the card). The CUDA plugin
// beside this program says which cards there are.
absl::Status CheckLaunchDevice(const std::string& device);

// Checks that `server_flags`, and the flag files that they name, have no flag that psctl launch
// gives to each server. With such a flag, workers would look for a server that is not there.
// Errors: InvalidArgument.
absl::Status CheckServerFlags(absl::Span<const std::string> server_flags);

// Runs a launch until all its processes have ended, and returns the exit code of Launcher::Wait().
// If the launch cannot start, returns an exit code for that. `program` is the path of psctl. The
// other binaries are beside it or in the sibling folders of a Bazel build.
int RunLaunch(LaunchOptions options, const std::string& program);

}  // namespace lodestar::psctl
