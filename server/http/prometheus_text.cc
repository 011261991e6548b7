// SPDX-License-Identifier: Apache-2.0

#include "server/http/prometheus_text.h"

#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace lodestar::http {
namespace {

using Labels = std::vector<prometheus::ClientMetric::Label>;

// Writes metric families in the order in which they were begun.
class Exposition {
 public:
  class Family {
   public:
    Family(std::vector<prometheus::MetricFamily>* families, size_t index)
        : families_(families), index_(index) {}
    void Add(double value, Labels labels = {}) const {
      prometheus::MetricFamily& family = (*families_)[index_];
      prometheus::ClientMetric metric;
      metric.label = std::move(labels);
      if (family.type == prometheus::MetricType::Counter) {
        metric.counter.value = value;
      } else {
        metric.gauge.value = value;
      }
      family.metric.push_back(std::move(metric));
    }

   private:
    std::vector<prometheus::MetricFamily>* const families_;
    const size_t index_;
  };

  Family Gauge(const std::string& name, const std::string& help) {
    return Begin(name, help, prometheus::MetricType::Gauge);
  }
  Family Counter(const std::string& name, const std::string& help) {
    return Begin(absl::StrCat(name, "_total"), help, prometheus::MetricType::Counter);
  }
  std::string Text() const { return prometheus::TextSerializer().Serialize(families_); }

 private:
  Family Begin(const std::string& name, const std::string& help, prometheus::MetricType type) {
    families_.push_back({absl::StrCat("lodestar_", name), help, type, {}});
    return {&families_, families_.size() - 1};
  }

  std::vector<prometheus::MetricFamily> families_;
};

void AddJob(const v1::ClusterStatus& status, Exposition& out) {
  out.Gauge("build_info", "Always 1; the label has the release of the server.")
      .Add(1, {{"version", status.software_version()}});
  out.Gauge("job_state", "Always 1; the label has the state of the job.")
      .Add(1, {{"state", status.state()}});
  out.Gauge("uptime_seconds", "Time since this server was started.").Add(status.uptime_seconds());
  out.Gauge("round", "Number of updates that the weights have had.")
      .Add(static_cast<double>(status.round()));
  out.Gauge("rounds_planned", "Number of updates that the job will make.")
      .Add(static_cast<double>(status.total_rounds()));
  out.Gauge("parameters", "Number of parameters of the model.")
      .Add(static_cast<double>(status.num_parameters()));
  out.Counter("samples_handed_out", "Number of training samples that workers were given.")
      .Add(static_cast<double>(status.samples()));
  out.Counter("samples_trained", "Number of training samples in completed rounds.")
      .Add(static_cast<double>(status.trained_samples()));
  out.Counter("samples_untrained",
              "Number of samples that were handed out and that no worker will train on.")
      .Add(static_cast<double>(status.untrained_samples()));
  out.Gauge("samples_per_second", "Recent rate of samples.").Add(status.samples_per_second());
  if (status.tokens_per_second() > 0) {
    out.Gauge("tokens_per_second", "Recent rate of tokens.").Add(status.tokens_per_second());
  }
  out.Gauge("learning_rate", "Learning rate of the next update.").Add(status.learning_rate());
  if (status.has_train_loss()) {
    out.Gauge("train_loss_nats", "Training loss per prediction in the last completed round.")
        .Add(status.train_loss());
  }
  if (status.has_heldout_loss()) {
    out.Gauge("heldout_loss_nats", "Held-out loss per prediction in the last evaluation.")
        .Add(status.heldout_loss());
  }
  if (status.has_heldout_accuracy()) {
    out.Gauge("heldout_accuracy_ratio", "Accuracy in the last evaluation.")
        .Add(status.heldout_accuracy());
  }
  out.Counter("rounds_committed_short",
              "Number of rounds that were completed without an awaited worker.")
      .Add(static_cast<double>(status.rounds_committed_short()));
  out.Counter("rollbacks",
              "Number of times that the job went back to an older checkpoint after a divergence.")
      .Add(static_cast<double>(status.rollbacks()));
  const v1::OpenRoundStatus& open = status.open_round();
  out.Gauge("open_round_age_seconds", "Time since the open round began.").Add(open.age_seconds());
  out.Gauge("open_round_missing_workers",
            "Number of workers whose contributions the open round waits for.")
      .Add(open.missing_size());
  out.Gauge("open_round_held_up", "1 if the open round takes much longer than usual.")
      .Add(open.is_held_up() ? 1 : 0);
}

void AddWorkers(const v1::ClusterStatus& status, Exposition& out) {
  std::map<std::string, int> by_state = {{"member", 0}};
  for (const v1::WorkerStatus& worker : status.workers()) ++by_state[worker.state()];
  const auto workers = out.Gauge(
      "workers", "Number of workers by state; workers that are gone are counted for an hour.");
  for (const auto& [state, count] : by_state) workers.Add(count, {{"state", state}});
  const auto each = [&status](const Exposition::Family& family, auto value) {
    for (const v1::WorkerStatus& worker : status.workers()) {
      if (worker.state() == "member") {
        family.Add(static_cast<double>(value(worker)), {{"worker", worker.name()}});
      }
    }
  };
  using Worker = v1::WorkerStatus;
  each(out.Gauge("worker_samples_per_second", "Recent rate of samples."),
       std::mem_fn(&Worker::samples_per_second));
  each(out.Gauge("worker_push_bytes_per_second", "Recent rate of payload that the worker sends."),
       std::mem_fn(&Worker::push_bytes_per_second));
  each(
      out.Gauge("worker_pull_bytes_per_second", "Recent rate of payload that the worker receives."),
      std::mem_fn(&Worker::pull_bytes_per_second));
  each(out.Gauge("worker_compute_ratio", "Share of time in which the worker computes."),
       std::mem_fn(&Worker::compute_share));
  each(out.Gauge("worker_communication_ratio",
                 "Share of time in exposed communication, when the worker has nothing to compute "
                 "until weights arrive or gradients are sent."),
       std::mem_fn(&Worker::communication_share));
  each(out.Gauge("worker_exposed_communication_seconds",
                 "Exposed communication per round, on average over about ten rounds."),
       std::mem_fn(&Worker::exposed_seconds_per_round));
  each(out.Gauge("worker_wait_ratio", "Share of time in which the worker waits for work."),
       std::mem_fn(&Worker::wait_share));
  each(out.Gauge("worker_staleness_rounds",
                 "Number of updates since the weights that the worker computes with."),
       std::mem_fn(&Worker::staleness));
  each(out.Gauge("worker_lease_age_seconds", "Time since the worker's last heartbeat or call."),
       std::mem_fn(&Worker::lease_age_seconds));
  each(out.Counter("worker_rounds_completed",
                   "Number of rounds that the worker has contributed to."),
       std::mem_fn(&Worker::rounds_completed));
}

void AddShards(const v1::ClusterStatus& status, Exposition& out) {
  const auto each = [&status](const Exposition::Family& family, auto value) {
    for (const v1::ShardStatus& shard : status.shards()) {
      family.Add(static_cast<double>(value(shard)), {{"shard", absl::StrCat(shard.shard())}});
    }
  };
  using Shard = v1::ShardStatus;
  each(out.Gauge("shard_serving", "1 if the server serves its part of the weights."),
       [](const Shard& shard) { return shard.state() == "serving" ? 1 : 0; });
  each(out.Gauge("shard_weight_bytes", "Size of the server's part of the weights, in fp32."),
       std::mem_fn(&Shard::weight_bytes));
  each(out.Gauge("shard_resident_bytes", "Memory of weights, optimizer state and open rounds."),
       std::mem_fn(&Shard::resident_bytes));
  each(out.Gauge("shard_pending_buckets", "Number of buckets with an open round."),
       std::mem_fn(&Shard::pending_buckets));
  each(out.Counter("shard_received_bytes", "Payload received since the server was started."),
       std::mem_fn(&Shard::bytes_received));
  each(out.Counter("shard_sent_bytes", "Payload sent since the server was started."),
       std::mem_fn(&Shard::bytes_sent));
  each(out.Gauge("shard_journal_bytes", "Size of the journal since the newest checkpoint."),
       std::mem_fn(&Shard::journal_bytes));
  const auto contributions =
      out.Counter("shard_contributions", "Number of parts of contributions, by outcome.");
  for (const Shard& shard : status.shards()) {
    const auto add = [&](const char* outcome, uint64_t count) {
      contributions.Add(static_cast<double>(count),
                        {{"shard", absl::StrCat(shard.shard())}, {"outcome", outcome}});
    };
    add("counted", shard.contributions_counted());
    add("duplicate", shard.contributions_duplicate());
    add("late", shard.contributions_late());
    add("rejected", shard.contributions_rejected());
    add("skipped", shard.contributions_skipped());
  }
}

void AddRest(const v1::ClusterStatus& status, Exposition& out) {
  if (status.has_last_checkpoint()) {
    const v1::CheckpointStatus& checkpoint = status.last_checkpoint();
    out.Gauge("last_checkpoint_round", "Number of updates in the newest checkpoint.")
        .Add(static_cast<double>(checkpoint.round()));
    out.Gauge("last_checkpoint_age_seconds", "Time since the newest checkpoint was published.")
        .Add(checkpoint.age_seconds());
    // The size and time are not known if an earlier process has written the checkpoint.
    if (checkpoint.bytes() > 0) {
      out.Gauge("last_checkpoint_bytes", "Size of the newest checkpoint on disk.")
          .Add(static_cast<double>(checkpoint.bytes()));
      out.Gauge("last_checkpoint_write_seconds", "Time that writing the newest checkpoint took.")
          .Add(checkpoint.write_seconds());
    }
  }
  int num_alarms = 0;
  for (const v1::Alarm& alarm : status.alarms()) {
    num_alarms += !alarm.is_reminder() && !alarm.has_over_age_seconds();
  }
  out.Gauge("alarms", "Number of alarms that are not over; psctl status shows their texts.")
      .Add(num_alarms);
  out.Gauge("connections",
            "Number of connections of workers, servers and operators to the coordinator.")
      .Add(static_cast<double>(status.port().connections()));
  if (!status.metrics().empty()) {
    const auto metrics =
        out.Gauge("program_metric", "Values that training programs have logged, by name.");
    for (const v1::ProgramMetric& metric : status.metrics()) {
      metrics.Add(metric.value(), {{"name", metric.name()}});
    }
  }
}

}  // namespace

std::string PrometheusText(const v1::ClusterStatus& status) {
  Exposition out;
  AddJob(status, out);
  AddWorkers(status, out);
  AddShards(status, out);
  AddRest(status, out);
  return out.Text();
}

}  // namespace lodestar::http
