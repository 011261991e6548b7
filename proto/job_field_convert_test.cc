// SPDX-License-Identifier: Apache-2.0

#include "proto/job_field_convert.h"

#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/job/job_fields.h"
#include "common/testing/status_matchers.h"

namespace lodestar::wire {
namespace {

using ::testing::HasSubstr;

// Returns the fields that are converted by hand, in convert_job.cc.
const std::set<std::string>& FieldsByHand() {
  static const auto& names = *new std::set<std::string>{"model", "push_encoding", "pull_encoding",
                                                        "topk",  "robust_mean",   "trim"};
  return names;
}

TEST(JobFieldConvertTest, EveryFieldOfTheWireHasARow) {
  std::set<std::string> rows;
  for (const job::JobField& field : job::JobFields()) rows.emplace(field.wire);
  int num_fields = 0;
  const auto look = [&](const google::protobuf::Descriptor& type, const std::string& before,
                        auto& self) -> void {
    for (int i = 0; i < type.field_count(); ++i) {
      const google::protobuf::FieldDescriptor& field = *type.field(i);
      const std::string path = absl::StrCat(before, field.name());
      if (FieldsByHand().contains(path)) continue;
      if (field.message_type() != nullptr) {
        self(*field.message_type(), path + ".", self);
        continue;
      }
      ++num_fields;
      EXPECT_TRUE(rows.contains(path)) << path;
    }
  };
  look(*v1::JobSpec::descriptor(), "", look);
  rows.erase("");
  EXPECT_EQ(num_fields, static_cast<int>(rows.size()));
}

TEST(JobFieldConvertTest, EveryValueComesBack) {
  job::JobSpec job;
  v1::JobSpec defaults;
  FieldsToProto(job, defaults);
  job::JobSpec same;
  ASSERT_OK(FieldsFromProto(defaults, same));
  for (const job::JobField& field : job::JobFields()) {
    EXPECT_EQ(job::TextOf(field.get(same)), job::TextOf(field.get(job))) << field.name;
  }
  // Sets fields to values that are not their defaults.
  job.mode = job::Mode::kAsyncLocalSgd;
  job.quorum = 3;
  job.max_rounds_ahead = 0;
  job.max_staleness = 0;
  job.balance = job::Balance::kSpeed;
  job.staleness_scaling = job::StalenessScaling::kInverse;
  job.fragments = 4;
  job.merge = job::MergeKind::kMix;
  job.merge_alpha = 0.0;
  job.overlap_rounds = true;
  job.outer_optimizer = job::OuterOptimizerKind::kEasgd;
  job.outer_beta2 = 0.0;
  job.outer_reduction = job::OuterReduction::kDirection;
  job.momentum_correction = job::MomentumCorrectionKind::kHeloco;
  job.anchor = job::Anchor::kServer;
  job.optimizer.kind = job::OptimizerKind::kReduce;
  job.optimizer.beta1 = 0.0;
  job.schedule = {job::ScheduleKind::kLinear, 1.0 / 3.0, 1e-300, 7, int64_t{1} << 48};
  job.seed = ~uint64_t{0};
  job.error_feedback = false;
  job.feedback_decay = 0.5;
  job.topk_divisor = job::TopKDivisor::kSenders;
  job.norm_limit = 0.0;
  v1::JobSpec proto;
  FieldsToProto(job, proto);
  job::JobSpec read;
  ASSERT_OK(FieldsFromProto(proto, read));
  for (const job::JobField& field : job::JobFields()) {
    EXPECT_EQ(job::TextOf(field.get(read)), job::TextOf(field.get(job))) << field.name;
  }
}

// Checks what missing fields mean in a message of an earlier release.
TEST(JobFieldConvertTest, AbsentFieldsHaveTheirMeaning) {
  v1::JobSpec whole;
  job::JobSpec job;
  job.max_staleness = 5;
  job.outer_epsilon = 1.0;
  job.outer_beta2 = 0.5;
  job.merge_alpha = 0.25;
  job.keep_workers = 7;
  job.fragments = 3;
  job.feedback_decay = 0.5;
  FieldsToProto(job, whole);
  const auto read = [](const v1::JobSpec& proto) {
    job::JobSpec read;
    EXPECT_OK(FieldsFromProto(proto, read));
    return read;
  };
  v1::JobSpec proto = whole;
  proto.clear_outer_epsilon();
  EXPECT_EQ(read(proto).outer_epsilon, job::JobSpec().outer_epsilon);
  EXPECT_EQ(read(proto).outer_beta2, job::JobSpec().outer_beta2);
  proto = whole;
  proto.clear_merge();
  EXPECT_EQ(read(proto).merge_alpha, job::JobSpec().merge_alpha);
  proto.clear_max_staleness();
  proto.clear_keep_workers();
  proto.clear_fragments();
  proto.clear_feedback_decay();
  proto.clear_balance();
  proto.clear_anchor();
  EXPECT_EQ(read(proto).max_staleness, -1);
  EXPECT_EQ(read(proto).keep_workers, 1);
  EXPECT_EQ(read(proto).fragments, 1);
  EXPECT_EQ(read(proto).feedback_decay, 1.0);
  // All releases send these fields, so a missing field means the value 0.
  proto.clear_max_rounds_ahead();
  proto.clear_norm_limit();
  proto.clear_error_feedback();
  proto.clear_outer_momentum();
  EXPECT_EQ(read(proto).max_rounds_ahead, 0);
  EXPECT_EQ(read(proto).norm_limit, 0.0);
  EXPECT_FALSE(read(proto).error_feedback);
  EXPECT_EQ(read(proto).outer_momentum, 0.0);
}

TEST(JobFieldConvertTest, RefusesKindsThatAreNotKnown) {
  v1::JobSpec proto;
  FieldsToProto(job::JobSpec(), proto);
  job::JobSpec job;
  const auto refuses = [&](const v1::JobSpec& bad, const char* what) {
    EXPECT_THAT(FieldsFromProto(bad, job),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(what)));
  };
  for (const int number : {77, -1}) {
    v1::JobSpec bad = proto;
    bad.set_mode(static_cast<v1::Mode>(number));
    refuses(bad, absl::StrCat("mode is ", number).c_str());
    bad = proto;
    bad.mutable_optimizer()->set_kind(static_cast<v1::OptimizerKind>(number));
    refuses(bad, "optimizer.kind is ");
    bad = proto;
    bad.set_balance(static_cast<v1::Balance>(number));
    refuses(bad, "balance is ");
  }
  v1::JobSpec bad = proto;
  bad.clear_mode();
  refuses(bad, "mode is 0");
  bad = proto;
  bad.mutable_schedule()->clear_kind();
  refuses(bad, "schedule.kind is 0");
}

}  // namespace
}  // namespace lodestar::wire
