// `psctl launch`: a whole cluster on this machine in one command.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "deploy/psctl/launcher.h"

namespace lodestar {

struct LaunchOptions {
  int servers = 1;
  int workers = 2;
  int threads = 1;  // per worker, CPU devices
  std::string device = "auto";
  std::string data;
  std::string heldout_data;
  std::string data_format = "auto";
  std::string token_bytes = "auto";
  std::string data_partition = "shared";
  bool exit_when_done = false;            // else the servers stay until they are told to stop
  std::vector<std::string> server_flags;  // given to every ps_server as they are
};

// What this machine has for a launch.
struct LaunchSite {
  std::string server_program;
  std::string worker_program;
  std::vector<int> ports;  // one per server, on the loopback address
  int num_cards = 0;       // CUDA devices
};

// The servers, then the workers. Workers are dealt out over the cards, if there is more than one
// and `device` does not name one.
std::vector<ProcessSpec> PlanLaunch(const LaunchOptions& options, const LaunchSite& site);

// Errors: InvalidArgument for a flag, also one in a flag file, that the launch gives to each server
// itself: workers would look for a server that is not there.
absl::Status CheckServerFlags(absl::Span<const std::string> server_flags);

// Runs until all roles have ended; returns the exit code of the first that failed. `program` is the
// path of psctl: the other binaries lie beside it or in the sibling folders of a Bazel build.
int RunLaunch(const LaunchOptions& options, const std::string& program);

}  // namespace lodestar
