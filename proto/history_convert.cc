// SPDX-License-Identifier: Apache-2.0

#include "proto/history_convert.h"

#include "absl/strings/str_cat.h"
#include "common/runtime/status_macros.h"

namespace lodestar::wire {
namespace {

absl::Status CheckColumn(absl::string_view curve, absl::string_view column, int length,
                         int wanted) {
  if (length == wanted) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the history's ", curve, ".", column, " has ",
                                                 length, " entries, and round has ", wanted,
                                                 "; use the same version on both sides"));
}

absl::Status CheckColumns(absl::string_view name, const v1::HistoryCurve& curve) {
  const int wanted = curve.round_size();
  RETURN_IF_ERROR(CheckColumn(name, "samples", curve.samples_size(), wanted));
  RETURN_IF_ERROR(CheckColumn(name, "seconds", curve.seconds_size(), wanted));
  return CheckColumn(name, "loss", curve.loss_size(), wanted);
}

}  // namespace

v1::HistoryReply HistoryToProto(const history::RunHistory& history,
                                const v1::HistoryRequest& request) {
  v1::HistoryReply reply;
  if (!request.without_curves()) {
    reply.set_rounds_per_entry(history.rounds_per_point);
    reply.set_tokens_per_sample(history.tokens_per_sample);
    if (history.loss_unit.has_value()) {
      reply.set_loss_unit(*history.loss_unit == job::LossUnit::kBitsPerByte
                              ? v1::LOSS_UNIT_BITS_PER_BYTE
                              : v1::LOSS_UNIT_NATS);
    }
    for (const job::JobSetting& setting : history.settings) {
      v1::RunSetting* const line = reply.add_settings();
      line->set_flag(setting.flag);
      line->set_value(setting.value);
    }
    v1::HistoryCurve* const trained = reply.mutable_trained();
    for (const history::HistoryPoint& point : history.trained) {
      trained->add_first_round(point.first_round.value());
      trained->add_round(point.last_round.value());
      trained->add_samples(point.samples);
      trained->add_seconds(point.seconds);
      trained->add_loss(point.train_loss);
      trained->add_num_losses(point.num_losses);
      trained->add_learning_rate(point.learning_rate);
    }
    v1::HistoryCurve* const heldout = reply.mutable_heldout();
    for (const history::HeldoutPoint& point : history.heldout) {
      heldout->add_round(point.round.value());
      heldout->add_samples(point.samples);
      heldout->add_seconds(point.seconds);
      heldout->add_loss(point.loss);
    }
  }
  for (const history::HistoryEvent& event : history.events) {
    const int64_t time_us = absl::ToUnixMicros(event.time);
    if (time_us <= request.events_after_us()) continue;
    v1::RunEvent* const line = reply.add_events();
    line->set_time_us(time_us);
    line->set_is_alarm(event.is_alarm);
    line->set_text(event.text);
  }
  return reply;
}

absl::StatusOr<history::RunHistory> HistoryFromProto(const v1::HistoryReply& reply) {
  history::RunHistory history;
  history.rounds_per_point = reply.rounds_per_entry();
  history.tokens_per_sample = reply.tokens_per_sample();
  if (reply.loss_unit() == v1::LOSS_UNIT_BITS_PER_BYTE)
    history.loss_unit = job::LossUnit::kBitsPerByte;
  if (reply.loss_unit() == v1::LOSS_UNIT_NATS) history.loss_unit = job::LossUnit::kNats;
  for (const v1::RunSetting& setting : reply.settings()) {
    history.settings.push_back({setting.flag(), setting.value()});
  }
  const v1::HistoryCurve& trained = reply.trained();
  RETURN_IF_ERROR(CheckColumns("trained", trained));
  RETURN_IF_ERROR(
      CheckColumn("trained", "first_round", trained.first_round_size(), trained.round_size()));
  RETURN_IF_ERROR(
      CheckColumn("trained", "num_losses", trained.num_losses_size(), trained.round_size()));
  const bool has_rates = trained.learning_rate_size() > 0;
  if (has_rates) {
    RETURN_IF_ERROR(CheckColumn("trained", "learning_rate", trained.learning_rate_size(),
                                trained.round_size()));
  }
  for (int i = 0; i < trained.round_size(); ++i) {
    history.trained.push_back({.first_round = Round(trained.first_round(i)),
                               .last_round = Round(trained.round(i)),
                               .samples = trained.samples(i),
                               .seconds = trained.seconds(i),
                               .train_loss = trained.loss(i),
                               .num_losses = trained.num_losses(i),
                               .learning_rate = has_rates ? trained.learning_rate(i) : 0.0});
  }
  const v1::HistoryCurve& heldout = reply.heldout();
  RETURN_IF_ERROR(CheckColumns("heldout", heldout));
  for (int i = 0; i < heldout.round_size(); ++i) {
    history.heldout.push_back(
        {Round(heldout.round(i)), heldout.samples(i), heldout.seconds(i), heldout.loss(i)});
  }
  for (const v1::RunEvent& event : reply.events()) {
    history.events.push_back({.time = absl::FromUnixMicros(event.time_us()),
                              .is_alarm = event.is_alarm(),
                              .text = event.text()});
  }
  return history;
}

}  // namespace lodestar::wire
