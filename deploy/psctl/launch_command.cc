#include "deploy/psctl/launch_command.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/flag_file.h"
#include "common/status_macros.h"
#include "kernels/cuda_plugin.h"

namespace lodestar {
namespace {

constexpr int kGraceSeconds = 30;
constexpr int kExitBadFlags = 2;

void Say(const std::string& text) {
  std::printf("[launch] %s\n", text.c_str());
  std::fflush(stdout);
}

int Refuse(const absl::Status& status) {
  std::fprintf(stderr, "psctl launch: %s\n", std::string(status.message()).c_str());
  return kExitBadFlags;
}

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

struct OwnFlag {
  absl::string_view name;
  absl::string_view instead;
};

constexpr absl::string_view kOwnPlaces =
    "a launch is on free ports of 127.0.0.1; start ps_server and gpu_worker by hand for others";

// What a launch gives to each server itself.
constexpr OwnFlag kOwnFlags[] = {
    {"listen", kOwnPlaces},
    {"advertise", kOwnPlaces},
    {"coordinator", kOwnPlaces},
    {"shard", "psctl launch --servers=N decides it"},
    {"exit_when_done", "psctl launch --exit_when_done decides it"},
    {"noexit_when_done", "psctl launch --exit_when_done decides it"},
};

// Flag files may include flag files; ps_server itself refuses those that are deeper.
constexpr int kMaxFlagFileDepth = 8;

absl::Status CheckFlagFiles(absl::string_view paths, int depth);

// `where` the argument stands.
absl::Status CheckFlag(absl::string_view argument, absl::string_view where, int depth) {
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(argument, absl::MaxSplits('=', 1));
  const absl::string_view name = parts.first.substr(parts.first.find_first_not_of('-'));
  if (name == "flagfile") return CheckFlagFiles(parts.second, depth);
  for (const OwnFlag& own : kOwnFlags) {
    if (name != own.name) continue;
    return absl::InvalidArgumentError(absl::StrCat("--", name, " (", where, "): ", own.instead));
  }
  return absl::OkStatus();
}

absl::Status CheckFlagFiles(absl::string_view paths, int depth) {
  if (depth == kMaxFlagFileDepth) return absl::OkStatus();
  for (absl::string_view path : absl::StrSplit(paths, ',', absl::SkipEmpty())) {
    const absl::StatusOr<std::vector<FlagFileLine>> lines = ReadFlagFile(std::string(path));
    if (!lines.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("--flagfile: ", lines.status().message()));
    }
    for (const FlagFileLine& line : *lines) {
      RETURN_IF_ERROR(
          CheckFlag(line.argument, absl::StrCat(path, " line ", line.number), depth + 1));
    }
  }
  return absl::OkStatus();
}

bool IsCudaWanted(const LaunchOptions& options) {
  return options.device == "auto" || options.device == "cuda";
}

std::string DeviceOf(int worker, const LaunchOptions& options, const LaunchSite& site) {
  // With one card `auto` stays: it falls back to the CPU where the card cannot be used.
  if (!IsCudaWanted(options) || site.num_cards < 2) return options.device;
  return absl::StrCat("cuda:", worker % site.num_cards);
}

absl::StatusOr<LaunchSite> FindSite(const LaunchOptions& options, const std::string& program) {
  LaunchSite site;
  ASSIGN_OR_RETURN(site.server_program, FindBinary(program, "ps_server", "server"));
  ASSIGN_OR_RETURN(site.worker_program, FindBinary(program, "gpu_worker", "worker"));
  ASSIGN_OR_RETURN(site.ports, FreePorts(options.servers));
  if (options.workers > 1 && IsCudaWanted(options)) {
    site.num_cards = CountCudaDevices().value_or(0);  // each worker says why it has none
  }
  return site;
}

}  // namespace

absl::Status CheckServerFlags(absl::Span<const std::string> server_flags) {
  for (size_t i = 0; i < server_flags.size(); ++i) {
    std::string flag = server_flags[i];
    if (!absl::StartsWith(flag, "-") || flag.find_first_not_of('-') == std::string::npos) continue;
    // The form --flagfile PATH.
    if (absl::EndsWith(flag, "-flagfile") && i + 1 < server_flags.size()) {
      absl::StrAppend(&flag, "=", server_flags[i + 1]);
    }
    RETURN_IF_ERROR(CheckFlag(flag, "behind --", /*depth=*/0));
  }
  return absl::OkStatus();
}

std::vector<ProcessSpec> PlanLaunch(const LaunchOptions& options, const LaunchSite& site) {
  std::vector<ProcessSpec> specs;
  const std::string coordinator = absl::StrCat("127.0.0.1:", site.ports[0]);
  for (int i = 0; i < options.servers; ++i) {
    ProcessSpec spec;
    spec.role = absl::StrCat("server-", i);
    spec.arguments = {site.server_program, absl::StrCat("--listen=127.0.0.1:", site.ports[i]),
                      absl::StrCat("--shard=", i, "/", options.servers)};
    if (i > 0) spec.arguments.push_back(absl::StrCat("--coordinator=", coordinator));
    if (i == 0 && options.exit_when_done) spec.arguments.push_back("--exit_when_done");
    spec.arguments.insert(spec.arguments.end(), options.server_flags.begin(),
                          options.server_flags.end());
    spec.ends_cluster = i == 0;
    // Workers hand in what they have while the servers are there; these save it.
    spec.ends_last = true;
    specs.push_back(std::move(spec));
  }
  for (int i = 0; i < options.workers; ++i) {
    ProcessSpec spec;
    spec.role = absl::StrCat("worker-", i);
    spec.arguments = {site.worker_program,
                      absl::StrCat("--coordinator=", coordinator),
                      absl::StrCat("--name=worker-", i),
                      absl::StrCat("--data=", options.data),
                      absl::StrCat("--heldout_data=", options.heldout_data),
                      absl::StrCat("--data_format=", options.data_format),
                      absl::StrCat("--token_bytes=", options.token_bytes),
                      absl::StrCat("--data_partition=", options.data_partition),
                      absl::StrCat("--device=", DeviceOf(i, options, site)),
                      absl::StrCat("--threads=", options.threads)};
    specs.push_back(std::move(spec));
  }
  return specs;
}

int RunLaunch(const LaunchOptions& options, const std::string& program) {
  Launcher::BlockSignals();
  const absl::StatusOr<LaunchSite> site = FindSite(options, program);
  if (!site.ok()) return Refuse(site.status());
  const std::string server = absl::StrCat("--server=127.0.0.1:", site->ports[0]);
  Say(absl::StrCat("the coordinator: psctl status ", server));
  Launcher launcher;
  for (const ProcessSpec& spec : PlanLaunch(options, *site)) {
    if (const absl::Status status = launcher.Start(spec); !status.ok()) return Refuse(status);
  }
  return launcher.Wait(kGraceSeconds, [&] {
    if (options.exit_when_done) return;
    Say(absl::StrCat("the workers have ended; the servers stay for psctl export ", server,
                     " until Ctrl-C or psctl stop ", server));
  });
}

}  // namespace lodestar
