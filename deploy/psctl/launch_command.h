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
  int workers = 2;  // With hosts, their file says how many there are.
  int threads = 1;  // The threads of each worker that computes on the CPU.
  std::string device = "auto";
  std::string data;
  std::string heldout_data;
  std::string data_format = "auto";
  std::string token_bytes = "auto";
  std::string data_partition = "shared";
  bool exit_when_done = false;  // Otherwise the servers stay until they are told to stop.
  // The address of this machine for the workers on hosts. Empty means its name.
  std::string address;
  std::string hosts;  // The file with the hosts that workers run on. Empty means this machine.
  std::string ssh = "ssh";                    // The program that runs a command on a host.
  std::string worker_program = "gpu_worker";  // Its name on the hosts.
  int restarts = 0;                           // It holds for each role: see ProcessSpec.
  std::vector<std::string> server_flags;      // Every ps_server is given them as they are.
  // Every gpu_worker is given them, behind those of the launch.
  std::vector<std::string> worker_flags;
};

// What this machine has for a launch.
struct LaunchSite {
  std::string server_program;
  std::string worker_program;
  std::vector<int> ports;  // One port per server, on the loopback address.
  int num_cards = 0;       // The number of CUDA devices.
};

// Plan the servers and the workers of this machine. If the machine has more than one card and
// `device` does not name one, the workers are dealt out over the cards. With cuda:all every card is
// given to a worker. The job begins once all workers are there, unless the servers are given
// --min_workers. Workers log in the way that the servers are told to. If workers are on other
// hosts, the servers listen for them, in TLS.
std::vector<ProcessSpec> PlanServers(const LaunchOptions& options, const LaunchSite& site);
std::vector<ProcessSpec> PlanWorkers(const LaunchOptions& options, const LaunchSite& site);
// Plans the workers on hosts. They are started over ssh, with a secret in the input, so that no
// list of processes shows it. A worker is told to end, and hands in, when the connection ends.
std::vector<ProcessSpec> PlanHosts(const LaunchOptions& options, absl::Span<const WorkerHost> hosts,
                                   const std::string& join);

// The workers of PlanHosts().
std::vector<RegistrationWatch::Worker> WorkersOf(absl::Span<const WorkerHost> hosts);

// Splits a text such as "--dtype=bf16 --recompute=block" into a list. Errors: InvalidArgument for a
// word that is no flag, or that the launch gives to each worker itself.
absl::StatusOr<std::vector<std::string>> ParseWorkerFlags(const std::string& text);
// Checks the device before workers would end with it, one by one. Errors: InvalidArgument if
// gpu_worker does not know the device, or if this machine does not have the card. The CUDA plugin
// beside this program says which cards there are.
absl::Status CheckLaunchDevice(const std::string& device);

// Errors: InvalidArgument for a flag that the launch gives to each server itself, also one in a
// flag file. With such a flag workers would look for a server that is not there.
absl::Status CheckServerFlags(absl::Span<const std::string> server_flags);

// Runs until all roles have ended. Returns the exit code of the first that failed. `program` is the
// path of psctl: the other binaries lie beside it or in the sibling folders of a Bazel build.
int RunLaunch(LaunchOptions options, const std::string& program);

}  // namespace lodestar
