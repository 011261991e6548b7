// SPDX-License-Identifier: Apache-2.0

// psctl shows the state of a cluster, controls it, starts one on this machine, and writes text with
// a trained model.

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "common/checkpoints/checkpoint_copy.h"
#include "common/checkpoints/trained_weights.h"
#include "common/logging/log_level.h"
#include "common/logging/log_tail.h"
#include "common/net/address_list.h"
#include "common/output/output_file.h"
#include "common/process/command_line.h"
#include "common/process/process_setup.h"
#include "common/process/stop_signals.h"
#include "common/process/version.h"
#include "common/runtime/bytes_text.h"
#include "common/runtime/clock.h"
#include "common/runtime/file_io.h"
#include "common/runtime/flag_range.h"
#include "common/runtime/join_secret.h"
#include "common/runtime/local_path.h"
#include "common/runtime/peer_text.h"
#include "common/runtime/status_macros.h"
#include "common/runtime/suggestion.h"
#include "common/runtime/text_table.h"
#include "common/security/security_flags.h"
#include "common/storage/file_system.h"
#include "deploy/psctl/cluster_client.h"
#include "deploy/psctl/cluster_health.h"
#include "deploy/psctl/cluster_watch.h"
#include "deploy/psctl/exit_code.h"
#include "deploy/psctl/export_progress.h"
#include "deploy/psctl/generate_command.h"
#include "deploy/psctl/history_command.h"
#include "deploy/psctl/identity_commands.h"
#include "deploy/psctl/launch_command.h"
#include "deploy/psctl/live_commands.h"
#include "deploy/psctl/model_output.h"
#include "deploy/psctl/operator_access.h"
#include "deploy/psctl/order_commands.h"
#include "deploy/psctl/plan_command.h"
#include "deploy/psctl/request_watch.h"
#include "deploy/psctl/restore_command.h"
#include "deploy/psctl/serve_command.h"
#include "deploy/psctl/stop_signal_run.h"
#include "deploy/psctl/stoppable_file_system.h"
#include "deploy/psctl/verify_command.h"
#include "proto/cluster_entry.h"
#include "proto/grpc_environment.h"
#include "proto/message_json.h"
#include "proto/model_file.h"
#include "proto/status_text.h"
#include "proto/tls_doubts.h"

ABSL_FLAG(std::string, server, "127.0.0.1:50051",
          "HOST:PORT of the server of shard 0. With several addresses, separated by commas, "
          "psctl uses the first that answers.");
ABSL_FLAG(bool, json, false, "Short for --output=json.");
ABSL_FLAG(bool, watch, false, "Repeat the output every second until Ctrl-C or the end of the job.");
ABSL_FLAG(lodestar::LocalPath, out, "model.safetensors", "File or folder to write.");
ABSL_FLAG(std::string, format, "safetensors",
          "Format of the output: safetensors, one file, or huggingface, a folder for the "
          "transformers library.");
ABSL_FLAG(lodestar::LocalPath, from, "",
          "Source of the weights instead of a server: a checkpoint (round-...) of any number "
          "of servers, or a model that psctl export wrote.");
ABSL_FLAG(bool, force, false,
          "Replace any regular file at PATH. Files inside a checkpoint are never replaced.");
ABSL_FLAG(lodestar::LocalPath, to, "",
          "Folder into which the checkpoint is copied. It is made if it does not exist.");
ABSL_FLAG(std::string, reason, "",
          "Reason that is written to the log and sent to the workers, at most 256 bytes. Empty "
          "means the name of the command.");
ABSL_FLAG(int64_t, round, -1,
          "With rollback, the job goes back to the newest checkpoint of at most this many "
          "rounds. With logs, only lines of this round are shown.");
ABSL_FLAG(int64_t, since_round, -1,
          "Go back to the newest checkpoint of at most this many rounds, because later "
          "contributions are not trusted. This is what psctl rollback --round does.");
ABSL_FLAG(bool, with_token, false,
          "Also revoke the token through which the name joined, even if other machines have "
          "joined through it. Those machines stay, but no machine can join with the token again.");
ABSL_FLAG(std::string, role, "worker",
          "What the token allows: worker, server, operator or viewer.");
ABSL_FLAG(absl::Duration, ttl, absl::Hours(24),
          "Time during which machines can join with the token, 1s to 8760h.");
ABSL_FLAG(int, uses, 0,
          "Number of machines that can join with the token, 1 to 1000000. 0 means any number.");
ABSL_FLAG(std::string, name, "",
          "The only name under which a machine can join with the token. A machine that already "
          "has this name is replaced. Empty means any free name.");
ABSL_FLAG(std::string, address, "",
          "HOST:PORT[,HOST:PORT...] at which other machines reach the coordinator. Empty means "
          "the address that the coordinator gives. With launch --hosts, give only the HOST of this "
          "machine, without a port. Empty then means the host name of this machine.");
ABSL_FLAG(int, servers, 1, "Number of servers: 1 to 64 with launch, 1 to 256 with plan.");
ABSL_FLAG(int, workers, 2, "Number of workers: 1 to 64 with launch, 1 to 4096 with plan.");
ABSL_FLAG(int, threads, 1,
          "Number of threads of a CPU device, 1 to 1024. 0 means one per core that the process "
          "may use, by its affinity and CPU quota (cgroups).");
ABSL_FLAG(std::string, device, "auto",
          "Device that computes: auto, cuda, cuda:N or cpu. The value auto means a CUDA card, "
          "or the CPU if there is none. With launch, it can also be cuda:all or cuda:N,M.");
ABSL_FLAG(std::string, worker_flags, "",
          "Flags for every gpu_worker, in quotes and separated by spaces: \"--dtype=bf16 "
          "--recompute=block\".");
ABSL_FLAG(bool, exit_when_done, false,
          "End when the job is done. Without this flag the servers keep running, for example "
          "for psctl export, until Ctrl-C or psctl stop.");
ABSL_FLAG(lodestar::LocalPath, data, "",
          "Training data, as --data of gpu_worker. Required for launch.");
ABSL_FLAG(lodestar::LocalPath, hosts, "",
          "File with the machines on which workers run, over ssh. Empty means this machine. "
          "Each line is HOST, HOST workers=N or HOST cards=0,1,...; # begins a comment.");
ABSL_FLAG(std::string, ssh, "ssh",
          "Program that runs a command on a host, with the arguments of ssh.");
ABSL_FLAG(std::string, worker_program, "gpu_worker", "Name or path of gpu_worker on the hosts.");
ABSL_FLAG(int, restart, 0,
          "Number of times that a failed server or worker is started again, 0 to 1000. A "
          "program is started again only if its exit code is 128 or more, for example after a "
          "lost connection. A restarted server continues from what the launch has saved, whatever "
          "--resume says.");
ABSL_FLAG(lodestar::LocalPath, heldout_data, "", "Held-out data, as --heldout_data of gpu_worker.");
ABSL_FLAG(std::string, data_format, "auto", "Format of the data, as --data_format of gpu_worker.");
ABSL_FLAG(std::string, token_bytes, "auto", "Bytes per token, as --token_bytes of gpu_worker.");
ABSL_FLAG(std::string, data_partition, "shared",
          "Whether workers share their data: shared or own, as --data_partition of gpu_worker. "
          "With own, a job that continues from a checkpoint may use data that differ from its "
          "earlier data.");
ABSL_FLAG(lodestar::LocalPath, model, "model.safetensors",
          "Model: a checkpoint (round-...), a file that psctl export wrote, or a GPT-2 of "
          "Hugging Face (its folder or model.safetensors). With plan, it is a preset or a "
          "file, as --model of ps_server.");
ABSL_FLAG(lodestar::LocalPath, tokenizer, "",
          "A tokenizer.json, or a folder with it or with vocab.json and merges.txt. Empty "
          "means the tokenizer beside the model. A model whose tokens are bytes needs none.");
ABSL_FLAG(std::string, prompt, "", "Text that the model continues.");
ABSL_FLAG(int64_t, bytes, 300,
          "Number of bytes to write, 0 to 1000000000. The last token may add some.");
ABSL_FLAG(double, temperature, 0.8,
          "Randomness of the text, 0 to 1000. 0 means always the likeliest token, 1 means the "
          "model's own distribution.");
ABSL_FLAG(int, top_k, 0,
          "Number of likeliest tokens from which each token is drawn, 1 to 1000000. 0 means "
          "all.");
ABSL_FLAG(uint64_t, seed, 1, "Seed of the random draws. The same seed gives the same text.");
ABSL_FLAG(double, parameters, 0,
          "Number of parameters of a model that --model cannot name, 1000 to 1e13. 0 means "
          "that --model is given.");
ABSL_FLAG(double, up, 0, "Rate at which each worker can send, in Mbit/s.");
ABSL_FLAG(double, down, 0, "Rate at which each worker can receive, in Mbit/s.");
ABSL_FLAG(double, server_up, 0,
          "Rate at which each server can send to all workers together, in Mbit/s. 0 means the "
          "same as a worker.");
ABSL_FLAG(double, server_down, 0,
          "Rate at which each server can receive from all workers together, in Mbit/s. 0 means "
          "the same as a worker.");
ABSL_FLAG(double, rtt, -1,
          "Round-trip time between a worker and a server, in ms. -1 means that it is not given.");
ABSL_FLAG(double, step_ms, 0,
          "Time of one step of a worker without a network, in ms, with the job's batch.");
ABSL_FLAG(double, packet_loss, 0,
          "Share of packets that are lost in each direction, in percent, 0 to 50.");
ABSL_FLAG(int64_t, packet_bytes, 1500, "Largest packet of the path (MTU), in bytes, 576 to 65535.");
ABSL_FLAG(double, utilisation, 0.95,
          "Share of the time in which workers should compute, 0.01 to 0.999.");
ABSL_FLAG(double, loss_budget, lodestar::plan::kMostLossPercent,
          "How much higher the estimated held-out loss may be than that of sync in fp32, in "
          "percent, 0 to 1000.");
ABSL_FLAG(int, max_local_steps, 500,
          "Maximum number of local steps between two exchanges, 2 to 100000.");
ABSL_FLAG(int64_t, steps, 0,
          "Number of steps of the whole job. 0 means that the job is long. In a short job, many "
          "local steps leave few outer steps, which costs loss.");
ABSL_FLAG(double, worker_threads, 1,
          "Speed at which a worker encodes and decodes, as a multiple of one thread of an AMD "
          "EPYC; 0.01 to 10000.");
ABSL_FLAG(double, server_threads, 1,
          "Speed at which a server encodes and decodes, as a multiple of one thread of an AMD "
          "EPYC; 0.01 to 10000.");
ABSL_FLAG(double, overhead_ms, 3,
          "Part of a round's time that does not grow with the model, in ms, 0 to 60000.");
ABSL_FLAG(std::string, output, "table",
          "Output format: table, or json with one object per line. With plan, json is one "
          "object.");
ABSL_FLAG(std::string, http, "127.0.0.1:0",
          "HOST:PORT on this machine at which psctl serve offers the dashboard. Port 0 means that "
          "the system chooses a port.");
ABSL_FLAG(bool, certificate, false,
          "Evict all names of the worker's certificate, not only the given name.");
ABSL_FLAG(bool, follow, false, "Keep printing new lines until the job is over.");
ABSL_FLAG(std::string, level, "debug",
          "Lowest level of the lines that are shown: debug, info, warning or error. Lines "
          "below the server's --log_level are not kept.");
ABSL_FLAG(std::string, worker, "",
          "Name of a worker. Only lines that name it are shown. Empty means all lines.");
ABSL_FLAG(int, lines, 100, "Number of last lines that are shown, 1 to 1000.");

namespace lodestar::psctl {
namespace {

struct Command {
  std::string name;
  std::string form;          // the command line behind "psctl"
  std::string summary;       // text of the command in the list of commands
  std::string details = "";  // more text for the help of the command
  std::vector<std::string> flags = {};
  bool takes_paths = false;  // at least one path, any number of them
  bool takes_path = false;   // one path, or none
  bool passes_on = false;    // passes the words behind "--" to other programs
  std::function<int(const process::CommandLine&)> run;
};

constexpr absl::Duration kLookAtServer = absl::Seconds(2);

bool WantsJson() { return absl::GetFlag(FLAGS_json) || absl::GetFlag(FLAGS_output) == "json"; }

// Prints an error without the secrets of join strings.
void SayError(absl::string_view text) {
  std::fprintf(stderr, "psctl: %s\n", PeerLines(WithoutJoinSecrets(text)).c_str());
}

int Fail(const absl::Status& error) {
  SayError(error.message());
  return ExitCodeOfError(error);
}

// Prints an error of a call to a server, and returns the exit code for it.
int FailCall(const absl::Status& error) {
  SayError(error.message());
  return ExitCodeOfCall(error);
}

// Returns the exit code: 0, or 1 if the text cannot be written, for example to a full disk.
int Print(absl::string_view text) {
  const absl::Status written = output::WriteToStandardOutput(text);
  return written.ok() ? 0 : Fail(written);
}

int BadUsage(const std::string& text) {
  SayError(absl::StrCat(text, "; see psctl --help"));
  return kExitBadFlags;
}

// Returns the width of the terminal. If the output is not a terminal, lines are not cut.
int OutputColumns() {
  winsize size{};
  if (isatty(STDOUT_FILENO) == 0) return kUnlimitedColumns;
  const bool is_known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return is_known ? size.ws_col : 80;
}

using Renderer = absl::StatusOr<std::string> (*)(const v1::ClusterStatus&);

// Watches the status of the cluster, also across restarts of the server. `show` shows one status,
// and returns false to end the watch.
absl::Status Watch(const ClusterClient& like, const ClusterWatch::Show& show) {
  ClusterWatch watch;
  watch.stream = [&like](const ClusterWatch::Show& each) {
    // Each watch uses a new connection, because gRPC waits for several seconds before it tries a
    // failed connection again.
    return like.Anew().WatchStatus(absl::Seconds(1), each);
  };
  watch.show = show;
  watch.away = [last = std::string()](absl::string_view reason, absl::Duration away) mutable {
    const std::string why = reason == last ? "" : absl::StrCat(" (", reason, ")");
    last = std::string(reason);
    std::fprintf(stderr, "no answer for %s from the server; psctl tries again%s\n",
                 absl::FormatDuration(absl::Ceil(away, absl::Seconds(1))).c_str(), why.c_str());
    return true;
  };
  watch.clock = &Clock::Real();
  return WatchAcrossRestarts(watch);
}

// Shows one status, or with --watch one per second. Sets `health` (may be null) to the health in
// the last status.
int ShowStatus(ClusterClient* client, Renderer render, ClusterHealth* health) {
  int exit_code = 0;
  // On a terminal, each status replaces the one before it: control codes move the cursor to the top
  // and clear the screen. If the output is not a terminal, no control codes are written.
  const bool is_picture = absl::GetFlag(FLAGS_watch) && !WantsJson() && isatty(STDOUT_FILENO) != 0;
  const auto show = [&](const v1::ClusterStatus& status) {
    const absl::StatusOr<std::string> text = render(status);
    exit_code = text.ok() ? Print(absl::StrCat(is_picture ? "\033[H\033[J" : "", *text))
                          : Fail(text.status());
    if (health != nullptr) *health = HealthOf(status);
    return exit_code == 0;
  };
  if (absl::GetFlag(FLAGS_watch)) {
    const absl::Status status = Watch(*client, show);
    if (!status.ok()) return FailCall(status);
    // The watch has ended, so the job is over. If the last status says that the job waits for
    // something, that is no longer true.
    if (health != nullptr && *health == ClusterHealth::kStandsStill) *health = ClusterHealth::kGood;
    return exit_code;
  }
  const absl::StatusOr<v1::ClusterStatus> status = client->GetStatus();
  if (!status.ok()) return FailCall(status.status());
  show(*status);
  return exit_code;
}

int StatusCommand(ClusterClient* client) {
  const Renderer as_json = [](const v1::ClusterStatus& status) {
    return wire::MessageJsonLine(status);
  };
  const Renderer as_text = [](const v1::ClusterStatus& status) -> absl::StatusOr<std::string> {
    return wire::StatusText(status, OutputColumns());
  };
  ClusterHealth health = ClusterHealth::kGood;
  const int exit_code = ShowStatus(client, WantsJson() ? as_json : as_text, &health);
  return exit_code != 0 ? exit_code : ExitCodeOf(health);
}

// Returns one line of JSON for each of `parts`.
template <typename Parts>
absl::StatusOr<std::string> JsonLines(const Parts& parts) {
  std::string text;
  for (const auto& part : parts) {
    ASSIGN_OR_RETURN(const std::string line, wire::MessageJsonLine(part));
    text += line;
  }
  return text;
}

int WorkersCommand(ClusterClient* client) {
  const Renderer as_json = [](const v1::ClusterStatus& status) {
    return JsonLines(status.workers());
  };
  const Renderer as_text = [](const v1::ClusterStatus& status) -> absl::StatusOr<std::string> {
    return wire::WorkersText(status, OutputColumns());
  };
  return ShowStatus(client, WantsJson() ? as_json : as_text, /*health=*/nullptr);
}

int ShardsCommand(ClusterClient* client) {
  const Renderer as_json = [](const v1::ClusterStatus& status) {
    return JsonLines(status.shards());
  };
  const Renderer as_text = [](const v1::ClusterStatus& status) -> absl::StatusOr<std::string> {
    return wire::ShardsText(status, OutputColumns());
  };
  return ShowStatus(client, WantsJson() ? as_json : as_text, /*health=*/nullptr);
}

int EventsCommand(ClusterClient* client) {
  const absl::Status shown =
      ShowEvents(*client, absl::GetFlag(FLAGS_follow), WantsJson(), OutputColumns());
  return shown.ok() ? 0 : FailCall(shown);
}

int LogsCommand(ClusterClient* client, const process::CommandLine& line) {
  logging::LogQuery query;
  const absl::StatusOr<logging::LogLevel> level =
      logging::ParseLogLevel(absl::GetFlag(FLAGS_level), "level");
  if (!level.ok()) return BadUsage(std::string(level.status().message()));
  query.least_level = *level;
  query.worker = absl::GetFlag(FLAGS_worker);
  if (line.given.count("round") > 0) {
    query.round = absl::GetFlag(FLAGS_round);
    if (*query.round < 0) return BadUsage("--round must be the number of a round, 0 or more");
  }
  const absl::Status range = CheckWholeRange("lines", absl::GetFlag(FLAGS_lines), 1, 1000);
  if (!range.ok()) return BadUsage(std::string(range.message()));
  query.most_lines = static_cast<size_t>(absl::GetFlag(FLAGS_lines));
  const absl::Status shown = ShowLog(*client, query, absl::GetFlag(FLAGS_follow), WantsJson());
  return shown.ok() ? 0 : FailCall(shown);
}

int DashboardCommand(ClusterClient* client) {
  const absl::StatusOr<v1::DashboardReply> reply = client->GetDashboard();
  return reply.ok() ? Print(reply->url() + "\n") : FailCall(reply.status());
}

int TopCommand(ClusterClient* client) {
  const absl::Status shown = ShowTop(*client);
  return shown.ok() ? 0 : FailCall(shown);
}

// Returns a function for Meanwhile. It prints what the request `what` waits for, and prints again
// when that changes.
ClusterClient::Meanwhile SayWaits(const std::string& what) {
  return [watch = RequestWatch(what)](const v1::ClusterStatus& status) mutable {
    const std::string text = watch.Look(status);
    if (!text.empty()) std::fprintf(stderr, "psctl: %s\n", text.c_str());
  };
}

// Returns an error if the server's --on_checkpoint command has started this process. The checkpoint
// that psctl asks for would start that command again, without end.
absl::Status CheckIsOutsideOfHook(ClusterClient& client) {
  const char* const finished = std::getenv(checkpoints::kFinishedCheckpointVariable);
  if (finished == nullptr) return absl::OkStatus();
  ASSIGN_OR_RETURN(const v1::ClusterStatus status, client.GetStatus());
  if (DirectoryOf(finished) != DirectoryOf(status.last_checkpoint().path())) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(
      absl::StrCat("inside the command of --on_checkpoint, psctl checkpoint would start that "
                   "command again without end. Copy the finished checkpoint with psctl restore "
                   "\"$LODESTAR_CHECKPOINT\" --to=DIR (",
                   finished, ")"));
}

int CheckpointCommand(ClusterClient* client, std::stop_token stop) {
  client->StopWith(stop);
  if (const absl::Status outside = CheckIsOutsideOfHook(*client); !outside.ok()) {
    return FailCall(outside);
  }
  const absl::StatusOr<v1::CheckpointReply> reply = client->Checkpoint(SayWaits("checkpoint"));
  if (!reply.ok() && stop.stop_requested()) {
    return Fail(absl::CancelledError(
        "stopped on request: the server still makes the checkpoint, but psctl copies nothing"));
  }
  if (!reply.ok()) return FailCall(reply.status());
  const std::string to = absl::GetFlag(FLAGS_to);
  if (to.empty()) return Print(absl::StrCat(reply->path(), "\n"));
  StoppableFileSystem disk(&storage::FileSystem::Real(), std::move(stop));
  // Unavailable means that the checkpoint was removed meanwhile. Then the same command may succeed
  // later. Any other error would come again.
  const auto fail = [&reply](const absl::Status& status, absl::string_view advice = "") {
    const absl::Status whole(status.code(),
                             absl::StrCat("the checkpoint is saved in ", reply->path(),
                                          ", but not copied: ", status.message(), advice));
    return absl::IsUnavailable(status) ? FailCall(whole) : Fail(whole);
  };
  if (const absl::Status there = CheckIsThere(reply->path()); !there.ok()) {
    return fail(there, absl::IsNotFound(there)
                           ? "; for --to, this machine must have the folder of the servers' "
                             "checkpoints under the same absolute path"
                           : "; run psctl as the user of the servers");
  }
  if (const absl::Status elsewhere = checkpoints::CheckIsElsewhere(disk, reply->path(), to);
      !elsewhere.ok()) {
    return fail(elsewhere);
  }
  std::fprintf(stderr, "psctl: copying %s to %s\n", reply->path().c_str(), to.c_str());
  const absl::StatusOr<std::string> copy = checkpoints::CopyCheckpoint(disk, reply->path(), to);
  if (copy.ok()) return Print(absl::StrCat(*copy, "\n"));
  return fail(copy.status());
}

absl::StatusOr<ModelTarget> TargetOfExport(const process::CommandLine& line) {
  ModelTarget target;
  ASSIGN_OR_RETURN(target.format, ParseModelFormat(absl::GetFlag(FLAGS_format)));
  target.path = absl::GetFlag(FLAGS_out);
  const bool has_out = line.given.count("out") > 0;
  const bool has_path = line.positionals.size() > 1;
  if (has_out && has_path)
    return absl::InvalidArgumentError("PATH and --out both name the output; give one of the two");
  if (has_path) target.path = line.positionals[1];
  if (target.format == ModelFormat::kHuggingFace && !has_out && !has_path) {
    return absl::InvalidArgumentError(
        "the folder is missing: psctl export --format=huggingface DIR; it is made if it does not "
        "exist");
  }
  return target;
}

int SayExported(const ModelTarget& target, const ModelWriter& writer, absl::string_view of_what) {
  return Print(
      absl::StrCat(target.path, " (", BytesText(writer.num_bytes()), "): ", of_what, "\n"));
}

int ExportFromServer(ClusterClient* client, const ModelTarget& target, std::stop_token stop) {
  const absl::StatusOr<std::unique_ptr<ModelWriter>> writer = ModelWriter::Create(target, stop);
  if (!writer.ok()) return Fail(writer.status());
  client->StopWith(stop);
  absl::Status written;
  // Another thread sets these while it writes the file.
  std::atomic<int64_t> num_bytes = 0;
  std::atomic<int64_t> announced_bytes = 0;
  ExportProgress progress(absl::Now());
  const absl::StatusOr<v1::ExportSource> called = client->Export(
      [&](absl::string_view part) {
        written = (*writer)->Append(part);
        num_bytes = (*writer)->num_bytes();
        announced_bytes = (*writer)->announced_bytes();
        return written.ok();
      },
      [&](const v1::ClusterStatus& status) {
        const std::string text = progress.Look(num_bytes, announced_bytes, client->server(),
                                               status.open_round().waiting_for(), absl::Now());
        if (!text.empty()) SayError(text);
      });
  if (written.ok() && !called.ok() && stop.stop_requested()) written = (*writer)->Commit();
  if (absl::IsInvalidArgument(written)) {
    written = absl::InvalidArgumentError(absl::StrCat("ps_server at ", client->server(), ": ",
                                                      written.message(), "; is --server right?"));
  }
  if (!written.ok()) return Fail(written);
  if (!called.ok()) return FailCall(called.status());
  written = (*writer)->Commit();
  if (!written.ok()) return Fail(written);
  return SayExported(target, **writer, wire::ExportText(*called, client->server()));
}

int ExportFromDisk(const std::string& path, const ModelTarget& target, std::stop_token stop) {
  StoppableFileSystem disk(&storage::FileSystem::Real(), stop);
  const auto write = [&]() -> absl::StatusOr<std::unique_ptr<ModelWriter>> {
    ASSIGN_OR_RETURN(const std::unique_ptr<checkpoints::TrainedWeights> weights,
                     checkpoints::TrainedWeights::Open(disk, path));
    ASSIGN_OR_RETURN(std::unique_ptr<ModelWriter> writer, ModelWriter::Create(target, stop));
    RETURN_IF_ERROR(AppendModel(*weights, *writer));
    RETURN_IF_ERROR(writer->Commit());
    return writer;
  };
  const absl::StatusOr<std::unique_ptr<ModelWriter>> writer = write();
  if (!writer.ok()) return Fail(writer.status());
  return SayExported(target, **writer, absl::StrCat("the weights of ", path));
}

// Returns --reason, or `command` if --reason is not given.
std::string ReasonOr(absl::string_view command) {
  const std::string reason = absl::GetFlag(FLAGS_reason);
  return reason.empty() ? std::string(command) : reason;
}

int StopCommand(ClusterClient* client) {
  const absl::StatusOr<v1::StopReply> reply =
      client->Stop(ReasonOr("psctl stop"), SayWaits("stop"));
  if (!reply.ok()) return FailCall(reply.status());
  const int printed = Print(wire::StopText(*reply, client->server()) + "\n");
  return reply->is_lost() ? kExitNeedsOperator : printed;
}

// Returns the path of this binary. The result does not depend on the caller's PATH and directory.
std::string ProgramPath() {
  char path[4096];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof(path));
  return length > 0 ? std::string(path, length) : "psctl";
}

int LaunchCommand(const process::CommandLine& line) {
  LaunchOptions options;
  options.servers = absl::GetFlag(FLAGS_servers);
  options.workers = absl::GetFlag(FLAGS_workers);
  options.threads = absl::GetFlag(FLAGS_threads);
  options.device = absl::GetFlag(FLAGS_device);
  options.data = absl::GetFlag(FLAGS_data);
  options.heldout_data = absl::GetFlag(FLAGS_heldout_data);
  options.data_format = absl::GetFlag(FLAGS_data_format);
  options.token_bytes = absl::GetFlag(FLAGS_token_bytes);
  options.data_partition = absl::GetFlag(FLAGS_data_partition);
  options.exit_when_done = absl::GetFlag(FLAGS_exit_when_done);
  options.address = absl::GetFlag(FLAGS_address);
  options.hosts = absl::GetFlag(FLAGS_hosts);
  options.ssh = absl::GetFlag(FLAGS_ssh);
  options.worker_program = absl::GetFlag(FLAGS_worker_program);
  options.restarts = absl::GetFlag(FLAGS_restart);
  options.server_flags = line.passed_on;
  for (const auto& [flag, value] :
       {std::pair("servers", options.servers), std::pair("workers", options.workers)}) {
    const absl::Status range = CheckWholeRange(flag, value, 1, 64);
    if (!range.ok()) return BadUsage(std::string(range.message()));
  }
  if (!options.hosts.empty() && line.given.count("workers") > 0) {
    return BadUsage(
        "--workers cannot be given with --hosts, because that file says how many workers there "
        "are");
  }
  for (const char* flag : {"address", "ssh", "worker_program"}) {
    if (options.hosts.empty() && line.given.count(flag) > 0) {
      return BadUsage(absl::StrCat("--", flag, " has no meaning without --hosts"));
    }
  }
  const absl::Status restarts = CheckWholeRange("restart", options.restarts, 0, 1000);
  if (!restarts.ok()) return BadUsage(std::string(restarts.message()));
  if (options.data.empty())
    return BadUsage("--data is missing: give the path of the training data");
  absl::StatusOr<std::vector<std::string>> worker_flags =
      ParseWorkerFlags(absl::GetFlag(FLAGS_worker_flags));
  if (!worker_flags.ok()) return BadUsage(std::string(worker_flags.status().message()));
  options.worker_flags = *std::move(worker_flags);
  // Only the other machines know which cards they have, so only a launch on this machine is
  // checked.
  if (options.hosts.empty()) {
    const absl::Status device = CheckLaunchDevice(options.device);
    if (!device.ok()) return BadUsage(std::string(device.message()));
  }
  const absl::Status server_flags = CheckServerFlags(options.server_flags);
  if (!server_flags.ok()) return BadUsage(std::string(server_flags.message()));
  return RunLaunch(options, ProgramPath());
}

int PlanCommand(const process::CommandLine& line) {
  PlanOptions options;
  const auto is_given = [&line](const char* flag) { return line.given.count(flag) > 0; };
  if (!is_given("up") && !is_given("down") && !is_given("rtt") && !is_given("step_ms")) {
    for (const char* flag :
         {"server_up", "server_down", "packet_loss", "packet_bytes", "utilisation", "loss_budget",
          "max_local_steps", "steps", "worker_threads", "server_threads", "overhead_ms"}) {
      if (!is_given(flag)) continue;
      return BadUsage(absl::StrCat(
          "--", flag,
          " has no meaning without a network; give --up, --down, --rtt and --step_ms as well"));
    }
  }
  if (line.given.count("model") > 0) options.model = absl::GetFlag(FLAGS_model);
  options.parameters = absl::GetFlag(FLAGS_parameters);
  options.workers = absl::GetFlag(FLAGS_workers);
  options.servers = absl::GetFlag(FLAGS_servers);
  options.up = absl::GetFlag(FLAGS_up);
  options.down = absl::GetFlag(FLAGS_down);
  options.server_up = absl::GetFlag(FLAGS_server_up);
  options.server_down = absl::GetFlag(FLAGS_server_down);
  options.rtt_ms = absl::GetFlag(FLAGS_rtt);
  options.step_ms = absl::GetFlag(FLAGS_step_ms);
  options.packet_loss_percent = absl::GetFlag(FLAGS_packet_loss);
  options.packet_bytes = absl::GetFlag(FLAGS_packet_bytes);
  options.utilisation = absl::GetFlag(FLAGS_utilisation);
  options.loss_budget_percent = absl::GetFlag(FLAGS_loss_budget);
  options.max_local_steps = absl::GetFlag(FLAGS_max_local_steps);
  options.total_steps = absl::GetFlag(FLAGS_steps);
  options.worker_threads = absl::GetFlag(FLAGS_worker_threads);
  options.server_threads = absl::GetFlag(FLAGS_server_threads);
  options.overhead_ms = absl::GetFlag(FLAGS_overhead_ms);
  options.output = absl::GetFlag(FLAGS_output);
  options.job_flags = line.passed_on;
  const std::string hidden = wire::HiddenModelFile(options.model);
  if (!hidden.empty()) SayError(hidden);
  const absl::StatusOr<PlanAnswer> plan = MakePlan(options, OutputColumns());
  if (absl::IsInvalidArgument(plan.status())) return BadUsage(std::string(plan.status().message()));
  if (!plan.ok()) return Fail(plan.status());
  const int printed = Print(plan->text);
  return printed != 0 || plan->is_met ? printed : kExitError;
}

int GenerateCommand(const process::CommandLine&) {
  GenerateOptions options;
  options.model_path = absl::GetFlag(FLAGS_model);
  options.tokenizer = absl::GetFlag(FLAGS_tokenizer);
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

int VerifyCommand(const process::CommandLine& line) {
  const absl::Span<const std::string> paths = absl::MakeConstSpan(line.positionals).subspan(1);
  const absl::Status status =
      VerifyCheckpoints(storage::FileSystem::Real(), paths, [](absl::string_view text) {
        return output::WriteToStandardOutput(absl::StrCat(text, "\n"));
      });
  return status.ok() ? 0 : Fail(status);
}

int PrintHistory(const history::RunHistory& history) {
  constexpr int kRows = 24;
  return Print(WantsJson() ? absl::StrCat(history::HistoryJson(history), "\n")
                           : HistoryText(history, kRows, OutputColumns()));
}

int RestoreCommand(const process::CommandLine& line) {
  if (line.positionals.size() != 2) return BadUsage("give the path of exactly one checkpoint");
  const std::string to = absl::GetFlag(FLAGS_to);
  if (to.empty())
    return BadUsage("--to is missing: give the folder that the servers have as --checkpoint_dir");
  return RunUntilStopSignal([&](std::stop_token stop) {
    StoppableFileSystem disk(&storage::FileSystem::Real(), std::move(stop));
    std::fprintf(stderr, "psctl: verifying %s and copying it to %s\n", line.positionals[1].c_str(),
                 to.c_str());
    const absl::StatusOr<std::string> restored = RestoreCheckpoint(disk, line.positionals[1], to);
    if (!restored.ok()) return Fail(restored.status());
    if (const absl::Status given = GiveToOwnerOf(to, *restored); !given.ok()) return Fail(given);
    return Print(absl::StrCat(
        *restored, ": servers that start with --checkpoint_dir=", to,
        " continue from this checkpoint. If they have another --journal_dir, it must be empty. If "
        "they have --journal_replica, the folders of the replica must be empty\n"));
  });
}

int PrintAnswer(const absl::StatusOr<std::string>& text) {
  return text.ok() ? Print(*text) : FailCall(text.status());
}

// Returns the words after the name of the command.
std::vector<std::string> WordsOf(const process::CommandLine& line) {
  return {line.positionals.begin() + 1, line.positionals.end()};
}

int TokenCommand(ClusterClient* client, const process::CommandLine& line) {
  TokenOptions options;
  options.words = WordsOf(line);
  options.role = absl::GetFlag(FLAGS_role);
  options.ttl = absl::GetFlag(FLAGS_ttl);
  options.max_uses = absl::GetFlag(FLAGS_uses);
  options.name = absl::GetFlag(FLAGS_name);
  options.address = absl::GetFlag(FLAGS_address);
  options.as_json = WantsJson();
  return PrintAnswer(TokenText(*client, options, absl::Now()));
}

int IdentitiesCommand(ClusterClient* client) {
  return PrintAnswer(IdentitiesText(*client, WantsJson(), absl::Now()));
}

int RevokeCommand(ClusterClient* client, const process::CommandLine& line) {
  std::optional<int64_t> since_round;
  if (line.given.count("since_round") > 0) since_round = absl::GetFlag(FLAGS_since_round);
  if (since_round.has_value() && *since_round < 0)
    return BadUsage("--since_round must be the number of a round, 0 or more");
  return PrintAnswer(
      RevokeIdentities(*client, WordsOf(line), absl::GetFlag(FLAGS_with_token), since_round));
}

int RollBackCommand(ClusterClient* client) {
  const int64_t round = absl::GetFlag(FLAGS_round);
  if (round < 0) return BadUsage("--round must be the number of a round, 0 or more");
  const absl::StatusOr<v1::RollBackReply> reply =
      client->RollBack(round, ReasonOr("psctl rollback"));
  if (!reply.ok()) return FailCall(reply.status());
  return Print(absl::StrCat(RollBackText(*reply), "\n"));
}

int PauseCommand(ClusterClient* client) {
  return PrintAnswer(PauseJob(*client, ReasonOr("psctl pause")));
}

int ResumeCommand(ClusterClient* client) { return PrintAnswer(ResumeJob(*client)); }

int SetLearningRateCommand(ClusterClient* client, const process::CommandLine& line) {
  if (line.positionals.size() != 2) return BadUsage("give exactly one number, the learning rate");
  return PrintAnswer(SetLearningRate(*client, line.positionals[1]));
}

int EvictCommand(ClusterClient* client, const process::CommandLine& line) {
  return PrintAnswer(EvictWorkers(*client, WordsOf(line), ReasonOr("psctl evict"),
                                  absl::GetFlag(FLAGS_certificate)));
}

int ReadmitCommand(ClusterClient* client, const process::CommandLine& line) {
  return PrintAnswer(ReadmitWorkers(*client, WordsOf(line)));
}

// A command that connects to the server of --server or of the join string.
using ClientCommand = std::function<int(ClusterClient*, const process::CommandLine&)>;

std::function<int(const process::CommandLine&)> WithClient(ClientCommand run) {
  return [run = std::move(run)](const process::CommandLine& line) {
    const absl::StatusOr<OperatorAccess> access =
        FindOperatorAccess(absl::GetFlag(FLAGS_server), line.given.count("server") > 0);
    if (!access.ok()) return FailCall(access.status());
    ClusterClient client(access->servers, access->security);
    const int exit_code = run(&client, line);
    if (exit_code == kExitRetry && access->files.has_value()) {
      const std::string doubts =
          wire::FindTlsDoubts(*access->files, access->servers.ToString(), kLookAtServer);
      if (!doubts.empty()) {
        std::fprintf(stderr, "psctl: %s\n", wire::TlsDoubtsLine(doubts, absl::Now()).c_str());
      }
    }
    if (!client.refusal().empty() && access->joined.has_value()) {
      wire::ThrowAwayCertificate(*access->joined, client.refusal());
      std::fprintf(
          stderr,
          "psctl: the server does not accept the certificate in %s any more. Ask an operator for a "
          "new join string (psctl token create --role=operator) and give it with --join\n",
          access->joined->certificate.c_str());
    }
    return exit_code;
  };
}

std::function<int(const process::CommandLine&)> WithClient(int (*run)(ClusterClient*)) {
  return WithClient(ClientCommand(
      [run](ClusterClient* client, const process::CommandLine&) { return run(client); }));
}

int ExportCommand(const process::CommandLine& line) {
  const absl::StatusOr<ModelTarget> target = TargetOfExport(line);
  if (!target.ok()) return BadUsage(std::string(target.status().message()));
  const Replace replace = absl::GetFlag(FLAGS_force) ? Replace::kAny : Replace::kModels;
  if (const absl::Status out = CheckModelOutput(*target, replace); !out.ok()) return Fail(out);
  const std::string from = absl::GetFlag(FLAGS_from);
  return RunUntilStopSignal([&](std::stop_token stop) {
    if (!from.empty()) return ExportFromDisk(from, *target, stop);
    return WithClient([&](ClusterClient* client, const process::CommandLine&) {
      return ExportFromServer(client, *target, stop);
    })(line);
  });
}

int HistoryCommand(const process::CommandLine& line) {
  if (line.positionals.size() > 1) {
    const absl::StatusOr<history::RunHistory> history = ReadKeptHistory(line.positionals[1]);
    return history.ok() ? PrintHistory(*history) : Fail(history.status());
  }
  return WithClient([](ClusterClient* client, const process::CommandLine&) {
    const absl::StatusOr<history::RunHistory> history = client->GetHistory(v1::HistoryRequest());
    return history.ok() ? PrintHistory(*history) : FailCall(history.status());
  })(line);
}

int ServeCommand(const process::CommandLine& line) {
  if (line.positionals.size() > 2) {
    return BadUsage(absl::StrCat("'", line.positionals[2], "' is one argument too many"));
  }
  // The signals are blocked before the server starts threads, because threads inherit this. So only
  // sigwait() below gets them.
  process::BlockStopSignals();
  const auto say_url = [](absl::string_view url) {
    return output::WriteToStandardOutput(absl::StrCat(url, "\n"));
  };
  const absl::Status served =
      ServeKeptRun(line.positionals[1], absl::GetFlag(FLAGS_http), say_url, [] {
        const sigset_t signals = process::StopSignals();
        int signal = 0;
        sigwait(&signals, &signal);
      });
  return served.ok() ? 0 : Fail(served);
}

// Returns `own` and the flags that every command with a server takes.
std::vector<std::string> ClientFlags(std::vector<std::string> own) {
  own.insert(own.begin(), "server");
  for (std::string& flag : security::SecurityFlagNames()) own.push_back(std::move(flag));
  return own;
}

std::vector<Command> Commands() {
  return {
      {.name = "status",
       .form = "status [--output=json] [--watch]",
       .summary = "shows the job, its progress, what it waits for, workers and shards",
       .details = "--watch continues after a restart of the server and ends with the job.\n"
                  "Exit code: 0 means that the job runs or is done. 131 means that it waits for\n"
                  "workers or servers, is paused, or one of several workers holds up a round. 3\n"
                  "means that it has failed, or that there was an alarm in the last ten minutes.\n"
                  "129 means that no server answered, or that the server cannot answer yet. Try\n"
                  "again.\n",
       .flags = ClientFlags({"json", "output", "watch"}),
       .run = WithClient(&StatusCommand)},
      {.name = "workers",
       .form = "workers [--output=json] [--watch]",
       .summary = "shows one line per worker",
       .flags = ClientFlags({"json", "output", "watch"}),
       .run = WithClient(&WorkersCommand)},
      {.name = "shards",
       .form = "shards [--output=json] [--watch]",
       .summary = "shows one line per server",
       .flags = ClientFlags({"json", "output", "watch"}),
       .run = WithClient(&ShardsCommand)},
      {.name = "events",
       .form = "events [--follow] [--output=json]",
       .summary = "shows the last 512 events: joins, losses, checkpoints, alarms",
       .details = "--follow continues after a restart of the server and ends with the job.\n",
       .flags = ClientFlags({"follow", "json", "output"}),
       .run = WithClient(&EventsCommand)},
      {.name = "logs",
       .form = "logs [--follow] [--level=LEVEL] [--worker=NAME] [--round=R] [--lines=N] "
               "[--output=json]",
       .summary = "shows the last lines of the log of the server of shard 0",
       .details =
           "The server keeps 4096 lines, at most 1 MiB of text, in memory. --worker shows\n"
           "lines with name=NAME, with worker=ID (the cluster's number for that worker), or\n"
           "with NAME in the text. --round shows lines with round=R or 'round R' in the\n"
           "text. With --output=json, lines are as with --log_format=json of ps_server.\n"
           "--follow continues after a restart of the server and ends with the job. If the\n"
           "server ends abruptly, up to a second of lines is missed. Other servers have\n"
           "their own logs.\n",
       .flags = ClientFlags({"follow", "level", "worker", "round", "lines", "json", "output"}),
       .run = WithClient(ClientCommand(&LogsCommand))},
      {.name = "top",
       .form = "top",
       .summary = "shows the running job in the whole terminal; q ends it",
       .details = "If the output is not a terminal, the job is shown once.\n",
       .flags = ClientFlags({}),
       .run =
           [](const process::CommandLine& line) {
             // The signals must be blocked before gRPC starts threads. Otherwise a signal could end
             // the process without restoring the terminal.
             process::BlockStopSignals();
             return WithClient(&TopCommand)(line);
           }},
      {.name = "dashboard",
       .form = "dashboard",
       .summary = "prints the address of the job's dashboard",
       .details = "The dashboard is a page that ps_server serves at --http. An http:// address\n"
                  "works only on the server's machine; from another machine, use ssh -L. If the\n"
                  "job has certificates, orders need the key that is printed after # in the\n"
                  "address. An https:// address asks for a certificate, or for a token as the\n"
                  "password. Make the token with psctl token create --role=viewer, or\n"
                  "--role=operator to give orders.\n",
       .flags = ClientFlags({}),
       .run = WithClient(&DashboardCommand)},
      {.name = "checkpoint",
       .form = "checkpoint [--to=DIR]",
       .summary = "saves a checkpoint now and prints its path",
       .details =
           "With --to, the checkpoint is also copied and verified, and the path of the copy\n"
           "is printed. This machine must have the folder of the servers' checkpoints under\n"
           "the same path.\n",
       .flags = ClientFlags({"to"}),
       .run =
           [](const process::CommandLine& line) {
             return RunUntilStopSignal([&line](std::stop_token stop) {
               return WithClient([&stop](ClusterClient* client, const process::CommandLine&) {
                 return CheckpointCommand(client, stop);
               })(line);
             });
           }},
      {.name = "export",
       .form = "export [--format=huggingface] [--from=CHECKPOINT] [PATH]",
       .summary = "writes the weights as a safetensors file or for Hugging Face",
       .details = "PATH, or --out, is a file. With --format=huggingface it is a folder, which is\n"
                  "made if it does not exist. AutoModelForCausalLM.from_pretrained() reads it. It\n"
                  "has model.safetensors, config.json, generation_config.json and, if tokens are\n"
                  "bytes, a tokenizer. --from needs no server. A model that psctl wrote is\n"
                  "replaced; any other file only with --force. Nothing is written into a\n"
                  "checkpoint.\n",
       .flags = ClientFlags({"format", "from", "out", "force"}),
       .takes_path = true,
       .run = &ExportCommand},
      {.name = "stop",
       .form = "stop [--reason=TEXT]",
       .summary = "writes a last checkpoint and ends the job, workers and servers",
       .details =
           "psctl waits until the job is saved and prints the path of the checkpoint. Until\n"
           "then it prints what the job waits for. Workers have the time --stop_timeout of\n"
           "ps_server to deliver their work. If Ctrl-C ends psctl first, the job still ends.\n"
           "Exit code 3 means that the last checkpoint failed, or that SIGTERM ended the\n"
           "server before that checkpoint.\n",
       .flags = ClientFlags({"reason"}),
       .run = WithClient(&StopCommand)},
      {.name = "pause",
       .form = "pause [--reason=TEXT]",
       .summary = "starts no further rounds until psctl resume",
       .details =
           "Open rounds are completed. Workers stay and wait. Checkpoints continue, and one\n"
           "is taken at once, so that restarted servers stay paused. A paused job can be\n"
           "ended with psctl stop.\n",
       .flags = ClientFlags({"reason"}),
       .run = WithClient(&PauseCommand)},
      {.name = "resume",
       .form = "resume",
       .summary = "continues a job after psctl pause",
       .flags = ClientFlags({}),
       .run = WithClient(&ResumeCommand)},
      {.name = "set-learning-rate",
       .form = "set-learning-rate RATE",
       .summary = "sets the learning rate of the next round",
       .details = "The whole schedule is multiplied by the same factor, in checkpoints as well.\n"
                  "With --mode=local_sgd it is the rate of the workers. It is refused with\n"
                  "--mode=async, and if programs make the steps themselves.\n",
       .flags = ClientFlags({}),
       .takes_paths = true,
       .run = WithClient(ClientCommand(&SetLearningRateCommand))},
      {.name = "rollback",
       .form = "rollback --round=R [--reason=TEXT]",
       .summary = "takes the job back to the newest checkpoint of at most R rounds",
       .details = "psctl verify FOLDER shows the rounds of the checkpoints. The checkpoint for\n"
                  "--round is read in full first. If it is damaged, nothing changes, and the\n"
                  "newest whole checkpoint is named. Later checkpoints are renamed to\n"
                  "round-N.abandoned, and no server removes them. To continue from one, start the\n"
                  "servers with --resume=PATH, and remove that flag afterwards. The learning rate\n"
                  "stays as it is. After the answer, no restart continues from undone rounds,\n"
                  "except with --resume=PATH.\n",
       .flags = ClientFlags({"round", "reason"}),
       .run = WithClient(&RollBackCommand)},
      {.name = "token",
       .form = "token create [--role=ROLE] [--ttl=24h] [--uses=N] [--name=NAME] | list | revoke ID",
       .summary = "makes, lists or revokes tokens, with which machines join",
       .details = "create prints a join string, which is shown only once. A worker joins with it\n"
                  "(gpu_worker --join=STRING --data=PATH) and keeps the certificate that it gets.\n"
                  "It is safer to pass the string in $LODESTAR_JOIN or a file. After revoke, no\n"
                  "machine joins with the token; machines that have joined stay (see psctl\n"
                  "revoke).\n",
       .flags = ClientFlags({"role", "ttl", "uses", "name", "address", "json", "output"}),
       .takes_paths = true,
       .run = WithClient(ClientCommand(&TokenCommand))},
      {.name = "identities",
       .form = "identities [--output=json]",
       .summary = "lists the machines that have a certificate",
       .flags = ClientFlags({"json", "output"}),
       .run = WithClient(&IdentitiesCommand)},
      {.name = "revoke",
       .form = "revoke NAME... [--with_token] [--since_round=R]",
       .summary = "ends the certificates of a name, and its workers at once",
       .details =
           "The name can join again only with a token that is made later (psctl token\n"
           "create --name=NAME). The token with which it joined is revoked as well, unless\n"
           "other machines joined with that token. In that case the answer names the token.\n"
           "The machine can then join under another name until the token is revoked\n"
           "(--with_token, or psctl token revoke ID). With --since_round, the job also goes\n"
           "back, as with psctl rollback --round=R. If it cannot go back, no certificate is\n"
           "revoked.\n",
       .flags = ClientFlags({"with_token", "since_round"}),
       .takes_paths = true,
       .run = WithClient(ClientCommand(&RevokeCommand))},
      {.name = "evict",
       .form = "evict NAME... [--certificate] [--reason=TEXT]",
       .summary = "ends workers and refuses their names",
       .details =
           "Rounds continue without them. The workers learn the reason and end. The refusal\n"
           "survives a restart of the servers; psctl readmit lifts it. A worker with a\n"
           "certificate may return under another name of its certificate. --certificate\n"
           "evicts all of these names. With this flag NAME may be the certificate's own\n"
           "name; give psctl readmit the same name. To end the certificate itself, use\n"
           "psctl revoke.\n",
       .flags = ClientFlags({"certificate", "reason"}),
       .takes_paths = true,
       .run = WithClient(ClientCommand(&EvictCommand))},
      {.name = "readmit",
       .form = "readmit NAME...",
       .summary = "lets evicted or refused workers join again",
       .details = "A worker is also refused because of what it sent; see --poison_limit of\n"
                  "ps_server. The refused names and the reasons are in psctl status.\n",
       .flags = ClientFlags({}),
       .takes_paths = true,
       .run = WithClient(ClientCommand(&ReadmitCommand))},
      {.name = "launch",
       .form = "launch --data=PATH [--hosts=FILE] [-- FLAGS]",
       .summary = "starts servers and workers; FLAGS go to ps_server",
       .details =
           "Each worker gets one card of this machine; if there are fewer cards than\n"
           "workers, workers share them. With --device=cuda:all, all cards are divided\n"
           "among the workers. With --hosts, workers run on other machines. These join with\n"
           "TLS, have --data under the same path, and allow ssh without a password.\n"
           "--worker_flags go to every worker. The output of all programs is printed here.\n"
           "If a program fails, all end, unless --restart is given. After Ctrl-C, workers\n"
           "deliver their work and servers save. The job begins once all workers have\n"
           "joined, unless FLAGS have --min_workers. --log_format and --log_level in FLAGS\n"
           "also apply to workers.\n"
           "Exit code: that of the first program that failed, otherwise 0.\n",
       .flags = {"data", "heldout_data", "data_format", "token_bytes", "data_partition", "servers",
                 "workers", "device", "threads", "exit_when_done", "hosts", "address", "ssh",
                 "worker_program", "worker_flags", "restart"},
       .passes_on = true,
       .run = &LaunchCommand},
      {.name = "plan",
       .form =
           "plan --model=M [--workers=N --up=MBIT --down=MBIT --rtt=MS --step_ms=MS] [-- FLAGS]",
       .summary = "estimates a job's memory, and the best exchange for a network",
       .details =
           "No server is needed, and nothing is started. The output has the memory and disk\n"
           "of servers. It has the memory of workers with fp32 and bf16, for each\n"
           "--recompute, and the micro-batches that fit into 16 to 140 GB. With --up,\n"
           "--down, --rtt and --step_ms, it also compares the ways to exchange. For each it\n"
           "gives the local steps, fragments and overlap that reach --utilisation at the\n"
           "least loss. It ends with the flags of ps_server for the best one\n"
           "(docs/howto/planning.md). With FLAGS of ps_server, that job is estimated as\n"
           "well, and the memory is that job's.\n"
           "Exit code: 0 means that there is a way, or that no network was given. 1 means\n"
           "that no way reaches --utilisation within --loss_budget; the output says what\n"
           "would help.\n",
       .flags =
           {"model",       "parameters",     "workers",        "servers",     "up",
            "down",        "server_up",      "server_down",    "rtt",         "step_ms",
            "packet_loss", "packet_bytes",   "utilisation",    "loss_budget", "max_local_steps",
            "steps",       "worker_threads", "server_threads", "overhead_ms", "output"},
       .passes_on = true,
       .run = &PlanCommand},
      {.name = "generate",
       .form = "generate [--prompt=TEXT] [--model=PATH]",
       .summary = "writes text with a trained gpt",
       .flags = {"model", "tokenizer", "prompt", "bytes", "temperature", "top_k", "seed", "device",
                 "threads"},
       .run = &GenerateCommand},
      {.name = "history",
       .form = "history [PATH]",
       .summary = "shows losses and events of a running or finished job",
       .details = "Without PATH, psctl asks the server. PATH is --checkpoint_dir of the servers,\n"
                  "which write the history there every ten seconds; no server is needed. With\n"
                  "--output=json, all kept points are printed.\n",
       .flags = ClientFlags({"json", "output"}),
       .takes_path = true,
       .run = &HistoryCommand},
      {.name = "serve",
       .form = "serve RUNDIR [--http=HOST:PORT]",
       .summary = "serves the dashboard of a finished run and prints its address",
       .details = "RUNDIR is the --checkpoint_dir of the run; no server is needed. The page takes\n"
                  "no orders, says when the run was last written, and can compare it with runs in\n"
                  "folders beside it. From another machine, use ssh -L. Ctrl-C ends it.\n"
                  "Exit code: 0 means that it was ended. 1 means that no run can be read, or that\n"
                  "the port is taken. 2 means a bad flag.\n",
       .flags = {"http"},
       .takes_paths = true,
       .run = &ServeCommand},
      {.name = "verify",
       .form = "verify PATH...",
       .summary = "checks whether checkpoints are whole; needs no server",
       .details =
           "PATH is a checkpoint (round-...) or a folder of checkpoints. Every file is read\n"
           "and compared with its manifest.\n"
           "Exit code: 0 means that all are whole.\n",
       .takes_paths = true,
       .run = &VerifyCommand},
      {.name = "restore",
       .form = "restore PATH --to=DIR",
       .summary = "copies a checkpoint into a folder from which servers start",
       .details = "PATH is a checkpoint (round-...). DIR is --checkpoint_dir of the servers that\n"
                  "will continue from it. These servers must not run. The command is refused if\n"
                  "they would continue from something else: a later checkpoint or a journal.\n",
       .flags = {"to"},
       .takes_paths = true,
       .run = &RestoreCommand},
  };
}

const Command* Find(const std::vector<Command>& commands, const std::string& name) {
  const auto it = std::find_if(commands.begin(), commands.end(),
                               [&](const Command& command) { return command.name == name; });
  return it == commands.end() ? nullptr : &*it;
}

std::string UnknownCommand(const std::vector<Command>& commands, const std::string& name) {
  if (HasJoinString(name)) return std::string(process::StrayJoinString(name).message());
  if (name == "doctor") {
    return "psctl has no command 'doctor'; use lodestar doctor HOST:PORT of Lodestar's Python "
           "wheel (docs/howto/python_wheel.md)";
  }
  std::vector<std::string> names = {"help"};
  for (const Command& command : commands) names.push_back(command.name);
  const std::string meant = ClosestWord(name, names);
  return absl::StrCat("psctl has no command '", name, "'",
                      meant.empty() ? "" : absl::StrCat("; did you mean '", meant, "'?"));
}

std::string GeneralHelp(const std::vector<Command>& commands) {
  std::string usage =
      absl::StrCat("psctl ", process::kVersion, ": shows and controls a cluster.\n\n");
  for (const Command& command : commands) {
    absl::StrAppendFormat(&usage, "  psctl %s\n      %s\n", command.form, command.summary);
  }
  absl::StrAppend(&usage,
                  "  psctl help COMMAND\n      explains a command and its flags\n\n"
                  "Exit code: 0 means done. 1 means refused or failed. 2 means a bad flag or\n"
                  "command. 3 means that the job needs an operator (status), or that the last\n"
                  "checkpoint failed (stop). 129 means that no server answered, or that it\n"
                  "cannot answer yet; try again. Only psctl status ends with 131: the job waits.\n"
                  "psctl help COMMAND has details.\n");
  return process::FormatHelp(usage, {{"Cluster", ClientFlags({})}});
}

std::string CommandHelp(const Command& command) {
  std::string usage = absl::StrCat("psctl ", command.form, ": ", command.summary, "\n");
  if (!command.details.empty()) absl::StrAppend(&usage, "\n", command.details);
  if (command.flags.empty()) return process::FormatHelp(usage, {});
  return process::FormatHelp(usage, {{"Flags", command.flags}});
}

// Prints the help of the command that `words` name, or the general help.
int Explain(const std::vector<Command>& commands, const std::vector<std::string>& words) {
  if (words.empty() || words.front() == "help") {
    return Print(GeneralHelp(commands));
  }
  const Command* const command = Find(commands, words.front());
  if (command == nullptr) return BadUsage(UnknownCommand(commands, words.front()));
  return Print(CommandHelp(*command));
}

// Servers keep at most this many bytes of a reason.
constexpr size_t kMaxReasonBytes = 256;

absl::Status CheckFlags() {
  if (const size_t bytes = absl::GetFlag(FLAGS_reason).size(); bytes > kMaxReasonBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("--reason has ", bytes, " bytes; give at most ", kMaxReasonBytes));
  }
  RETURN_IF_ERROR(net::AddressList::Parse("server", absl::GetFlag(FLAGS_server)).status());
  if (const std::string output = absl::GetFlag(FLAGS_output);
      output != "table" && output != "json") {
    return absl::InvalidArgumentError(
        absl::StrCat("--output=", output, " is unknown; allowed: table, json"));
  }
  RETURN_IF_ERROR(CheckWholeRange("uses", absl::GetFlag(FLAGS_uses), 0, 1'000'000));
  RETURN_IF_ERROR(CheckWholeRange("threads", absl::GetFlag(FLAGS_threads), 0, 1024));
  RETURN_IF_ERROR(CheckWholeRange("bytes", absl::GetFlag(FLAGS_bytes), 0, 1'000'000'000));
  RETURN_IF_ERROR(CheckRange("temperature", absl::GetFlag(FLAGS_temperature), 0, 1000));
  return CheckWholeRange("top_k", absl::GetFlag(FLAGS_top_k), 0, 1'000'000);
}

// Refuses wrong words and flags. A flag that the command does not know would have no effect, and
// the user would not notice.
absl::Status CheckUsage(const Command& command, const process::CommandLine& line) {
  if (command.takes_paths && line.positionals.size() < 2) {
    return absl::InvalidArgumentError(absl::StrCat("an argument is missing: psctl ", command.form));
  }
  const size_t most = command.takes_path ? 2 : 1;
  if (!command.takes_paths && line.positionals.size() > most) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", line.positionals[most], "' is one argument too many"));
  }
  for (const std::string& path : absl::MakeConstSpan(line.positionals).subspan(1)) {
    RETURN_IF_ERROR(CheckLocalPath(path));
  }
  for (const std::string& flag : line.given) {
    if (std::find(command.flags.begin(), command.flags.end(), flag) != command.flags.end())
      continue;
    return absl::InvalidArgumentError(
        absl::StrCat("--", flag, " has no meaning for ", command.name));
  }
  return CheckFlags();
}

// Returns advice if `arguments` name a command that passes flags behind "--" on to ps_server. The
// unknown flag may have been meant for ps_server.
std::string WherePassedOn(const std::vector<Command>& commands,
                          const std::vector<std::string>& arguments) {
  for (const std::string& argument : arguments) {
    const Command* const command = Find(commands, argument);
    if (command == nullptr || !command->passes_on) continue;
    return absl::StrCat("; write flags of ps_server after --: psctl ", command->form);
  }
  return "";
}

// Appends the words behind "--" to the command's own words. Does nothing if the command passes
// words behind "--" on to another program.
void TakeWordsBehindFlags(const std::vector<Command>& commands, process::CommandLine& line) {
  const std::vector<std::string>& first =
      line.positionals.empty() ? line.passed_on : line.positionals;
  const Command* const command = first.empty() ? nullptr : Find(commands, first.front());
  if (command != nullptr && command->passes_on) return;
  line.positionals.insert(line.positionals.end(), line.passed_on.begin(), line.passed_on.end());
  line.passed_on.clear();
}

int Main(const std::vector<std::string>& arguments) {
  absl::StatusOr<process::CommandLine> line = process::ParseCommandLine(arguments);
  if (!line.ok()) {
    return BadUsage(absl::StrCat(line.status().message(), WherePassedOn(Commands(), arguments)));
  }
  for (const std::string& doubt : line->doubts) {
    std::fputs(absl::StrCat("psctl: ", doubt, "\n").c_str(), stderr);
  }
  if (line->request == process::CommandLineRequest::kVersion) {
    return Print(process::VersionText("psctl"));
  }
  const std::vector<Command> commands = Commands();
  TakeWordsBehindFlags(commands, *line);
  std::vector<std::string> words = line->positionals;
  if (line->request != process::CommandLineRequest::kRun) return Explain(commands, words);
  if (words.empty()) {
    std::fputs(GeneralHelp(commands).c_str(), stderr);
    return kExitBadFlags;
  }
  if (words.front() == "help") {
    words.erase(words.begin());
    return Explain(commands, words);
  }
  const Command* const command = Find(commands, words.front());
  if (command == nullptr) return BadUsage(UnknownCommand(commands, words.front()));
  if (const absl::Status usage = CheckUsage(*command, *line); !usage.ok()) {
    SayError(absl::StrCat(usage.message(), "; see psctl help ", command->name));
    return kExitBadFlags;
  }
  return command->run(*line);
}

}  // namespace
}  // namespace lodestar::psctl

int main(int argc, char** argv) {
  lodestar::process::SetUpProgram();
  lodestar::wire::ExitUnlessTransportWorks("psctl");
  // SIGUSR1 and SIGUSR2 would end psctl. A batch system may send them to all programs of a job,
  // although only servers (which save) and `psctl launch` need them.
  lodestar::process::BlockSaveSignals();
  return lodestar::psctl::Main(std::vector<std::string>(argv + 1, argv + argc));
}
