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

ABSL_FLAG(
    std::string, coordinator, "127.0.0.1:50051",
    "HOST:PORT of the server of shard 0; the only address a worker needs, and --join has it, too. "
    "Several, with commas, "
    "where another process may take that server's place, as a promoted replica does: they are "
    "tried in turn until one answers as the coordinator, and again when it does not any more.");
ABSL_FLAG(bool, shared_memory, true,
          "Payloads to and from servers on this machine go through shared memory, if they can and "
          "want to; those of other servers through TCP. The log says which.");
ABSL_FLAG(
    lodestar::LocalPath, data, "",
    "File or folder with the training data, as this machine sees it. Required. Files of tokens "
    "called train* or val* (or valid*, test*, also as fineweb_val_000001.bin or val/1.bin) are "
    "what they are called, and so is text if all its files are; else the last tenth of every "
    "file is held out.");
ABSL_FLAG(lodestar::LocalPath, heldout_data, "",
          "File or folder with held-out data, for text and tokens: all of it is held out, and "
          "nothing of --data but what both have. Empty: it is part of --data.");
ABSL_FLAG(std::string, data_format, "auto",
          "auto (by content; files that are neither text nor tokens are refused), text (every byte "
          "is a token, whatever the file), tokens (uint16 or uint32; of a folder the .bin files), "
          "idx (MNIST family) or cifar10 (binary version).");
ABSL_FLAG(std::string, token_bytes, "auto",
          "Of files of tokens: 2 (uint16), 4 (uint32), or auto: by the header that llm.c writes, "
          "else what the model's vocabulary needs.");
ABSL_FLAG(
    std::string, data_partition, "shared",
    "shared: every worker has the same data (it is compared), and the server hands out parts of "
    "it. own: this worker's data is local to it. Passes over it are its own, and the job's "
    "held-out loss is over all data sets, by size. Batches are equal whatever the size of the "
    "data: samples of a small set are seen more often than those of a large one, and weigh "
    "more in what is learnt.");
ABSL_FLAG(std::string, device, "auto",
          "auto (the first CUDA card, else the CPU), cuda, cuda:N (the N-th card, from 0) or cpu. "
          "cuda:all, or several as in cuda:0,1: each card computes a part of every step, and the "
          "worker pulls and pushes once for all of them; their gradients are summed by NCCL, or, "
          "where it is missing, by copies. The log says by which.");
ABSL_FLAG(std::string, dtype, "fp32",
          "Arithmetic: fp32, or bf16 on CUDA cards from compute capability 8.0. With bf16 weights, "
          "gradients and sums stay fp32.");
ABSL_FLAG(std::string, fusion, "measure",
          "On CUDA cards, whether biases, activations and sums become part of matrix products, and "
          "whether attention in bf16 without dropout is cuDNN's, where that is there: measure (at "
          "the start, what is faster for each shape), never or always (but for GELU in fp32, which "
          "cuBLASLt may approximate, and what the libraries refuse). What is measured may differ "
          "from run to run, and results then differ in their last bits; never and always "
          "repeat a run to the bit, and later runs with --tuning_file each other.");
ABSL_FLAG(
    bool, repeatable, true,
    "On CUDA cards, whether equal runs give equal bits. If false, in bf16 without dropout "
    "cuDNN's attention may add gradients up in any order, which is expected to take less time; two "
    "runs then differ in their last bits, whatever --fusion says. It takes 4 bytes of memory per "
    "number of a layer's output, at most 256 MiB.");
ABSL_FLAG(lodestar::LocalPath, tuning_file, "",
          "On CUDA cards, a file that keeps what is measured at the start: with it, each matrix "
          "product takes the fastest of the 32 algorithms that cuBLASLt advises, and each shape is "
          "fused or not; only with --fusion=measure. Later runs on such a card, with the same "
          "driver and cuBLASLt, take it from there: they need not measure, and repeat each other "
          "to the bit, and the first one, too, if one card alone measured. What is there of "
          "another version is replaced, and the log says so; other cards keep theirs. The workers "
          "of a machine may share one. Empty: none, and cuBLASLt's first advice.");
ABSL_FLAG(int, threads, 0,
          "Threads of a CPU device; 1 to 1024. 0 means one per core that the process may use; its "
          "affinity and CPU quota (cgroups) count.");
ABSL_FLAG(
    int64_t, max_micro_batch, 0,
    "Samples per forward and backward, at most 1048576. A larger share of the batch is cut into "
    "pieces whose gradients are added up: less memory, same result (on CUDA cards up to "
    "roundings). 0: as many as fit into what the device has free, at most 64 (of main memory "
    "activations take a sixteenth, because others live there too and the CPU gains nothing from "
    "more); the log says how many.");
ABSL_FLAG(std::string, recompute, "none",
          "What backward computes again instead of keeping it, for gpt models: none; gelu (the "
          "outputs of the GELUs: up to a quarter less memory for a little time) or block (all but "
          "the inputs of the layers: a third more arithmetic). The gradients are the same; on CUDA "
          "cards they may differ by roundings.");
ABSL_FLAG(std::string, name, "",
          "Name of this worker, unique within the job: letters, digits, '.', '_', '-', first a "
          "letter or digit, at most 64. Empty: host name and process id. With --join it is this "
          "machine's name in the cluster; empty: one that the cluster gives it, and the process "
          "id.");
ABSL_FLAG(std::string, keep_residuals, "local_steps",
          "With --state_dir and --name: in which jobs with error feedback (--push_encoding of the "
          "server) what encoding has lost is kept there, so that a worker that is killed and "
          "started again with both goes on exactly: local_steps (local_sgd, where rounds are "
          "rare), always (also sync and async, where every step then waits for the disk, and no "
          "transfer overlaps with computing) or never. Each round writes 9 bytes per parameter "
          "with int8, 10 with bf16 and fp16, 8.5 with int4, little more than 8 with topk, and the "
          "folder has up to twice that.");
ABSL_FLAG(
    bool, overlap, true,
    "Pull weights while forward runs and push gradients while backward runs. false: one after "
    "the other, to measure what overlapping is worth; the results are the same.");
ABSL_FLAG(
    absl::Duration, leave_timeout, absl::Seconds(30),
    "How long a worker that was told to stop by a signal waits for servers, or for the other "
    "workers of its round, before it leaves without having handed in what it has; a duration such "
    "as 30s or 5m, from 1s to 24h. It goes on with its local steps if those of its round, and "
    "handing them in, fit into this time, by what steps took before; else it hands in those that "
    "it has made. Where a job has --fragments or --overlap_rounds, give it more than the local "
    "steps of a round take the slowest worker.");
ABSL_FLAG(
    absl::Duration, connect_timeout, lodestar::net::ConnectPatience::kDefault,
    "If no server answers for this long, from the start or from the last answer, the worker gives "
    "up with exit code 129 and frees its card: the job may be over, or --coordinator wrong. A "
    "server that answers that it is still starting has answered. A duration such as 90s "
    "or 1h, from 1s to a year; 0 means for ever. Give it more where the server may be away for "
    "longer, as on a spot machine that waits for another one.");
ABSL_FLAG(
    std::string, notice, "",
    "Where this machine is told that it will be taken away, looked at every two seconds; the "
    "worker then hands in what it has and leaves, as with a signal, within --notice_grace. "
    "aws (spot/instance-action of the instance metadata, version 2), gcp "
    "(instance/preempted), azure (scheduled events: Preempt, Terminate, Redeploy, Reboot of this "
    "machine), file:PATH (it appears; what is in it does not matter), or "
    "http://HOST[:PORT]/PATH (answers 200; 404 or 204: no notice). Empty: nowhere.");
ABSL_FLAG(absl::Duration, notice_grace, absl::ZeroDuration(),
          "With --notice: how long the machine is still there once notice is given, from 1s to "
          "24h. 0: 30s with gcp and azure, else 2m.");
ABSL_FLAG(absl::Duration, stall_timeout, absl::Minutes(10),
          "What this worker does by itself (a step, a part of its data, opening the device) and "
          "has not got on with for longer counts as hung: a line of the log says so, and a service "
          "manager that watches the worker (WatchdogSec of systemd) starts it again. A step has "
          "at least ten times what the longest so far took, the first six times this. Waiting for "
          "servers has no limit. From 1s to 24h.");
ABSL_FLAG(lodestar::LocalPath, trace, "",
          "File for the times of a few rounds, block by block and bucket by bucket; open it in "
          "https://ui.perfetto.dev. Written once they are over, or when the worker leaves. It "
          "replaces an older trace; one that another process has written meanwhile stays. Empty: "
          "none.");
ABSL_FLAG(int64_t, trace_rounds, 5, "Rounds in the trace, after the first two; 1 to 1000.");
ABSL_FLAG(std::string, log_level, "info", "debug, info, warning or error.");
ABSL_FLAG(
    std::string, log_format, "text",
    "text, for people, or json: an object per line, with IDs of workers, rounds and shards as "
    "fields.");

namespace lodestar::worker {
namespace {

constexpr int kMaxThreads = 1024;
constexpr int64_t kMaxMicroBatch = 1 << 20;
constexpr int64_t kMaxTraceRounds = 1000;
// A working server needs some milliseconds to answer, so shorter times make no sense.
constexpr absl::Duration kShortestLeave = absl::Seconds(1);
constexpr absl::Duration kLongestLeave = absl::Hours(24);

absl::Status BadFlag(absl::string_view flag, absl::string_view value, absl::string_view allowed) {
  return absl::InvalidArgumentError(
      absl::StrCat("--", flag, "='", value, "': allowed is ", allowed));
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

// Checks the form of --device. Whether this machine has the device is checked later, when the
// device is made and nothing is connected yet.
absl::Status CheckDevice(const std::string& device) {
  return factory::IsWorkerDevice(device) ? absl::OkStatus()
                                         : BadFlag("device", device, factory::kWorkerDevices);
}

absl::StatusOr<kernels::DType> ParseDType(const std::string& dtype, const std::string& device) {
  if (dtype == "fp32") return kernels::DType::kF32;
  if (dtype != "bf16") return BadFlag("dtype", dtype, "fp32, bf16");
  if (device != "cpu") return kernels::DType::kBf16;
  return absl::InvalidArgumentError(
      "--dtype=bf16 with --device=cpu: bf16 needs a CUDA card; use fp32 or --device=cuda");
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
        "--tuning_file has no effect with --fusion=never or always: nothing is measured then. "
        "Leave one of them out");
  }
  if (config.device.kind != "cpu") return absl::OkStatus();
  return absl::InvalidArgumentError(
      "--tuning_file has no effect with --device=cpu: it is of CUDA cards. Leave it out, or give "
      "another --device");
}

absl::Status ReadData(data::DataConfig& config) {
  config.path = absl::GetFlag(FLAGS_data);
  if (config.path.empty()) {
    return absl::InvalidArgumentError(
        "--data is missing: give the path of a file or folder with the training data");
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
        "--trace_rounds has no effect: it counts with --trace. Give that, or leave it out");
  }
  return CheckWholeRange("trace_rounds", config.trace_rounds, 1, kMaxTraceRounds);
}

absl::Status ReadResiduals(const std::set<std::string>& given, const WorkerEntrance& entrance,
                           Worker::Config& config) {
  ASSIGN_OR_RETURN(config.keep_residuals,
                   ParseKeepResiduals("--keep_residuals", absl::GetFlag(FLAGS_keep_residuals)));
  // Residuals are kept only if --state_dir was given, and not in the default folder for
  // certificates, because they may take gigabytes.
  if (given.contains("state_dir")) {
    config.residual_folder = ResidualFolderIn(entrance.security.state_dir, entrance.name);
  }
  if (config.residual_folder.empty() && given.contains("keep_residuals") &&
      config.keep_residuals != KeepResiduals::kNever) {
    return absl::InvalidArgumentError(
        "--keep_residuals has no effect: it counts with --state_dir and --name, by which the next "
        "process finds them. Give both, or leave it out");
  }
  return absl::OkStatus();
}

absl::Status ReadNotice(const std::set<std::string>& given, WorkerFlags& flags) {
  const std::string where = absl::GetFlag(FLAGS_notice);
  const absl::Duration grace = absl::GetFlag(FLAGS_notice_grace);
  if (where.empty()) {
    if (!given.contains("notice_grace")) return absl::OkStatus();
    return absl::InvalidArgumentError(
        "--notice_grace has no effect: it counts with --notice. Give that, or leave it out");
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
      "server. SIGTERM, Ctrl-C or a notice of the cloud (--notice) hands over what is\n",
      "computed and leaves.\n",
      "Exit code: 0: done or told to stop; 1 to 127: trying again will not help (2: a\n",
      "bad flag); 128 and above: trying again may help (129: no server answered for\n",
      "--connect_timeout, or the name is held; 200: told to stop, and the servers did\n",
      "not take the last round).\n");
}

}  // namespace

absl::StatusOr<WorkerFlags> ReadWorkerFlags(const std::set<std::string>& given) {
  WorkerFlags flags;
  Worker::Config& config = flags.worker;
  // Checks only the form of the addresses. Whether a server answers there is found out later, and
  // may change.
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
