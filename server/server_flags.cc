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

ABSL_FLAG(
    std::string, listen, "127.0.0.1:50051",
    "Where this server listens, HOST:PORT; port 0 lets the system choose (see --port_file). An "
    "address that other machines reach is spoken to in TLS.");
ABSL_FLAG(
    bool, tls, false,
    "TLS also where --listen is an address of this machine only. Else that is plain text, and "
    "everything that other machines reach is TLS: with the authority of this cluster, which "
    "the server of shard 0 makes in --state_dir, or with --tls_cert.");
ABSL_FLAG(absl::Duration, certificate_ttl, absl::Hours(24),
          "How long the certificates hold that the authority of this cluster issues; they are "
          "renewed after half of it, and a machine that was away for longer needs a new --join. "
          "From 5m to 8760h.");
ABSL_FLAG(std::string, advertise, "",
          "HOST:PORT under which workers and the coordinator reach this server; port 0 stands for "
          "the real port. Empty: the address of --listen, or this machine's host name if that is a "
          "wildcard; workers then keep the address at which they have reached the coordinator.");
ABSL_FLAG(std::string, http, "",
          "HOST:PORT of the dashboard, and for monitoring: /, /metrics (Prometheus), /healthz, "
          "/readyz, /statusz. On this machine only (127.0.0.1) it is plain HTTP. Where other "
          "machines reach it, it is HTTPS with this server's certificate, and asks for a "
          "certificate of the role viewer or operator, or for what `psctl token create "
          "--role=viewer` prints, as the password or bearer token. Port 0 is chosen by the system, "
          "and the log says it. Empty: off.");
ABSL_FLAG(std::vector<std::string>, http_names, {},
          "NAME[,NAME...] of hosts under which browsers come to --http, beside this machine's own "
          "names: of a proxy, or a name with a domain. The certificate that the authority of this "
          "cluster issues to this server has them, too. Others are refused.");
ABSL_FLAG(lodestar::LocalPath, port_file, "",
          "File that receives the port (a decimal number) once the server listens. It is removed "
          "when the server starts and when it ends in order. Empty: none.");
ABSL_FLAG(
    bool, shared_memory, true,
    "Payloads of workers on this machine go through memory shared with them, if they want to; "
    "those of others through TCP.");
ABSL_FLAG(bool, long_paths, false,
          "For round trips above about 1 ms: workers may send as much as the path holds before the "
          "server reads it. Its memory grows by that, 4 MiB and more, for each connection of a "
          "worker.");
ABSL_FLAG(
    int32_t, max_connections, 4096,
    "Connections that this server has at a time, 8 to 1048576; a worker has up to three. From "
    "one address of another machine: a quarter of them. Fewer where the process may not have as "
    "many open files (ulimit -n).");
ABSL_FLAG(int32_t, max_connections_per_address, 0,
          "Of --max_connections, those from one address of another machine: workers behind one "
          "address (NAT) count as one. 0: a quarter.");
ABSL_FLAG(
    int32_t, connections_per_minute, 600,
    "New connections from one address of another machine, when it has had 256: more wait; 1 to "
    "1000000. For many workers behind one address (NAT) that start at once, more.");
ABSL_FLAG(
    int32_t, registrations_per_minute, 600,
    "Registrations that are taken from one address of another machine; ten times as many from "
    "this machine, and in all; 1 to 1000000.");
ABSL_FLAG(int32_t, streams_per_worker, 32,
          "Pushes and pulls that a worker may have open on this server; 8 to 65536.");
ABSL_FLAG(std::string, staging_limit, "64MiB",
          "Memory for contributions on their way in, from 1MiB on, and always two buckets: workers "
          "are held back while it is in use.");
ABSL_FLAG(
    std::string, message_memory, "1GiB",
    "Memory for messages on their way, from 64MiB on: beyond it calls are ended, whosever they "
    "are. Workers whose turn has not come need next to nothing of it.");
ABSL_FLAG(
    absl::Duration, message_timeout, absl::Minutes(1),
    "The longest that one chunk (1 MiB) may be on its way to or from a worker: then the stream "
    "is ended, which the worker begins anew. Raise it for links below 0.5 Mbit/s; 1s to 24h.");
ABSL_FLAG(
    std::string, shard, "0/1",
    "I/K: this server owns the I-th of K parts of the parameters, 0 <= I < K <= 256. Shard 0 is "
    "the coordinator: it has all settings of the job; the others need --listen, --shard and "
    "--coordinator only.");
ABSL_FLAG(std::string, coordinator, "",
          "HOST:PORT of the server of shard 0. Needed by, and only allowed for, shards above 0. "
          "Several, with commas, where another process may take that server's place, as a promoted "
          "replica does: they are tried in turn until one answers as the coordinator.");
ABSL_FLAG(std::string, leader_lease, "",
          "etcd://HOST:PORT[,HOST:PORT...]/KEY, members of one etcd cluster (3.4 or later, without "
          "TLS and users): of all servers given the same KEY only one goes on at any time; the "
          "others wait, and one of them takes over when it ends (at once) or is gone (within 10 "
          "s). A server that cannot renew its lease exits with 129. Each shard needs a KEY of its "
          "own. Empty: every server that is started goes on.");
ABSL_FLAG(
    std::string, upstream, "",
    "HOST:PORT of other servers, whose worker this one is, with all of its own: a site. Several, "
    "with commas, as for --coordinator. The workers of a site make each of the --local_steps there "
    "together, in sync (or, with --mode=local_sgd here, --local_steps of them between two "
    "exchanges "
    "of the site); then the site hands in what they have made of the weights, and has the merged "
    "ones. Everything about the job comes from there, and is not given here but for what says how "
    "the site's own workers come together. Empty: this is no site.");
ABSL_FLAG(std::string, upstream_join, "",
          "With --upstream: the join string of the cluster there, for a worker, as `psctl token "
          "create` prints it, or the path of a file with it.");
ABSL_FLAG(std::string, site_name, "",
          "With --upstream: the name of this site there: letters, digits, '.', '_', '-', first a "
          "letter or digit, at most 64. Empty: host name and process id.");

ABSL_FLAG(
    lodestar::LocalPath, model, "gpt-nano",
    "What is trained: a preset (mlp, cnn, mlp-mnist, cnn-mnist, cnn-cifar10, gpt-nano, gpt-mini, "
    "gpt2-124m, gpt2-355m, gpt2-774m, gpt2-1.5b, client) or a file with the text form of "
    "ModelSpec in proto/model.proto. client: the first client brings layout and weights, and may "
    "propose what is not given of --optimizer, --learning_rate, --clip_norm, --batch_size, and of "
    "the flags that belong to an optimizer.");
ABSL_FLAG(
    lodestar::LocalPath, init_from, "",
    "The first weights: a safetensors file, names and shapes as in the model's layout, a "
    "checkpoint (round-...) of any job with this model, or, for a gpt, a folder of a GPT-2 of "
    "Hugging Face. Empty: the model's initialisers with --seed. Only used if no checkpoint is "
    "resumed.");

ABSL_FLAG(
    std::string, outer_preset, "",
    "local_sgd: published settings instead of the defaults of the outer flags and "
    "--local_steps that are not given: diloco (2311.08105: nesterov 0.7/0.9, 500 steps), "
    "scaling_laws (2503.09799: nesterov 0.9, rate by --min_workers: 0.5 for 1, 0.6 from 2 "
    "on, 0.8 from 8 on; 30 steps), streaming (2501.18512: nesterov 0.4/0.9, 30 steps) or "
    "sparse_loco (2508.15706: sgd 1, 15 steps). They are of long jobs: the server warns where "
    "a short one may lose by them.");
ABSL_FLAG(absl::Duration, lease, absl::Seconds(10),
          "A worker not heard of for that long loses its membership and rounds go on without it; a "
          "duration such as 10s or 1m, 100ms to 24h. Workers send heartbeats every third of it.");
ABSL_FLAG(
    std::string, end_lost_workers, "lease",
    "When a worker counts as lost whose process has ended on another machine. lease: after "
    "--lease. connection: sooner, if it has closed all of its connections, opens none within 1s or "
    "four round trips (with --local_steps 5 % of a usual round), and the open round waits for no "
    "other worker. Choose lease where a worker's connections go through a proxy of its own, or a "
    "firewall, that may close them all for longer than that.");
ABSL_FLAG(
    absl::Duration, round_timeout, absl::Hours(1),
    "The longest that others wait for a member that sends heartbeats but does not report its round "
    "or ask for one, as of a process that has hung; 100ms to 24h. It is dropped sooner where its "
    "rounds usually are short: after ten times as long, at least ten minutes, and two leases; and "
    "where a bucket that it pushes comes so slowly that it would not be whole within this time, "
    "give or take a minute. Time for which a server holds what it pushes until others have "
    "finished theirs does not count. Raise it where rounds honestly take longer, or links are "
    "slower, than that.");

ABSL_FLAG(int64_t, global_tokens, 0,
          "--global_batch_size in tokens, of a gpt: the nearest number of samples of its context. "
          "Workers compute as many at a time as fit, so that an exchange is hidden behind many, as "
          "with 524288, with which GPT-2 is trained. 0: the others count. Excludes both.");

ABSL_FLAG(std::string, on_divergence, "stop",
          "When losses, gradients or weights are NaN or Inf: stop (the job fails; nothing of it is "
          "saved), or rollback (to the last good checkpoint, or else to the first weights, with a "
          "lower learning rate).");
ABSL_FLAG(double, rollback_lr_factor, 0.5,
          "rollback: the learning rate is multiplied by it each time; above 0, at most 1.");
ABSL_FLAG(int32_t, max_rollbacks, 5, "rollback: how often, before the job fails; 1 to 1000.");
ABSL_FLAG(
    int32_t, nonfinite_limit, 3,
    "How often in a row a worker may send NaN or Inf while others do not: each time it is not "
    "counted and goes back to the newest weights, then it is turned away until it is started "
    "again; 1 to 1000000.");
ABSL_FLAG(int32_t, poison_limit, 50,
          "In how many of 100 rounds a worker may send what is beyond --norm_limit, or opposes "
          "what the others send. In the next it is dropped, and nobody is let in under its name "
          "until psctl readmit; up to 99; "
          "0: it may always.");

ABSL_FLAG(
    lodestar::LocalPath, checkpoint_dir, "",
    "Folder for checkpoints; all servers must see the same one under this path. Empty: none. Given "
    "to another server than the coordinator's, it says where the coordinator may have that server "
    "read and write, and nowhere else.");
ABSL_FLAG(absl::Duration, checkpoint_interval, absl::Minutes(5),
          "Time between checkpoints in --checkpoint_dir; 0: none by time. Besides there is one at "
          "the end, on SIGTERM and on request.");
ABSL_FLAG(double, checkpoint_cost, 0.01,
          "Share of the time that checkpoints by time may be written in, 0.000001 to 1: where the "
          "disk is slow, the interval grows.");
ABSL_FLAG(int64_t, checkpoint_every, 0,
          "One more checkpoint every so many rounds, of which the newest --checkpoint_keep stay, "
          "too. 0: none by rounds.");
ABSL_FLAG(
    std::string, on_checkpoint, "",
    "A command for /bin/sh that runs with each finished checkpoint, one after the other, such "
    "as one that copies it into a bucket; its folder is in $LODESTAR_CHECKPOINT. "
    "$LODESTAR_SET_ASIDE has the names of newer checkpoints that a rollback has undone; the "
    "command also runs after a rollback. A failure is an alarm. A server that stops waits for it "
    "for --stop_timeout more. Empty: none.");
ABSL_FLAG(bool, accept_higher_rate, false,
          "Lets a resumed job go on with a learning rate that is more than a tenth above the one "
          "that its checkpoint was written with, as where --rounds of a cosine schedule grows.");
ABSL_FLAG(std::string, durability, "checkpoint",
          "What outlives a server that is killed, or loses its power. checkpoint: what the newest "
          "checkpoint has; all servers go back to it. journal: everything that was acknowledged; "
          "every answer waits until the disk has what it tells of, the server goes on from there "
          "when it is started again, and nobody goes back. Every contribution is written once, and "
          "its round waits for the disk: next to nothing with local_sgd and 20 steps a round, a "
          "third more in sync with small models (docs/howto/journal.md). To be given to "
          "every server.");
ABSL_FLAG(lodestar::LocalPath, journal_dir, "",
          "--durability=journal: folder for the journal, in which each server has one of its own; "
          "best on a fast disk; of one run alone. Killed servers can be started again as another "
          "number of servers "
          "if that of shard 0 has the journals of all of them there. Empty: `journal` in "
          "--checkpoint_dir.");
ABSL_FLAG(std::string, journal_replica, "",
          "--durability=journal: HOST:PORT of a ps_server --replica, best on another machine. "
          "Everything is on its disk, too, before it is acknowledged; while it is away, training "
          "waits. A server that has lost its disk takes the journal from there; if its machine is "
          "gone, start a server on the replica's folders with --promote. Empty: none.");
ABSL_FLAG(
    bool, replica, false,
    "This process is no server: it keeps copies of the journals of those that name it as "
    "--journal_replica, in --journal_dir, and with --checkpoint_dir (which may have another "
    "path than the server's) of the checkpoints of a job with one server, too. Needs neither an "
    "accelerator nor much memory.");
ABSL_FLAG(
    bool, promote, false,
    "You say that no other server goes on from a copy of this journal, and that none will: "
    "makes a server of what was a replica's folder, or goes on without the replica there was, "
    "or fills an empty one. Two servers that go on from copies of one journal train two "
    "models.");
ABSL_FLAG(
    int64_t, accept_loss, -1,
    "A server that finds its journal older than other servers or checkpoints know it, or missing, "
    "waits, and its alarm names a round. Give that round to lose what came after the newest "
    "checkpoint and go back there. Any other number changes nothing. -1: lose nothing. Only for "
    "the "
    "coordinator.");
ABSL_FLAG(
    std::string, journal_limit, "0",
    "--durability=journal: what a server may write into its journal after a checkpoint before "
    "the next one is taken out of turn, such as 20GB or 16GiB; until that is whole, its disk "
    "holds up to twice as much. 0: 32 times the server's weights, at least 1 GB. Only for the "
    "coordinator.");
ABSL_FLAG(lodestar::LocalPath, fallback_dir, "",
          "Folder for a last checkpoint that cannot be written into --checkpoint_dir, best on "
          "another disk, and of one run alone; seen by all servers like that. A server that ends "
          "so exits with 3. Empty: "
          "none.");
ABSL_FLAG(
    absl::Duration, stop_timeout, absl::Minutes(1),
    "How long a server that is told to stop (SIGTERM, Ctrl-C) goes on serving until the last "
    "checkpoint is written; 100ms to 24h. Half of it is for workers to hand in their round, else "
    "they are dropped from it, and for servers that are away to come back, else nothing is saved; "
    "the other half is for writing. A second signal ends the server at once, a third even if it "
    "hangs. psctl stop waits all of it for workers to hand in their round, then writes.");
ABSL_FLAG(std::string, memory_limit, "0",
          "What weights, optimizer state and contributions may take on this server, as in 500MB, "
          "4GiB or 4000000000; beyond, the job is saved and ended. 0: what the machine, its "
          "control group and ulimit allow.");
ABSL_FLAG(int32_t, checkpoint_keep, 3, "Newest checkpoints that are kept; 1 to 1000.");
ABSL_FLAG(
    lodestar::LocalPath, resume, "latest",
    "latest: from the newest checkpoint in --checkpoint_dir that verifies, if any; never: start "
    "anew; or the path of one checkpoint. Settings that differ from the checkpoint's are shown at "
    "the start; those that contradict it (mode, model, seed, optimizer) are refused.");

ABSL_FLAG(
    lodestar::LocalPath, metrics_out, "",
    "File that receives one JSON object per line for each committed round: round, train_loss, "
    "heldout_loss, heldout_accuracy (losses in nats, and as train_bits_per_byte and "
    "heldout_bits_per_byte if tokens are bytes), samples, seconds, workers; compute_seconds, "
    "communication_seconds (with nothing to compute) and wait_seconds of this round, means over "
    "its workers; and metrics, an object, where programs tell any. Goes on behind what is "
    "there; lines of rounds that come again after a crash or a rollback are cut, and a file with "
    "rounds of another run is renamed to FILE.1, FILE.2, ... Empty: none.");
ABSL_FLAG(lodestar::LocalPath, tensorboard_dir, "",
          "Folder that gets a file for TensorBoard with losses, learning rate and what programs "
          "tell, by round. A server that is started again writes another one beside it. Empty: "
          "none.");
ABSL_FLAG(
    bool, exit_when_done, false,
    "Exit with 0 once the job is complete and every worker has been told. Otherwise the server "
    "goes on serving weights and status.");
ABSL_FLAG(
    lodestar::LocalPath, trace, "",
    "File for the times of a few rounds, bucket by bucket, of this server; open it in "
    "https://ui.perfetto.dev. Written once they are over, or at the end. It replaces an older "
    "trace; one that another process has written meanwhile stays. Empty: none.");
ABSL_FLAG(int64_t, trace_rounds, 5, "Rounds in the trace, after the first two; 1 to 1000.");
ABSL_FLAG(std::string, log_level, "info", "debug, info, warning or error.");
ABSL_FLAG(
    std::string, log_format, "text",
    "text, for people, or json: an object per line, with IDs of workers, rounds and shards as "
    "fields.");

namespace lodestar::server {
namespace {

constexpr int64_t kDefaultBatchSize = 12;
// Default number of tokens of a step for large models: half a million, as is usual for GPT-2 with
// 124 million parameters (llm.c, nanoGPT). A GPU computes long enough on that many tokens to hide
// the time of the gradient exchange.
constexpr int64_t kDefaultTokensOfLargeModels = 524'288;
constexpr int64_t kLargeModel = 100'000'000;  // in parameters
// Outer momentum of adam if it is not given.
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

// Sets the flags of the preset that are not given.
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

// Returns the settings that the job chooses itself. They are those with the value `auto` and, with
// --mode=auto, also some that are not given.
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
        "--overlap_steps=auto chooses between overlapped steps and rounds; leave --overlap_rounds "
        "out");
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
  // With --mode=auto the job also chooses these settings, unless they are given.
  refuse_with(open.mode ? "mode" : "overlap_steps", open.overlap, {"merge", "merge_alpha"});
  refuse_with(open.mode ? "mode" : "push_encoding", open.push_encoding,
              {"topk", "topk_bits", "feedback_decay"});
  if (!open.mode) refuse_with("push_encoding", open.push_encoding, {"topk_divisor"});
  if (!decided.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the job chooses itself ", absl::StrJoin(decided, ", "),
                     "; leave one of the two out, or ask psctl plan"));
  }
  const bool is_of_local_steps = open.local_steps || open.fragments || open.overlap;
  if (!open.mode && is_of_local_steps && !job::HasLocalSteps(job)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "auto for --local_steps, --fragments or --overlap_steps counts with --mode=local_sgd, not ",
        NameOf(job.mode), "; leave it out, or give --mode=auto"));
  }
  const std::vector<job::Mode> modes = job::ModesToChooseFrom();
  if (!open.mode && std::count(modes.begin(), modes.end(), job.mode) == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("a job of --mode=", NameOf(job.mode),
                     " chooses nothing itself, since what is "
                     "measured is rounds in which workers meet; give numbers and names in place of "
                     "auto"));
  }
  if (std::holds_alternative<params::ClientModelSpec>(job.model.architecture)) {
    return absl::InvalidArgumentError(
        "auto is not for --model=client, whose programs keep the settings that they have joined "
        "with; give what psctl plan recommends");
  }
  return absl::OkStatus();
}

// Sets the number of samples of a step, per worker or in all. Requires the model, the mode if it is
// given, and the given numbers of samples.
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
        std::max(job.batch_size, job.global_batch_size), "; give one of them"));
  }
  if (gpt == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat(flag, ": samples of model '", job.model.name,
                     "' have no tokens that are known; give --global_batch_size in samples"));
  }
  if (tokens < gpt->context || tokens > job::kMaxStepSamples * gpt->context) {
    return absl::InvalidArgumentError(absl::StrCat(flag, ": allowed are ", gpt->context,
                                                   ", a sample of this model, to ",
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

// Returns the paths that the operator of a server above shard 0 has named. (The operator may have
// named them only to give all servers the same flags.)
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
  // A shell may have a join string for workers in its environment. The server that they join must
  // not use it.
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
                      " contributions in a round to leave out what it should, and with "
                      "--min_workers=",
                      job.min_workers, " a round may have fewer, so that a wild one counts; give ",
                      "that flag ", wanted, " or more");
}

// Returns a warning about overlapped rounds. If two workers overlap their rounds, half of each
// window's change comes a round late. With more workers it is more than half. If a window ends at
// its optimum in some direction, steps with momentum 0.9 then grow without bound in that direction.
// By linear stability this begins at a rate of 0.6 with two workers, and at 0.4 with four.
std::string DoubtOfOverlap(const job::JobSpec& job) {
  constexpr double kHighestRate = 0.4;
  const bool is_stable = job.outer_optimizer != job::OuterOptimizerKind::kNesterov ||
                         job.outer_learning_rate <= kHighestRate;
  if (!job.overlap_rounds || is_stable) return "";
  return absl::StrCat(
      "--overlap_rounds with --outer_learning_rate=", job.outer_learning_rate,
      " may not converge with two workers or more, whose changes come a round late; "
      "give that flag ",
      kHighestRate, " or less");
}

// Returns a warning about momentum correction. HeLoCo's momentum is a mean of contributions, and
// the outer momentum is their sum. The correction removes the part of a contribution that opposes
// the momentum. With a high momentum, that part is what keeps the momentum from growing.
std::string DoubtOfCorrection(const job::JobSpec& job) {
  constexpr double kHighestMomentum = 0.7;
  if (job.momentum_correction == job::MomentumCorrectionKind::kNone ||
      job.outer_momentum <= kHighestMomentum) {
    return "";
  }
  return absl::StrCat("--momentum_correction=", NameOf(job.momentum_correction),
                      " with --outer_momentum=", job.outer_momentum,
                      " may not converge: it takes away what damps the momentum; give that flag ",
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
  // A server that joins has its certificate from the authority of the coordinator.
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
    "Exit code: 0: done; 1 to 127: trying again will not help (2: a bad flag; 3: the\n"
    "last checkpoint is not in --checkpoint_dir, see the log); 128 and above: trying\n"
    "again may help.\n";

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
