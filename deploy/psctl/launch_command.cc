#include "deploy/psctl/launch_command.h"

#include <arpa/inet.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "deploy/psctl/launcher.h"

namespace lodestar {
namespace {

constexpr int kGraceSeconds = 30;
constexpr int kExitBadFlags = 2;

// Ports that the kernel gave out a moment ago; kept open together so that they differ.
absl::StatusOr<std::vector<int>> FreePorts(int count) {
  std::vector<int> sockets;
  std::vector<int> ports;
  absl::Status status;
  for (int i = 0; i < count && status.ok(); ++i) {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockets.push_back(fd);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address);
    if (fd < 0 || bind(fd, reinterpret_cast<sockaddr*>(&address), length) != 0 ||
        getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
      status = absl::ResourceExhaustedError("no free port on 127.0.0.1");
    } else {
      ports.push_back(ntohs(address.sin_port));
    }
  }
  for (int fd : sockets) close(fd);
  if (!status.ok()) return status;
  return ports;
}

// Beside psctl (installed), else where Bazel puts it.
absl::StatusOr<std::string> FindBinary(const std::string& program, const std::string& name,
                                       const std::string& bazel_folder) {
  const std::string folder = program.substr(0, program.rfind('/') + 1);
  for (const std::string& path :
       {absl::StrCat(folder, name), absl::StrCat(folder, "../../", bazel_folder, "/", name)}) {
    if (access(path.c_str(), X_OK) == 0) return path;
  }
  return absl::NotFoundError(absl::StrCat("no ", name, " beside ", program, " nor in ", folder,
                                          "../../", bazel_folder, "; build it first"));
}

absl::Status StartAll(const LaunchOptions& options, const std::string& program,
                      Launcher* launcher) {
  ASSIGN_OR_RETURN(const std::string server, FindBinary(program, "ps_server", "server"));
  ASSIGN_OR_RETURN(const std::string worker, FindBinary(program, "gpu_worker", "worker"));
  ASSIGN_OR_RETURN(const std::vector<int> ports, FreePorts(options.servers));
  const std::string coordinator = absl::StrCat("127.0.0.1:", ports[0]);
  std::printf("[launch] coordinator at %s; psctl --server=%s status\n", coordinator.c_str(),
              coordinator.c_str());
  for (int i = 0; i < options.servers; ++i) {
    ProcessSpec spec;
    spec.role = absl::StrCat("server-", i);
    spec.arguments = {server, absl::StrCat("--listen=127.0.0.1:", ports[i]),
                      absl::StrCat("--shard=", i, "/", options.servers), "--exit_when_done"};
    if (i > 0) spec.arguments.push_back(absl::StrCat("--coordinator=", coordinator));
    spec.arguments.insert(spec.arguments.end(), options.server_flags.begin(),
                          options.server_flags.end());
    spec.ends_cluster = i == 0;
    // Workers hand in what they have while the servers are there; these save it.
    spec.ends_last = true;
    RETURN_IF_ERROR(launcher->Start(spec));
  }
  for (int i = 0; i < options.workers; ++i) {
    ProcessSpec spec;
    spec.role = absl::StrCat("worker-", i);
    spec.arguments = {worker,
                      absl::StrCat("--coordinator=", coordinator),
                      absl::StrCat("--name=worker-", i),
                      absl::StrCat("--data=", options.data),
                      absl::StrCat("--heldout_data=", options.heldout_data),
                      absl::StrCat("--data_format=", options.data_format),
                      absl::StrCat("--token_bytes=", options.token_bytes),
                      absl::StrCat("--device=", options.device),
                      absl::StrCat("--threads=", options.threads)};
    RETURN_IF_ERROR(launcher->Start(spec));
  }
  return absl::OkStatus();
}

}  // namespace

int RunLaunch(const LaunchOptions& options, const std::string& program) {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGCHLD);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  Launcher launcher;
  if (const absl::Status status = StartAll(options, program, &launcher); !status.ok()) {
    std::fprintf(stderr, "psctl launch: %s\n", std::string(status.message()).c_str());
    return kExitBadFlags;
  }
  return launcher.Wait(kGraceSeconds);
}

}  // namespace lodestar
