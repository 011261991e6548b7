// SPDX-License-Identifier: Apache-2.0

#include "proto/status_text.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <functional>
#include <map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "common/job/endless_rounds.h"
#include "common/job/job_loss.h"
#include "common/job/outer_step.h"
#include "common/runtime/bytes_text.h"
#include "common/runtime/time_text.h"

namespace lodestar::wire {
namespace {

constexpr TextTable::Align kRight = TextTable::Align::kRight;

std::string FormatSeconds(double seconds) { return DurationText(absl::Seconds(seconds)); }

std::string LowercaseSuffix(const std::string& enum_name, size_t prefix_length) {
  std::string name = enum_name.substr(std::min(prefix_length, enum_name.size()));
  for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return name;
}

std::string EncodingText(const v1::JobSpec& job) {
  const auto name = [](v1::Encoding encoding) {
    return LowercaseSuffix(v1::Encoding_Name(encoding), sizeof("ENCODING_") - 1);
  };
  const auto is_fp32 = [](v1::Encoding encoding) {
    return encoding == v1::ENCODING_FP32 || encoding == v1::ENCODING_UNSPECIFIED;
  };
  if (is_fp32(job.push_encoding()) && is_fp32(job.pull_encoding())) return "";
  const bool is_topk =
      job.push_encoding() == v1::ENCODING_TOPK2 || job.push_encoding() == v1::ENCODING_TOPK4;
  std::string push = name(job.push_encoding());
  if (is_topk) {
    push = absl::StrCat(
        "topk (", job.topk(), " of 4096 in ", job.push_encoding() == v1::ENCODING_TOPK4 ? 4 : 2,
        " bits, by ", job.topk_divisor() == v1::TOPK_DIVISOR_SENDERS ? "senders" : "workers", ")");
  }
  const bool decays = job.feedback_decay() != 0 && job.feedback_decay() != 1;
  return absl::StrCat(", push ", push, ", pull ", name(job.pull_encoding()),
                      job.error_feedback() ? "" : " without error feedback",
                      decays ? absl::StrCat(", feedback decays by ", job.feedback_decay()) : "");
}

// Returns text such as " (20 steps between exchanges, 4 fragments, merged 2 steps later, outer
// nesterov 0.7 0.9 (7-fold))". 0.7 and 0.9 are the outer learning rate and momentum. Nesterov
// multiplies steady changes by 0.7 / (1 - 0.9). The text has this factor if it is above
// kSafeOuterStepRatio. Empty means that the job has no local steps.
std::string LocalStepsText(const v1::JobSpec& job) {
  if (job.mode() != v1::MODE_LOCAL_SGD && job.mode() != v1::MODE_ASYNC_LOCAL_SGD) return "";
  std::string text = absl::StrCat(
      " (", job.local_steps(), job.local_steps() == 1 ? " step" : " steps", " between exchanges");
  if (job.fragments() > 1) absl::StrAppend(&text, ", ", job.fragments(), " fragments");
  if (job.overlap_steps() > 0) {
    absl::StrAppend(&text, ", merged ", job.overlap_steps(),
                    job.overlap_steps() == 1 ? " step later" : " steps later");
    if (job.merge() == v1::MERGE_KIND_MIX) {
      absl::StrAppend(&text, " by mixing ", job.merge_alpha(), " of the worker's own weights");
    }
  }
  if (job.overlap_rounds()) absl::StrAppend(&text, ", overlapped rounds");
  absl::StrAppend(&text, ", outer ",
                  LowercaseSuffix(v1::OuterOptimizerKind_Name(job.outer_optimizer()),
                                  sizeof("OUTER_OPTIMIZER_KIND_") - 1));
  if (job.outer_optimizer() != v1::OUTER_OPTIMIZER_KIND_AVERAGE) {
    absl::StrAppend(&text, " ", job.outer_learning_rate());
    const bool has_momentum = job.outer_optimizer() == v1::OUTER_OPTIMIZER_KIND_NESTEROV ||
                              job.outer_optimizer() == v1::OUTER_OPTIMIZER_KIND_ADAM;
    if (has_momentum) absl::StrAppend(&text, " ", job.outer_momentum());
    const double ratio = job.outer_learning_rate() / (1.0 - job.outer_momentum());
    const bool is_nesterov = job.outer_optimizer() == v1::OUTER_OPTIMIZER_KIND_NESTEROV;
    if (is_nesterov && ratio > job::kSafeOuterStepRatio) {
      absl::StrAppendFormat(&text, " (%.3g-fold)", ratio);
    }
  }
  if (job.outer_reduction() == v1::OUTER_REDUCTION_DIRECTION) {
    absl::StrAppend(&text, " of mean directions");
  }
  if (job.momentum_correction() == v1::MOMENTUM_CORRECTION_HELOCO) {
    absl::StrAppend(&text, ", corrected by heloco");
  }
  if (job.mode() == v1::MODE_ASYNC_LOCAL_SGD) {
    absl::StrAppend(&text, ", anchor ", job.anchor() == v1::ANCHOR_SERVER ? "server" : "worker");
  }
  return text + ")";
}

std::string JobText(const v1::ClusterStatus& status) {
  const v1::JobSpec& job = status.job();
  return absl::StrFormat(
      "%s%s, model %s (%d parameters, layout %s), optimizer %s%s%s",
      LowercaseSuffix(v1::Mode_Name(job.mode()), sizeof("MODE_") - 1), LocalStepsText(job),
      job.model().name(), status.num_parameters(), status.layout_hash(),
      LowercaseSuffix(v1::OptimizerKind_Name(job.optimizer().kind()),
                      sizeof("OPTIMIZER_KIND_") - 1),
      EncodingText(job), status.durability() == "journal" ? ", durability journal" : "");
}

std::string ProgressText(const v1::ClusterStatus& status) {
  if (status.server_incarnation() == 0) {
    return absl::StrCat(status.state(), ": nothing is loaded yet, and the round is not known");
  }
  std::string text =
      absl::StrFormat("%s: round %s, epoch %.2f, %d samples", status.state(),
                      job::RoundOfText(status.round(), status.total_rounds(), " of "),
                      status.epoch(), status.samples());
  if (status.untrained_samples() > 0) {
    absl::StrAppendFormat(&text, " (%d of them were not trained on)", status.untrained_samples());
  }
  if (status.eta_seconds() > 0.0) {
    absl::StrAppend(&text, ", ETA ", FormatSeconds(status.eta_seconds()));
  }
  if (status.rounds_committed_short() > 0) {
    absl::StrAppendFormat(&text, "; %d %s completed without all workers",
                          status.rounds_committed_short(),
                          status.rounds_committed_short() == 1 ? "round" : "rounds");
  }
  return text;
}

// Returns text such as "train 1.3075 nats in round 19, held-out 1.2000 nats in round 10, accuracy
// 60.00 %". Unknown parts are left out.
std::string LossesText(const v1::ClusterStatus& status) {
  std::vector<std::string> parts;
  const auto add = [&parts](const char* name, double nats, bool has_bits, int64_t round) {
    const job::LossUnit unit = has_bits ? job::LossUnit::kBitsPerByte : job::LossUnit::kNats;
    parts.push_back(absl::StrCat(name, " ", job::LossText(nats, unit), " in round ", round));
  };
  if (status.has_train_loss()) {
    add("train", status.train_loss(), status.has_train_bits_per_byte(), status.train_loss_round());
  }
  if (status.has_heldout_loss()) {
    add("held-out", status.heldout_loss(), status.has_heldout_bits_per_byte(),
        status.heldout_round());
  }
  if (status.has_heldout_accuracy()) {
    parts.push_back(absl::StrFormat("accuracy %.2f %%", 100.0 * status.heldout_accuracy()));
  }
  // A server of an earlier release does not send the scale, which is then 0 here.
  const double scale = status.learning_rate_scale();
  return absl::StrCat(
      parts.empty() ? "none yet" : absl::StrJoin(parts, ", "),
      status.job().schedule().kind() == v1::SCHEDULE_KIND_PROGRAM
          ? "; learning rates of the programs"
          : absl::StrFormat("; learning rate %.3g", status.learning_rate()),
      scale == 0.0 || scale == 1.0 ? "" : absl::StrFormat(" (the schedule times %.3g)", scale));
}

// Returns text such as "grad_norm 1.25, lr 0.001 in round 19; bleu 27.1 in round 10". Empty if no
// program has reported metrics.
std::string MetricsText(const v1::ClusterStatus& status) {
  std::map<int64_t, std::vector<std::string>, std::greater<>> of_round;
  for (const v1::ProgramMetric& metric : status.metrics()) {
    of_round[metric.round()].push_back(absl::StrFormat("%s %.6g", metric.name(), metric.value()));
  }
  std::vector<std::string> parts;
  for (const auto& [round, metrics] : of_round) {
    parts.push_back(absl::StrCat(absl::StrJoin(metrics, ", "), " in round ", round));
  }
  if (status.metrics_dropped() > 0) {
    parts.push_back(absl::StrCat(
        status.metrics_dropped(),
        " values were dropped, because they were not finite, or there were too many names"));
  }
  return absl::StrJoin(parts, "; ");
}

// Returns the speed as text. Empty if the job makes no progress.
std::string SpeedText(const v1::ClusterStatus& status) {
  if (status.samples_per_second() <= 0.0) return "";
  std::string text = absl::StrFormat("%.1f samples/s", status.samples_per_second());
  if (status.tokens_per_second() > 0.0) {
    absl::StrAppendFormat(&text, ", %.0f tokens/s", status.tokens_per_second());
  }
  return text;
}

// Returns text about the pause. Empty if the job is not paused.
std::string PauseText(const v1::ClusterStatus& status) {
  if (!status.has_pause()) return "";
  return absl::StrCat("for ", FormatSeconds(status.pause().age_seconds()), ": ",
                      status.pause().reason());
}

// Returns text about the last divergence. Empty if the run has never diverged.
std::string DivergenceText(const v1::ClusterStatus& status) {
  std::string text;
  if (status.has_divergence()) {
    absl::StrAppend(&text, FormatSeconds(status.divergence().age_seconds()),
                    " ago: ", status.divergence().text());
  }
  if (status.rollbacks() > 0) {
    absl::StrAppend(&text, text.empty() ? "" : "; ", "rollbacks: ", status.rollbacks());
  }
  return text;
}

// Returns text such as "7 of 4096 connections; refused: 12 silent, 3 too many". Empty if no
// connection was refused.
std::string PortText(const v1::PortStatus& port) {
  if (port.refused().empty()) return "";
  std::vector<std::string> refused;
  for (const v1::RefusedConnections& some : port.refused()) {
    refused.push_back(absl::StrCat(some.count(), " ", some.reason()));
  }
  return absl::StrCat(port.connections(), " of ", port.max_connections(),
                      " connections; refused: ", absl::StrJoin(refused, ", "));
}

// Returns text such as "212.0 MB of memory, at most 3.10 GB; refused: too many registrations (12)".
std::string LimitsText(const v1::LimitsStatus& limits) {
  const auto bytes = [](uint64_t count) { return BytesText(static_cast<int64_t>(count)); };
  std::vector<std::string> refused;
  for (const v1::LimitRefusals& some : limits.refused()) {
    refused.push_back(absl::StrCat(some.reason(), " (", some.count(), ")"));
  }
  if (limits.memory_bound_bytes() == 0) return "";  // an older server does not send it
  return absl::StrCat(bytes(limits.memory_bytes()), " of memory, at most ",
                      bytes(limits.memory_bound_bytes()),
                      refused.empty() ? "" : "; refused: ", absl::StrJoin(refused, ", "));
}

// Returns text such as "stop, 12s ago: psctl stop".
std::string RequestText(const v1::PendingRequest& request) {
  return absl::StrCat(request.what(), ", ", FormatSeconds(request.age_seconds()), " ago",
                      request.reason().empty() ? "" : ": ", request.reason());
}

// Returns text about the open round. Empty if no round is open.
std::string OpenRoundText(const v1::OpenRoundStatus& round) {
  if (round.arrived().empty() && round.missing().empty()) return "";
  std::vector<std::string> missing;
  for (const v1::MissingContribution& contribution : round.missing()) {
    missing.push_back(absl::StrCat(
        contribution.worker(), " (", FormatSeconds(contribution.age_seconds()),
        contribution.has_seconds_left()
            ? absl::StrCat(", at most ", FormatSeconds(contribution.seconds_left()), " more")
            : "",
        ")"));
  }
  return absl::StrFormat("%d open for %s: arrived [%s], missing [%s]", round.round(),
                         FormatSeconds(round.age_seconds()), absl::StrJoin(round.arrived(), " "),
                         absl::StrJoin(missing, " "));
}

std::string CheckpointText(const v1::CheckpointStatus& checkpoint) {
  // If the job was resumed from this checkpoint, the checkpoint's size is not known and is 0 here.
  const std::string size =
      checkpoint.bytes() > 0
          ? absl::StrCat(BytesText(static_cast<int64_t>(checkpoint.bytes())), ", ")
          : "";
  return absl::StrFormat("%s (round %d, %s%s ago)", checkpoint.path(), checkpoint.round(), size,
                         FormatSeconds(checkpoint.age_seconds()));
}

// Returns shares such as "75/20/5 %": computing, exposed communication and waiting for work.
std::string SharesText(const v1::WorkerStatus& worker) {
  return absl::StrFormat("%.0f/%.0f/%.0f %%", 100.0 * worker.compute_share(),
                         100.0 * worker.communication_share(), 100.0 * worker.wait_share());
}

// Returns the exposed communication of a round, such as "12.3 ms", or "-" if the server does not
// send it.
std::string ExposedText(const v1::WorkerStatus& worker) {
  if (worker.exposed_seconds_per_round() == 0.0 && worker.communication_share() > 0.0) return "-";
  const double milliseconds = worker.exposed_seconds_per_round() * 1e3;
  return absl::StrFormat(milliseconds < 100 ? "%.1f ms" : "%.0f ms", milliseconds);
}

// Returns a line for each server, if any server has a replica.
std::vector<std::string> ReplicaLines(const v1::ClusterStatus& status) {
  const bool has_replica =
      std::any_of(status.shards().begin(), status.shards().end(),
                  [](const v1::ShardStatus& shard) { return !shard.journal_replica().empty(); });
  // An earlier coordinator sends only the replica of its own server, and not those of other
  // servers.
  if (!has_replica && !status.journal_replica().empty()) return {status.journal_replica()};
  std::vector<std::string> lines;
  for (const v1::ShardStatus& shard : status.shards()) {
    if (!has_replica) break;
    const std::string owner =
        status.shards_size() == 1 ? "" : absl::StrCat("shard ", shard.shard(), ": ");
    const std::string unknown = shard.state() == "serving"
                                    ? "none"
                                    : absl::StrCat("not known, its server is ", shard.state());
    lines.push_back(
        absl::StrCat(owner, shard.journal_replica().empty() ? unknown : shard.journal_replica()));
  }
  return lines;
}

std::string ChangeText(const v1::SettingChange& change) {
  return absl::StrFormat("--%s: %s -> %s, %s", change.flag(),
                         change.saved().empty() ? "-" : change.saved(), change.asked(),
                         change.effect());
}

}  // namespace

std::string StatusHeadText(const v1::ClusterStatus& status, int columns) {
  std::string text;
  const auto add = [&text, columns](const char* label, const std::string& line) {
    if (!line.empty()) absl::StrAppend(&text, Paragraph(label, line, columns));
  };
  add("server    ", absl::StrCat("version ", status.software_version(), ", up ",
                                 FormatSeconds(status.uptime_seconds())));
  add("job       ", JobText(status));
  add("exchange  ", status.exchange_choice());
  add("progress  ", ProgressText(status));
  add("loss      ", LossesText(status));
  add("metrics   ", MetricsText(status));
  add("speed     ", SpeedText(status));
  add("diverged  ", DivergenceText(status));
  add("paused    ", PauseText(status));
  add("round     ", OpenRoundText(status.open_round()));
  add("waiting   ", status.open_round().waiting_for());
  for (const v1::PendingRequest& request : status.requests()) {
    add("requested ", RequestText(request));
  }
  if (status.has_last_checkpoint()) add("saved     ", CheckpointText(status.last_checkpoint()));
  if (!status.leader_lease().empty()) {
    add("leader    ", absl::StrCat("holds ", status.leader_lease()));
  }
  for (const std::string& line : ReplicaLines(status)) add("replica   ", line);
  add("upstream  ", status.upstream());
  add("wire      ", status.wire());
  add("port      ", PortText(status.port()));
  add("limits    ", LimitsText(status.limits()));
  if (status.has_resumed()) {
    add("resumed   ",
        absl::StrFormat("%s (round %d)", status.resumed().path(), status.resumed().round()));
  }
  for (const v1::SettingChange& change : status.resumed().changes()) {
    add("changed   ", ChangeText(change));
  }
  for (const v1::Alarm& alarm : status.alarms()) {
    add("ALARM     ",
        absl::StrFormat("%s (%d %s, %s ago%s)", alarm.text(), alarm.count(),
                        alarm.count() == 1 ? "time" : "times", FormatSeconds(alarm.age_seconds()),
                        alarm.has_over_age_seconds()
                            ? absl::StrCat("; over for ", FormatSeconds(alarm.over_age_seconds()))
                            : ""));
  }
  return text;
}

std::string ShardsText(const v1::ClusterStatus& status, int columns) {
  const bool has_journal =
      std::any_of(status.shards().begin(), status.shards().end(),
                  [](const v1::ShardStatus& shard) { return shard.journal_bytes() > 0; });
  std::vector<TextTable::Column> titles = {{.title = "SHARD", .align = kRight},
                                           {.title = "ADDRESS"},
                                           {.title = "STATE"},
                                           {.title = "VERSION", .align = kRight, .rank = 1},
                                           {.title = "WEIGHTS", .align = kRight, .rank = 2},
                                           {.title = "MEMORY", .align = kRight, .rank = 1},
                                           {.title = "IN", .align = kRight, .rank = 3},
                                           {.title = "OUT", .align = kRight, .rank = 3},
                                           {.title = "COUNTED", .align = kRight, .rank = 2},
                                           {.title = "TWICE", .align = kRight, .rank = 4},
                                           {.title = "LATE", .align = kRight, .rank = 3},
                                           {.title = "REFUSED", .align = kRight, .rank = 2}};
  // Few jobs have skipped contributions, so the column is shown only if there are some.
  const bool has_skipped =
      std::any_of(status.shards().begin(), status.shards().end(),
                  [](const v1::ShardStatus& shard) { return shard.contributions_skipped() > 0; });
  if (has_skipped) titles.push_back({.title = "SKIPPED", .align = kRight, .rank = 3});
  if (has_journal) titles.push_back({.title = "JOURNAL", .align = kRight, .rank = 2});
  TextTable table(std::move(titles));
  const auto bytes = [](uint64_t count) { return BytesText(static_cast<int64_t>(count)); };
  for (const v1::ShardStatus& shard : status.shards()) {
    std::vector<std::string> row = {absl::StrCat(shard.shard()),
                                    shard.address(),
                                    shard.state(),
                                    absl::StrCat(shard.version()),
                                    bytes(shard.weight_bytes()),
                                    bytes(shard.resident_bytes()),
                                    bytes(shard.bytes_received()),
                                    bytes(shard.bytes_sent()),
                                    absl::StrCat(shard.contributions_counted()),
                                    absl::StrCat(shard.contributions_duplicate()),
                                    absl::StrCat(shard.contributions_late()),
                                    absl::StrCat(shard.contributions_rejected())};
    if (has_skipped) row.push_back(absl::StrCat(shard.contributions_skipped()));
    if (has_journal) row.push_back(bytes(shard.journal_bytes()));
    table.AddRow(std::move(row));
  }
  return status.shards().empty() ? "" : table.Format(columns);
}

std::string StatusText(const v1::ClusterStatus& status, int columns) {
  return absl::StrCat(StatusHeadText(status, columns), "\n", ShardsText(status, columns), "\n",
                      WorkersText(status, columns));
}

std::string ExportText(const v1::ExportSource& source, absl::string_view server) {
  const bool is_within =
      source.round() <= source.total_rounds() && source.total_rounds() < job::kEndlessRounds;
  return absl::StrFormat("the weights of job %s at %s after %d%s rounds%s", source.model(), server,
                         source.round(),
                         is_within ? absl::StrCat(" of ", source.total_rounds()) : "",
                         source.is_over() ? "" : ", or of later ones, because the job continues");
}

std::string StopText(const v1::StopReply& reply, absl::string_view server) {
  return absl::StrCat(
      "job ", reply.model(), " at ", server, ": ", reply.ending(), "; ",
      reply.saved_path().empty()
          ? absl::StrCat(reply.is_lost() ? "NOT SAVED: " : "nothing is saved: ", reply.not_saved())
          : absl::StrCat("checkpoint ", reply.saved_path(),
                         reply.is_lost() ? absl::StrCat("; FAILED: ", reply.not_saved()) : ""),
      reply.lost_rounds().empty() ? "" : absl::StrCat("; WARNING: ", reply.lost_rounds()));
}

// Returns the time from the start of the worker's process to its first counted contribution.
// Returns "-" if there was no such contribution yet, or if the time is not known.
std::string StartText(const v1::WorkerStatus& worker) {
  if (!worker.has_start_to_contribution_seconds()) return "-";
  return absl::StrFormat("%.1fs", worker.start_to_contribution_seconds());
}

// Returns text that says how often a process of this worker began without the error feedback
// residual of earlier rounds.
std::string ResidualText(const v1::WorkerStatus& worker) {
  const uint64_t times = worker.residuals_lost();
  return absl::StrCat("began without the residual of its earlier rounds",
                      times == 1 ? "" : absl::StrCat(", ", times, " times"),
                      ": the part of its contributions that encoding had left out is lost");
}

// Returns the speed of transfers in both directions and the round trip. A dash means not known.
std::string PathText(const v1::WorkerStatus& worker) {
  const auto rate = [](double bytes_per_second) {
    return bytes_per_second > 0.0 ? absl::StrFormat("%.3g", bytes_per_second * 8e-6) : "-";
  };
  const double milliseconds = worker.path_round_trip_seconds() * 1e3;
  return absl::StrCat(rate(worker.path_up_bytes_per_second()), "/",
                      rate(worker.path_down_bytes_per_second()), "/",
                      milliseconds > 0.0 ? absl::StrFormat("%.3gms", milliseconds) : "-");
}

std::string WorkersText(const v1::ClusterStatus& status, int columns) {
  TextTable table({{.title = "WORKER"},
                   {.title = "ID", .align = kRight, .rank = 5},
                   {.title = "INDEX", .align = kRight, .rank = 4},
                   {.title = "STATE"},
                   {.title = "DOING", .rank = 1},
                   {.title = "ROUND", .align = kRight, .rank = 1},
                   {.title = "STALE", .align = kRight, .rank = 5},
                   {.title = "LEASE", .align = kRight, .rank = 3},
                   {.title = "SAMPLES/s", .align = kRight, .rank = 1},
                   {.title = "PUSH/s", .align = kRight, .rank = 4},
                   {.title = "PULL/s", .align = kRight, .rank = 4},
                   {.title = "UP/DOWN Mbit/s/RTT", .align = kRight, .rank = 4},
                   {.title = "COMPUTE/EXPOSED/WAIT", .align = kRight, .rank = 2},
                   {.title = "EXPOSED/ROUND", .align = kRight, .rank = 3},
                   {.title = "START", .align = kRight, .rank = 4},
                   {.title = "DEVICE", .rank = 2}});
  for (const v1::WorkerStatus& worker : status.workers()) {
    table.AddRow({worker.name(), absl::StrCat(worker.worker_id()),
                  worker.has_index() ? absl::StrCat(worker.index()) : "-", worker.state(),
                  worker.activity(), absl::StrCat(worker.round()), absl::StrCat(worker.staleness()),
                  absl::StrFormat("%.1fs", worker.lease_age_seconds()),
                  absl::StrFormat("%.1f", worker.samples_per_second()),
                  BytesText(std::llround(worker.push_bytes_per_second())),
                  BytesText(std::llround(worker.pull_bytes_per_second())), PathText(worker),
                  SharesText(worker), ExposedText(worker), StartText(worker), worker.device()});
  }
  if (status.workers().empty()) return "no worker yet\n";
  std::string text = table.Format(columns);
  if (status.num_workers_not_shown() > 0) {
    absl::StrAppend(
        &text, "and ", status.num_workers_not_shown(),
        " more workers that have not joined, have ended within the last hour, or may not join\n");
  }
  for (const v1::WorkerStatus& worker : status.workers()) {
    if (worker.residuals_lost() == 0) continue;
    absl::StrAppend(&text,
                    Paragraph(absl::StrCat(worker.name(), "  "), ResidualText(worker), columns));
  }
  for (const v1::WorkerStatus& worker : status.workers()) {
    if (worker.reason().empty()) continue;
    const bool has_age = worker.ended_age_seconds() > 0;
    const std::string line =
        has_age ? absl::StrCat(FormatSeconds(worker.ended_age_seconds()), " ago: ", worker.reason())
                : worker.reason();
    absl::StrAppend(&text, Paragraph(absl::StrCat(worker.name(), "  "), line, columns));
  }
  return text;
}

}  // namespace lodestar::wire
