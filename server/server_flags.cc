#include "server/server_flags.h"

#include <algorithm>
#include <optional>
#include <set>

#include "absl/flags/flag.h"
#include "absl/flags/marshalling.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "common/bytes_text.h"
#include "common/checkpoint_directory.h"
#include "common/exchange_settings.h"
#include "common/layout.h"
#include "common/local_path.h"
#include "common/model_spec.h"
#include "common/outer_step.h"
#include "common/security/security_flags.h"
#include "common/status_macros.h"
#include "proto/model_file.h"
#include "server/idle_flags.h"
#include "server/outer_preset.h"

namespace lodestar {
namespace {

constexpr char kAuto[] = "auto";

// Of a flag: a whole number; none: the job chooses it.
struct CountOrAuto {
  std::optional<int32_t> count;
};

bool AbslParseFlag(absl::string_view text, CountOrAuto* flag, std::string* error) {
  flag->count.reset();
  if (text == kAuto) return true;
  if (absl::ParseFlag(text, &flag->count.emplace(), error)) return true;
  *error = "it takes a whole number, or auto";
  return false;
}

std::string AbslUnparseFlag(const CountOrAuto& flag) {
  return flag.count.has_value() ? absl::StrCat(*flag.count) : kAuto;
}

}  // namespace
}  // namespace lodestar

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
          "File that receives the port (a decimal number) once the server listens. Empty: none.");
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
ABSL_FLAG(double, dropout, -1.0,
          "gpt: share of the activations that training drops, 0 <= value < 1. -1: what the model's "
          "file says; 0 for presets.");
ABSL_FLAG(uint64_t, seed, 1,
          "Seed of the first weights, of the order of the samples and of what dropout drops.");
ABSL_FLAG(
    lodestar::LocalPath, init_from, "",
    "The first weights: a safetensors file, names and shapes as in the model's layout, a "
    "checkpoint (round-...) of any job with this model, or, for a gpt, a folder of a GPT-2 of "
    "Hugging Face. Empty: the model's initialisers with --seed. Only used if no checkpoint is "
    "resumed.");
ABSL_FLAG(
    int64_t, bucket_bytes, lodestar::kDefaultBucketBytes,
    "Size limit of a bucket, the unit of aggregation and transfer, in bytes of fp32; 4 to 1 GiB.");

ABSL_FLAG(
    std::string, mode, "sync",
    "How strictly workers move together. sync: one averaged gradient per round; async: each "
    "gradient is applied when it arrives; local_sgd: workers take --local_steps on their own, "
    "then --outer_optimizer combines them; async_local_sgd: the same, but what a worker has made "
    "takes effect when it comes, and nobody waits for another. auto: the job measures steps and "
    "paths in some rounds that are not kept, and chooses sync or local_sgd, and of --local_steps, "
    "--fragments, --overlap_steps and encodings what is not given, so that workers compute for 95 "
    "% of the "
    "time, as psctl plan does; --rounds, --warmup_rounds and --eval_every then are in steps.");
ABSL_FLAG(int32_t, min_workers, 1,
          "Workers that must have joined before the job starts; at least 1. Also when a server is "
          "started again.");
ABSL_FLAG(int32_t, keep_workers, 1,
          "Workers that must be left for a job that has started to go on; 1 to --min_workers. If "
          "more are lost, it waits for some to come back.");
ABSL_FLAG(
    int32_t, quorum, 0,
    "sync: a round commits with the first that many contributions, later ones are dropped and "
    "counted; at most --min_workers. 0: everyone's. async_local_sgd: that many contributions make "
    "an outer step. 0: as many as there are workers when its first one comes.");
ABSL_FLAG(
    std::string, balance, "equal",
    "equal: workers get equal parts of each step's samples. speed: each gets as many as it "
    "computes in the time that the others need for theirs, by what it took in its last rounds, so "
    "that a round waits for nobody; the samples of a step are the same, and contributions weigh as "
    "many as they have. In async_local_sgd each gets as many of the --local_steps.");
ABSL_FLAG(
    int64_t, max_staleness, -1,
    "async_local_sgd: a contribution that was computed on weights more updates old than this is "
    "dropped and counted as late; with N workers N-1 are usual. -1: none is.");
ABSL_FLAG(
    std::string, robust_mean, "none",
    "sync, local_sgd: how the contributions of a round are combined. none: their mean, which a "
    "single wild one leads astray. median: element by element, the value in the middle. "
    "trimmed:K: element by element, the mean without the K lowest and the K highest values, so "
    "that up to K workers may send what they like. Of rounds with fewer contributions than 2K+1 "
    "(median: 3) less is left out, so that a wild one counts: give --min_workers and "
    "--keep_workers at least that. For up to 32 workers; while a round is open, a "
    "server holds a copy of its weights "
    "for every worker.");
ABSL_FLAG(double, norm_limit, lodestar::kDefaultNormLimit,
          "How many times the usual norm a worker's part of a bucket may have, 2 to 1e30: the "
          "highest that the median of a round's workers was of late. What is beyond counts as if "
          "it had that norm, and is an alarm in 20 of 100 rounds; see --poison_limit. Where half "
          "of the workers are beyond, nobody is to blame. 0: any norm counts, and nobody looks "
          "at directions either.");
ABSL_FLAG(int32_t, max_rounds_ahead, -1,
          "async: rounds that a worker may be ahead of the slowest; 0: lock step; -1: no limit.");
ABSL_FLAG(std::string, staleness_scaling, "none",
          "async: none, or inverse: the learning rate is divided by 1 + staleness.");
ABSL_FLAG(
    lodestar::CountOrAuto, local_steps, {1},
    "local_sgd, async_local_sgd: steps on a worker per round; 1 to 524288. auto, here and of "
    "--fragments, --overlap_steps and encodings: the job chooses that and keeps the rest as it is "
    "given, as with --mode=auto; not of asynchronous modes.");
ABSL_FLAG(
    lodestar::CountOrAuto, fragments, {1},
    "local_sgd: parts of the parameters that are exchanged in turn, 1 to 64, or auto: each once in "
    "--local_steps steps, so that there are that many rounds in a cycle, each with so much "
    "less traffic, while workers go on computing.");
ABSL_FLAG(
    lodestar::CountOrAuto, overlap_steps, {0},
    "local_sgd: steps that a worker makes after an exchange has begun and before it has the "
    "new weights; 0 to --local_steps/--fragments, or auto. Longer exchanges than these steps are "
    "waited for.");
ABSL_FLAG(std::string, merge, "keep",
          "local_sgd with --overlap_steps: what becomes of a worker's own weights then. keep: the "
          "new ones and the steps made meanwhile; mix: --merge_alpha of its own and the rest of "
          "the new ones.");
ABSL_FLAG(double, merge_alpha, 0.5,
          "local_sgd with --merge=mix: share of a worker's own weights; 0 to 1.");
ABSL_FLAG(
    bool, overlap_rounds, false,
    "local_sgd with nesterov or sgd: workers make the next --local_steps during an exchange, and "
    "go on from the last weights that have come and their own part of the round under way "
    "(eager update, 2502.12996). With nesterov give an --outer_learning_rate of 0.4 or less.");
ABSL_FLAG(std::string, outer_optimizer, "nesterov",
          "local_sgd: what the servers do with the mean of what rounds changed: average (the mean "
          "of the workers' weights), sgd, nesterov (DiLoCo), adam (FedAdam) or easgd (elastic "
          "averaging, 1412.6651: workers keep weights of their own; with N of them each exchange "
          "moves those a part beta/N of the way to the servers', and the servers' beta of the way "
          "to their mean, while they go on computing).");
ABSL_FLAG(double, outer_learning_rate, lodestar::kDefaultOuterLearningRate,
          "Local steps with sgd, nesterov, adam: outer step size; 0 to 1e6. With easgd beta; 0 to "
          "1, and 0.9 where it is not given.");
ABSL_FLAG(
    double, outer_momentum, lodestar::kDefaultOuterMomentum,
    "Local steps with nesterov: outer momentum; 0 <= value < 1. Keep --outer_learning_rate / (1 - "
    "this) at 1.5 or less unless the job is long: short jobs from scratch lost up to 27 % with "
    "0.6 and 0.9. With adam its beta1, which is 0.9 if this is not given. async_local_sgd has 0.8 "
    "if this is not given.");
ABSL_FLAG(double, outer_beta2, 0.95, "local_sgd with adam: 0 <= value < 1.");
ABSL_FLAG(double, outer_epsilon, 0.1,
          "local_sgd with adam: 1e-30 to 1e6. Far smaller ones diverge.");
ABSL_FLAG(
    std::string, outer_reduction, "mean",
    "local_sgd: what the servers make of a round's contributions. mean: their mean, which is the "
    "shorter the more their directions differ. direction: tensor by tensor the mean of their "
    "directions, as long as they are in the mean (Decoupled DiLoCo, 2604.21428), so that steps are "
    "as long whoever joins or leaves; of embeddings the mean. Not with --outer_optimizer=average; "
    "servers hold one more copy of the parameters while a round is open.");
ABSL_FLAG(
    std::string, momentum_correction, "none",
    "async_local_sgd with nesterov: what becomes of a contribution that goes against the "
    "outer momentum, as late ones and those of other data do. heloco (2606.00271): tensor by "
    "tensor, what of it lies against the momentum shrinks, and what hardly goes with it is "
    "turned towards it; with an --outer_momentum of 0.5 to 0.7. none: it is applied as it is.");
ABSL_FLAG(std::string, anchor, "worker",
          "async_local_sgd: from which weights the change is measured that a contribution is when "
          "it is applied. worker: from those that it was computed from, so that late work is added "
          "to what others have done meanwhile; server: from the servers' at that moment, so that "
          "it leads towards the worker's weights, and back from what others have done. The same "
          "where nothing came in between. server needs fp32 both ways.");
ABSL_FLAG(
    std::string, outer_preset, "",
    "local_sgd: published settings instead of the defaults of the outer flags and "
    "--local_steps that are not given: diloco (2311.08105: nesterov 0.7/0.9, 500 steps), "
    "scaling_laws (2503.09799: nesterov 0.9, rate by --min_workers: 0.5 for 1, 0.6 from 2 "
    "on, 0.8 from 8 on; 30 steps), streaming (2501.18512: nesterov 0.4/0.9, 30 steps) or "
    "sparse_loco (2508.15706: sgd 1, 15 steps). They are of long jobs: the server warns where "
    "a short one may lose by them.");
ABSL_FLAG(
    std::string, push_encoding, "fp32",
    "Encoding of what workers send: fp32, bf16, fp16, int8 or int4 (blocks of 256 or 128 with a "
    "scale), topk (the largest of each 4096, see --topk), or auto. Servers sum in fp32.");
ABSL_FLAG(std::string, pull_encoding, "fp32",
          "fp32: workers get the weights. bf16, fp16, int8 or int4: they get the changes of the "
          "weights in that encoding, and servers hold one more copy of the parameters. Or auto.");
ABSL_FLAG(int32_t, topk, lodestar::kDefaultTopK,
          "--push_encoding=topk: how many elements of each 4096 travel, the largest; 1 to 1024.");
ABSL_FLAG(int32_t, topk_bits, lodestar::kDefaultTopKBits,
          "--push_encoding=topk: bits of each that travels, 2 or 4, beside 12 for its place.");
ABSL_FLAG(
    std::string, topk_divisor, "workers",
    "--push_encoding=topk: an element's sum is divided by all workers, or by its senders, those "
    "that sent it. Published systems differ: SparseLoCo takes workers, CCLoco senders, which "
    "makes steps up to as many times longer as there are workers.");
ABSL_FLAG(bool, error_feedback, true,
          "What an encoding loses is added to the next contribution or change, so that in sum "
          "nothing is lost. false is for comparison, and not with topk.");
ABSL_FLAG(
    double, feedback_decay, 0.0,
    "What is added to a worker's next contribution is multiplied by it: above 0, at most 1. 0: "
    "0.95 with --push_encoding=topk (as SparseLoCo does), else 1.");
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

ABSL_FLAG(std::string, optimizer, "adamw",
          "sgd, momentum, nesterov or adamw: on the servers in sync and async, on each worker in "
          "local_sgd. reduce, in sync with --model=client: the servers make no step, and what a "
          "worker pulls after a round is the mean of its gradients, for programs that make the "
          "steps themselves; --clip_norm limits its norm, --norm_limit those of single ones.");
ABSL_FLAG(double, learning_rate, 1e-3, "Learning rate after warm-up; 0 to 1e6.");
ABSL_FLAG(double, min_learning_rate, 0.0,
          "Learning rate at the end of the job with --lr_schedule=cosine or linear.");
ABSL_FLAG(std::string, lr_schedule, "constant", "constant, cosine or linear, after warm-up.");
ABSL_FLAG(int64_t, warmup_rounds, 0, "Rounds over which the learning rate rises; 0 to --rounds.");
ABSL_FLAG(double, weight_decay, 0.0, "Decoupled weight decay of weight matrices; 0 to 1e6.");
ABSL_FLAG(double, momentum, 0.9, "momentum, nesterov: 0 <= value < 1.");
ABSL_FLAG(double, beta1, 0.9, "adamw: decay of the mean; 0 <= value < 1.");
ABSL_FLAG(double, beta2, 0.95, "adamw: decay of the mean square; 0 <= value < 1.");
ABSL_FLAG(double, epsilon, 1e-8, "adamw: added to the denominator; 1e-30 to 1e6.");
ABSL_FLAG(double, clip_norm, 0.0, "Limit of the gradient's norm; 0: none.");

ABSL_FLAG(
    int64_t, rounds, 2000,
    "Length of the job; in async each push counts as a round. At least 1. In steps of a worker "
    "where the job chooses its mode, local steps or fragments itself (auto).");
ABSL_FLAG(int64_t, batch_size, 0,
          "Samples per worker and step, at most 1048576. 0: what --global_batch_size or "
          "--global_tokens says, and without them 12, or 524288 tokens of all workers together for "
          "a gpt of 100 million parameters or more in sync.");
ABSL_FLAG(
    int64_t, global_batch_size, 0,
    "Samples per step of all workers together, split evenly; at most 1048576. 0: --batch_size "
    "counts. Excludes --batch_size.");
ABSL_FLAG(int64_t, global_tokens, 0,
          "--global_batch_size in tokens, of a gpt: the nearest number of samples of its context. "
          "Workers compute as many at a time as fit, so that an exchange is hidden behind many, as "
          "with 524288, with which GPT-2 is trained. 0: the others count. Excludes both.");
ABSL_FLAG(int64_t, eval_every, 0,
          "Rounds between evaluations on held-out samples; 0: at the end only.");
ABSL_FLAG(int64_t, eval_samples, 10000,
          "Most held-out samples per evaluation, spread evenly over all there are; 0 takes all.");

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
    "as one that copies it into a bucket; its folder is in $LODESTAR_CHECKPOINT. A failure is "
    "an alarm. A server that stops waits for it for --stop_timeout more. Empty: none.");
ABSL_FLAG(bool, accept_higher_rate, false,
          "Lets a resumed job go on with a learning rate that is more than a tenth above the one "
          "that its checkpoint was written with, as where --rounds of a cosine schedule grows.");
ABSL_FLAG(std::string, durability, "checkpoint",
          "What outlives a server that is killed, or loses its power. checkpoint: what the newest "
          "checkpoint has; all servers go back to it. journal: everything that was acknowledged; "
          "every answer waits until the disk has what it tells of, the server goes on from there "
          "when it is started again, and nobody goes back. Every contribution is written once, and "
          "its round waits for the disk: next to nothing with local_sgd and 20 steps a round, a "
          "third more in sync with small models (deploy/docs/keeping_a_run.md). To be given to "
          "every server.");
ABSL_FLAG(lodestar::LocalPath, journal_dir, "",
          "--durability=journal: folder for the journal, in which each server has one of its own; "
          "best on a fast disk. Killed servers can be started again as another number of servers "
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
          "another disk; seen by all servers like that. A server that ends so exits with 3. Empty: "
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
ABSL_FLAG(lodestar::LocalPath, trace, "",
          "File for the times of a few rounds, bucket by bucket, of this server; open it in "
          "https://ui.perfetto.dev. Written once they are over, or at the end. Empty: none.");
ABSL_FLAG(int64_t, trace_rounds, 5, "Rounds in the trace, after the first two; 1 to 1000.");
ABSL_FLAG(std::string, log_level, "info", "debug, info, warning or error.");
ABSL_FLAG(
    std::string, log_format, "text",
    "text, for people, or json: an object per line, with IDs of workers, rounds and shards as "
    "fields.");

namespace lodestar {
namespace {

constexpr int64_t kDefaultBatchSize = 12;
// Of a step: half a million, as the GPT-2 of 124 million parameters is commonly trained with
// (llm.c, nanoGPT). A card computes long enough for them that an exchange of its gradient hides
// behind it.
constexpr int64_t kDefaultTokensOfLargeModels = 524'288;
constexpr int64_t kLargeModel = 100'000'000;  // parameters
constexpr double kDropoutOfModel = -1.0;
// The outer momentum of adam that is not given.
constexpr double kDefaultOuterBeta1 = 0.9;

absl::StatusOr<int64_t> ReadBytes(absl::string_view flag, const std::string& value) {
  absl::StatusOr<int64_t> bytes = ParseBytes(value);
  if (bytes.ok()) return bytes;
  return absl::InvalidArgumentError(
      absl::StrCat("--", flag, "=", value, ": ", bytes.status().message()));
}

absl::StatusOr<ServerLimits> ReadLimits() {
  ServerLimits limits;
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

absl::StatusOr<ModelSpec> ReadModel() {
  ASSIGN_OR_RETURN(ModelSpec model, NamedModel(absl::GetFlag(FLAGS_model)));
  const double dropout = absl::GetFlag(FLAGS_dropout);
  if (dropout == kDropoutOfModel) return model;
  GptSpec* const gpt = std::get_if<GptSpec>(&model.architecture);
  if (gpt == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("--dropout=", dropout, ": model '", model.name,
                                                   "' is no gpt, and only those drop activations"));
  }
  if (!(dropout >= 0.0 && dropout < 1.0)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--dropout=", dropout, ": allowed is 0 <= value < 1, or -1 for what the model says"));
  }
  gpt->dropout = dropout;
  return model;
}

// In place of the defaults of flags that are not given.
absl::Status ApplyOuterPreset(const std::set<std::string>& given, JobSpec& job) {
  const std::string name = absl::GetFlag(FLAGS_outer_preset);
  if (name.empty()) return absl::OkStatus();
  if (!HasLocalSteps(job)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--outer_preset=", name, " has no meaning with --mode=", ModeName(job.mode),
                     "; use --mode=local_sgd or async_local_sgd"));
  }
  ASSIGN_OR_RETURN(const OuterSettings preset, OuterPreset(name, job.min_workers));
  if (!given.contains("outer_optimizer")) job.outer_optimizer = preset.optimizer;
  if (!given.contains("outer_learning_rate")) job.outer_learning_rate = preset.learning_rate;
  if (!given.contains("outer_momentum")) job.outer_momentum = preset.momentum;
  if (!given.contains("local_steps")) job.local_steps = preset.local_steps;
  return absl::OkStatus();
}

// What the flags leave to the job: what has the value `auto`, and with --mode=auto what is not
// given either.
OpenSettings ReadOpenSettings(const std::set<std::string>& given) {
  OpenSettings open;
  open.mode = absl::GetFlag(FLAGS_mode) == kAuto;
  const auto is_open = [&](absl::string_view flag, bool is_auto) {
    return is_auto || (open.mode && !given.contains(std::string(flag)));
  };
  open.local_steps = is_open("local_steps", !absl::GetFlag(FLAGS_local_steps).count.has_value());
  open.fragments = is_open("fragments", !absl::GetFlag(FLAGS_fragments).count.has_value());
  open.overlap = is_open("overlap_steps", !absl::GetFlag(FLAGS_overlap_steps).count.has_value()) &&
                 !given.contains("overlap_rounds");
  open.push_encoding = is_open("push_encoding", absl::GetFlag(FLAGS_push_encoding) == kAuto);
  open.pull_encoding = is_open("pull_encoding", absl::GetFlag(FLAGS_pull_encoding) == kAuto);
  return open;
}

// What the job chooses itself nobody else says.
absl::Status CheckMayChoose(const OpenSettings& open, const std::set<std::string>& given,
                            const JobSpec& job) {
  if (!absl::GetFlag(FLAGS_overlap_steps).count.has_value() && given.contains("overlap_rounds")) {
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
      decided.push_back(absl::StrCat("--", flag, " with --", open_flag, "=", kAuto));
    }
  };
  refuse_with("mode", open.mode,
              {"outer_optimizer", "outer_learning_rate", "outer_momentum", "outer_beta2",
               "outer_epsilon", "outer_preset", "quorum", "outer_reduction", "momentum_correction",
               "anchor", "topk_divisor", "max_staleness", "max_rounds_ahead", "staleness_scaling"});
  // With the mode these are open, too, unless they are given.
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
  if (!open.mode && is_of_local_steps && !HasLocalSteps(job)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "auto for --local_steps, --fragments or --overlap_steps counts with --mode=local_sgd, not ",
        ModeName(job.mode), "; leave it out, or give --mode=auto"));
  }
  const std::vector<Mode> modes = ModesToChooseFrom();
  if (!open.mode && std::count(modes.begin(), modes.end(), job.mode) == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("a job of --mode=", ModeName(job.mode),
                     " chooses nothing itself, since what is "
                     "measured is rounds in which workers meet; give numbers and names in place of "
                     "auto"));
  }
  if (std::holds_alternative<ClientModelSpec>(job.model.architecture)) {
    return absl::InvalidArgumentError(
        "auto is not for --model=client, whose programs keep the settings that they have joined "
        "with; give what psctl plan recommends");
  }
  return absl::OkStatus();
}

// Of an encoding that the job chooses, until it has: one with which all counts that is given.
absl::StatusOr<Encoding> ReadEncoding(absl::string_view flag, const std::string& value,
                                      bool is_open) {
  if (is_open) return Encoding(Encoding::kInt8);
  const absl::StatusOr<Encoding> encoding = ParseEncoding(flag, value);
  if (encoding.ok()) return encoding;
  return absl::InvalidArgumentError(absl::StrCat(encoding.status().message(), ", ", kAuto));
}

// Samples of a step: of each worker, or of all. Requires the model and the mode, if that is given.
absl::Status ReadBatch(bool is_mode_open, JobSpec& job) {
  job.batch_size = absl::GetFlag(FLAGS_batch_size);
  job.global_batch_size = absl::GetFlag(FLAGS_global_batch_size);
  int64_t tokens = absl::GetFlag(FLAGS_global_tokens);
  const bool is_given = job.batch_size != 0 || job.global_batch_size != 0 || tokens != 0;
  const auto* const gpt = std::get_if<GptSpec>(&job.model.architecture);
  const bool is_sync = !is_mode_open && HasRosters(job) && !HasLocalSteps(job);
  if (!is_given && gpt != nullptr && is_sync) {
    ASSIGN_OR_RETURN(const Layout layout, BuildLayout(job.model));
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
  if (tokens < gpt->context || tokens > kMaxStepSamples * gpt->context) {
    return absl::InvalidArgumentError(absl::StrCat(flag, ": allowed are ", gpt->context,
                                                   ", a sample of this model, to ",
                                                   kMaxStepSamples * gpt->context));
  }
  job.global_batch_size = (tokens + gpt->context / 2) / gpt->context;
  return absl::OkStatus();
}

absl::StatusOr<JobSpec> ReadJob(const std::set<std::string>& given, const OpenSettings& open) {
  JobSpec job;
  ASSIGN_OR_RETURN(job.model, ReadModel());
  if (open.mode) {
    job.mode = ModeUntilChosen(open);
  } else {
    const absl::StatusOr<Mode> mode = ParseMode(absl::GetFlag(FLAGS_mode));
    if (!mode.ok()) {
      return absl::InvalidArgumentError(absl::StrCat(mode.status().message(), ", ", kAuto));
    }
    job.mode = *mode;
  }
  RETURN_IF_ERROR(CheckMayChoose(open, given, job));
  job.quorum = absl::GetFlag(FLAGS_quorum);
  job.max_rounds_ahead = absl::GetFlag(FLAGS_max_rounds_ahead);
  job.max_staleness = absl::GetFlag(FLAGS_max_staleness);
  ASSIGN_OR_RETURN(job.balance, ParseBalance(absl::GetFlag(FLAGS_balance)));
  ASSIGN_OR_RETURN(job.staleness_scaling,
                   ParseStalenessScaling(absl::GetFlag(FLAGS_staleness_scaling)));
  job.fragments = absl::GetFlag(FLAGS_fragments).count.value_or(1);
  job.overlap_steps = absl::GetFlag(FLAGS_overlap_steps).count.value_or(0);
  // Until the job has chosen: the fewest beside what is given.
  job.local_steps = open.local_steps ? job.fragments * std::max(job.overlap_steps, 1)
                                     : *absl::GetFlag(FLAGS_local_steps).count;
  ASSIGN_OR_RETURN(job.merge, ParseMergeKind(absl::GetFlag(FLAGS_merge)));
  job.merge_alpha = absl::GetFlag(FLAGS_merge_alpha);
  job.overlap_rounds = absl::GetFlag(FLAGS_overlap_rounds);
  ASSIGN_OR_RETURN(job.outer_optimizer,
                   ParseOuterOptimizerKind(absl::GetFlag(FLAGS_outer_optimizer)));
  job.outer_learning_rate = absl::GetFlag(FLAGS_outer_learning_rate);
  if (IsElastic(job) && !given.contains("outer_learning_rate")) {
    job.outer_learning_rate = kDefaultElasticRate;
  }
  job.outer_momentum = absl::GetFlag(FLAGS_outer_momentum);
  if (!given.contains("outer_momentum")) {
    if (job.outer_optimizer == OuterOptimizerKind::kAdam) job.outer_momentum = kDefaultOuterBeta1;
    if (!HasRosters(job) && HasLocalSteps(job)) job.outer_momentum = kDefaultAsynchronousMomentum;
  }
  job.outer_beta2 = absl::GetFlag(FLAGS_outer_beta2);
  job.outer_epsilon = absl::GetFlag(FLAGS_outer_epsilon);
  ASSIGN_OR_RETURN(job.outer_reduction, ParseOuterReduction(absl::GetFlag(FLAGS_outer_reduction)));
  ASSIGN_OR_RETURN(job.momentum_correction,
                   ParseMomentumCorrection(absl::GetFlag(FLAGS_momentum_correction)));
  ASSIGN_OR_RETURN(job.anchor, ParseAnchor(absl::GetFlag(FLAGS_anchor)));
  ASSIGN_OR_RETURN(job.optimizer.kind, ParseOptimizerKind(absl::GetFlag(FLAGS_optimizer)));
  job.optimizer.momentum = absl::GetFlag(FLAGS_momentum);
  job.optimizer.beta1 = absl::GetFlag(FLAGS_beta1);
  job.optimizer.beta2 = absl::GetFlag(FLAGS_beta2);
  job.optimizer.epsilon = absl::GetFlag(FLAGS_epsilon);
  job.optimizer.weight_decay = absl::GetFlag(FLAGS_weight_decay);
  ASSIGN_OR_RETURN(job.schedule.kind, ParseScheduleKind(absl::GetFlag(FLAGS_lr_schedule)));
  job.schedule.peak = absl::GetFlag(FLAGS_learning_rate);
  job.schedule.minimum = absl::GetFlag(FLAGS_min_learning_rate);
  job.schedule.warmup_rounds = absl::GetFlag(FLAGS_warmup_rounds);
  job.schedule.total_rounds = absl::GetFlag(FLAGS_rounds);
  job.clip_norm = absl::GetFlag(FLAGS_clip_norm);
  RETURN_IF_ERROR(ReadBatch(open.mode, job));
  job.min_workers = absl::GetFlag(FLAGS_min_workers);
  RETURN_IF_ERROR(ApplyOuterPreset(given, job));
  job.keep_workers = absl::GetFlag(FLAGS_keep_workers);
  job.seed = absl::GetFlag(FLAGS_seed);
  job.eval_every = absl::GetFlag(FLAGS_eval_every);
  job.eval_samples = absl::GetFlag(FLAGS_eval_samples);
  job.bucket_bytes = absl::GetFlag(FLAGS_bucket_bytes);
  ASSIGN_OR_RETURN(
      job.push_encoding,
      ReadEncoding("push_encoding", absl::GetFlag(FLAGS_push_encoding), open.push_encoding));
  ASSIGN_OR_RETURN(
      job.pull_encoding,
      ReadEncoding("pull_encoding", absl::GetFlag(FLAGS_pull_encoding), open.pull_encoding));
  if (job.push_encoding.is_topk()) {
    ASSIGN_OR_RETURN(job.push_encoding,
                     MakeTopK(absl::GetFlag(FLAGS_topk), absl::GetFlag(FLAGS_topk_bits)));
  }
  ASSIGN_OR_RETURN(job.topk_divisor, ParseTopKDivisor(absl::GetFlag(FLAGS_topk_divisor)));
  job.error_feedback = absl::GetFlag(FLAGS_error_feedback);
  job.feedback_decay = absl::GetFlag(FLAGS_feedback_decay);
  if (job.feedback_decay == 0) job.feedback_decay = DefaultFeedbackDecay(job.push_encoding);
  ASSIGN_OR_RETURN(job.robust_mean, ParseRobustMean(absl::GetFlag(FLAGS_robust_mean)));
  job.norm_limit = absl::GetFlag(FLAGS_norm_limit);
  return job;
}

// What counts on every server.
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
    durability.journal_dir = absl::StrCat(checkpoint_dir, "/", kJournalFolder);
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

// What the operator of a server above shard 0 has named, if only to give all servers the same.
std::vector<std::string> ReadNamedPaths() {
  std::vector<std::string> paths = {absl::GetFlag(FLAGS_checkpoint_dir),
                                    absl::GetFlag(FLAGS_fallback_dir),
                                    absl::GetFlag(FLAGS_init_from), absl::GetFlag(FLAGS_resume)};
  std::erase_if(paths, [](const std::string& path) {
    return path.empty() || path == "latest" || path == "never";
  });
  return paths;
}

absl::StatusOr<DivergencePolicy> ReadDivergence() {
  DivergencePolicy policy;
  ASSIGN_OR_RETURN(policy.action, ParseDivergenceAction(absl::GetFlag(FLAGS_on_divergence)));
  policy.learning_rate_factor = absl::GetFlag(FLAGS_rollback_lr_factor);
  policy.max_rollbacks = absl::GetFlag(FLAGS_max_rollbacks);
  policy.nonfinite_limit = absl::GetFlag(FLAGS_nonfinite_limit);
  policy.poison_limit = absl::GetFlag(FLAGS_poison_limit);
  return policy;
}

absl::StatusOr<ServerConfig> ReadFlags(const std::set<std::string>& given) {
  ServerConfig config;
  ASSIGN_OR_RETURN(config.network.listen,
                   ParseListenAddress("listen", absl::GetFlag(FLAGS_listen)));
  if (const std::string http = absl::GetFlag(FLAGS_http); !http.empty()) {
    ASSIGN_OR_RETURN(config.network.http, ParseListenAddress("http", http));
  }
  config.network.http_names = absl::GetFlag(FLAGS_http_names);
  config.network.advertise = absl::GetFlag(FLAGS_advertise);
  ASSIGN_OR_RETURN(config.security.flags, ReadSecurityFlags());
  config.security.tls = absl::GetFlag(FLAGS_tls);
  config.security.certificate_ttl = absl::GetFlag(FLAGS_certificate_ttl);
  config.network.port_file = absl::GetFlag(FLAGS_port_file);
  config.network.shared_memory = absl::GetFlag(FLAGS_shared_memory);
  config.network.long_paths = absl::GetFlag(FLAGS_long_paths);
  ASSIGN_OR_RETURN(config.limits, ReadLimits());
  ASSIGN_OR_RETURN(config.cluster, ReadCluster());
  config.upstream = {absl::GetFlag(FLAGS_upstream), absl::GetFlag(FLAGS_upstream_join),
                     absl::GetFlag(FLAGS_site_name)};
  ASSIGN_OR_RETURN(config.output.log_level, ParseLogLevel(absl::GetFlag(FLAGS_log_level)));
  ASSIGN_OR_RETURN(config.output.log_format, ParseLogFormat(absl::GetFlag(FLAGS_log_format)));
  config.output.metrics_out = absl::GetFlag(FLAGS_metrics_out);
  config.output.tensorboard_dir = absl::GetFlag(FLAGS_tensorboard_dir);
  config.output.trace_path = absl::GetFlag(FLAGS_trace);
  config.output.trace_rounds = absl::GetFlag(FLAGS_trace_rounds);
  config.exit_when_done = absl::GetFlag(FLAGS_exit_when_done);
  ASSIGN_OR_RETURN(config.durability, ReadJournal());
  config.is_replica = absl::GetFlag(FLAGS_replica);
  // What a shell has for workers is nothing to whom they join.
  SecurityFlags& security = config.security.flags;
  if (config.is_coordinator() && !config.is_replica && security.is_join_from_environment) {
    security.join.clear();
  }
  if (config.is_replica && config.cluster.leader_lease.empty()) {
    config.durability.checkpoint_dir = NormalPath(absl::GetFlag(FLAGS_checkpoint_dir));
    return config;
  }
  if (config.is_coordinator()) {
    config.durability = ReadDurability(std::move(config.durability));
    MakeAbsolute(config.durability);
    ASSIGN_OR_RETURN(config.divergence, ReadDivergence());
    config.open_settings = ReadOpenSettings(given);
    ASSIGN_OR_RETURN(config.job, ReadJob(given, config.open_settings));
  } else {
    config.durability.named_paths = ReadNamedPaths();
    config.durability.coordinators_folder = NormalPath(absl::GetFlag(FLAGS_checkpoint_dir));
  }
  return config;
}

// In words; empty: none.
std::string DoubtOfRobustMean(const JobSpec& job) {
  const int wanted = job.robust_mean.MinContributions();
  if (job.min_workers >= wanted) return "";
  return absl::StrCat("--robust_mean=", RobustMeanText(job.robust_mean), " needs ", wanted,
                      " contributions in a round to leave out what it should, and with "
                      "--min_workers=",
                      job.min_workers, " a round may have fewer, so that a wild one counts; give ",
                      "that flag ", wanted, " or more");
}

// Of the change of a window, half comes a round late where two workers overlap their rounds, and
// more where there are more. In directions in which each window ends at its optimum that makes
// steps with momentum 0.9 grow without bound: by linear stability from a rate of 0.6 on with two
// workers, and from 0.4 on with four.
std::string DoubtOfOverlap(const JobSpec& job) {
  constexpr double kHighestRate = 0.4;
  const bool is_stable = job.outer_optimizer != OuterOptimizerKind::kNesterov ||
                         job.outer_learning_rate <= kHighestRate;
  if (!job.overlap_rounds || is_stable) return "";
  return absl::StrCat(
      "--overlap_rounds with --outer_learning_rate=", job.outer_learning_rate,
      " may not converge with two workers or more, whose changes come a round late; "
      "give that flag ",
      kHighestRate, " or less");
}

// HeLoCo's momentum is a mean of contributions, the outer momentum their sum: the higher it is, the
// more what opposes it, and is taken away, is what keeps it from growing.
std::string DoubtOfCorrection(const JobSpec& job) {
  constexpr double kHighestMomentum = 0.7;
  if (job.momentum_correction == MomentumCorrectionKind::kNone ||
      job.outer_momentum <= kHighestMomentum) {
    return "";
  }
  return absl::StrCat("--momentum_correction=", MomentumCorrectionName(job.momentum_correction),
                      " with --outer_momentum=", job.outer_momentum,
                      " may not converge: it takes away what damps the momentum; give that flag ",
                      kHighestMomentum, " or less");
}

// Flags that count on every server; all others are the coordinator's.
bool CountsOnEveryServer(const std::string& flag) {
  static constexpr absl::string_view kFlags[] = {
      "listen", "insecure", "advertise", "join", "state_dir", "tls", "tls_cert", "tls_key",
      "tls_ca", "port_file", "shared_memory", "long_paths", "shard", "coordinator", "trace",
      "trace_rounds", "log_level", "log_format", "stop_timeout", "memory_limit", "durability",
      // Other folders than they name are not touched.
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

// Of those that were given.
bool Counts(const std::string& flag, const ServerConfig& config) {
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

}  // namespace

std::vector<FlagGroup> ServerFlagGroups() {
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
      {"Model and first weights", {"model", "dropout", "seed", "init_from", "bucket_bytes"}},
      {"Mode and membership",
       {"mode",
        "min_workers",
        "keep_workers",
        "quorum",
        "robust_mean",
        "max_rounds_ahead",
        "max_staleness",
        "balance",
        "staleness_scaling",
        "local_steps",
        "fragments",
        "overlap_steps",
        "merge",
        "merge_alpha",
        "overlap_rounds",
        "outer_optimizer",
        "outer_learning_rate",
        "outer_momentum",
        "outer_beta2",
        "outer_epsilon",
        "outer_reduction",
        "momentum_correction",
        "anchor",
        "outer_preset",
        "lease",
        "end_lost_workers",
        "round_timeout"}},
      {"Wire",
       {"push_encoding", "topk", "topk_bits", "topk_divisor", "pull_encoding", "error_feedback",
        "feedback_decay"}},
      {"Optimizer",
       {"optimizer", "learning_rate", "min_learning_rate", "lr_schedule", "warmup_rounds",
        "weight_decay", "momentum", "beta1", "beta2", "epsilon", "clip_norm", "on_divergence",
        "rollback_lr_factor", "max_rollbacks", "nonfinite_limit", "norm_limit", "poison_limit"}},
      {"Length, batches, evaluation",
       {"rounds", "batch_size", "global_batch_size", "global_tokens", "eval_every",
        "eval_samples"}},
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
  ASSIGN_OR_RETURN(const CommandLine line, ParseCommandLine(arguments));
  ServerCommandLine result;
  result.request = line.request;
  result.doubts = line.repetitions;
  if (line.request != CommandLineRequest::kRun) return result;
  RETURN_IF_ERROR(CheckOnlyFlags(line));
  ASSIGN_OR_RETURN(result.config, ReadFlags(line.given));
  result.config.given = line.given;
  // Another unit of the same setting.
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
       {line.given.contains("model") ? HiddenModelFile(absl::GetFlag(FLAGS_model)) : "",
        DoubtOfRobustMean(result.config.job),
        result.config.open_settings.mode ? "" : DoubtOfOverlap(result.config.job),
        HasRosters(result.config.job) && !result.config.open_settings.mode
            ? DoubtOfOuterStep(result.config.job)
            : "",
        DoubtOfCorrection(result.config.job)}) {
    if (!doubt.empty()) result.doubts.push_back(doubt);
  }
  return result;
}

std::string ServerHelp() { return FormatHelp(kUsage, ServerFlagGroups()); }

std::string ServerShortHelp() {
  return FormatShortHelp(
      kUsage,
      {"model",         "rounds",        "batch_size",     "optimizer",   "learning_rate",
       "lr_schedule",   "mode",          "local_steps",    "min_workers", "balance",
       "push_encoding", "pull_encoding", "checkpoint_dir", "resume",      "durability",
       "listen",        "shard",         "http",           "tls",         "exit_when_done"});
}

}  // namespace lodestar
