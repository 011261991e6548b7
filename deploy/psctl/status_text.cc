#include "deploy/psctl/status_text.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "common/job_loss.h"

namespace lodestar {
namespace {

std::string FormatSeconds(double seconds) {
  return absl::FormatDuration(seconds < 10.0
                                  ? absl::Seconds(static_cast<int64_t>(seconds * 10)) / 10
                                  : absl::Seconds(static_cast<int64_t>(seconds)));
}

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
  return absl::StrCat(", push ", name(job.push_encoding()), ", pull ", name(job.pull_encoding()),
                      job.error_feedback() ? "" : " without error feedback");
}

std::string JobLine(const v1::ClusterStatus& status) {
  const v1::JobSpec& job = status.job();
  return absl::StrFormat("job       %s, model %s (%d parameters, layout %s), optimizer %s%s\n",
                         LowercaseSuffix(v1::Mode_Name(job.mode()), sizeof("MODE_") - 1),
                         job.model().name(), status.num_parameters(), status.layout_hash(),
                         LowercaseSuffix(v1::OptimizerKind_Name(job.optimizer().kind()),
                                         sizeof("OPTIMIZER_KIND_") - 1),
                         EncodingText(job));
}

// What is there of "train 1.3075 nats (round 19), held-out 1.2 nats (round 10), accuracy 60.00 %".
std::string LossesText(const v1::ClusterStatus& status) {
  std::vector<std::string> parts;
  if (status.has_train_loss()) {
    const LossUnit unit =
        status.has_train_bits_per_byte() ? LossUnit::kBitsPerByte : LossUnit::kNats;
    parts.push_back(absl::StrCat("train ", LossText(status.train_loss(), unit), " in round ",
                                 status.train_loss_round()));
  }
  if (status.has_heldout_loss()) {
    const LossUnit unit =
        status.has_heldout_bits_per_byte() ? LossUnit::kBitsPerByte : LossUnit::kNats;
    parts.push_back(absl::StrCat("held-out ", LossText(status.heldout_loss(), unit), " in round ",
                                 status.heldout_round()));
  }
  if (status.has_heldout_accuracy()) {
    parts.push_back(absl::StrFormat("accuracy %.2f %%", 100.0 * status.heldout_accuracy()));
  }
  return parts.empty() ? "none yet" : absl::StrJoin(parts, ", ");
}

std::string ProgressLines(const v1::ClusterStatus& status) {
  std::string text =
      absl::StrFormat("progress  %s: round %d of %d, epoch %.2f, %d samples", status.state(),
                      status.round(), status.total_rounds(), status.epoch(), status.samples());
  if (status.eta_seconds() > 0.0) {
    absl::StrAppend(&text, ", ETA ", FormatSeconds(status.eta_seconds()));
  }
  absl::StrAppend(&text, "\nloss      ", LossesText(status));
  absl::StrAppendFormat(&text, "; learning rate %.3g\n", status.learning_rate());
  absl::StrAppendFormat(&text, "speed     %.1f samples/s", status.samples_per_second());
  if (status.tokens_per_second() > 0.0) {
    absl::StrAppendFormat(&text, ", %.0f tokens/s", status.tokens_per_second());
  }
  if (status.rounds_committed_short() > 0) {
    absl::StrAppendFormat(&text, "; %d rounds committed without everyone",
                          status.rounds_committed_short());
  }
  return text + "\n";
}

std::string OpenRoundLines(const v1::OpenRoundStatus& round) {
  std::string text =
      absl::StrFormat("round     %d open for %s: arrived [%s]", round.round(),
                      FormatSeconds(round.age_seconds()), absl::StrJoin(round.arrived(), " "));
  std::vector<std::string> missing;
  for (const v1::MissingContribution& contribution : round.missing()) {
    missing.push_back(
        absl::StrCat(contribution.worker(), " (", FormatSeconds(contribution.age_seconds()), ")"));
  }
  absl::StrAppend(&text, ", missing [", absl::StrJoin(missing, " "), "]\n");
  if (!round.waiting_for().empty()) absl::StrAppend(&text, "waiting   ", round.waiting_for(), "\n");
  return text;
}

std::string ShardLines(const v1::ClusterStatus& status) {
  std::string text;
  for (const v1::ShardStatus& shard : status.shards()) {
    absl::StrAppendFormat(&text,
                          "shard     %d at %s: %s, version %d, %s weights, %s resident, %s in, %s "
                          "out; contributions: "
                          "%d counted, %d duplicate, %d late, %d rejected\n",
                          shard.shard(), shard.address(), shard.state(), shard.version(),
                          FormatBytes(shard.weight_bytes()), FormatBytes(shard.resident_bytes()),
                          FormatBytes(shard.bytes_received()), FormatBytes(shard.bytes_sent()),
                          shard.contributions_counted(), shard.contributions_duplicate(),
                          shard.contributions_late(), shard.contributions_rejected());
  }
  return text;
}

std::string ResumeLines(const v1::ResumeStatus& resumed) {
  std::string text = absl::StrFormat("resumed   %s (round %d)\n", resumed.path(), resumed.round());
  for (const v1::SettingChange& change : resumed.changes()) {
    absl::StrAppendFormat(&text, "changed   --%s: %s -> %s, %s\n", change.flag(),
                          change.saved().empty() ? "-" : change.saved(), change.asked(),
                          change.effect());
  }
  return text;
}

}  // namespace

std::string FormatBytes(double bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  while (bytes >= 1024.0 && unit + 1 < std::size(kUnits)) {
    bytes /= 1024.0;
    ++unit;
  }
  return absl::StrFormat(unit == 0 ? "%.0f %s" : "%.1f %s", bytes, kUnits[unit]);
}

std::string StatusText(const v1::ClusterStatus& status) {
  std::string text = absl::StrFormat("server    version %s, up %s\n", status.software_version(),
                                     FormatSeconds(status.uptime_seconds()));
  absl::StrAppend(&text, JobLine(status), ProgressLines(status));
  if (status.has_open_round()) absl::StrAppend(&text, OpenRoundLines(status.open_round()));
  absl::StrAppend(&text, ShardLines(status));
  if (status.has_last_checkpoint()) {
    const v1::CheckpointStatus& checkpoint = status.last_checkpoint();
    absl::StrAppendFormat(&text, "saved     %s (round %d, %s, %s ago)\n", checkpoint.path(),
                          checkpoint.round(), FormatBytes(checkpoint.bytes()),
                          FormatSeconds(checkpoint.age_seconds()));
  }
  if (status.has_resumed()) absl::StrAppend(&text, ResumeLines(status.resumed()));
  for (const v1::Alarm& alarm : status.alarms()) {
    absl::StrAppendFormat(&text, "ALARM     %s (%d times, %s ago)\n", alarm.text(), alarm.count(),
                          FormatSeconds(alarm.age_seconds()));
  }
  return text + WorkersText(status);
}

std::string WorkersText(const v1::ClusterStatus& status) {
  std::string text = absl::StrFormat("%-20s %4s %-10s %-8s %8s %6s %7s %10s %10s %10s  %s\n",
                                     "WORKER", "ID", "STATE", "DOING", "ROUND", "STALE", "LEASE",
                                     "SAMPLES/s", "PUSH/s", "PULL/s", "COMPUTE/COMM/WAIT  DEVICE");
  for (const v1::WorkerStatus& worker : status.workers()) {
    absl::StrAppendFormat(
        &text,
        "%-20s %4d %-10s %-8s %8d %6d %6.1fs %10.1f %10s %10s  %3.0f%%/%3.0f%%/%3.0f%%  %s\n",
        worker.name(), worker.worker_id(), worker.state(), worker.activity(), worker.round(),
        worker.staleness(), worker.lease_age_seconds(), worker.samples_per_second(),
        FormatBytes(worker.push_bytes_per_second()), FormatBytes(worker.pull_bytes_per_second()),
        100.0 * worker.compute_share(), 100.0 * worker.communication_share(),
        100.0 * worker.wait_share(), worker.device());
  }
  return text;
}

}  // namespace lodestar
