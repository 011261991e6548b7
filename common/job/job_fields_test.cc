// SPDX-License-Identifier: Apache-2.0

#include "common/job/job_fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/job/outer_step.h"
#include "common/params/encoding.h"
#include "common/params/model_spec.h"
#include "common/runtime/kind_names.h"
#include "common/testing/status_matchers.h"

namespace lodestar::job {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Returns a job in which every field has an effect.
JobSpec BaseJob() {
  JobSpec job;
  job.model = *params::ModelPreset("gpt-nano");
  job.push_encoding = params::Encoding::TopK(params::kDefaultTopK, params::kDefaultTopKBits);
  return job;
}

// Returns a value of the field that differs from the value in BaseJob().
std::string AnotherText(const JobField& field) {
  static const auto& texts = *new std::map<std::string, std::string>{
      {"mode", "local_sgd"},
      {"optimizer", "sgd"},
      {"lr_schedule", "cosine"},
      {"robust_mean", "trimmed:2"},
      {"balance", "speed"},
      {"staleness_scaling", "inverse"},
      {"merge", "mix"},
      {"outer_optimizer", "adam"},
      {"outer_reduction", "direction"},
      {"momentum_correction", "heloco"},
      {"anchor", "server"},
      {"push_encoding", "int8"},
      {"pull_encoding", "bf16"},
      {"topk_divisor", "senders"},
      {"topk_bits", "4"},
  };
  if (const auto text = texts.find(std::string(field.name)); text != texts.end()) {
    return text->second;
  }
  const JobValue value = field.get(BaseJob());
  switch (field.type) {
    case JobField::Type::kBool:
      return std::get<bool>(value) ? "false" : "true";
    case JobField::Type::kInt32:
    case JobField::Type::kInt64:
      return absl::StrCat(std::get<int64_t>(value) + 1);
    case JobField::Type::kUint64:
      return absl::StrCat(std::numeric_limits<uint64_t>::max());
    case JobField::Type::kDouble:
      return "0.1875";
    case JobField::Type::kText:
      return "";
  }
  return "";
}

std::vector<std::string> TextsOf(const JobSpec& job) {
  std::vector<std::string> texts;
  for (const JobField& field : JobFields()) texts.push_back(TextOf(field.get(job)));
  return texts;
}

TEST(JobFieldsTest, EveryMemberHasARow) {
  // If a member is added to JobSpec, this does not compile until the member is named here. Then add
  // a row to the table, and raise the number of rows below.
  const JobSpec job;
  const auto& [model, mode, quorum, max_rounds_ahead, max_staleness, balance, staleness_scaling,
               local_steps, fragments, overlap_steps, merge, merge_alpha, overlap_rounds,
               outer_optimizer, outer_learning_rate, outer_momentum, outer_beta2, outer_epsilon,
               outer_reduction, momentum_correction, anchor, optimizer, schedule, clip_norm,
               batch_size, global_batch_size, min_workers, keep_workers, seed, eval_every,
               eval_samples, bucket_bytes, push_encoding, pull_encoding, error_feedback,
               feedback_decay, topk_divisor, robust_mean, norm_limit] = job;
  [[maybe_unused]] const auto& [optimizer_kind, momentum, beta1, beta2, epsilon, weight_decay] =
      optimizer;
  [[maybe_unused]] const auto& [schedule_kind, peak, minimum, warmup_rounds, total_rounds] =
      schedule;
  EXPECT_EQ(JobFields().size(), 50u);
  std::set<std::string> names;
  std::set<std::string> wire;
  for (const JobField& field : JobFields()) {
    EXPECT_TRUE(names.emplace(field.name).second) << field.name;
    EXPECT_TRUE(field.wire.empty() || wire.emplace(field.wire).second) << field.wire;
    EXPECT_FALSE(field.help.empty()) << field.name;
    EXPECT_EQ(field.counts == nullptr, field.counts_with.empty()) << field.name;
    EXPECT_EQ(FindJobField(field.name), &field);
  }
  EXPECT_EQ(FindJobField("model"), nullptr);
}

TEST(JobFieldsTest, EachTextSetsItsOwnMemberAlone) {
  const std::vector<std::string> before = TextsOf(BaseJob());
  for (size_t i = 0; i < before.size(); ++i) {
    const JobField& field = JobFields()[i];
    const std::string text = AnotherText(field);
    JobSpec job = BaseJob();
    ASSERT_OK(SetFromText(field, text, job)) << field.name;
    std::vector<std::string> expected = before;
    expected[i] = text;
    EXPECT_EQ(TextsOf(job), expected) << field.name;
    ASSERT_OK(SetFromText(field, before[i], job)) << field.name;
    EXPECT_EQ(TextsOf(job), before) << field.name;
  }
}

TEST(JobFieldsTest, RefusesTextsThatAreNoValue) {
  for (const JobField& field : JobFields()) {
    JobSpec job = BaseJob();
    EXPECT_THAT(SetFromText(field, "?", job),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr(std::string(field.name)), HasSubstr("?"))));
    EXPECT_EQ(TextsOf(job), TextsOf(BaseJob())) << field.name;
    if (field.type == JobField::Type::kInt32) {
      EXPECT_THAT(SetFromText(field, "4294967297", job),
                  StatusIs(absl::StatusCode::kInvalidArgument));
    }
  }
}

TEST(JobFieldsTest, RefusesNumbersBeyondTheRange) {
  using Kind = NumberRange::Kind;
  const auto check = [](const JobField& field, double number) {
    JobSpec job = BaseJob();
    const JobValue value = std::holds_alternative<double>(field.get(job))
                               ? JobValue(number)
                               : JobValue(static_cast<int64_t>(number));
    EXPECT_OK(field.set(field, value, job));
    return CheckFieldRanges(job);
  };
  const auto is_refused = [](const JobField& field) {
    return StatusIs(absl::StatusCode::kInvalidArgument,
                    HasSubstr(absl::StrCat("--", field.name, "=")));
  };
  int num_ranges = 0;
  for (const JobField& field : JobFields()) {
    const NumberRange& range = field.range;
    if (range.kind == Kind::kAny) continue;
    ++num_ranges;
    EXPECT_OK(check(field, range.lowest)) << field.name;
    const bool is_whole = range.kind == Kind::kWhole;
    const double step = is_whole ? 1.0 : range.highest / 2;
    EXPECT_THAT(check(field, range.lowest - step), is_refused(field));
    if (range.kind == Kind::kBelowOne) {
      EXPECT_THAT(check(field, 1.0), is_refused(field));
    } else {
      EXPECT_OK(check(field, range.highest)) << field.name;
    }
    if (range.highest < std::numeric_limits<int>::max() || !is_whole) {
      EXPECT_THAT(check(field, range.highest + step), is_refused(field));
    }
    if (!is_whole) {
      EXPECT_THAT(check(field, std::numeric_limits<double>::quiet_NaN()), is_refused(field));
    }
    if (range.kind == Kind::kZeroOrReal) {
      EXPECT_OK(check(field, 0.0));
    }
  }
  EXPECT_GT(num_ranges, 25);
}

TEST(JobFieldsTest, TopKIsOfItsEncodingAlone) {
  JobSpec job;
  job.push_encoding = params::Encoding::kInt8;
  ASSERT_OK(SetFromText(*FindJobField("topk"), "32", job));
  EXPECT_EQ(job.push_encoding, params::Encoding::kInt8);
  EXPECT_EQ(TextOf(FindJobField("topk")->get(job)), absl::StrCat(params::kDefaultTopK));
  job.push_encoding = params::Encoding::TopK(params::kDefaultTopK, params::kDefaultTopKBits);
  ASSERT_OK(SetFromText(*FindJobField("topk"), "32", job));
  EXPECT_EQ(job.push_encoding, params::Encoding::TopK(32, params::kDefaultTopKBits));
  EXPECT_THAT(SetFromText(*FindJobField("topk"), "5000", job),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(JobFieldsTest, DefaultsOfFlagsAreThoseOfTheDocumentedConstants) {
  EXPECT_EQ(FindJobField("outer_momentum")->flag_default, TextOf(kDefaultOuterMomentum));
  EXPECT_EQ(TextOf(FindJobField("outer_learning_rate")->get(JobSpec())),
            TextOf(kDefaultOuterLearningRate));
  EXPECT_EQ(FindJobField("dropout")->flag_default, TextOf(kDropoutOfModel));
}

}  // namespace
}  // namespace lodestar::job
