// SPDX-License-Identifier: Apache-2.0

#include "server/status/progress_recorder.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/logging/logging.h"
#include "common/runtime/json.h"
#include "common/runtime/overloaded.h"

namespace lodestar::status {
namespace {

// The flags that on_writing names.
constexpr absl::string_view kMetricsFlag = "--metrics_out";
constexpr absl::string_view kTensorBoardFlag = "--tensorboard_dir";

absl::Status MissingRounds(absl::string_view flag, const absl::Status& error) {
  return absl::Status(error.code(),
                      absl::StrCat(flag, ": ", error.message(),
                                   "; rounds are missing from it until it can be written again"));
}

// Returns null instead of NaN, which JSON does not have. So a diverged loss is null too.
Json NumberOrNull(const std::optional<double>& value) {
  if (!value.has_value() || !std::isfinite(*value)) return nullptr;
  return *value;
}

}  // namespace

std::string MetricsLine(const rounds::RoundSummary& summary, job::LossUnit unit) {
  const auto bits = [unit](std::optional<double> nats) {
    if (nats.has_value()) nats = job::BitsFromNats(*nats);
    return unit == job::LossUnit::kBitsPerByte ? NumberOrNull(nats) : Json(nullptr);
  };
  Json line = Json::object();
  line["round"] = summary.round.value();
  line["train_loss"] = NumberOrNull(summary.train_loss);
  line["heldout_loss"] = NumberOrNull(summary.heldout_loss);
  line["heldout_accuracy"] = NumberOrNull(summary.heldout_accuracy);
  line["train_bits_per_byte"] = bits(summary.train_loss);
  line["heldout_bits_per_byte"] = bits(summary.heldout_loss);
  line["samples"] = summary.total_samples;
  line["seconds"] = absl::ToDoubleSeconds(summary.trained_time);
  line["workers"] = summary.workers;
  line["compute_seconds"] = absl::ToDoubleSeconds(summary.worker_times.compute);
  line["communication_seconds"] = absl::ToDoubleSeconds(summary.worker_times.communication);
  line["wait_seconds"] = absl::ToDoubleSeconds(summary.worker_times.wait);
  if (!summary.metrics.empty()) line["metrics"] = summary.metrics;
  return FormatJson(line);
}

std::string ProgressLine(const rounds::RoundSummary& summary, job::LossUnit unit,
                         double samples_per_second) {
  const job::JobLoss loss = {summary.train_loss, summary.round, summary.heldout_loss,
                             summary.heldout_accuracy, summary.round};
  std::string line = job::JobLossText(loss, summary.total_rounds, unit);
  if (samples_per_second > 0) absl::StrAppendFormat(&line, "  %.1f samples/s", samples_per_second);
  absl::StrAppendFormat(&line, "  %d %s", summary.workers,
                        summary.workers == 1 ? "worker" : "workers");
  if (summary.committed_short) line += ", completed without some workers";
  return line;
}

absl::StatusOr<std::unique_ptr<ProgressRecorder>> ProgressRecorder::Create(const Config& config) {
  std::unique_ptr<ProgressRecorder> recorder(new ProgressRecorder(config));
  if (!config.tensorboard_dir.empty()) {
    absl::StatusOr<TensorBoardFile> file =
        TensorBoardFile::Create(config.tensorboard_dir, config.clock->Now());
    if (!file.ok()) {
      return absl::Status(file.status().code(),
                          absl::StrCat("--tensorboard_dir=", config.tensorboard_dir, ": ",
                                       file.status().message()));
    }
    recorder->tensorboard_.emplace(*std::move(file));
  }
  if (config.metrics_out.empty()) return recorder;
  absl::StatusOr<MetricsFile> metrics =
      MetricsFile::Open(config.metrics_out, config.may_share_metrics);
  if (!metrics.ok()) {
    return absl::Status(metrics.status().code(), absl::StrCat("--metrics_out=", config.metrics_out,
                                                              ": ", metrics.status().message()));
  }
  recorder->metrics_.emplace(*std::move(metrics));
  return recorder;
}

ProgressRecorder::ProgressRecorder(const Config& config)
    : config_(config), writer_(1, "progress") {}

void ProgressRecorder::Note(coordinator::Announcement announcement) {
  writer_.Schedule([this, announcement = std::move(announcement)] {
    std::visit(
        Overloaded{
            [this](const coordinator::RestoredPoint& point) {
              if (metrics_.has_value()) CutMetrics(point);
              RestartTensorBoard(point);
            },
            [](const coordinator::DecidedJob&) {},
            [this](const rounds::RoundSummary& summary) { Record(summary); },
            [](const coordinator::Event& event) { logging::LogInfo("{}", event.text); },
            [](const coordinator::Alarm& alarm) { logging::LogError("alarm: {}", alarm.text); },
        },
        announcement);
  });
}

void ProgressRecorder::Record(const rounds::RoundSummary& summary) {
  if (metrics_.has_value()) WriteMetrics(summary);
  ShowRound(summary);
  config_.on_recorded(summary);
  const bool is_notable = summary.heldout_loss.has_value() ||
                          summary.round.value() + 1 >= summary.total_rounds || !logged_.has_value();
  const Mark now = {summary.completed_at, summary.total_samples};
  const bool is_due = !logged_.has_value() || now.time - logged_->time >= config_.log_interval;
  if (!is_notable && !is_due) return;
  // If the previous line is younger than log_interval, the rate is computed over the time of both
  // lines. A rate over a very short time would mean little.
  if (is_due) {
    rate_begins_ =
        logged_.value_or(Mark{now.time - summary.duration, now.samples - summary.samples});
  }
  const double seconds = absl::ToDoubleSeconds(now.time - rate_begins_.time);
  const auto samples = static_cast<double>(now.samples - rate_begins_.samples);
  logging::LogInfo("{}",
                   ProgressLine(summary, config_.loss_unit, seconds > 0 ? samples / seconds : 0.0));
  logged_ = now;
}

void ProgressRecorder::CutMetrics(const coordinator::RestoredPoint& point) {
  const absl::StatusOr<MetricsFile::Change> done = metrics_->GoOnFrom(point);
  if (!done.ok()) {
    config_.on_failure(absl::StrCat("--metrics_out: ", done.status().message(),
                                    "; the file may have rounds from ", point.next_round.value(),
                                    " on twice"));
  } else if (done->was_another_run && point.next_round == Round(0)) {
    config_.on_failure(
        absl::StrCat("--metrics_out: ", done->text,
                     ". The job begins at round 0. If it should continue that run, "
                     "stop the server, mount the run's folder of checkpoints, and start the server "
                     "again with that folder as --checkpoint_dir"));
  } else if (!done->text.empty()) {
    logging::LogWarn("--metrics_out: {}", done->text);
  }
  if (!done.ok()) return;
  for (const rounds::RoundSummary& summary : done->missing) {
    WriteMetrics(summary);
    config_.on_recorded(summary);
  }
}

void ProgressRecorder::WriteMetrics(const rounds::RoundSummary& summary) {
  const absl::Status written = metrics_->Append(MetricsLine(summary, config_.loss_unit));
  if (!written.ok()) {
    if (num_lost_lines_++ == 0) {
      config_.on_writing(kMetricsFlag, MissingRounds(kMetricsFlag, written));
    }
  } else if (num_lost_lines_ > 0) {
    config_.on_writing(kMetricsFlag, absl::OkStatus());
    logging::LogWarn("{} can be written again, but lacks {} rounds before round={}",
                     config_.metrics_out, num_lost_lines_, summary.round);
    num_lost_lines_ = 0;
  }
}

void ProgressRecorder::RestartTensorBoard(const coordinator::RestoredPoint& point) {
  const Round first =
      point.last_rounds.empty() ? point.next_round : point.last_rounds.front().round;
  WriteTensorBoard(TensorBoardRestart(first, config_.clock->Now()));
  for (const rounds::RoundSummary& summary : point.last_rounds) ShowRound(summary);
}

void ProgressRecorder::ShowRound(const rounds::RoundSummary& summary) {
  WriteTensorBoard(TensorBoardRound(summary.round, summary.completed_at, ScalarsOf(summary)));
}

void ProgressRecorder::WriteTensorBoard(absl::string_view record) {
  if (!tensorboard_.has_value()) return;
  const absl::Status written = tensorboard_->Append(record);
  const bool was_failing = std::exchange(is_tensorboard_failing_, !written.ok());
  if (!written.ok() && !was_failing) {
    config_.on_writing(kTensorBoardFlag, MissingRounds(kTensorBoardFlag, written));
  } else if (written.ok() && was_failing) {
    config_.on_writing(kTensorBoardFlag, absl::OkStatus());
    logging::LogWarn("{} can be written again", tensorboard_->path());
  }
}

}  // namespace lodestar::status
