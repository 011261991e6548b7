#include "common/job_settings.h"

#include <cstdlib>
#include <initializer_list>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "common/encoding.h"
#include "common/learning_rate_schedule.h"
#include "common/model_spec.h"
#include "common/robust_mean.h"

namespace lodestar {
namespace {

std::string Text(absl::string_view value) { return std::string(value); }
std::string Text(bool value) { return value ? "true" : "false"; }
std::string Text(int64_t value) { return absl::StrCat(value); }
std::string Text(uint64_t value) { return absl::StrCat(value); }
std::string Text(int value) { return absl::StrCat(value); }

// The shortest that reads back to the same bits.
std::string Text(double value) {
  constexpr int kMaxDigits = 17;
  std::string text;
  for (int digits = 6; digits <= kMaxDigits; ++digits) {
    text = absl::StrFormat("%.*g", digits, value);
    if (std::strtod(text.c_str(), nullptr) == value) break;
  }
  return text;
}

double DropoutOf(const ModelSpec& model) {
  const GptSpec* const gpt = std::get_if<GptSpec>(&model.architecture);
  return gpt == nullptr ? 0.0 : gpt->dropout;
}

}  // namespace

std::vector<JobSetting> JobSettings(const JobSpec& job) {
  // Named one by one: a setting that is added to the job does not compile before it is shown here.
  const auto& [model, mode, quorum, max_rounds_ahead, max_staleness, balance, staleness_scaling,
               local_steps, fragments, overlap_steps, merge, merge_alpha, overlap_rounds,
               outer_optimizer, outer_learning_rate, outer_momentum, outer_beta2, outer_epsilon,
               outer_reduction, momentum_correction, anchor, optimizer, schedule, clip_norm,
               batch_size, global_batch_size, min_workers, keep_workers, seed, eval_every,
               eval_samples, bucket_bytes, push_encoding, pull_encoding, error_feedback,
               feedback_decay, topk_divisor, robust_mean, norm_limit] = job;
  const auto& [optimizer_kind, momentum, beta1, beta2, epsilon, weight_decay] = optimizer;
  const auto& [schedule_kind, peak, minimum, warmup_rounds, total_rounds] = schedule;
  return {
      {"mode", Text(ModeName(mode))},
      {"seed", Text(seed)},
      {"dropout", Text(DropoutOf(model))},
      {"rounds", Text(total_rounds)},
      {"batch_size", Text(batch_size)},
      {"global_batch_size", Text(global_batch_size)},
      {"optimizer", Text(OptimizerKindName(optimizer_kind))},
      {"learning_rate", Text(peak)},
      {"min_learning_rate", Text(minimum)},
      {"lr_schedule", Text(ScheduleKindName(schedule_kind))},
      {"warmup_rounds", Text(warmup_rounds)},
      {"weight_decay", Text(weight_decay)},
      {"momentum", Text(momentum)},
      {"beta1", Text(beta1)},
      {"beta2", Text(beta2)},
      {"epsilon", Text(epsilon)},
      {"clip_norm", Text(clip_norm)},
      {"quorum", Text(quorum)},
      {"robust_mean", RobustMeanText(robust_mean)},
      {"norm_limit", Text(norm_limit)},
      {"max_rounds_ahead", Text(max_rounds_ahead)},
      {"max_staleness", Text(max_staleness)},
      {"balance", Text(BalanceName(balance))},
      {"staleness_scaling", Text(StalenessScalingName(staleness_scaling))},
      {"local_steps", Text(local_steps)},
      {"fragments", Text(fragments)},
      {"overlap_steps", Text(overlap_steps)},
      {"merge", Text(MergeKindName(merge))},
      {"merge_alpha", Text(merge_alpha)},
      {"overlap_rounds", Text(overlap_rounds)},
      {"outer_optimizer", Text(OuterOptimizerKindName(outer_optimizer))},
      {"outer_learning_rate", Text(outer_learning_rate)},
      {"outer_momentum", Text(outer_momentum)},
      {"outer_beta2", Text(outer_beta2)},
      {"outer_epsilon", Text(outer_epsilon)},
      {"outer_reduction", Text(OuterReductionName(outer_reduction))},
      {"momentum_correction", Text(MomentumCorrectionName(momentum_correction))},
      {"anchor", Text(AnchorName(anchor))},
      {"push_encoding", Text(EncodingName(push_encoding))},
      {"pull_encoding", Text(EncodingName(pull_encoding))},
      {"topk", Text(push_encoding.is_topk() ? push_encoding.topk() : kDefaultTopK)},
      {"topk_bits", Text(push_encoding.is_topk() ? push_encoding.topk_bits() : kDefaultTopKBits)},
      {"topk_divisor", Text(TopKDivisorName(topk_divisor))},
      {"error_feedback", Text(error_feedback)},
      {"feedback_decay", Text(feedback_decay)},
      {"min_workers", Text(min_workers)},
      {"keep_workers", Text(keep_workers)},
      {"eval_every", Text(eval_every)},
      {"eval_samples", Text(eval_samples)},
      {"bucket_bytes", Text(bucket_bytes)},
  };
}

std::vector<IdleSetting> IdleSettings(const JobSpec& job) {
  std::vector<IdleSetting> idle;
  const auto add = [&idle](bool counts, std::initializer_list<const char*> flags,
                           const char* counts_with) {
    if (counts) return;
    for (const char* const flag : flags) idle.push_back({flag, counts_with});
  };
  const OptimizerKind optimizer = job.optimizer.kind;
  const bool is_local = HasLocalSteps(job);
  const bool is_delayed = job.mode == Mode::kAsyncLocalSgd;
  add(job.mode == Mode::kSync || is_delayed, {"quorum"}, "--mode=sync or async_local_sgd");
  add(job.mode == Mode::kAsync || is_delayed, {"max_rounds_ahead"},
      "--mode=async or async_local_sgd");
  add(is_delayed, {"max_staleness", "momentum_correction", "anchor"}, "--mode=async_local_sgd");
  add(job.mode != Mode::kAsync, {"balance"}, "--mode=sync, local_sgd or async_local_sgd");
  add(HasRosters(job), {"robust_mean"}, "--mode=sync or local_sgd");
  // In lock step nothing is stale.
  add(job.mode == Mode::kAsync && job.max_rounds_ahead != 0, {"staleness_scaling"},
      "--mode=async and --max_rounds_ahead other than 0");
  add(is_local, {"local_steps", "outer_optimizer"}, "--mode=local_sgd or async_local_sgd");
  const bool merges_late = job.overlap_steps > 0;
  add(merges_late, {"merge"}, "--overlap_steps above 0");
  add(merges_late && job.merge == MergeKind::kMix, {"merge_alpha"},
      "--overlap_steps above 0 and --merge=mix");
  const OuterOptimizerKind outer = job.outer_optimizer;
  const bool is_outer_adam = outer == OuterOptimizerKind::kAdam;
  add(is_local && outer != OuterOptimizerKind::kAverage, {"outer_learning_rate"},
      "--outer_optimizer=nesterov, sgd, adam or easgd with local steps");
  add(is_local && (outer == OuterOptimizerKind::kNesterov || is_outer_adam), {"outer_momentum"},
      "--outer_optimizer=nesterov or adam with local steps");
  add(is_local && is_outer_adam, {"outer_beta2", "outer_epsilon"},
      "--mode=local_sgd --outer_optimizer=adam");
  add(job.mode == Mode::kLocalSgd, {"outer_reduction"}, "--mode=local_sgd");
  add(job.push_encoding != Encoding::kFp32 || job.pull_encoding != Encoding::kFp32,
      {"error_feedback"}, "--push_encoding or --pull_encoding other than fp32");
  add(job.push_encoding != Encoding::kFp32 && job.error_feedback, {"feedback_decay"},
      "--push_encoding other than fp32 and --error_feedback");
  add(job.push_encoding.is_topk(), {"topk", "topk_bits"}, "--push_encoding=topk");
  add(job.push_encoding.is_topk() && HasRosters(job), {"topk_divisor"},
      "--push_encoding=topk and --mode=sync or local_sgd");
  add(optimizer == OptimizerKind::kMomentum || optimizer == OptimizerKind::kNesterov, {"momentum"},
      "--optimizer=momentum or nesterov");
  add(optimizer == OptimizerKind::kAdamW, {"beta1", "beta2", "epsilon"}, "--optimizer=adamw");
  add(!ReducesOnly(job), {"weight_decay"}, "--optimizer other than reduce");
  add(job.schedule.kind != ScheduleKind::kConstant, {"min_learning_rate"},
      "--lr_schedule=cosine or linear");
  return idle;
}

}  // namespace lodestar
