// SPDX-License-Identifier: Apache-2.0

#include "server/rpc/cluster_status_convert.h"

#include <algorithm>

#include "common/job/job_loss.h"
#include "common/process/version.h"
#include "proto/bulk_options.h"
#include "proto/convert.h"
#include "server/rpc/stream_quota.h"

namespace lodestar::rpc {
namespace {

void AddWorker(const coordinator::WorkerSnapshot& worker, v1::ClusterStatus* status) {
  v1::WorkerStatus* line = status->add_workers();
  line->set_name(worker.name);
  line->set_worker_id(worker.worker.value());
  line->set_incarnation(worker.incarnation.value());
  line->set_state(worker.state);
  line->set_activity(worker.activity);
  line->set_round(worker.round);
  line->set_staleness(worker.staleness);
  line->set_lease_age_seconds(absl::ToDoubleSeconds(worker.lease_age));
  line->set_samples_per_second(worker.samples_per_second);
  line->set_push_bytes_per_second(worker.push_bytes_per_second);
  line->set_pull_bytes_per_second(worker.pull_bytes_per_second);
  line->set_compute_share(worker.compute_share);
  line->set_communication_share(worker.communication_share);
  line->set_wait_share(worker.wait_share);
  line->set_exposed_seconds_per_round(absl::ToDoubleSeconds(worker.exposed_per_round));
  line->set_device(worker.device);
  line->set_peer(worker.peer);
  line->set_rounds_completed(worker.rounds_completed);
  line->set_residuals_lost(worker.residuals_lost);
  if (worker.index.has_value()) line->set_index(*worker.index);
  if (worker.start_to_contribution.has_value()) {
    line->set_start_to_contribution_seconds(absl::ToDoubleSeconds(*worker.start_to_contribution));
  }
  line->set_path_up_bytes_per_second(worker.path.up_bytes_per_second);
  line->set_path_down_bytes_per_second(worker.path.down_bytes_per_second);
  line->set_path_round_trip_seconds(absl::ToDoubleSeconds(worker.path.round_trip));
  if (worker.registration_to_contribution.has_value()) {
    line->set_registration_to_contribution_seconds(
        absl::ToDoubleSeconds(*worker.registration_to_contribution));
  }
  line->set_reason(worker.reason);
  line->set_ended_age_seconds(absl::ToDoubleSeconds(worker.ended_age));
  if (!worker.data.has_value()) return;
  v1::WorkerData* data = line->mutable_data();
  data->set_is_own(worker.data->is_own);
  data->set_fingerprint(worker.data->fingerprint);
  data->set_num_train_samples(worker.data->num_train_samples);
  data->set_num_heldout_samples(worker.data->num_heldout_samples);
  data->set_epoch(worker.data->epoch);
}

void AddShard(const status::ShardLine& shard, v1::ClusterStatus* status) {
  v1::ShardStatus* line = status->add_shards();
  line->set_shard(shard.place.shard);
  line->set_address(shard.place.address);
  line->set_state(shard.place.state);
  line->set_begin(shard.place.range.begin);
  line->set_end(shard.place.range.end);
  const shard::ShardStats& stats = shard.reading.stats;
  line->set_weight_bytes(stats.weight_bytes);
  line->set_resident_bytes(stats.resident_bytes);
  line->set_version(stats.version.value());
  line->set_pending_buckets(stats.pending_buckets);
  line->set_bytes_received(shard.reading.bytes_received);
  line->set_bytes_sent(shard.reading.bytes_sent);
  line->set_contributions_counted(stats.contributions_counted);
  line->set_contributions_duplicate(stats.contributions_duplicate);
  line->set_contributions_late(stats.contributions_late);
  line->set_contributions_rejected(stats.contributions_rejected);
  line->set_contributions_skipped(stats.contributions_skipped);
  for (const uint64_t count : stats.staleness_histogram) line->add_staleness_histogram(count);
  line->set_journal_bytes(static_cast<uint64_t>(stats.journal_bytes));
  line->set_journal_replica(shard.place.journal_replica);
}

void SetOpenRound(const coordinator::ClusterSnapshot& cluster, v1::ClusterStatus* status) {
  v1::OpenRoundStatus* open = status->mutable_open_round();
  open->set_waiting_for(cluster.waiting_for);
  open->set_is_held_up(cluster.is_held_up);
  open->set_round(cluster.round);
  if (!cluster.open_round.has_value()) return;
  open->set_round(cluster.open_round->round.value());
  open->set_age_seconds(absl::ToDoubleSeconds(cluster.open_round->age));
  for (const std::string& name : cluster.open_round->arrived) open->add_arrived(name);
  for (const coordinator::MissingSnapshot& missing : cluster.open_round->missing) {
    v1::MissingContribution* line = open->add_missing();
    line->set_worker(missing.worker);
    line->set_age_seconds(absl::ToDoubleSeconds(missing.age));
    line->set_what(missing.what);
    if (missing.time_left != absl::InfiniteDuration()) {
      line->set_seconds_left(std::max(absl::ToDoubleSeconds(missing.time_left), 0.0));
    }
  }
}

void SetProgress(const coordinator::ClusterSnapshot& cluster, v1::ClusterStatus* status) {
  status->set_server_incarnation(cluster.server_incarnation);
  status->set_uptime_seconds(absl::ToDoubleSeconds(cluster.uptime));
  status->set_state(cluster.state);
  status->set_round(cluster.round);
  status->set_total_rounds(cluster.total_rounds);
  status->set_epoch(cluster.epoch);
  status->set_samples(cluster.samples);
  status->set_trained_samples(cluster.trained_samples);
  status->set_untrained_samples(cluster.untrained_samples);
  status->set_exchange_choice(cluster.exchange_choice);
  status->set_samples_per_second(cluster.samples_per_second);
  status->set_tokens_per_second(cluster.tokens_per_second);
  status->set_learning_rate(cluster.learning_rate);
  status->set_view_id(cluster.view.value());
  status->set_num_workers_not_shown(cluster.num_workers_not_shown);
  status->set_num_parameters(cluster.num_parameters);
  status->set_layout_hash(cluster.layout_hash);
  status->set_rounds_committed_short(cluster.rounds_committed_short);
  status->set_rollbacks(cluster.rollbacks);
  status->set_learning_rate_scale(cluster.learning_rate_scale);
  if (cluster.pause.has_value()) {
    status->mutable_pause()->set_reason(cluster.pause->reason);
    status->mutable_pause()->set_age_seconds(absl::ToDoubleSeconds(cluster.pause->age));
  }
  if (cluster.divergence.has_value()) {
    status->mutable_divergence()->set_round(cluster.divergence->round.value());
    status->mutable_divergence()->set_text(cluster.divergence->text);
    status->mutable_divergence()->set_age_seconds(absl::ToDoubleSeconds(cluster.divergence->age));
  }
  if (cluster.eta.has_value()) status->set_eta_seconds(absl::ToDoubleSeconds(*cluster.eta));
}

void SetLoss(const job::JobLoss& loss, job::LossUnit unit, v1::ClusterStatus* status) {
  const bool has_bits = unit == job::LossUnit::kBitsPerByte;
  if (loss.train.has_value()) {
    status->set_train_loss(*loss.train);
    if (has_bits) status->set_train_bits_per_byte(job::BitsFromNats(*loss.train));
  }
  status->set_train_loss_round(loss.train_round.value());
  if (loss.heldout.has_value()) {
    status->set_heldout_loss(*loss.heldout);
    if (has_bits) status->set_heldout_bits_per_byte(job::BitsFromNats(*loss.heldout));
  }
  if (loss.heldout_accuracy.has_value()) status->set_heldout_accuracy(*loss.heldout_accuracy);
  status->set_heldout_round(loss.heldout_round.value());
}

void SetMetrics(const coordinator::ClusterSnapshot& cluster, v1::ClusterStatus* status) {
  for (const auto& [name, metric] : cluster.metrics) {
    v1::ProgramMetric* line = status->add_metrics();
    line->set_name(name);
    line->set_value(metric.value);
    line->set_round(metric.round.value());
  }
  status->set_metrics_dropped(cluster.metrics_dropped);
}

void SetResumed(const model::ResumeSnapshot& resumed, v1::ClusterStatus* status) {
  v1::ResumeStatus* line = status->mutable_resumed();
  line->set_path(resumed.path);
  line->set_round(resumed.round.value());
  for (const model::SettingSnapshot& setting : resumed.changes) {
    v1::SettingChange* change = line->add_changes();
    change->set_flag(setting.flag);
    change->set_saved(setting.saved);
    change->set_asked(setting.asked);
    change->set_effect(setting.effect);
  }
}

}  // namespace

void SetLimits(const limits::ServerLimits& limits, const limits::MemoryBound& bound,
               int64_t memory_bytes, const limits::RefusalCounts& refusals,
               v1::ClusterStatus* status) {
  v1::LimitsStatus* block = status->mutable_limits();
  const auto add = [block](const char* name, int64_t value, const char* unit, const char* flag) {
    v1::Limit* line = block->add_limits();
    line->set_name(name);
    line->set_value(static_cast<uint64_t>(value));
    line->set_unit(unit);
    line->set_flag(flag);
  };
  add("connections", limits.max_connections, "", "max_connections");
  add("connections of one address of another machine", limits.connections_per_address(), "",
      "max_connections_per_address");
  add("connections kept for this machine", limits.connections_kept_for_this_machine(), "", "");
  add("new connections per minute of one address of another machine", limits.connections_per_minute,
      "", "connections_per_minute");
  add("registrations per minute of one address", limits.registrations_per_minute, "",
      "registrations_per_minute");
  add("registrations per minute", limits.registrations_per_minute_in_all(), "", "");
  add("large registrations at a time", limits::kMaxLargeRegistrations, "", "");
  add("tensors of a layout that a client brings", limits::kMaxClientTensors, "", "");
  add("pushes and pulls of one worker", limits.streams_per_worker, "", "streams_per_worker");
  add("pushes and pulls of unannounced workers", StreamQuota::Config().strangers, "", "");
  add("calls of one connection", limits.calls_per_connection(), "", "");
  add("size of a message", wire::kMaxMessageBytes, "bytes", "");
  add("size of a chunk", wire::kMaxChunkBytes, "bytes", "");
  add("size of a call's metadata", wire::kMaxMetadataBytes, "bytes", "");
  add("contributions that are arriving", limits.staging_bytes, "bytes", "staging_limit");
  add("messages being sent or received", limits.message_bytes, "bytes", "message_memory");
  add("time to transfer a chunk", absl::ToInt64Milliseconds(limits.message_timeout), "ms",
      "message_timeout");
  add("time of a handshake", wire::kHandshakeTimeoutMs, "ms", "");
  for (size_t i = 0; i < limits::kNumLimitsReached; ++i) {
    const auto limit = static_cast<limits::LimitReached>(i);
    if (refusals.of(limit) == 0) continue;
    v1::LimitRefusals* line = block->add_refused();
    line->set_reason(std::string(limits::LimitReachedName(limit)));
    line->set_count(refusals.of(limit));
  }
  block->set_memory_bytes(static_cast<uint64_t>(memory_bytes));
  block->set_memory_bound_bytes(static_cast<uint64_t>(bound.total()));
  block->set_memory_bound_text(bound.Describe());
}

void SetPort(const firewall::ConnectionCounts& counts, v1::ClusterStatus* status) {
  v1::PortStatus* port = status->mutable_port();
  port->set_connections(static_cast<uint64_t>(counts.connections));
  port->set_max_connections(static_cast<uint64_t>(counts.max_connections));
  port->set_accepted(counts.accepted);
  for (size_t i = 0; i < firewall::kNumRefusals; ++i) {
    if (counts.refused[i] == 0) continue;
    v1::RefusedConnections* refused = port->add_refused();
    refused->set_reason(
        std::string(firewall::RefusalName(static_cast<firewall::RefusalReason>(i))));
    refused->set_count(counts.refused[i]);
  }
}

v1::ClusterStatus ToProto(const status::ClusterReport& report, const job::JobSpec& job) {
  v1::ClusterStatus status;
  status.set_software_version(process::SoftwareVersion());
  *status.mutable_job() = wire::ToProto(job);
  SetProgress(report.cluster, &status);
  SetLoss(report.cluster.loss, job::LossUnitOf(job.model), &status);
  SetMetrics(report.cluster, &status);
  SetOpenRound(report.cluster, &status);
  for (const coordinator::WorkerSnapshot& worker : report.cluster.workers)
    AddWorker(worker, &status);
  for (const status::ShardLine& shard : report.shards) AddShard(shard, &status);
  status.set_upstream(report.cluster.upstream);
  if (report.cluster.last_checkpoint.has_value()) {
    const coordinator::CheckpointSnapshot& checkpoint = *report.cluster.last_checkpoint;
    v1::CheckpointStatus* line = status.mutable_last_checkpoint();
    line->set_path(checkpoint.path);
    line->set_round(checkpoint.round.value());
    line->set_age_seconds(absl::ToDoubleSeconds(checkpoint.age));
    line->set_bytes(checkpoint.bytes);
    line->set_write_seconds(absl::ToDoubleSeconds(checkpoint.write_time));
  }
  if (report.cluster.resumed.has_value()) SetResumed(*report.cluster.resumed, &status);
  for (const coordinator::AlarmSnapshot& alarm : report.cluster.alarms) {
    v1::Alarm* line = status.add_alarms();
    line->set_text(alarm.text);
    line->set_age_seconds(absl::ToDoubleSeconds(alarm.age));
    line->set_count(alarm.count);
    line->set_is_reminder(alarm.is_reminder);
    if (alarm.over_age.has_value()) {
      line->set_over_age_seconds(absl::ToDoubleSeconds(*alarm.over_age));
    }
  }
  for (const coordinator::RequestSnapshot& request : report.cluster.requests) {
    v1::PendingRequest* line = status.add_requests();
    line->set_what(request.what);
    line->set_reason(request.reason);
    line->set_age_seconds(absl::ToDoubleSeconds(request.age));
    line->set_waiting_for(request.waiting_for);
    line->set_waiting_for_undated(request.waiting_for_undated);
    line->set_way_out(request.way_out);
  }
  return status;
}

}  // namespace lodestar::rpc
