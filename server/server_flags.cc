// SPDX-License-Identifier: Apache-2.0

#include "server/server_flags.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/flags/flag.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "common/checkpoints/checkpoint_directory.h"
#include "common/job/exchange_settings.h"
#include "common/job/job_fields.h"
#include "common/job/outer_step.h"
#include "common/params/layout.h"
#include "common/params/model_spec.h"
#include "common/runtime/bytes_text.h"
#include "common/runtime/local_path.h"
#include "common/runtime/status_macros.h"
#include "common/security/security_flags.h"
#include "proto/model_file.h"
#include "server/idle_flags.h"
#include "server/outer_preset.h"

ABSL_FLAG(std::string, listen, "127.0.0.1:50051",
          "Address at which this server listens, HOST:PORT. Port 0 means that the system "
          "chooses a port; see --port_file. If other machines can reach the address, "
          "connections use TLS unless --insecure is given.");
ABSL_FLAG(bool, tls, false,
          "Use TLS even if --listen is an address that only this machine reaches. Without this "
          "flag, such an address uses plain text. The certificate comes from --tls_cert, or "
          "from the cluster's authority, which the server of shard 0 makes in --state_dir.");
ABSL_FLAG(absl::Duration, certificate_ttl, absl::Hours(24),
          "Lifetime of the certificates that the cluster's authority issues, 5m to 8760h. "
          "Programs renew them after half of this time, but at the latest after 12 hours. A "
          "machine that was away for longer needs a new --join.");
ABSL_FLAG(std::string, advertise, "",
          "HOST:PORT under which workers and the coordinator reach this server. Port 0 means the "
          "port on which the server listens. Empty means the address of --listen. If --listen is a "
          "wildcard (0.0.0.0 or [::]), other programs use this machine's host name. Workers reach "
          "the server of shard 0 under the address of their own --coordinator instead.");
ABSL_FLAG(
    std::string, http, "",
    "HOST:PORT of the dashboard, whose address `psctl dashboard` prints, and of the pages for "
    "monitoring. Empty means no pages. The pages are /, /metrics (Prometheus), /healthz, /readyz "
    "and /statusz. Port 0 means that the system chooses a port, which the log names. Plain HTTP "
    "is used if only this machine reaches the address, otherwise HTTPS. HTTPS pages ask for a "
    "certificate of the role viewer or operator, or for a token as password or bearer token "
    "(`psctl token create --role=viewer`).");
ABSL_FLAG(std::vector<std::string>, http_names, {},
          "More host names under which browsers may open the pages of --http, as "
          "NAME[,NAME...]. Requests under other names are refused, except this machine's own "
          "names. Give the name of a proxy, or a name with a domain. The certificate that the "
          "cluster's authority issues to this server includes them.");
ABSL_FLAG(lodestar::LocalPath, port_file, "",
          "File into which the server writes its port, a decimal number, once it listens. The "
          "server removes the file when it starts and when it ends in order. Empty means no "
          "file.");
ABSL_FLAG(bool, shared_memory, true,
          "Offer shared memory to workers on this machine for weights and contributions. "
          "Workers on other machines use TCP.");
ABSL_FLAG(bool, long_paths, false,
          "Let workers send as much as the network path holds before the server reads it. Use "
          "it for round trips above about 1 ms. It takes at least 4 MiB more memory per "
          "connection of a worker.");
ABSL_FLAG(int32_t, max_connections, 4096,
          "Maximum number of connections that this server has at a time, 8 to 1048576. A "
          "worker has up to three. The maximum is lower if the process may not open as many "
          "files (ulimit -n).");
ABSL_FLAG(int32_t, max_connections_per_address, 0,
          "Maximum number of connections from one address of another machine, at most "
          "--max_connections. 0 means a quarter of --max_connections. Raise it if many workers "
          "share one address (NAT).");
ABSL_FLAG(
    int32_t, connections_per_minute, 600,
    "Maximum number of new connections per minute from one address of another machine, 1 to "
    "1000000. In addition, 256 may come at once. The server refuses further connections, and "
    "workers try again later. Raise it if many workers behind one address (NAT) start at once.");
ABSL_FLAG(int32_t, registrations_per_minute, 600,
          "Maximum number of registrations per minute from one address of another machine, 1 "
          "to 1000000. From this machine, and from all machines together, the maximum is ten "
          "times as high.");
ABSL_FLAG(int32_t, streams_per_worker, 32,
          "Maximum number of pushes and pulls that one worker has open on this server, 8 to "
          "65536.");
ABSL_FLAG(std::string, staging_limit, "64MiB",
          "Memory for contributions that are arriving, at least 1MiB, such as 64MiB. If it is "
          "full, workers wait. If it is less than two buckets, the size of two buckets is used.");
ABSL_FLAG(std::string, message_memory, "1GiB",
          "Memory for messages that are being sent or received, at least 64MiB, such as 1GiB. If "
          "it is exceeded, the server ends some calls, and any worker may be affected. Workers "
          "that wait for their turn to send need almost none of it.");
ABSL_FLAG(absl::Duration, message_timeout, absl::Minutes(1),
          "Maximum time in which one chunk (1 MiB) must reach a worker or the server, 1s to "
          "24h. If it takes longer, the server ends the stream, and the worker begins it "
          "again. Raise it for links below 0.5 Mbit/s.");
ABSL_FLAG(std::string, shard, "0/1",
          "Part of the parameters that this server owns, as I/K: the I-th of K parts, with 0 "
          "<= I < K <= 256. The server of shard 0 is the coordinator and takes all settings of "
          "the job. The others need only --listen, --shard and --coordinator.");
ABSL_FLAG(std::string, coordinator, "",
          "HOST:PORT of the server of shard 0. It is required for shards above 0, and refused "
          "for shard 0. Give several addresses with commas if another process may take that "
          "server's place, such as a promoted replica. They are tried in turn until one "
          "answers as the coordinator.");
ABSL_FLAG(
    std::string, leader_lease, "",
    "Key in an etcd cluster that decides which of several servers runs, as "
    "etcd://HOST:PORT[,HOST:PORT...]/KEY. Empty means that this server runs without a lease. Of "
    "all servers with the same KEY only one runs. The others wait, and one takes over at once if "
    "it ends, or within 10 s if it is gone. A server that cannot renew its lease exits with 129. "
    "Each shard needs its own KEY. The etcd cluster must be 3.4 or later, without TLS and user "
    "authentication.");
ABSL_FLAG(std::string, upstream, "",
          "HOST:PORT of the coordinator of other servers. This server with all its workers then is "
          "one worker of those servers: a site. Empty means that this server is no site. Several "
          "addresses, with commas, are tried in turn, as for --coordinator. The workers of a site "
          "do each step of the upstream's --local_steps together, in sync. With --mode=local_sgd "
          "on this server, they exchange within the site only after every --local_steps steps of "
          "this server. The job's settings come from the upstream. Give only settings about the "
          "site's own workers here; see docs/howto/sites.md.");
ABSL_FLAG(std::string, upstream_join, "",
          "Join string for a worker of the upstream cluster, or the path of a file with it. "
          "`psctl token create` prints it there. Requires --upstream.");
ABSL_FLAG(std::string, site_name, "",
          "Name of this site at its upstream. It has at most 64 letters, digits, '.', '_' and "
          "'-', and begins with a letter or digit. Empty means host name and process id. "
          "Requires --upstream.");

ABSL_FLAG(lodestar::LocalPath, model, "gpt-nano",
          "Model to train: a preset, a file with the text form of ModelSpec "
          "(proto/model.proto), or client. Presets are mlp, cnn, mlp-mnist, cnn-mnist, "
          "cnn-cifar10, gpt-nano, gpt-mini, gpt2-124m, gpt2-355m, gpt2-774m and gpt2-1.5b. "
          "With client, the first program that joins brings layout and weights. It may also "
          "propose --optimizer and its flags, --learning_rate, --clip_norm and --batch_size, "
          "unless they are given here.");
ABSL_FLAG(lodestar::LocalPath, init_from, "",
          "Source of the first weights, used only if no checkpoint is resumed. It is a "
          "safetensors file with the names and shapes of the model's layout, or a checkpoint "
          "(round-...) of any job with this model. For a gpt it may also be a folder of a "
          "GPT-2 of Hugging Face. Empty means random weights of the model's initialisers, with "
          "--seed.");

ABSL_FLAG(std::string, outer_preset, "",
          "Published values for the outer flags and --local_steps that are not given: diloco, "
          "scaling_laws, streaming or sparse_loco. Used in local_sgd and async_local_sgd. The "
          "value diloco (2311.08105) means nesterov with rate 0.7, momentum 0.9 and 500 steps. "
          "The value scaling_laws (2503.09799) means nesterov with momentum 0.9, 30 steps and, "
          "for --min_workers from 1, 2 or 8, rate 0.5, 0.6 or 0.8. The value streaming "
          "(2501.18512) means nesterov with rate 0.4, momentum 0.9 and 30 steps. The value "
          "sparse_loco (2508.15706) means sgd with rate 1 and 15 steps. The values are from "
          "long jobs, and the server warns if a short job may have a higher loss with them.");
ABSL_FLAG(absl::Duration, lease, absl::Seconds(10),
          "Time without a heartbeat after which a worker loses its membership, 100ms to 24h, "
          "such as 10s or 1m. Rounds then go on without it. Workers send a heartbeat every "
          "third of it.");
ABSL_FLAG(std::string, end_lost_workers, "lease",
          "When a worker on another machine counts as lost after its process has ended: lease or "
          "connection. With lease, it is lost after --lease. With connection, it is lost sooner if "
          "all its connections are closed and the open round waits for no other worker. It then "
          "has 1s or four round trips to connect again, whichever is longer. With --local_steps, "
          "it has at least 5 % of a usual round. Choose lease if a proxy or firewall may close all "
          "of a worker's connections for longer than that.");
ABSL_FLAG(absl::Duration, round_timeout, absl::Hours(1),
          "Maximum time that other workers wait for a worker that sends heartbeats but makes no "
          "progress, such as a process that hangs; 100ms to 24h. If the worker's rounds are "
          "usually short, it is dropped earlier: after ten times its usual time (at least ten "
          "minutes) plus two times --lease. It is also dropped if a bucket that it pushes comes "
          "too slowly to be whole within this time. Time in which a server makes a push wait for "
          "others does not count. Raise it if rounds or transfers really take longer.");

ABSL_FLAG(int64_t, global_tokens, 0,
          "Samples per step of all workers together, given in tokens; only for a gpt. 0 means that "
          "--batch_size or --global_batch_size sets it. The nearest number of samples is used. A "
          "sample has as many tokens as the model's context. A large value, such as the 524288 of "
          "GPT-2, hides the exchange behind computing. It cannot be combined with --batch_size or "
          "--global_batch_size.");

ABSL_FLAG(std::string, on_divergence, "stop",
          "What happens if losses, gradients or weights are NaN or Inf: stop or rollback. With "
          "stop, the job fails without saving; earlier checkpoints stay. With rollback, it "
          "goes back to the last good checkpoint, or to the first weights, with a lower "
          "learning rate.");
ABSL_FLAG(double, rollback_lr_factor, 0.5,
          "Factor by which each rollback multiplies the learning rate, above 0 and at most 1. "
          "Requires --on_divergence=rollback.");
ABSL_FLAG(int32_t, max_rollbacks, 5,
          "Maximum number of rollbacks, 1 to 1000. At the next divergence the job fails. "
          "Requires --on_divergence=rollback.");
ABSL_FLAG(int32_t, nonfinite_limit, 3,
          "Number of times in a row that a worker may send NaN or Inf while other workers do "
          "not, 1 to 1000000. Each time its contribution is ignored, and it takes the newest "
          "weights. Beyond the limit it is refused until its process is started again.");
ABSL_FLAG(int32_t, poison_limit, 50,
          "Number of rounds, of the last 100, in which a worker may exceed --norm_limit or "
          "oppose the other workers, 0 to 99. A worker with more such rounds is dropped, and "
          "its name is refused until `psctl readmit`. 0 means no limit.");

ABSL_FLAG(lodestar::LocalPath, checkpoint_dir, "",
          "Folder for checkpoints. Empty means no checkpoints. All servers must see the same "
          "folder under this path. On shards above 0 the flag names the only folder in which "
          "the coordinator may let that server read and write.");
ABSL_FLAG(absl::Duration, checkpoint_interval, absl::Minutes(5),
          "Time between checkpoints in --checkpoint_dir. 0 means none by time. A checkpoint is "
          "also written at the end, on SIGTERM and on request.");
ABSL_FLAG(double, checkpoint_cost, 0.01,
          "Maximum share of the time that is spent on writing checkpoints of "
          "--checkpoint_interval, 0.000001 to 1. If the disk stays slow, the interval grows.");
ABSL_FLAG(int64_t, checkpoint_every, 0,
          "Number of rounds between additional checkpoints, which do not depend on "
          "--checkpoint_interval. 0 means none. The newest --checkpoint_keep of these checkpoints "
          "are kept, and so are the newest --checkpoint_keep of all others.");
ABSL_FLAG(std::string, on_checkpoint, "",
          "Command for /bin/sh that runs after each checkpoint, such as one that copies it "
          "into a bucket. Empty means none. $LODESTAR_CHECKPOINT is the checkpoint's folder. "
          "The command also runs after a rollback and with --resume=PATH. Copies of later "
          "rounds then have undone rounds, also those whose checkpoints the server has removed. "
          "$LODESTAR_SET_ASIDE names those that the folder still has. "
          "Commands run one after the other. "
          "If one fails, an alarm is raised. A server that stops waits up to --stop_timeout "
          "more for the command.");
ABSL_FLAG(bool, accept_higher_rate, false,
          "Allow a resumed job to use a learning rate more than a tenth above that of its "
          "checkpoint. This happens, for example, if --rounds of a cosine schedule grows. "
          "Without this flag the server refuses to start.");
ABSL_FLAG(std::string, durability, "checkpoint",
          "What survives if a server is killed or loses power: checkpoint or journal. Give it "
          "to every server. With checkpoint, all servers go back to the newest checkpoint. "
          "With journal, everything acknowledged survives, and the restarted server goes on "
          "from there. Every contribution is then written to disk once, and its round waits "
          "for the disk. This costs almost nothing in local_sgd with 20 steps per round, and "
          "about a third more time in sync with small models; see docs/howto/journal.md.");
ABSL_FLAG(lodestar::LocalPath, journal_dir, "",
          "Folder for the journals, in which each server has its own. Empty means `journal` in "
          "--checkpoint_dir. Use a fast disk, and a folder of this run alone. If shard 0 finds "
          "the journals of all servers there, they can restart as another number of servers. "
          "Used with --durability=journal and --replica.");
ABSL_FLAG(std::string, journal_replica, "",
          "HOST:PORT of a `ps_server --replica` that keeps a copy of the journal, best on "
          "another machine. Empty means none. Nothing is acknowledged before it is on the "
          "replica's disk, so training waits while the replica is away. A server that has lost "
          "its disk takes the journal from the replica. If the server's machine is gone, start a "
          "server on the replica's folders with --promote. Requires --durability=journal.");
ABSL_FLAG(bool, replica, false,
          "Run as a replica, not as a server. In --journal_dir it keeps copies of the journals "
          "of servers that name it in --journal_replica. With --checkpoint_dir, which may "
          "differ from the server's path, it also copies the checkpoints of a job with one "
          "server. It needs neither an accelerator nor much memory.");
ABSL_FLAG(bool, promote, false,
          "Confirms that no other server continues, or will continue, from a copy of this journal. "
          "The server then starts on a replica's folder, continues without its former replica, or "
          "fills an empty replica. If two servers continue from copies of one journal, they train "
          "two different models.");
ABSL_FLAG(
    int64_t, accept_loss, -1,
    "Round that an alarm about a lost journal names. If it is given, the loss is accepted, and the "
    "job goes back to the newest checkpoint. -1 means that no loss is accepted. The alarm is "
    "raised, and the cluster waits, if a journal is missing, or lacks records that other servers "
    "or checkpoints mention. The server refuses any other round. Only for the coordinator.");
ABSL_FLAG(std::string, journal_limit, "0",
          "Size of a server's journal, such as 20GB, at which the next checkpoint is taken early. "
          "0 means 32 times the size of the server's weights, at least 1 GB. Until that checkpoint "
          "is whole, the disk holds up to twice as much. Only for the coordinator; requires "
          "--durability=journal.");
ABSL_FLAG(
    lodestar::LocalPath, fallback_dir, "",
    "Folder for the checkpoint at the end if it cannot be written into --checkpoint_dir. Empty "
    "means none. Use another disk, a folder of this run alone, and the same path on all "
    "servers. A server that writes there exits with 3.");
ABSL_FLAG(
    absl::Duration, stop_timeout, absl::Minutes(1),
    "Time that a server has to save after SIGTERM or Ctrl-C, 100ms to 24h. In the first half, "
    "workers deliver their round and missing servers come back. Workers that do not deliver are "
    "dropped from the round. If a server stays away, nothing is saved. The second half is for "
    "writing. A second signal ends the server at once. A third signal ends the server even if it "
    "hangs. `psctl stop` waits the whole time for workers, then writes.");
ABSL_FLAG(std::string, memory_limit, "0",
          "Maximum memory for weights, optimizer state and contributions on this server, such "
          "as 500MB or 4GiB; a plain number is in bytes. 0 means what the machine, its control "
          "group and ulimit allow. If more is needed, the job is saved and ended.");
ABSL_FLAG(int32_t, checkpoint_keep, 3, "Number of newest checkpoints that are kept, 1 to 1000.");
ABSL_FLAG(lodestar::LocalPath, resume, "latest",
          "State from which the job starts: latest, never, or the path of a checkpoint. With "
          "latest, it is the newest checkpoint in --checkpoint_dir that is not damaged, if "
          "there is one. With never, the job starts anew. The log shows settings that differ "
          "from the checkpoint's. Another mode, model, seed or optimizer is refused.");

ABSL_FLAG(lodestar::LocalPath, metrics_out, "",
          "File that gets one line of JSON for each committed round. Empty means none. A line "
          "has round, train_loss, heldout_loss, heldout_accuracy, samples, seconds and "
          "workers. Losses are in nats. If tokens are bytes, train_bits_per_byte and "
          "heldout_bits_per_byte are there as well. The fields compute_seconds, "
          "communication_seconds (with nothing to compute) and wait_seconds are means over the "
          "workers of this round. The object metrics has what programs report. Lines are "
          "appended. Lines of rounds that are repeated after a crash or rollback are cut. A "
          "file with rounds of another run is renamed to FILE.1, FILE.2 and so on.");
ABSL_FLAG(lodestar::LocalPath, tensorboard_dir, "",
          "Folder for a TensorBoard file with losses, learning rate and what programs report, "
          "by round. Empty means none. A server that is started again writes another file "
          "beside it.");
ABSL_FLAG(bool, exit_when_done, false,
          "Exit with 0 once the job is complete and every worker has been told. Without this "
          "flag the server keeps serving weights and status.");
ABSL_FLAG(lodestar::LocalPath, trace, "",
          "File for the times of a few rounds of this server, bucket by bucket. Empty means "
          "none. Open it in https://ui.perfetto.dev. It is written after these rounds, or at "
          "the end. It replaces an older trace, but not one that another process has written "
          "meanwhile.");
ABSL_FLAG(int64_t, trace_rounds, 5,
          "Number of rounds in the trace, 1 to 1000. The first two rounds are skipped.");
ABSL_FLAG(std::string, log_level, "info",
          "Lowest level of the log: debug, info, warning or error.");
ABSL_FLAG(std::string, log_format, "text",
          "Format of the log: text, or json with one object per line. In json, IDs of workers, "
          "rounds and shards are fields.");

namespace lodestar::server {
namespace {

constexpr int64_t kDefaultBatchSize = 12;
// Default number of tokens of a step for large models: half a million, as is usual for GPT-2 with
// 124 million parameters (llm.c, nanoGPT). A GPU computes long enough on that many tokens to hide
// the time of the gradient exchange.
constexpr int64_t kDefaultTokensOfLargeModels = 524'288;
constexpr int64_t kLargeModel = 100'000'000;  // in parameters
// Default of the outer momentum if the outer optimizer is adam.
constexpr double kDefaultOuterBeta1 = 0.9;

absl::StatusOr<int64_t> ReadBytes(absl::string_view flag, const std::string& value) {
  absl::StatusOr<int64_t> bytes = ParseBytes(value);
  if (bytes.ok()) return bytes;
  return absl::InvalidArgumentError(
      absl::StrCat("--", flag, "=", value, ": ", bytes.status().message()));
}

absl::StatusOr<limits::ServerLimits> ReadLimits() {
  limits::ServerLimits limits;
  limits.max_connections = absl::GetFlag(FLAGS_max_connections);
  limits.max_connections_per_address = absl::GetFlag(FLAGS_max_connections_per_address);
  limits.connections_per_minute = absl::GetFlag(FLAGS_connections_per_minute);
  limits.registrations_per_minute = absl::GetFlag(FLAGS_registrations_per_minute);
  limits.streams_per_worker = absl::GetFlag(FLAGS_streams_per_worker);
  ASSIGN_OR_RETURN(limits.staging_bytes,
                   ReadBytes("staging_limit", absl::GetFlag(FLAGS_staging_limit)));
  ASSIGN_OR_RETURN(limits.message_bytes,
                   ReadBytes("message_memory", absl::GetFlag(FLAGS_message_memory)));
  limits.message_timeout = absl::GetFlag(FLAGS_message_timeout);
  return limits;
}

absl::StatusOr<ClusterConfig> ReadCluster() {
  ClusterConfig cluster;
  const std::string shard = absl::GetFlag(FLAGS_shard);
  const std::vector<std::string> parts = absl::StrSplit(shard, '/');
  if (parts.size() != 2 || !absl::SimpleAtoi(parts[0], &cluster.shard) ||
      !absl::SimpleAtoi(parts[1], &cluster.num_shards)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--shard=", shard, " is not I/K, as in 0/2 for the first of two servers"));
  }
  cluster.coordinator = absl::GetFlag(FLAGS_coordinator);
  cluster.lease = absl::GetFlag(FLAGS_lease);
  const std::string end_lost_workers = absl::GetFlag(FLAGS_end_lost_workers);
  if (end_lost_workers != "lease" && end_lost_workers != "connection") {
    return absl::InvalidArgumentError(absl::StrCat("--end_lost_workers=", end_lost_workers,
                                                   " is unknown; allowed: lease, connection"));
  }
  cluster.ends_unconnected = end_lost_workers == "connection";
  cluster.round_timeout = absl::GetFlag(FLAGS_round_timeout);
  cluster.stop_timeout = absl::GetFlag(FLAGS_stop_timeout);
  ASSIGN_OR_RETURN(cluster.memory_limit,
                   ReadBytes("memory_limit", absl::GetFlag(FLAGS_memory_limit)));
  cluster.leader_lease = absl::GetFlag(FLAGS_leader_lease);
  return cluster;
}

// The texts that were given for fields of the job. The keys are the names of the fields.
using JobTexts = std::map<std::string, std::string>;

bool IsAuto(const JobTexts& texts, const std::string& flag) {
  const auto text = texts.find(flag);
  return text != texts.end() && text->second == process::kAutoText;
}

// Sets the fields of the preset whose flags are not given.
absl::Status ApplyOuterPreset(const std::set<std::string>& given, job::JobSpec& job) {
  const std::string name = absl::GetFlag(FLAGS_outer_preset);
  if (name.empty()) return absl::OkStatus();
  if (!job::HasLocalSteps(job)) {
    return absl::InvalidArgumentError(absl::StrCat("--outer_preset=", name,
                                                   " has no meaning with --mode=", NameOf(job.mode),
                                                   "; use --mode=local_sgd or async_local_sgd"));
  }
  ASSIGN_OR_RETURN(const OuterSettings preset, OuterPreset(name, job.min_workers));
  if (!given.contains("outer_optimizer")) job.outer_optimizer = preset.optimizer;
  if (!given.contains("outer_learning_rate")) job.outer_learning_rate = preset.learning_rate;
  if (!given.contains("outer_momentum")) job.outer_momentum = preset.momentum;
  if (!given.contains("local_steps")) job.local_steps = preset.local_steps;
  return absl::OkStatus();
}

// Returns the settings that the job chooses itself. These are the settings with the value `auto`.
// If the mode is `auto`, they include each of the settings below whose flag is not given.
job::OpenSettings ReadOpenSettings(const JobTexts& texts) {
  job::OpenSettings open;
  open.mode = IsAuto(texts, "mode");
  const auto is_open = [&](const std::string& flag) {
    return IsAuto(texts, flag) || (open.mode && !texts.contains(flag));
  };
  open.local_steps = is_open("local_steps");
  open.fragments = is_open("fragments");
  open.overlap = is_open("overlap_steps") && !texts.contains("overlap_rounds");
  open.push_encoding = is_open("push_encoding");
  open.pull_encoding = is_open("pull_encoding");
  return open;
}

// Checks that no flag gives a setting that the job chooses itself.
absl::Status CheckMayChoose(const job::OpenSettings& open, const std::set<std::string>& given,
                            const JobTexts& texts, const job::JobSpec& job) {
  if (IsAuto(texts, "overlap_steps") && given.contains("overlap_rounds")) {
    return absl::InvalidArgumentError(
        "--overlap_steps=auto already chooses between overlapped steps and rounds; leave "
        "--overlap_rounds out");
  }
  if (!open.any()) return absl::OkStatus();
  std::vector<std::string> decided;
  const auto refuse_with = [&](absl::string_view open_flag, bool is_open,
                               std::initializer_list<absl::string_view> flags) {
    for (const absl::string_view flag : flags) {
      if (!is_open || !given.contains(std::string(flag))) continue;
      decided.push_back(absl::StrCat("--", flag, " with --", open_flag, "=", process::kAutoText));
    }
  };
  refuse_with("mode", open.mode,
              {"outer_optimizer", "outer_learning_rate", "outer_momentum", "outer_beta2",
               "outer_epsilon", "outer_preset", "quorum", "outer_reduction", "momentum_correction",
               "anchor", "topk_divisor", "max_staleness", "max_rounds_ahead", "staleness_scaling"});
  // With --mode=auto the job chooses these settings because of the mode. So the error names --mode.
  refuse_with(open.mode ? "mode" : "overlap_steps", open.overlap, {"merge", "merge_alpha"});
  refuse_with(open.mode ? "mode" : "push_encoding", open.push_encoding,
              {"topk", "topk_bits", "feedback_decay"});
  if (!open.mode) refuse_with("push_encoding", open.push_encoding, {"topk_divisor"});
  if (!decided.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("with auto, the job itself chooses ", absl::StrJoin(decided, ", "),
                     ". Leave out auto, or leave out these flags. psctl plan recommends values"));
  }
  const bool is_of_local_steps = open.local_steps || open.fragments || open.overlap;
  if (!open.mode && is_of_local_steps && !job::HasLocalSteps(job)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "auto for --local_steps, --fragments or --overlap_steps needs --mode=local_sgd, not ",
        NameOf(job.mode), ". Leave auto out, or give --mode=auto"));
  }
  const std::vector<job::Mode> modes = job::ModesToChooseFrom();
  if (!open.mode && std::count(modes.begin(), modes.end(), job.mode) == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("a job of --mode=", NameOf(job.mode),
                     " cannot choose settings itself, because it has no common rounds to measure. "
                     "Give values in place of auto"));
  }
  if (std::holds_alternative<params::ClientModelSpec>(job.model.architecture)) {
    return absl::InvalidArgumentError(
        "auto cannot be used with --model=client, because its programs keep the settings that they "
        "joined with. Give the values that psctl plan recommends");
  }
  return absl::OkStatus();
}

// Sets the number of samples of a step, per worker or for all workers together. The job must have
// its model and, if they are given, its mode and the numbers of samples.
absl::Status ReadBatch(bool is_mode_open, job::JobSpec& job) {
  int64_t tokens = absl::GetFlag(FLAGS_global_tokens);
  const bool is_given = job.batch_size != 0 || job.global_batch_size != 0 || tokens != 0;
  const auto* const gpt = std::get_if<params::GptSpec>(&job.model.architecture);
  const bool is_sync = !is_mode_open && job::HasRosters(job) && !job::HasLocalSteps(job);
  if (!is_given && gpt != nullptr && is_sync) {
    ASSIGN_OR_RETURN(const params::Layout layout, params::BuildLayout(job.model));
    if (layout.num_elements() >= kLargeModel) tokens = kDefaultTokensOfLargeModels;
  }
  if (tokens == 0) {
    if (!is_given) job.batch_size = kDefaultBatchSize;
    return absl::OkStatus();
  }
  const std::string flag = absl::StrCat("--global_tokens=", tokens);
  if (job.batch_size != 0 || job.global_batch_size != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        flag, " contradicts --", job.batch_size != 0 ? "batch_size" : "global_batch_size", "=",
        std::max(job.batch_size, job.global_batch_size), "; give one of the two"));
  }
  if (gpt == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat(flag, ": the number of tokens in a sample of model '", job.model.name,
                     "' is not known; give --global_batch_size in samples"));
  }
  if (tokens < gpt->context || tokens > job::kMaxStepSamples * gpt->context) {
    return absl::InvalidArgumentError(absl::StrCat(flag, " is out of range; allowed are ",
                                                   gpt->context, " (one sample of this model) to ",
                                                   job::kMaxStepSamples * gpt->context));
  }
  job.global_batch_size = (tokens + gpt->context / 2) / gpt->context;
  return absl::OkStatus();
}

// Sets a field to the given text, or to the default of its flag.
absl::Status SetField(const job::JobField& field, const JobTexts& texts, job::JobSpec& job) {
  const auto given = texts.find(std::string(field.name));
  if (given == texts.end() && field.flag_default.empty()) return absl::OkStatus();
  const absl::string_view text = given == texts.end() ? field.flag_default : given->second;
  const absl::Status set = job::SetFromText(field, text, job);
  if (set.ok() || !field.takes_auto) return set;
  return absl::InvalidArgumentError(absl::StrCat(set.message(), ", ", process::kAutoText));
}

// Sets defaults that depend on the rest of the job, unless a flag gives them.
void SetDependentDefaults(const std::set<std::string>& given, job::JobSpec& job) {
  if (job::IsElastic(job) && !given.contains("outer_learning_rate")) {
    job.outer_learning_rate = job::kDefaultElasticRate;
  }
  if (!given.contains("outer_momentum")) {
    if (job.outer_optimizer == job::OuterOptimizerKind::kAdam)
      job.outer_momentum = kDefaultOuterBeta1;
    if (!job::HasRosters(job) && job::HasLocalSteps(job))
      job.outer_momentum = job::kDefaultAsynchronousMomentum;
  }
  if (job.feedback_decay == 0) job.feedback_decay = job::DefaultFeedbackDecay(job.push_encoding);
}

absl::StatusOr<job::JobSpec> ReadJob(const JobTexts& texts, const std::set<std::string>& given,
                                     const job::OpenSettings& open) {
  job::JobSpec job;
  ASSIGN_OR_RETURN(job.model, wire::NamedModel(absl::GetFlag(FLAGS_model)));
  // A job that chooses its mode begins in a mode in which all given flags have an effect.
  if (open.mode) {
    job.mode = job::ModeUntilChosen(open);
  } else {
    RETURN_IF_ERROR(SetField(*job::FindJobField("mode"), texts, job));
  }
  RETURN_IF_ERROR(CheckMayChoose(open, given, texts, job));
  for (const job::JobField& field : job::JobFields()) {
    if (!IsAuto(texts, std::string(field.name))) RETURN_IF_ERROR(SetField(field, texts, job));
  }
  // Until the job has chosen, it has the smallest number of local steps that the given flags allow.
  if (open.local_steps) job.local_steps = job.fragments * std::max(job.overlap_steps, 1);
  if (open.push_encoding) job.push_encoding = params::Encoding::kInt8;
  if (open.pull_encoding) job.pull_encoding = params::Encoding::kInt8;
  SetDependentDefaults(given, job);
  RETURN_IF_ERROR(ReadBatch(open.mode, job));
  RETURN_IF_ERROR(ApplyOuterPreset(given, job));
  return job;
}

// Reads the flags of the journal, which are used on every server.
absl::StatusOr<DurabilityConfig> ReadJournal() {
  const std::string kind = absl::GetFlag(FLAGS_durability);
  if (kind != "checkpoint" && kind != "journal") {
    return absl::InvalidArgumentError(
        absl::StrCat("--durability=", kind, " is unknown; allowed: checkpoint, journal"));
  }
  DurabilityConfig durability;
  durability.has_journal = kind == "journal";
  durability.journal_replica = absl::GetFlag(FLAGS_journal_replica);
  durability.may_promote = absl::GetFlag(FLAGS_promote);
  if (!durability.has_journal && !absl::GetFlag(FLAGS_replica)) return durability;
  durability.journal_dir = NormalPath(absl::GetFlag(FLAGS_journal_dir));
  const std::string checkpoint_dir = NormalPath(absl::GetFlag(FLAGS_checkpoint_dir));
  if (durability.journal_dir.empty() && !checkpoint_dir.empty()) {
    durability.journal_dir = absl::StrCat(checkpoint_dir, "/", checkpoints::kJournalFolder);
  }
  ASSIGN_OR_RETURN(durability.journal_limit_bytes,
                   ReadBytes("journal_limit", absl::GetFlag(FLAGS_journal_limit)));
  return durability;
}

DurabilityConfig ReadDurability(DurabilityConfig durability) {
  durability.checkpoint_dir = NormalPath(absl::GetFlag(FLAGS_checkpoint_dir));
  durability.fallback_dir = NormalPath(absl::GetFlag(FLAGS_fallback_dir));
  durability.checkpoint_every = absl::GetFlag(FLAGS_checkpoint_every);
  durability.checkpoint_interval = absl::GetFlag(FLAGS_checkpoint_interval);
  durability.checkpoint_cost = absl::GetFlag(FLAGS_checkpoint_cost);
  durability.on_checkpoint = absl::GetFlag(FLAGS_on_checkpoint);
  durability.keep = absl::GetFlag(FLAGS_checkpoint_keep);
  durability.init_from = absl::GetFlag(FLAGS_init_from);
  durability.accepts_higher_rate = absl::GetFlag(FLAGS_accept_higher_rate);
  durability.accepted_loss = absl::GetFlag(FLAGS_accept_loss);
  const std::string resume = absl::GetFlag(FLAGS_resume);
  if (resume == "latest") {
    durability.resume = ResumePolicy::kLatest;
  } else if (resume == "never") {
    durability.resume = ResumePolicy::kNever;
  } else {
    durability.resume = ResumePolicy::kPath;
    durability.resume_path = resume;
  }
  return durability;
}

// Returns the paths in the flags of a server above shard 0. See DurabilityConfig::named_paths.
std::vector<std::string> ReadNamedPaths() {
  std::vector<std::string> paths = {absl::GetFlag(FLAGS_checkpoint_dir),
                                    absl::GetFlag(FLAGS_fallback_dir),
                                    absl::GetFlag(FLAGS_init_from), absl::GetFlag(FLAGS_resume)};
  std::erase_if(paths, [](const std::string& path) {
    return path.empty() || path == "latest" || path == "never";
  });
  return paths;
}

absl::StatusOr<faults::DivergencePolicy> ReadDivergence() {
  faults::DivergencePolicy policy;
  ASSIGN_OR_RETURN(policy.action,
                   faults::ParseDivergenceAction(absl::GetFlag(FLAGS_on_divergence)));
  policy.learning_rate_factor = absl::GetFlag(FLAGS_rollback_lr_factor);
  policy.max_rollbacks = absl::GetFlag(FLAGS_max_rollbacks);
  policy.nonfinite_limit = absl::GetFlag(FLAGS_nonfinite_limit);
  policy.poison_limit = absl::GetFlag(FLAGS_poison_limit);
  return policy;
}

absl::StatusOr<ServerConfig> ReadFlags(const process::CommandLine& line) {
  ServerConfig config;
  ASSIGN_OR_RETURN(config.network.listen,
                   net::ParseListenAddress("listen", absl::GetFlag(FLAGS_listen)));
  if (const std::string http = absl::GetFlag(FLAGS_http); !http.empty()) {
    ASSIGN_OR_RETURN(config.network.http, net::ParseListenAddress("http", http));
  }
  config.network.http_names = absl::GetFlag(FLAGS_http_names);
  config.network.advertise = absl::GetFlag(FLAGS_advertise);
  ASSIGN_OR_RETURN(config.security.flags, security::ReadSecurityFlags());
  config.security.tls = absl::GetFlag(FLAGS_tls);
  config.security.certificate_ttl = absl::GetFlag(FLAGS_certificate_ttl);
  config.network.port_file = absl::GetFlag(FLAGS_port_file);
  config.network.shared_memory = absl::GetFlag(FLAGS_shared_memory);
  config.network.long_paths = absl::GetFlag(FLAGS_long_paths);
  ASSIGN_OR_RETURN(config.limits, ReadLimits());
  ASSIGN_OR_RETURN(config.cluster, ReadCluster());
  config.upstream = {absl::GetFlag(FLAGS_upstream), absl::GetFlag(FLAGS_upstream_join),
                     absl::GetFlag(FLAGS_site_name)};
  ASSIGN_OR_RETURN(config.output.log_level, logging::ParseLogLevel(absl::GetFlag(FLAGS_log_level)));
  ASSIGN_OR_RETURN(config.output.log_format,
                   logging::ParseLogFormat(absl::GetFlag(FLAGS_log_format)));
  config.output.metrics_out = absl::GetFlag(FLAGS_metrics_out);
  config.output.tensorboard_dir = absl::GetFlag(FLAGS_tensorboard_dir);
  config.output.trace_path = absl::GetFlag(FLAGS_trace);
  config.output.trace_rounds = absl::GetFlag(FLAGS_trace_rounds);
  config.exit_when_done = absl::GetFlag(FLAGS_exit_when_done);
  ASSIGN_OR_RETURN(config.durability, ReadJournal());
  config.is_replica = absl::GetFlag(FLAGS_replica);
  // A shell may have a join string for workers in its environment. A server must not join with it.
  security::SecurityFlags& security = config.security.flags;
  if (config.is_coordinator() && !config.is_replica && security.is_join_from_environment) {
    security.join.clear();
  }
  if (config.is_replica && config.cluster.leader_lease.empty()) {
    config.durability.checkpoint_dir = NormalPath(absl::GetFlag(FLAGS_checkpoint_dir));
    RETURN_IF_ERROR(MakeAbsolute(config.durability));
    return config;
  }
  if (config.is_coordinator()) {
    config.durability = ReadDurability(std::move(config.durability));
    ASSIGN_OR_RETURN(config.divergence, ReadDivergence());
    config.open_settings = ReadOpenSettings(line.own);
    ASSIGN_OR_RETURN(config.job, ReadJob(line.own, line.given, config.open_settings));
  } else {
    config.durability.named_paths = ReadNamedPaths();
    config.durability.coordinators_folder = NormalPath(absl::GetFlag(FLAGS_checkpoint_dir));
  }
  RETURN_IF_ERROR(MakeAbsolute(config.durability));
  return config;
}

// Returns a warning about the robust mean. Empty means that there is none.
std::string DoubtOfRobustMean(const job::JobSpec& job) {
  const int wanted = job.robust_mean.MinContributions();
  if (job.min_workers >= wanted) return "";
  return absl::StrCat("--robust_mean=", job::RobustMeanText(job.robust_mean), " needs ", wanted,
                      " contributions in a round. With --min_workers=", job.min_workers,
                      " a round may have fewer, and then a wrong contribution counts. Give ",
                      "--min_workers=", wanted, " or more");
}

// Returns a warning if overlapped rounds may not converge with this outer learning rate. With two
// workers, half of each round's change is applied one round late. With more workers it is more than
// half. By linear stability with momentum 0.9, the steps grow without bound at rates above 0.6 with
// two workers, and above 0.4 with four.
std::string DoubtOfOverlap(const job::JobSpec& job) {
  constexpr double kHighestRate = 0.4;
  const bool is_stable = job.outer_optimizer != job::OuterOptimizerKind::kNesterov ||
                         job.outer_learning_rate <= kHighestRate;
  if (!job.overlap_rounds || is_stable) return "";
  return absl::StrCat("--overlap_rounds with --outer_learning_rate=", job.outer_learning_rate,
                      " perhaps does not converge with two or more workers, because their changes "
                      "arrive one round late. Give --outer_learning_rate ",
                      kHighestRate, " or less");
}

// Returns a warning if momentum correction may not converge with this outer momentum. The
// correction removes the part of a contribution that opposes the momentum. A high momentum can grow
// without bound if this part is missing.
std::string DoubtOfCorrection(const job::JobSpec& job) {
  constexpr double kHighestMomentum = 0.7;
  if (job.momentum_correction == job::MomentumCorrectionKind::kNone ||
      job.outer_momentum <= kHighestMomentum) {
    return "";
  }
  return absl::StrCat("--momentum_correction=", NameOf(job.momentum_correction),
                      " with --outer_momentum=", job.outer_momentum,
                      " perhaps does not converge, because the correction removes what damps the "
                      "momentum. Give --outer_momentum ",
                      kHighestMomentum, " or less");
}

// Returns true if the flag is used on every server. All other flags are used only on the
// coordinator.
bool CountsOnEveryServer(const std::string& flag) {
  static constexpr absl::string_view kFlags[] = {
      "listen", "insecure", "advertise", "join", "state_dir", "tls", "tls_cert", "tls_key",
      "tls_ca", "port_file", "shared_memory", "long_paths", "shard", "coordinator", "trace",
      "trace_rounds", "log_level", "log_format", "stop_timeout", "memory_limit", "durability",
      // Servers above shard 0 use these too: a server reads and writes only in the folders that
      // these flags name.
      "checkpoint_dir", "fallback_dir", "init_from", "resume", "journal_dir", "journal_replica",
      "promote", "leader_lease", "max_connections", "max_connections_per_address",
      "streams_per_worker", "staging_limit", "message_memory", "message_timeout"};
  return std::find(std::begin(kFlags), std::end(kFlags), flag) != std::end(kFlags);
}

bool CountsOnReplica(const std::string& flag) {
  static constexpr absl::string_view kFlags[] = {"replica",
                                                 "listen",
                                                 "insecure",
                                                 "port_file",
                                                 "log_level",
                                                 "log_format",
                                                 "journal_dir",
                                                 "checkpoint_dir",
                                                 "join",
                                                 "state_dir",
                                                 "tls",
                                                 "tls_cert",
                                                 "tls_key",
                                                 "tls_ca",
                                                 "max_connections",
                                                 "max_connections_per_address",
                                                 "message_memory"};
  return std::find(std::begin(kFlags), std::end(kFlags), flag) != std::end(kFlags);
}

// Returns true if a given flag is used on this server.
bool Counts(const std::string& flag, const ServerConfig& config) {
  // A server that joins gets its certificate from the coordinator. So only the coordinator's
  // --certificate_ttl has an effect.
  if (flag == "certificate_ttl") return config.security.flags.join.empty();
  if (config.is_replica && config.cluster.leader_lease.empty()) return CountsOnReplica(flag);
  return config.is_coordinator() || CountsOnEveryServer(flag);
}

constexpr absl::string_view kUsage =
    "ps_server: holds the weights that GPU workers train together.\n"
    "\n"
    "  ps_server --model=gpt-nano --rounds=2000 --checkpoint_dir=checkpoints\n"
    "  gpu_worker --coordinator=127.0.0.1:50051 --data=corpus.txt\n"
    "\n"
    "The server of shard 0 decides all settings; workers and other servers receive\n"
    "them. If other servers are given settings of the job, they ignore them with a\n"
    "warning, so that all can be given the same. A flag without effect is refused.\n"
    "Exit code: 0 means done. 1 to 127 means that trying again will not help; 2 is a\n"
    "bad flag, and 3 means that the last checkpoint is not in --checkpoint_dir, or\n"
    "that --on_checkpoint failed with it; see the log. 128 and above means that\n"
    "trying again may help.\n";

// Returns a group with the flags of the job's fields that have this title. The flags of `before`
// come first, and the flags of `behind` last.
process::FlagGroup WithFields(std::vector<std::string> before, absl::string_view title,
                              const std::vector<std::string>& behind) {
  process::FlagGroup group = {std::string(title), std::move(before)};
  for (const job::JobField& field : job::JobFields()) {
    if (field.group == title) group.flags.emplace_back(field.name);
  }
  group.flags.insert(group.flags.end(), behind.begin(), behind.end());
  return group;
}

process::OwnFlag::Type FlagTypeOf(job::JobField::Type type) {
  switch (type) {
    case job::JobField::Type::kBool:
      return process::OwnFlag::Type::kBool;
    case job::JobField::Type::kInt32:
      return process::OwnFlag::Type::kInt32;
    case job::JobField::Type::kInt64:
      return process::OwnFlag::Type::kInt64;
    case job::JobField::Type::kUint64:
      return process::OwnFlag::Type::kUint64;
    case job::JobField::Type::kDouble:
      return process::OwnFlag::Type::kDouble;
    case job::JobField::Type::kText:
      return process::OwnFlag::Type::kText;
  }
  return process::OwnFlag::Type::kText;
}

// Returns the flags of the fields of the job.
std::vector<process::OwnFlag> JobFlags() {
  std::vector<process::OwnFlag> flags;
  const job::JobSpec defaults;
  for (const job::JobField& field : job::JobFields()) {
    flags.push_back({.name = std::string(field.name),
                     .help = std::string(field.help),
                     .default_text = field.flag_default.empty() ? job::TextOf(field.get(defaults))
                                                                : std::string(field.flag_default),
                     .type = FlagTypeOf(field.type),
                     .takes_auto = field.takes_auto});
  }
  return flags;
}

}  // namespace

std::vector<process::FlagGroup> ServerFlagGroups() {
  return {
      {"Network and place in the cluster",
       {"listen", "http", "http_names", "advertise", "port_file", "shared_memory", "long_paths",
        "shard", "coordinator", "leader_lease", "memory_limit"}},
      {"Site", {"upstream", "upstream_join", "site_name"}},
      {"Limits of what others may take",
       {"max_connections", "max_connections_per_address", "connections_per_minute",
        "registrations_per_minute", "streams_per_worker", "staging_limit", "message_memory",
        "message_timeout"}},
      {"Security",
       {"join", "state_dir", "tls", "certificate_ttl", "tls_cert", "tls_key", "tls_ca",
        "insecure"}},
      WithFields({"model"}, job::kModelGroup, {"init_from"}),
      WithFields({}, job::kModeGroup,
                 {"outer_preset", "lease", "end_lost_workers", "round_timeout"}),
      WithFields({}, job::kWireGroup, {}),
      WithFields({}, job::kOptimizerGroup,
                 {"on_divergence", "rollback_lr_factor", "max_rollbacks", "nonfinite_limit",
                  "poison_limit"}),
      WithFields({}, job::kLengthGroup, {"global_tokens"}),
      {"Checkpoints",
       {"checkpoint_dir", "checkpoint_interval", "checkpoint_cost", "checkpoint_every",
        "checkpoint_keep", "on_checkpoint", "fallback_dir", "stop_timeout", "resume",
        "accept_higher_rate", "durability", "journal_dir", "journal_limit", "journal_replica",
        "replica", "promote", "accept_loss"}},
      {"Output and end",
       {"metrics_out", "tensorboard_dir", "trace", "trace_rounds", "exit_when_done", "log_level",
        "log_format"}},
  };
}

absl::StatusOr<ServerCommandLine> ParseServerCommandLine(absl::Span<const std::string> arguments) {
  ASSIGN_OR_RETURN(const process::CommandLine line,
                   process::ParseCommandLine(arguments, JobFlags()));
  ServerCommandLine result;
  result.request = line.request;
  result.doubts = line.doubts;
  if (line.request != process::CommandLineRequest::kRun) return result;
  RETURN_IF_ERROR(process::CheckOnlyFlags(line));
  ASSIGN_OR_RETURN(result.config, ReadFlags(line));
  result.config.given = line.given;
  // --global_tokens is the same setting in another unit.
  if (line.given.contains("global_tokens")) result.config.given.insert("global_batch_size");
  RETURN_IF_ERROR(ValidateServerConfig(result.config));
  const bool is_to_be_server =
      !result.config.is_replica || !result.config.cluster.leader_lease.empty();
  std::set<std::string> with_value = line.given;
  if (result.config.open_settings.local_steps) with_value.erase("local_steps");
  if (is_to_be_server) RETURN_IF_ERROR(CheckNoneIsIdle(with_value, result.config));
  for (const std::string& flag : line.given) {
    if (!Counts(flag, result.config)) result.ignored.push_back(flag);
  }
  if (!result.config.is_coordinator()) return result;
  for (const std::string& doubt :
       {line.given.contains("model") ? wire::HiddenModelFile(absl::GetFlag(FLAGS_model)) : "",
        DoubtOfRobustMean(result.config.job),
        result.config.open_settings.mode ? "" : DoubtOfOverlap(result.config.job),
        job::HasRosters(result.config.job) && !result.config.open_settings.mode
            ? job::DoubtOfOuterStep(result.config.job)
            : "",
        DoubtOfCorrection(result.config.job)}) {
    if (!doubt.empty()) result.doubts.push_back(doubt);
  }
  return result;
}

std::string ServerHelp() { return process::FormatHelp(kUsage, ServerFlagGroups(), JobFlags()); }

std::string ServerShortHelp() {
  return process::FormatShortHelp(
      kUsage, {"model",         "rounds",        "batch_size",     "optimizer",   "learning_rate",
               "lr_schedule",   "mode",          "local_steps",    "min_workers", "balance",
               "push_encoding", "pull_encoding", "checkpoint_dir", "resume",      "durability",
               "listen",        "shard",         "http",           "tls",         "exit_when_done"},
      JobFlags());
}

}  // namespace lodestar::server
