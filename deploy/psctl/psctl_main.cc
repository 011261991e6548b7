// psctl: looks at a cluster, controls it, starts one on this machine, and writes text with a
// trained model.

#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "common/command_line.h"
#include "common/version.h"
#include "deploy/psctl/cluster_client.h"
#include "deploy/psctl/generate_command.h"
#include "deploy/psctl/launch_command.h"
#include "deploy/psctl/status_text.h"
#include "google/protobuf/util/json_util.h"

ABSL_FLAG(std::string, server, "127.0.0.1:50051", "host:port of the server of shard 0.");
ABSL_FLAG(bool, json, false, "status: as JSON, one object per line.");
ABSL_FLAG(bool, watch, false, "status, workers: again every second until Ctrl-C.");
ABSL_FLAG(std::string, out, "model.safetensors", "export: the file to write.");
ABSL_FLAG(std::string, reason, "psctl stop", "stop: what the log and the workers are told.");
ABSL_FLAG(int, servers, 1, "launch: number of servers, 1 to 64.");
ABSL_FLAG(int, workers, 2, "launch: number of workers, 1 to 64.");
ABSL_FLAG(int, threads, 1, "launch, generate: threads of a CPU device; 0: one per core.");
ABSL_FLAG(std::string, device, "auto", "launch, generate: auto, cuda or cpu.");
ABSL_FLAG(std::string, data, "", "launch: --data of the workers.");
ABSL_FLAG(std::string, data_format, "auto", "launch: --data_format of the workers.");
ABSL_FLAG(std::string, model, "model.safetensors",
          "generate: a checkpoint (round-...), or a file written by export.");
ABSL_FLAG(std::string, prompt, "", "generate: the text to go on from.");
ABSL_FLAG(int64_t, bytes, 300, "generate: how many bytes to write.");
ABSL_FLAG(double, temperature, 0.8, "generate: 0 takes the likeliest byte, 1 the distribution.");
ABSL_FLAG(int, top_k, 0, "generate: only among the k likeliest bytes; 0: no limit.");
ABSL_FLAG(uint64_t, seed, 1, "generate: same seed, same text.");

namespace lodestar {
namespace {

constexpr int kExitError = 1;
constexpr int kExitBadFlags = 2;
constexpr int kExitRetry = 129;  // nobody answered

std::string Help() {
  const std::string usage = absl::StrCat(
      "psctl ", kVersion, ": looks at a cluster and controls it.\n\n",
      "  psctl status [--json] [--watch]       job, progress, who is waited for, workers, shards\n",
      "  psctl workers [--watch]               one line per worker\n",
      "  psctl checkpoint                      save now, print the path\n",
      "  psctl export --out=FILE               the weights as one safetensors file\n",
      "  psctl stop [--reason=TEXT]            last checkpoint, then everyone ends\n",
      "  psctl launch --data=PATH [-- FLAGS]   a cluster on this machine; FLAGS go to ps_server\n",
      "  psctl generate --model=PATH --prompt=TEXT   text from a trained gpt\n\n",
      "Exit code: 0 done; 1 refused; 2 a bad flag or command; 129 nobody answered; launch: that of "
      "the first role that failed.");
  return FormatHelp(usage,
                    {{"Cluster", {"server"}},
                     {"status, workers, export, stop", {"json", "watch", "out", "reason"}},
                     {"launch", {"servers", "workers", "threads", "device", "data", "data_format"}},
                     {"generate", {"model", "prompt", "bytes", "temperature", "top_k", "seed"}}});
}

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "psctl: %s\n", std::string(status.message()).c_str());
  return absl::IsUnavailable(status) ? kExitRetry : kExitError;
}

int BadUsage(const std::string& text) {
  std::fprintf(stderr, "psctl: %s; see psctl --help\n", text.c_str());
  return kExitBadFlags;
}

absl::StatusOr<std::string> JsonText(const v1::ClusterStatus& status) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  options.always_print_primitive_fields = true;
  std::string text;
  if (!google::protobuf::util::MessageToJsonString(status, &text, options).ok()) {
    return absl::InternalError("the status cannot be written as JSON");
  }
  return text + "\n";
}

using Renderer = absl::StatusOr<std::string> (*)(const v1::ClusterStatus&);

int RunStatus(ClusterClient* client, Renderer render) {
  const auto show = [render](const v1::ClusterStatus& status) {
    const absl::StatusOr<std::string> text = render(status);
    if (!text.ok()) return false;
    // Home and clear, so that the picture stands still; never into a pipe.
    if (absl::GetFlag(FLAGS_watch) && !absl::GetFlag(FLAGS_json) && isatty(STDOUT_FILENO)) {
      std::cout << "\033[H\033[J";
    }
    std::cout << *text << std::flush;
    return true;
  };
  if (absl::GetFlag(FLAGS_watch)) {
    const absl::Status status = client->WatchStatus(absl::Seconds(1), show);
    return status.ok() ? 0 : Fail(status);
  }
  const absl::StatusOr<v1::ClusterStatus> status = client->GetStatus();
  if (!status.ok()) return Fail(status.status());
  return show(*status) ? 0 : kExitError;
}

int StatusCommand(ClusterClient* client) {
  if (absl::GetFlag(FLAGS_json)) return RunStatus(client, &JsonText);
  return RunStatus(client, [](const v1::ClusterStatus& status) -> absl::StatusOr<std::string> {
    return StatusText(status);
  });
}

int WorkersCommand(ClusterClient* client) {
  return RunStatus(client, [](const v1::ClusterStatus& status) -> absl::StatusOr<std::string> {
    return WorkersText(status);
  });
}

int CheckpointCommand(ClusterClient* client) {
  const absl::StatusOr<v1::CheckpointReply> reply = client->Checkpoint();
  if (!reply.ok()) return Fail(reply.status());
  std::printf("%s\n", reply->path().c_str());
  return 0;
}

int ExportCommand(ClusterClient* client) {
  const std::string path = absl::GetFlag(FLAGS_out);
  const absl::StatusOr<int64_t> bytes = client->Export(path);
  if (!bytes.ok()) return Fail(bytes.status());
  std::printf("%s (%s)\n", path.c_str(), FormatBytes(static_cast<double>(*bytes)).c_str());
  return 0;
}

int StopCommand(ClusterClient* client) {
  const absl::Status status = client->Stop(absl::GetFlag(FLAGS_reason));
  return status.ok() ? 0 : Fail(status);
}

int LaunchCommand(const std::string& program, const std::vector<std::string>& server_flags) {
  LaunchOptions options;
  options.servers = absl::GetFlag(FLAGS_servers);
  options.workers = absl::GetFlag(FLAGS_workers);
  options.threads = absl::GetFlag(FLAGS_threads);
  options.device = absl::GetFlag(FLAGS_device);
  options.data = absl::GetFlag(FLAGS_data);
  options.data_format = absl::GetFlag(FLAGS_data_format);
  options.server_flags = server_flags;
  if (options.servers < 1 || options.servers > 64) return BadUsage("--servers: allowed is 1 to 64");
  if (options.workers < 1 || options.workers > 64) return BadUsage("--workers: allowed is 1 to 64");
  if (options.data.empty()) return BadUsage("--data='': the path of the training data is needed");
  return RunLaunch(options, program);
}

int GenerateCommand() {
  GenerateOptions options;
  options.model_path = absl::GetFlag(FLAGS_model);
  options.device = absl::GetFlag(FLAGS_device);
  options.threads = absl::GetFlag(FLAGS_threads);
  options.prompt = absl::GetFlag(FLAGS_prompt);
  options.num_bytes = absl::GetFlag(FLAGS_bytes);
  options.temperature = absl::GetFlag(FLAGS_temperature);
  options.top_k = absl::GetFlag(FLAGS_top_k);
  options.seed = absl::GetFlag(FLAGS_seed);
  const absl::Status status = RunGenerate(options);
  return status.ok() ? 0 : Fail(status);
}

// The path of this binary, whatever the caller's PATH and directory.
std::string ProgramPath() {
  char path[4096];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof(path));
  return length > 0 ? std::string(path, length) : "psctl";
}

int Main(const std::vector<std::string>& arguments) {
  const absl::StatusOr<CommandLine> command_line = ParseCommandLine(arguments);
  if (!command_line.ok()) return BadUsage(std::string(command_line.status().message()));
  if (command_line->request == CommandLineRequest::kVersion) {
    std::cout << VersionText("psctl");
    return 0;
  }
  if (command_line->request == CommandLineRequest::kHelp || command_line->positionals.empty()) {
    std::cout << Help();
    return command_line->request == CommandLineRequest::kHelp ? 0 : kExitBadFlags;
  }
  std::vector<std::string> rest = command_line->positionals;
  const std::string command = rest.front();
  rest.erase(rest.begin());
  if (command == "launch") return LaunchCommand(ProgramPath(), rest);
  if (!rest.empty()) return BadUsage(absl::StrCat("'", rest.front(), "' is one word too many"));
  if (command == "generate") return GenerateCommand();

  using Command = int (*)(ClusterClient*);
  static const std::map<std::string, Command> kCommands = {{"status", &StatusCommand},
                                                           {"workers", &WorkersCommand},
                                                           {"checkpoint", &CheckpointCommand},
                                                           {"export", &ExportCommand},
                                                           {"stop", &StopCommand}};
  const auto it = kCommands.find(command);
  if (it == kCommands.end()) return BadUsage(absl::StrCat("no command '", command, "'"));
  ClusterClient client(absl::GetFlag(FLAGS_server));
  return it->second(&client);
}

}  // namespace
}  // namespace lodestar

int main(int argc, char** argv) {
  return lodestar::Main(std::vector<std::string>(argv + 1, argv + argc));
}
