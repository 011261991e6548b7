// SPDX-License-Identifier: Apache-2.0

#include "worker/worker_flags.h"

#include <algorithm>

#include "absl/flags/flag.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/net/connect_patience.h"
#include "common/process/command_line.h"
#include "common/process/trace_recorder.h"
#include "common/process/version.h"
#include "common/runtime/flag_range.h"
#include "common/runtime/local_path.h"
#include "common/runtime/status_macros.h"
#include "common/runtime/worker_name.h"
#include "worker/residual_folder.h"

ABSL_FLAG(std::string, coordinator, "127.0.0.1:50051",
          "HOST:PORT of the server of shard 0, the only address that a worker needs. A join "
          "string (--join) has it as well. Give several addresses with commas if another "
          "process may take that server's place, such as a promoted replica. They are tried in "
          "turn until one answers as the coordinator, and again if it stops answering.");
ABSL_FLAG(bool, shared_memory, true,
          "Use shared memory for weights and contributions between this worker and servers on "
          "this machine, if both can. Other servers use TCP. The log says which is used.");
ABSL_FLAG(
    lodestar::LocalPath, data, "",
    "File or folder with the training data on this machine. Required. If no file is held out by "
    "its name, the last tenth of every file is held out. Files called train* are for training, "
    "val* and valid* are held out, and test* is left out. Names such as fineweb_val_000001.bin and "
    "val/1.bin count as well. For text, names count only if every file has such a name.");
ABSL_FLAG(lodestar::LocalPath, heldout_data, "",
          "File or folder with held-out text or tokens, which are not trained on. Empty means that "
          "a part of --data is held out. With this flag, files of --data that have the same "
          "content, or are called val or test, are left out.");
ABSL_FLAG(std::string, data_format, "auto",
          "Format of the data: auto, text, tokens, idx or cifar10. With auto, the content "
          "decides, and files that are neither text nor tokens are refused. With text, every "
          "byte of any file is a token. With tokens, files have uint16 or uint32 numbers; in a "
          "folder, the .bin, .npy and .ds files count. The format idx is that of MNIST, and "
          "cifar10 is the binary version of CIFAR-10.");
ABSL_FLAG(
    std::string, token_bytes, "auto",
    "Bytes per token in files of tokens: 2 (uint16), 4 (uint32) or auto. With auto, the header of "
    "the file decides. If there is no header, the size of the model's vocabulary decides.");
ABSL_FLAG(std::string, data_partition, "shared",
          "Whether workers share their data: shared or own. With shared, all workers have the same "
          "data. The server checks this and gives each worker a part. With own, only this worker "
          "has its data and makes its own passes over them. The held-out loss is then a mean over "
          "all data sets, weighted by size. All workers have batches of the same size, so each "
          "sample of a small data set is used more often.");
ABSL_FLAG(std::string, device, "auto",
          "Device that computes: auto, cpu, cuda, cuda:N, cuda:all or several as in cuda:0,1. "
          "The value auto means the first CUDA card, or the CPU if there is none. The value "
          "cuda:N means the N-th card, from 0. With several cards, each computes a part of "
          "every step, and the worker pulls and pushes once for all. NCCL adds up their "
          "gradients. If NCCL is missing, the worker uses copies; the log says which.");
ABSL_FLAG(std::string, dtype, "fp32",
          "Arithmetic of the model: fp32 or bf16. With bf16, a CUDA card of compute capability "
          "8.0 or later is needed; weights, gradients and sums stay fp32.");
ABSL_FLAG(
    std::string, fusion, "measure",
    "Whether CUDA cards fuse biases, activations and sums into matrix products: measure, never or "
    "always. In bf16 without dropout, this includes cuDNN's attention if cuDNN is installed. With "
    "measure, the worker finds the faster way for each shape at the start. Results may then differ "
    "from run to run in their last bits, unless runs share a --tuning_file. With never and always, "
    "runs repeat to the bit. With always, two cases are still not fused: what the libraries "
    "refuse, and GELU in fp32, which cuBLASLt may approximate.");
ABSL_FLAG(bool, repeatable, true,
          "Whether equal runs on CUDA cards give equal bits. With false, cuDNN's attention in bf16 "
          "without dropout may add gradients in any order. That should be faster, but two runs "
          "then differ in their last bits, whatever --fusion says. The value false takes 4 bytes "
          "of memory per number of a layer's output, at most 256 MiB.");
ABSL_FLAG(lodestar::LocalPath, tuning_file, "",
          "File that keeps what is measured at the start on a CUDA card. Empty means no file; then "
          "each matrix product uses cuBLASLt's first choice. With the file, each matrix product "
          "uses the fastest of 32 algorithms that cuBLASLt suggests. Later runs with the same kind "
          "of card, driver and cuBLASLt read the file instead of measuring, and give equal bits. "
          "Their bits also equal those of the first run if only one card measured in it. Entries "
          "of another version are replaced, and entries of other cards stay. Workers of a machine "
          "may share a file. Requires --fusion=measure.");
ABSL_FLAG(int, threads, 0,
          "Number of threads of a CPU device, 1 to 1024. 0 means one per core that the process may "
          "use, by its affinity and CPU quota (cgroups).");
ABSL_FLAG(int64_t, max_micro_batch, 0,
          "Maximum number of samples per forward and backward pass, at most 1048576. 0 means "
          "as many as fit into the free memory of the device, at most 64; the log says how "
          "many. On a CPU, activations then take at most a sixteenth of the free main memory. "
          "A larger batch is computed in pieces whose gradients are added. A smaller value "
          "needs less memory and gives the same result, on CUDA cards up to rounding.");
ABSL_FLAG(
    std::string, recompute, "none",
    "What the backward pass of a gpt computes again to save memory: none, gelu or block. With "
    "gelu, it recomputes the outputs of the GELUs: that saves up to a quarter of the memory and "
    "takes little time. With block, it recomputes everything except the inputs of the layers: that "
    "takes a third more arithmetic. Gradients are the same, on CUDA cards up to rounding.");
ABSL_FLAG(std::string, name, "",
          "Name of this worker, unique within the job. It has at most 64 letters, digits, '.', "
          "'_' and '-', and begins with a letter or digit. Empty means host name and process "
          "id. With --join, it is this machine's name in the cluster. Empty then means a name "
          "that the cluster gives, and the process id.");
ABSL_FLAG(std::string, keep_residuals, "local_steps",
          "In which jobs this worker keeps on disk what encodings have lost: local_steps, always "
          "or never. A worker that is killed and started again then loses nothing of this. "
          "Requires --state_dir and --name, with the same values at the restart, and a job with "
          "error feedback (--push_encoding). With local_steps, the worker does so in jobs in "
          "local_sgd and async_local_sgd. With always, it also does so in sync and async; every "
          "step then waits for the disk, and no transfer overlaps computing. Each round writes 8 "
          "to 10 bytes per parameter, and the folder takes up to twice that.");
ABSL_FLAG(bool, overlap, true,
          "Pull weights during the forward pass and push gradients during the backward pass. "
          "Turn it off only to measure what that saves; the results are the same.");
ABSL_FLAG(absl::Duration, leave_timeout, absl::Seconds(30),
          "Time that a worker has to leave after a signal has told it to stop, 1s to 24h, such as "
          "30s or 5m. If this time is enough, the worker finishes the local steps of its round and "
          "pushes them. Otherwise it pushes only the steps that it has made. After this time it "
          "leaves without pushing. With --fragments or --overlap_rounds on the server, use more "
          "time than the slowest worker needs for the local steps of a round.");
ABSL_FLAG(absl::Duration, connect_timeout, lodestar::net::ConnectPatience::kDefault,
          "Time without an answer from any server after which the worker exits with 129 and "
          "frees its card, 1s to a year. 0 means that it tries for ever. The time begins at "
          "the start or with the last answer; a server that is still starting counts as an "
          "answer. Raise it if the server may be away for longer, as on a spot machine.");
ABSL_FLAG(std::string, notice, "",
          "Source that announces that this machine will be taken away: aws, gcp, azure, file:PATH "
          "or http://HOST[:PORT]/PATH. Empty means none. The worker asks it every two seconds. "
          "After a notice, it pushes its work and leaves within --notice_grace. The value aws "
          "means spot/instance-action (metadata version 2), gcp means instance/preempted. The "
          "value azure means the scheduled events Preempt, Terminate, Redeploy and Reboot of this "
          "machine. With file:PATH, it is a notice if the file exists. With an http URL, answer "
          "200 is a notice, and 404 and 204 mean no notice.");
ABSL_FLAG(absl::Duration, notice_grace, absl::ZeroDuration(),
          "Time between a notice and the end of the machine, 1s to 24h. 0 means 30s with gcp "
          "and azure, and 2m otherwise. Requires --notice.");
ABSL_FLAG(absl::Duration, stall_timeout, absl::Minutes(10),
          "Time without progress of its own work after which the worker counts as hung, 1s to 24h. "
          "Own work is a step, reading data or opening the device; waiting for servers does not "
          "count. For the first step the limit is six times this value. Later steps may take at "
          "least ten times as long as the longest step so far. The log names the stall, and a "
          "service manager that watches the worker (WatchdogSec of systemd) restarts it.");
ABSL_FLAG(lodestar::LocalPath, trace, "",
          "File for the times of a few rounds, block by block and bucket by bucket. Empty means "
          "none. Open it in https://ui.perfetto.dev. The worker writes the file after these "
          "rounds, or when it leaves. The file replaces an older trace, but not a trace that "
          "another process has written during this run.");
ABSL_FLAG(int64_t, trace_rounds, 5,
          "Number of rounds in the trace, 1 to 1000. The first two rounds are skipped.");
ABSL_FLAG(std::string, log_level, "info",
          "Lowest level of the log: debug, info, warning or error.");
ABSL_FLAG(std::string, log_format, "text",
          "Format of the log: text, or json with one object per line. In json, IDs of workers, "
          "rounds and shards are fields.");

namespace lodestar::worker {
namespace {

constexpr int kMaxThreads = 1024;
constexpr int64_t kMaxMicroBatch = 1 << 20;
constexpr int64_t kMaxTraceRounds = 1000;
// Limits of --leave_timeout. The shortest is one second, because a working server needs some
// milliseconds to answer.
constexpr absl::Duration kShortestLeave = absl::Seconds(1);
constexpr absl::Duration kLongestLeave = absl::Hours(24);

absl::Status BadFlag(absl::string_view flag, absl::string_view value, absl::string_view allowed) {
  return absl::InvalidArgumentError(
      absl::StrCat("--", flag, "='", value, "' is unknown; allowed: ", allowed));
}

absl::StatusOr<model::Recompute> ParseRecompute(const std::string& value) {
  if (value == "none") return model::Recompute::kNone;
  if (value == "gelu") return model::Recompute::kGelu;
  if (value == "block") return model::Recompute::kBlock;
  return BadFlag("recompute", value, "none, gelu, block");
}

absl::StatusOr<factory::FusionPolicy> ParseFusion(const std::string& value) {
  if (value == "measure") return factory::FusionPolicy::kMeasure;
  if (value == "never") return factory::FusionPolicy::kNever;
  if (value == "always") return factory::FusionPolicy::kAlways;
  return BadFlag("fusion", value, "measure, never, always");
}

absl::Status CheckOneOf(absl::string_view flag, const std::string& value,
                        std::initializer_list<absl::string_view> allowed) {
  if (std::find(allowed.begin(), allowed.end(), value) != allowed.end()) return absl::OkStatus();
  std::string list;
  for (absl::string_view choice : allowed) absl::StrAppend(&list, list.empty() ? "" : ", ", choice);
  return BadFlag(flag, value, list);
}

// Checks only the form of --device. Whether this machine has the device is checked later, when the
// device is made, before any server is connected.
absl::Status CheckDevice(const std::string& device) {
  return factory::IsWorkerDevice(device) ? absl::OkStatus()
                                         : BadFlag("device", device, factory::kWorkerDevices);
}

absl::StatusOr<kernels::DType> ParseDType(const std::string& dtype, const std::string& device) {
  if (dtype == "fp32") return kernels::DType::kF32;
  if (dtype != "bf16") return BadFlag("dtype", dtype, "fp32, bf16");
  if (device != "cpu") return kernels::DType::kBf16;
  return absl::InvalidArgumentError(
      "--dtype=bf16 cannot be used with --device=cpu, because bf16 needs a CUDA card; use fp32 or "
      "--device=cuda");
}

absl::Status ReadDevice(factory::DeviceOptions& options) {
  options.kind = absl::GetFlag(FLAGS_device);
  RETURN_IF_ERROR(CheckDevice(options.kind));
  ASSIGN_OR_RETURN(options.compute, ParseDType(absl::GetFlag(FLAGS_dtype), options.kind));
  ASSIGN_OR_RETURN(options.fusion, ParseFusion(absl::GetFlag(FLAGS_fusion)));
  options.is_repeatable = absl::GetFlag(FLAGS_repeatable);
  options.threads = absl::GetFlag(FLAGS_threads);
  return CheckWholeRange("threads", options.threads, 0, kMaxThreads);
}

absl::Status ReadTuning(Worker::Config& config) {
  config.tuning_path = absl::GetFlag(FLAGS_tuning_file);
  if (config.tuning_path.empty()) return absl::OkStatus();
  if (config.device.fusion != factory::FusionPolicy::kMeasure) {
    return absl::InvalidArgumentError(
        "--tuning_file has no effect with --fusion=never or always, because no measurement is made "
        "then. Leave one of the two out");
  }
  if (config.device.kind != "cpu") return absl::OkStatus();
  return absl::InvalidArgumentError(
      "--tuning_file has no effect with --device=cpu, because it is for CUDA cards. Leave it out, "
      "or give another --device");
}

absl::Status ReadData(data::DataConfig& config) {
  config.path = absl::GetFlag(FLAGS_data);
  if (config.path.empty()) {
    return absl::InvalidArgumentError(
        "--data is missing; give the path of a file or folder with the training data");
  }
  config.heldout_path = absl::GetFlag(FLAGS_heldout_data);
  config.format = absl::GetFlag(FLAGS_data_format);
  RETURN_IF_ERROR(
      CheckOneOf("data_format", config.format, {"auto", "text", "tokens", "idx", "cifar10"}));
  const std::string token_bytes = absl::GetFlag(FLAGS_token_bytes);
  RETURN_IF_ERROR(CheckOneOf("token_bytes", token_bytes, {"auto", "2", "4"}));
  config.token_bytes = token_bytes == "auto" ? 0 : token_bytes == "2" ? 2 : 4;
  return absl::OkStatus();
}

absl::Status ReadMeasuring(const std::set<std::string>& given, Worker::Config& config) {
  config.overlap = absl::GetFlag(FLAGS_overlap);
  config.trace_path = absl::GetFlag(FLAGS_trace);
  RETURN_IF_ERROR(process::CheckTraceOutput(config.trace_path));
  config.trace_rounds = absl::GetFlag(FLAGS_trace_rounds);
  if (config.trace_path.empty() && given.contains("trace_rounds")) {
    return absl::InvalidArgumentError(
        "--trace_rounds has no effect without --trace. Give --trace, or leave --trace_rounds out");
  }
  return CheckWholeRange("trace_rounds", config.trace_rounds, 1, kMaxTraceRounds);
}

absl::Status ReadResiduals(const std::set<std::string>& given, const WorkerEntrance& entrance,
                           Worker::Config& config) {
  ASSIGN_OR_RETURN(config.keep_residuals,
                   ParseKeepResiduals("--keep_residuals", absl::GetFlag(FLAGS_keep_residuals)));
  // Residuals may take gigabytes. So they are stored only if --state_dir was given. The default
  // folder is used for certificates only.
  if (given.contains("state_dir")) {
    config.residual_folder = ResidualFolderIn(entrance.security.state_dir, entrance.name);
  }
  if (config.residual_folder.empty() && given.contains("keep_residuals") &&
      config.keep_residuals != KeepResiduals::kNever) {
    return absl::InvalidArgumentError(
        "--keep_residuals has no effect without --state_dir and --name, by which the next process "
        "finds the residuals. Give both, or leave --keep_residuals out");
  }
  return absl::OkStatus();
}

absl::Status ReadNotice(const std::set<std::string>& given, WorkerFlags& flags) {
  const std::string where = absl::GetFlag(FLAGS_notice);
  const absl::Duration grace = absl::GetFlag(FLAGS_notice_grace);
  if (where.empty()) {
    if (!given.contains("notice_grace")) return absl::OkStatus();
    return absl::InvalidArgumentError(
        "--notice_grace has no effect without --notice. Give --notice, or leave --notice_grace "
        "out");
  }
  ASSIGN_OR_RETURN(flags.notice, notice::ParseNoticeOrigin("notice", where));
  flags.notice_watch.grace = notice::UsualGrace(*flags.notice);
  if (grace == absl::ZeroDuration()) return absl::OkStatus();
  flags.notice_watch.grace = grace;
  return CheckDurationRange("notice_grace", grace, kShortestLeave, kLongestLeave);
}

absl::Status ReadEntrance(const std::set<std::string>& given, WorkerEntrance& entrance) {
  entrance.coordinator = absl::GetFlag(FLAGS_coordinator);
  entrance.has_coordinator = given.contains("coordinator");
  ASSIGN_OR_RETURN(entrance.security, security::ReadSecurityFlags());
  entrance.name = absl::GetFlag(FLAGS_name);
  if (!entrance.name.empty()) RETURN_IF_ERROR(CheckWorkerName("--name", entrance.name));
  return CheckMayEnter(entrance);
}

std::string Usage() {
  return absl::StrCat(
      "gpu_worker ", process::kVersion, ": computes gradients for a ps_server.\n\n",
      "  gpu_worker --coordinator=HOST:PORT[,HOST:PORT...] --data=PATH\n\n",
      "Everything about the job (model, mode, batch size, learning rate) comes from the\n",
      "server. After SIGTERM, Ctrl-C or a notice of the cloud (--notice), the worker\n",
      "delivers its work and leaves.\n",
      "Exit code: 0 means done or told to stop. 1 to 127 means that trying again will\n",
      "not help; 2 is a bad flag. 128 and above means that trying again may help. 129\n",
      "means that no server answered for --connect_timeout, or that another process\n",
      "holds the name. 200 means that the worker was told to stop, and the servers did\n",
      "not take its last round.\n");
}

}  // namespace

absl::StatusOr<WorkerFlags> ReadWorkerFlags(const std::set<std::string>& given) {
  WorkerFlags flags;
  Worker::Config& config = flags.worker;
  // Checks only the form of the addresses. The servers may start later.
  ASSIGN_OR_RETURN(config.coordinator,
                   net::AddressList::Parse("coordinator", absl::GetFlag(FLAGS_coordinator)));
  RETURN_IF_ERROR(ReadEntrance(given, flags.entrance));
  config.insecure = flags.entrance.security.insecure;
  config.name = flags.entrance.name.empty() ? DefaultWorkerName() : flags.entrance.name;
  config.instance_id = RandomInstanceId();
  config.request_process = static_cast<uint32_t>(RandomInstanceId());
  RETURN_IF_ERROR(ReadResiduals(given, flags.entrance, config));
  config.shared_memory = absl::GetFlag(FLAGS_shared_memory);
  RETURN_IF_ERROR(ReadData(flags.workload.data));
  const std::string partition = absl::GetFlag(FLAGS_data_partition);
  RETURN_IF_ERROR(CheckOneOf("data_partition", partition, {"shared", "own"}));
  flags.workload.own_partition = partition == "own";
  RETURN_IF_ERROR(ReadDevice(config.device));
  RETURN_IF_ERROR(ReadTuning(config));
  BuiltInWorkloadConfig& workload = flags.workload;
  workload.max_micro_batch = absl::GetFlag(FLAGS_max_micro_batch);
  RETURN_IF_ERROR(CheckWholeRange("max_micro_batch", workload.max_micro_batch, 0, kMaxMicroBatch));
  ASSIGN_OR_RETURN(workload.recompute, ParseRecompute(absl::GetFlag(FLAGS_recompute)));
  config.life.leave_timeout = absl::GetFlag(FLAGS_leave_timeout);
  RETURN_IF_ERROR(CheckDurationRange("leave_timeout", config.life.leave_timeout, kShortestLeave,
                                     kLongestLeave));
  ASSIGN_OR_RETURN(
      config.life.connect.timeout,
      net::ConnectPatience::TimeoutOf("--connect_timeout", absl::GetFlag(FLAGS_connect_timeout)));
  flags.stall_timeout = absl::GetFlag(FLAGS_stall_timeout);
  RETURN_IF_ERROR(
      CheckDurationRange("stall_timeout", flags.stall_timeout, kShortestLeave, kLongestLeave));
  RETURN_IF_ERROR(ReadNotice(given, flags));
  RETURN_IF_ERROR(ReadMeasuring(given, config));
  ASSIGN_OR_RETURN(flags.log_level, logging::ParseLogLevel(absl::GetFlag(FLAGS_log_level)));
  ASSIGN_OR_RETURN(flags.log_format, logging::ParseLogFormat(absl::GetFlag(FLAGS_log_format)));
  return flags;
}

std::string WorkerHelp() {
  return process::FormatHelp(
      Usage(), {{"Cluster",
                 {"coordinator", "name", "connect_timeout", "leave_timeout", "notice",
                  "notice_grace", "stall_timeout", "shared_memory", "keep_residuals"}},
                {"Security", security::SecurityFlagNames()},
                {"Data", {"data", "heldout_data", "data_format", "token_bytes", "data_partition"}},
                {"Compute",
                 {"device", "dtype", "threads", "max_micro_batch", "recompute", "fusion",
                  "repeatable", "tuning_file"}},
                {"Measuring", {"overlap", "trace", "trace_rounds"}},
                {"Log", {"log_level", "log_format"}}});
}

std::string WorkerShortHelp() {
  return process::FormatShortHelp(
      Usage(),
      {"coordinator", "join", "data", "data_format", "heldout_data", "data_partition", "device",
       "dtype", "threads", "max_micro_batch", "name", "state_dir", "connect_timeout",
       "leave_timeout", "notice", "shared_memory", "insecure", "log_level"});
}

}  // namespace lodestar::worker
