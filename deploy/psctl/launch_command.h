// `psctl launch`: a whole cluster on this machine in one command.
#pragma once

#include <string>
#include <vector>

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
  std::vector<std::string> server_flags;  // given to every ps_server as they are
};

// Runs until all roles have ended; returns the exit code of the first that failed. `program` is the
// path of psctl: the other binaries lie beside it or in the sibling folders of a Bazel build.
int RunLaunch(const LaunchOptions& options, const std::string& program);

}  // namespace lodestar
