// SPDX-License-Identifier: Apache-2.0

// Measures each optimizer as a server applies it: buckets of the shard, gradient scaling, weight
// decay. For comparison, measures plain loops over the same number of read and write streams on the
// same number of threads, in turns:
//
//   tests/bench/apply.sh --megabytes=256 --repeats=7
//
// "in place" is an update while no worker reads the weights. "lent" is an update while a worker
// still pulls the old weights, so that the new weights are written elsewhere. The bytes are those
// of the parameters that are read and written. If a line must be read before it is written
// elsewhere, that read does not count.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/functional/function_ref.h"
#include "common/job/job_spec.h"
#include "common/messages/contribution.h"
#include "common/params/bucket_plan.h"
#include "common/params/encoding.h"
#include "common/params/layout.h"
#include "common/process/process_setup.h"
#include "common/runtime/check.h"
#include "common/runtime/executor.h"
#include "server/optimizer/optimizer_factory.h"
#include "server/shard/bucket_weights.h"
#include "server/shard/page.h"
#include "tests/bench/apply/streams.h"

ABSL_FLAG(int64_t, megabytes, 256, "size of the model, in MiB of fp32");
ABSL_FLAG(int, repeats, 7, "measurements of each kind");
ABSL_FLAG(std::vector<std::string>, threads, std::vector<std::string>({"1", "2"}),
          "threads, one table row each");

namespace lodestar {
namespace {

using PageRef = std::shared_ptr<shard::Page>;
using Pages = std::vector<PageRef>;

constexpr int64_t kWidth = 1024;
constexpr float kClip = 0.5f;  // switches gradient scaling on

struct Case {
  const char* name;
  job::JobSpec job;
  bool reads_weights = true;
};

job::JobSpec GradientJob(job::OptimizerKind kind) {
  job::JobSpec job;
  job.optimizer.kind = kind;
  job.optimizer.weight_decay = 0.1;
  return job;
}

job::JobSpec LocalJob(job::OuterOptimizerKind kind) {
  job::JobSpec job;
  job.mode = job::Mode::kLocalSgd;
  job.outer_optimizer = kind;
  return job;
}

std::vector<Case> Cases() {
  return {
      {"sgd", GradientJob(job::OptimizerKind::kSgd)},
      {"momentum", GradientJob(job::OptimizerKind::kMomentum)},
      {"nesterov", GradientJob(job::OptimizerKind::kNesterov)},
      {"adamw", GradientJob(job::OptimizerKind::kAdamW)},
      {"outer average", LocalJob(job::OuterOptimizerKind::kAverage), /*reads_weights=*/false},
      {"outer nesterov", LocalJob(job::OuterOptimizerKind::kNesterov)},
  };
}

double SecondsOf(absl::FunctionRef<void()> work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// The calling thread is one of `threads`.
std::unique_ptr<Executor> MakeExecutor(int threads) {
  if (threads == 1) return std::make_unique<InlineExecutor>();
  return std::make_unique<ThreadPool>(threads - 1);
}

struct Summary {
  double median, lowest, highest;
};

Summary Summarize(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return {values[values.size() / 2], values.front(), values.back()};
}

// Holds the buckets of one shard, and the same amount of memory for the plain loops.
class ApplyBench {
 public:
  ApplyBench(const params::Layout& layout, const std::vector<params::Bucket>& buckets,
             const Case& measured, bool lent, int threads)
      : buckets_(buckets),
        measured_(measured),
        lent_(lent),
        optimizer_(optimizer::MakeServerOptimizer(measured.job)),
        executor_(MakeExecutor(threads)) {
    for (const params::Bucket& bucket : buckets) {
      weights_.emplace_back(shard::BucketWeights::Part{.range = bucket.range}, measured.job, layout,
                            *optimizer_, pages_);
      const absl::StatusOr<absl::Span<float>> initial = weights_.back().InitialWeights();
      LODESTAR_CHECK(initial.ok()) << initial.status();
      for (float& weight : *initial) weight = 0.25f;
      gradients_.push_back(NewPage(bucket, 1e-3f));
      moved_to_.push_back(NewPage(bucket, 0.0f));
      for (int i = 0; i <= optimizer_->num_state_vectors(); ++i) {
        updated_[i].push_back(NewPage(bucket, 0.25f));
      }
    }
  }

  double ApplySeconds() {
    ++step_;
    const optimizer::OptimizerCall call = {
        .step = step_, .learning_rate = 1e-3, .gradient_scale = kClip};
    std::vector<std::shared_ptr<const shard::Page>> readers;
    if (lent_) {
      for (const shard::BucketWeights& weights : weights_) readers.push_back(weights.LendWeights());
    }
    return SecondsOf([&] {
      ForEachBucket([&](int64_t i) {
        weights_[i].ApplyAlone(call, messages::ContributionKind::kGradient, params::Encoding::kFp32,
                               reinterpret_cast<const std::byte*>(gradients_[i]->data()));
      });
    });
  }

  double StreamSeconds(Stores stores) {
    return SecondsOf([&] { ForEachBucket([&](int64_t i) { StreamBucket(i, stores); }); });
  }

  bool writes_elsewhere() const { return lent_ || !measured_.reads_weights; }
  // Returns the bytes moved per parameter, the same for the optimizer and for the plain loops.
  int64_t bytes_per_parameter() const {
    const int state = optimizer_->num_state_vectors();
    return static_cast<int64_t>(sizeof(float)) * (1 + 2 * state + 1 + measured_.reads_weights);
  }

 private:
  void ForEachBucket(absl::FunctionRef<void(int64_t)> function) {
    ParallelFor(*executor_, static_cast<int64_t>(buckets_.size()), function);
  }

  void StreamBucket(int64_t i, Stores stores) {
    const int num_state = optimizer_->num_state_vectors();
    StreamPart part;
    part.read = gradients_[i]->data();
    part.elements = buckets_[i].range.size();
    int num_updated = 0;
    for (; num_updated < num_state; ++num_updated) {
      part.updated[num_updated] = updated_[num_updated][i]->data();
    }
    float* const weights = updated_[num_state][i]->data();
    if (!writes_elsewhere()) {
      part.updated[num_updated++] = weights;
    } else {
      part.moved_from = measured_.reads_weights ? weights : nullptr;
      part.moved_to = moved_to_[i]->data();
    }
    RunStreams(part, num_updated, stores);
  }

  PageRef NewPage(const params::Bucket& bucket, float value) {
    PageRef page = pages_.Allocate(bucket.range.size());
    std::fill_n(page->data(), page->size(), value);
    return page;
  }

  const std::vector<params::Bucket>& buckets_;
  const Case& measured_;
  const bool lent_;
  const std::unique_ptr<optimizer::Optimizer> optimizer_;
  shard::PagePool pages_;
  const std::unique_ptr<Executor> executor_;
  std::vector<shard::BucketWeights> weights_;
  Pages gradients_, moved_to_, updated_[kMaxUpdated];
  int64_t step_ = 0;
};

void Measure(ApplyBench& bench, const Case& measured, bool lent, int threads, int64_t parameters) {
  const int repeats = absl::GetFlag(FLAGS_repeats);
  std::vector<Stores> kinds = {Stores::kPlain};
  if (bench.writes_elsewhere()) kinds.push_back(Stores::kNonTemporal);
  for (Stores stores : kinds) bench.StreamSeconds(stores);
  for (int i = 0; i < 2; ++i) bench.ApplySeconds();
  const double gigabytes = 1e-9 * bench.bytes_per_parameter() * parameters;
  std::vector<double> rates, limits, ratios;
  for (int i = 0; i < repeats; ++i) {
    double limit = 0;
    for (Stores stores : kinds) limit = std::max(limit, gigabytes / bench.StreamSeconds(stores));
    limits.push_back(limit);
    rates.push_back(gigabytes / bench.ApplySeconds());
    ratios.push_back(rates.back() / limits.back());
  }
  const Summary rate = Summarize(rates);
  const Summary limit = Summarize(limits);
  const Summary ratio = Summarize(ratios);
  std::printf(
      "| %s | %s | %d | %d | %.1f (%.1f..%.1f) | %.1f (%.1f..%.1f) | %.0f %% (%.0f..%.0f) |\n",
      measured.name, lent ? "lent" : "in place", threads,
      static_cast<int>(bench.bytes_per_parameter()), rate.median, rate.lowest, rate.highest,
      limit.median, limit.lowest, limit.highest, 100 * ratio.median, 100 * ratio.lowest,
      100 * ratio.highest);
  std::fflush(stdout);
}

void MeasureAll(int threads) {
  const int64_t parameters = absl::GetFlag(FLAGS_megabytes) * (1 << 20) / sizeof(float);
  const absl::StatusOr<params::Layout> layout =
      params::Layout::FromTensors({{"w", {parameters / kWidth, kWidth}, 0, 0, /*decay=*/true, {}}});
  LODESTAR_CHECK(layout.ok()) << layout.status().ToString();
  const absl::StatusOr<std::vector<params::Bucket>> buckets =
      params::PlanBuckets(*layout, {{0, parameters}}, params::kDefaultBucketBytes);
  LODESTAR_CHECK(buckets.ok()) << buckets.status().ToString();
  for (const Case& measured : Cases()) {
    for (bool lent : {false, true}) {
      if (lent && !measured.reads_weights) continue;
      ApplyBench bench(*layout, *buckets, measured, lent, threads);
      Measure(bench, measured, lent, threads, parameters);
    }
  }
}

int Main() {
  std::printf(
      "| optimizer | weights | threads | bytes per parameter | apply, GB/s | plain streams, GB/s "
      "| apply / streams |\n| --- | --- | --- | --- | --- | --- | --- |\n");
  for (const std::string& threads : absl::GetFlag(FLAGS_threads)) MeasureAll(std::stoi(threads));
  std::printf("\nMedian (lowest..highest) of %d runs, apply and streams in turns; target: 80 %%.\n",
              absl::GetFlag(FLAGS_repeats));
  return 0;
}

}  // namespace
}  // namespace lodestar

int main(int argc, char** argv) {
  lodestar::process::SetUpMalloc();
  absl::ParseCommandLine(argc, argv);
  return lodestar::Main();
}
