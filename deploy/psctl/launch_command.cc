// SPDX-License-Identifier: Apache-2.0

#include "deploy/psctl/launch_command.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <future>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/checkpoints/checkpoint_directory.h"
#include "common/checkpoints/checkpoint_manifest.h"
#include "common/process/flag_file.h"
#include "common/runtime/file_io.h"
#include "common/runtime/join_secret.h"
#include "common/runtime/json.h"
#include "common/runtime/peer_text.h"
#include "common/runtime/status_macros.h"
#include "common/storage/file_system.h"
#include "deploy/psctl/exit_code.h"
#include "kernels/factory/cuda_plugin.h"
#include "kernels/factory/device_factory.h"

namespace lodestar::psctl {
namespace {

// Time that workers have to end before they are killed. It is longer than their --leave_timeout, so
// that they can end without being killed.
constexpr int kGraceSeconds = 35;
constexpr absl::Duration kTokenPause = absl::Milliseconds(300);

void Say(const std::string& text) {
  std::printf("[launch] %s\n", text.c_str());
  std::fflush(stdout);
}

int Refuse(const absl::Status& status) {
  std::fprintf(stderr, "psctl launch: %s\n",
               PeerLines(WithoutJoinSecrets(status.message())).c_str());
  return kExitBadFlags;
}

// Returns ports that the kernel chooses. All are kept open until the last is chosen, so that they
// differ.
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
      status = absl::ResourceExhaustedError("there is no free port on 127.0.0.1");
    } else {
      ports.push_back(ntohs(address.sin_port));
    }
  }
  for (int fd : sockets) close(fd);
  if (!status.ok()) return status;
  return ports;
}

// Looks for the program beside psctl (where an installation has it), then in the folder where Bazel
// builds it, then in $PATH.
absl::StatusOr<std::string> FindBinary(const std::string& program, const std::string& name,
                                       const std::string& bazel_folder) {
  const std::string folder = program.substr(0, program.rfind('/') + 1);
  std::vector<std::string> paths = {absl::StrCat(folder, name),
                                    absl::StrCat(folder, "../../", bazel_folder, "/", name)};
  const char* const search_path = getenv("PATH");
  for (const absl::string_view place :
       absl::StrSplit(search_path == nullptr ? "" : search_path, ':', absl::SkipEmpty())) {
    paths.push_back(absl::StrCat(place, "/", name));
  }
  for (const std::string& path : paths) {
    if (access(path.c_str(), X_OK) == 0) return path;
  }
  return absl::NotFoundError(absl::StrCat("the program ", name, " is neither beside ", program,
                                          " nor in ", folder, "../../", bazel_folder,
                                          " nor in $PATH; build or install it first"));
}

struct OwnFlag {
  absl::string_view name;
  absl::string_view instead;
};

constexpr absl::string_view kOwnPlaces =
    "psctl launch chooses free ports of this machine; for other ports, start ps_server and "
    "gpu_worker yourself";

// Flags that psctl launch gives to each server. Users must not give them.
constexpr OwnFlag kOwnFlags[] = {
    {"listen", kOwnPlaces},
    {"advertise", kOwnPlaces},
    {"coordinator", kOwnPlaces},
    {"shard", "use psctl launch --servers=N instead"},
    {"exit_when_done", "use psctl launch --exit_when_done instead"},
    {"noexit_when_done", "use psctl launch --exit_when_done instead"},
};

// Maximum number of flag files of which each names the next one. Deeper ones are ignored here,
// because ps_server refuses them.
constexpr int kMaxFlagFileDepth = 8;

struct GivenFlag {
  std::string name;
  std::string value;  // empty if the flag has no value, such as a flag that is on or off
  std::string where;  // where the flag stands, for messages
};

absl::Status AddFlag(absl::string_view argument, absl::string_view where, int depth,
                     std::vector<GivenFlag>& flags);

absl::Status AddFlagFiles(absl::string_view paths, int depth, std::vector<GivenFlag>& flags) {
  if (depth == kMaxFlagFileDepth) return absl::OkStatus();
  for (absl::string_view path : absl::StrSplit(paths, ',', absl::SkipEmpty())) {
    const absl::StatusOr<std::vector<process::FlagFileLine>> lines =
        process::ReadFlagFile(std::string(path));
    if (!lines.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("--flagfile: ", lines.status().message()));
    }
    for (const process::FlagFileLine& line : *lines) {
      RETURN_IF_ERROR(
          AddFlag(line.argument, absl::StrCat(path, " line ", line.number), depth + 1, flags));
    }
  }
  return absl::OkStatus();
}

absl::Status AddFlag(absl::string_view argument, absl::string_view where, int depth,
                     std::vector<GivenFlag>& flags) {
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(argument, absl::MaxSplits('=', 1));
  const absl::string_view name = parts.first.substr(parts.first.find_first_not_of('-'));
  if (name == "flagfile") return AddFlagFiles(parts.second, depth, flags);
  flags.push_back({std::string(name), std::string(parts.second), std::string(where)});
  return absl::OkStatus();
}

// Reads the flags as ps_server does: if a flag is given twice, the last one counts. Errors: those
// of reading flag files.
absl::StatusOr<std::vector<GivenFlag>> GivenFlags(absl::Span<const std::string> arguments) {
  std::vector<GivenFlag> flags;
  for (size_t i = 0; i < arguments.size(); ++i) {
    std::string flag = arguments[i];
    if (!absl::StartsWith(flag, "-") || flag.find_first_not_of('-') == std::string::npos) continue;
    // The flag and its value are two arguments.
    const bool has_value = absl::StrContains(flag, '=');
    if (!has_value && i + 1 < arguments.size() && !absl::StartsWith(arguments[i + 1], "-")) {
      absl::StrAppend(&flag, "=", arguments[i + 1]);
    }
    RETURN_IF_ERROR(AddFlag(flag, "behind --", /*depth=*/0, flags));
  }
  return flags;
}

// Returns the flag `name` as "--name=VALUE" if it is among the servers' flags, so that another
// program can be given it, too. Empty means that it is not among them.
std::string FlagOfServers(absl::string_view name, absl::Span<const std::string> server_flags) {
  const absl::StatusOr<std::vector<GivenFlag>> flags = GivenFlags(server_flags);
  std::string found;
  for (const GivenFlag& flag : flags.ok() ? *flags : std::vector<GivenFlag>()) {
    if (flag.name == name) found = absl::StrCat("--", name, "=", flag.value);
  }
  return found;
}

// Returns the manifests of all checkpoints in a folder, as texts. A new text means a new
// checkpoint. The parts about journals are left out, because servers change them later.
std::set<std::string> ManifestsIn(const std::string& folder) {
  std::set<std::string> found;
  storage::FileSystem& file_system = storage::FileSystem::Real();
  const absl::StatusOr<std::vector<checkpoints::CheckpointEntry>> entries =
      checkpoints::ListWholeCheckpoints(file_system, folder);
  for (const auto& entry : entries.ok() ? *entries : std::vector<checkpoints::CheckpointEntry>()) {
    absl::StatusOr<checkpoints::Manifest> manifest =
        checkpoints::ReadManifest(file_system, entry.path);
    if (!manifest.ok()) continue;
    manifest->journal = {};
    found.insert(checkpoints::FormatManifest(*manifest));
  }
  return found;
}

// Returns a function for ProcessSpec::more_arguments_of_restart of the coordinator. Null means that
// the servers' flags have no --resume or no --checkpoint_dir.
//
// Once the launch has saved a checkpoint, the function returns --resume=latest. With --resume=never
// or --resume=PATH, a restarted coordinator would lose that checkpoint.
std::function<std::vector<std::string>()> ResumeOfRestart(
    absl::Span<const std::string> server_flags) {
  const std::string resume = FlagOfServers("resume", server_flags);
  const std::string saves = FlagOfServers("checkpoint_dir", server_flags);
  if (resume.empty() || saves.empty()) return nullptr;
  const std::string folder(absl::StripPrefix(saves, "--checkpoint_dir="));
  return [folder, before = ManifestsIn(folder)]() -> std::vector<std::string> {
    for (const std::string& manifest : ManifestsIn(folder)) {
      if (!before.contains(manifest)) return {"--resume=latest"};
    }
    return {};
  };
}

// Returns true if the workers are to use every card. If there are more cards than workers, a worker
// gets several cards.
bool AreAllCardsWanted(const LaunchOptions& options) {
  return options.device == factory::kAllCards;
}

bool AreCardsDealtOut(const LaunchOptions& options) {
  return options.device == "auto" || options.device == "cuda" || AreAllCardsWanted(options);
}

std::string DeviceOf(int worker, const LaunchOptions& options, const LaunchSite& site) {
  // If there are fewer than two cards, `device` is passed on. With `auto`, a worker then uses the
  // CPU if the card cannot be used.
  if (!AreCardsDealtOut(options) || site.num_cards < 2) return options.device;
  if (!AreAllCardsWanted(options) || site.num_cards <= options.workers) {
    return absl::StrCat("cuda:", worker % site.num_cards);
  }
  std::vector<int> cards;
  for (int card = worker; card < site.num_cards; card += options.workers) cards.push_back(card);
  return absl::StrCat("cuda:", absl::StrJoin(cards, ","));
}

absl::StatusOr<LaunchSite> FindSite(const LaunchOptions& options, const std::string& program) {
  LaunchSite site;
  ASSIGN_OR_RETURN(site.server_program, FindBinary(program, "ps_server", "server"));
  ASSIGN_OR_RETURN(site.worker_program, FindBinary(program, "gpu_worker", "worker"));
  ASSIGN_OR_RETURN(site.ports, FreePorts(options.servers));
  if (options.workers > 1 && AreCardsDealtOut(options)) {
    site.num_cards =
        factory::CountCudaDevices().value_or(0);  // each worker itself says why it has no card
  }
  return site;
}

std::string NameOfWorker(size_t i) { return absl::StrCat("worker-", i); }

std::vector<std::string> WorkerCommand(const std::string& program, const std::string& name,
                                       const std::string& device, const LaunchOptions& options) {
  std::vector<std::string> command = {program,
                                      absl::StrCat("--name=", name),
                                      absl::StrCat("--data=", options.data),
                                      absl::StrCat("--data_format=", options.data_format),
                                      absl::StrCat("--token_bytes=", options.token_bytes),
                                      absl::StrCat("--data_partition=", options.data_partition),
                                      absl::StrCat("--device=", device),
                                      absl::StrCat("--threads=", options.threads)};
  if (!options.heldout_data.empty()) {
    command.push_back(absl::StrCat("--heldout_data=", options.heldout_data));
  }
  // Workers write their log in the format and at the level of the servers, because all processes
  // share one output.
  for (const char* flag : {"log_format", "log_level"}) {
    const std::string given = FlagOfServers(flag, options.server_flags);
    if (!given.empty()) command.push_back(given);
  }
  command.insert(command.end(), options.worker_flags.begin(), options.worker_flags.end());
  return command;
}

// Quotes `text` for a POSIX shell, as one word.
std::string Quoted(absl::string_view text) {
  return absl::StrCat("'", absl::StrReplaceAll(text, {{"'", "'\\''"}}), "'");
}

// Script that runs on a host. Its arguments are the program to run and the arguments of that
// program. The first line of its input is the join string. Empty means that the program connects
// without TLS. If the input ends or the connection breaks, the script tells the program to end.
constexpr absl::string_view kOnHost =
    "unset LODESTAR_JOIN; IFS= read -r join; [ -z \"$join\" ] || export LODESTAR_JOIN=\"$join\"; "
    "exec 3<&0; "
    "\"$@\" </dev/null & worker=$!; "
    "{ cat <&3 >/dev/null; kill -TERM $worker; } >/dev/null 2>&1 & watch=$!; "
    "wait $worker; code=$?; kill $watch 2>/dev/null; exit $code";

absl::StatusOr<std::vector<WorkerHost>> ReadHosts(const std::string& path) {
  constexpr int64_t kMaxBytes = 1 << 20;  // a larger file is the wrong file
  const auto read = [&path]() -> absl::StatusOr<std::vector<WorkerHost>> {
    ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(path, kMaxBytes));
    return ParseHostList(text);
  };
  absl::StatusOr<std::vector<WorkerHost>> hosts = read();
  if (hosts.ok()) return hosts;
  return absl::Status(hosts.status().code(),
                      absl::StrCat("--hosts=", path, ": ", hosts.status().message()));
}

// Runs a program and returns what it prints.
absl::StatusOr<std::string> OutputOf(const std::vector<std::string>& arguments) {
  std::string command;
  for (const std::string& argument : arguments) absl::StrAppend(&command, Quoted(argument), " ");
  absl::StrAppend(&command, "2>&1");
  std::FILE* const pipe = popen(command.c_str(), "re");
  if (pipe == nullptr)
    return absl::ResourceExhaustedError(
        "cannot start another process on this machine; raise the limit of processes or of open "
        "files (ulimit -u, ulimit -n)");
  std::string text;
  char part[4096];
  for (size_t size; (size = std::fread(part, 1, sizeof(part), pipe)) > 0;) text.append(part, size);
  const int status = pclose(pipe);
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128;
  if (code == 0) return text;
  return absl::Status(
      code == kExitRetry ? absl::StatusCode::kUnavailable : absl::StatusCode::kFailedPrecondition,
      std::string(absl::StripAsciiWhitespace(text)));
}

// Returns the names of all workers that the server knows, including those that have left.
absl::StatusOr<std::set<std::string>> RegisteredWorkers(const std::string& program,
                                                        const std::string& server,
                                                        const LaunchOptions& options) {
  std::vector<std::string> command = {program, "workers", server, "--json"};
  const std::string state = FlagOfServers("state_dir", options.server_flags);
  if (!state.empty()) command.push_back(state);
  ASSIGN_OR_RETURN(const std::string text, OutputOf(command));
  std::set<std::string> names;
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipWhitespace())) {
    // The output may also have messages of psctl for people, which are not JSON.
    const absl::StatusOr<Json> worker = ParseJson(line);
    if (worker.ok() && worker->is_object()) names.insert(worker->value("name", ""));
  }
  return names;
}

// Returns a join string for the workers, once the server gives one. Errors: Cancelled (`is_over`
// returns true).
absl::StatusOr<std::string> AwaitToken(const std::string& program, const std::string& server,
                                       const LaunchOptions& options,
                                       const std::function<bool()>& is_over) {
  // Each worker uses the token once and keeps its certificate. The limit is twice that, because a
  // use whose answer is lost counts as well.
  std::vector<std::string> command = {program, "token", "create", server,
                                      absl::StrCat("--uses=", 2 * options.workers)};
  const std::string state = FlagOfServers("state_dir", options.server_flags);
  if (!state.empty()) command.push_back(state);
  absl::StatusOr<std::string> text = absl::UnavailableError("");
  while (absl::IsUnavailable(text.status())) {
    if (is_over()) return absl::CancelledError("the servers have ended or were told to end");
    absl::SleepFor(kTokenPause);
    text = OutputOf(command);
  }
  if (!text.ok()) return text.status();
  for (const absl::string_view word : absl::StrSplit(*text, absl::ByAnyChar(" \n"))) {
    if (absl::StartsWith(word, "lodestar://")) return std::string(word);
  }
  return absl::InternalError(
      absl::StrCat("psctl token create printed no join string, but this: ", *text));
}

}  // namespace

absl::Status CheckServerFlags(absl::Span<const std::string> server_flags) {
  ASSIGN_OR_RETURN(const std::vector<GivenFlag> flags, GivenFlags(server_flags));
  for (const GivenFlag& flag : flags) {
    for (const OwnFlag& own : kOwnFlags) {
      if (flag.name != own.name) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("--", flag.name, " (", flag.where, "): ", own.instead));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> ParseWorkerFlags(const std::string& text) {
  // Flags that psctl launch gives to each worker, some of them from its own flags.
  constexpr absl::string_view kOwn[] = {
      "name",        "data",   "heldout_data", "join",        "data_format", "data_partition",
      "token_bytes", "device", "threads",      "coordinator", "flagfile",    "insecure"};
  std::vector<std::string> flags = absl::StrSplit(text, ' ', absl::SkipEmpty());
  for (const std::string& flag : flags) {
    absl::string_view name = flag;
    if (!absl::ConsumePrefix(&name, "--")) {
      return absl::InvalidArgumentError(
          absl::StrCat("--worker_flags: '", flag,
                       "' is not a flag; give flags as --NAME=VALUE, separated by spaces"));
    }
    name = name.substr(0, name.find('='));
    if (std::find(std::begin(kOwn), std::end(kOwn), name) != std::end(kOwn)) {
      return absl::InvalidArgumentError(
          absl::StrCat("--worker_flags: --", name,
                       " cannot be given here, because psctl launch sets it for each worker; see "
                       "psctl help launch"));
    }
  }
  return flags;
}

absl::Status CheckLaunchDevice(const std::string& device) {
  if (!factory::IsWorkerDevice(device)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--device='", device, "' is unknown; allowed: ", factory::kWorkerDevices));
  }
  if (device == "auto" || device == "cpu") return absl::OkStatus();
  const absl::StatusOr<int> count = factory::CountCudaDevices();
  // The plugin is not beside psctl, but it may be beside the workers.
  if (absl::IsNotFound(count.status())) return absl::OkStatus();
  if (!count.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--device=", device, ": ", count.status().message()));
  }
  for (const int ordinal : factory::CudaOrdinals(device)) {
    if (ordinal < *count) continue;
    return absl::InvalidArgumentError(absl::StrCat("--device=", device, ": this machine has ",
                                                   *count, " CUDA devices, numbered from 0"));
  }
  return absl::OkStatus();
}

std::vector<ProcessSpec> PlanServers(const LaunchOptions& options, const LaunchSite& site) {
  std::vector<ProcessSpec> specs;
  const std::string host = options.hosts.empty() ? "127.0.0.1" : "0.0.0.0";
  for (int i = 0; i < options.servers; ++i) {
    ProcessSpec spec;
    spec.role = absl::StrCat("server-", i);
    spec.arguments = {site.server_program, absl::StrCat("--listen=", host, ":", site.ports[i]),
                      absl::StrCat("--shard=", i, "/", options.servers)};
    if (i > 0) spec.arguments.push_back(absl::StrCat("--coordinator=127.0.0.1:", site.ports[0]));
    if (!options.address.empty()) {
      spec.arguments.push_back(absl::StrCat("--advertise=", options.address, ":", site.ports[i]));
    }
    if (i == 0 && options.exit_when_done) spec.arguments.push_back("--exit_when_done");
    // The user's flags follow. If they have --min_workers, that value counts.
    if (i == 0) spec.arguments.push_back(absl::StrCat("--min_workers=", options.workers));
    spec.arguments.insert(spec.arguments.end(), options.server_flags.begin(),
                          options.server_flags.end());
    spec.ends_cluster = i == 0;
    // Servers end after the workers, because they save what the workers deliver last.
    spec.ends_last = true;
    spec.restarts = options.restarts;
    if (i == 0) spec.more_arguments_of_restart = ResumeOfRestart(options.server_flags);
    specs.push_back(std::move(spec));
  }
  return specs;
}

std::vector<ProcessSpec> PlanWorkers(const LaunchOptions& options, const LaunchSite& site) {
  std::vector<ProcessSpec> specs;
  for (int i = 0; i < options.workers; ++i) {
    ProcessSpec spec;
    spec.role = NameOfWorker(i);
    spec.arguments =
        WorkerCommand(site.worker_program, spec.role, DeviceOf(i, options, site), options);
    spec.arguments.push_back(absl::StrCat("--coordinator=127.0.0.1:", site.ports[0]));
    spec.restarts = options.restarts;
    specs.push_back(std::move(spec));
  }
  return specs;
}

std::vector<ProcessSpec> PlanHosts(const LaunchOptions& options, absl::Span<const WorkerHost> hosts,
                                   const std::string& join) {
  std::vector<ProcessSpec> specs;
  for (const WorkerHost& host : hosts) {
    for (int i = 0; i < host.workers; ++i) {
      const std::string name = NameOfWorker(specs.size());
      const std::string device =
          host.cards.empty() ? options.device : absl::StrCat("cuda:", host.cards[i]);
      std::string command = absl::StrCat("exec sh -c ", Quoted(kOnHost), " launch");
      for (const std::string& argument :
           WorkerCommand(options.worker_program, name, device, options)) {
        absl::StrAppend(&command, " ", Quoted(argument));
      }
      ProcessSpec spec;
      spec.role = absl::StrCat(name, " ", host.address);
      spec.arguments = {options.ssh,
                        "-T",
                        "-oBatchMode=yes",
                        "-oConnectTimeout=20",
                        "-oServerAliveInterval=15",
                        host.address,
                        command};
      spec.not_found_advice =
          absl::StrCat(options.worker_program,
                       " is perhaps not in the PATH on that host, because ssh starts no login "
                       "shell. Give --worker_program=/PATH/ON/THE/HOST/gpu_worker");
      spec.input = absl::StrCat(join, "\n");
      spec.restarts = options.restarts;
      specs.push_back(std::move(spec));
    }
  }
  return specs;
}

std::vector<RegistrationWatch::Worker> WorkersOf(absl::Span<const WorkerHost> hosts) {
  std::vector<RegistrationWatch::Worker> workers;
  for (const WorkerHost& host : hosts) {
    for (int i = 0; i < host.workers; ++i) {
      workers.push_back({.name = NameOfWorker(workers.size()), .host = host.address});
    }
  }
  return workers;
}

int RunLaunch(LaunchOptions options, const std::string& program) {
  Launcher::BlockSignals();
  // The launch makes a new cluster. It must not join the cluster of this shell's join string.
  unsetenv("LODESTAR_JOIN");
  std::vector<WorkerHost> hosts;
  if (!options.hosts.empty()) {
    absl::StatusOr<std::vector<WorkerHost>> list = ReadHosts(options.hosts);
    if (!list.ok()) return Refuse(list.status());
    hosts = *std::move(list);
    options.workers = 0;
    for (const WorkerHost& host : hosts) options.workers += host.workers;
  }
  const absl::StatusOr<LaunchSite> site = FindSite(options, program);
  if (!site.ok()) return Refuse(site.status());
  const std::string server = absl::StrCat("--server=127.0.0.1:", site->ports[0]);
  Say(absl::StrCat("to see the job, run psctl status ", server));
  Launcher launcher;
  const auto start = [&launcher](const std::vector<ProcessSpec>& specs) -> absl::Status {
    for (const ProcessSpec& spec : specs) RETURN_IF_ERROR(launcher.Start(spec));
    return absl::OkStatus();
  };
  std::optional<RegistrationWatch> watch;
  absl::Status started = start(PlanServers(options, *site));
  if (started.ok() && hosts.empty()) started = start(PlanWorkers(options, *site));
  if (started.ok() && !hosts.empty()) {
    const absl::StatusOr<std::string> join =
        AwaitToken(program, server, options, [&launcher] { return launcher.IsToEnd(); });
    started = join.ok() ? start(PlanHosts(options, hosts, *join)) : join.status();
    watch.emplace(WorkersOf(hosts), absl::Now());
    if (absl::IsCancelled(started)) started = absl::OkStatus();  // Wait() says why.
  }
  if (!started.ok()) return Refuse(started);
  // Another thread asks the server, so that a slow answer does not delay the handling of signals.
  std::future<absl::StatusOr<std::set<std::string>>> asked;
  const auto look = [&] {
    if (asked.valid()) {
      if (asked.wait_for(std::chrono::seconds(0)) != std::future_status::ready) return;
      const absl::StatusOr<std::set<std::string>> registered = asked.get();
      const std::string text = registered.ok() ? watch->Take(*registered, absl::Now()) : "";
      if (!text.empty()) Say(text);
    } else if (watch.has_value() && watch->BeginLook(absl::Now())) {
      asked = std::async(std::launch::async,
                         [&] { return RegisteredWorkers(program, server, options); });
    }
  };
  const auto on_only_last_left = [&] {
    if (options.exit_when_done) return;
    Say(absl::StrCat(
        "the workers have ended; the servers keep running, for example for psctl export ", server,
        ", until Ctrl-C or psctl stop ", server));
  };
  return launcher.Wait(kGraceSeconds, on_only_last_left, look);
}

}  // namespace lodestar::psctl
