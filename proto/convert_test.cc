#include "proto/convert.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <string>

#include "common/testing/status_matchers.h"

namespace lodestar {
namespace {

using ::testing::HasSubstr;

JobSpec SomeJob() {
  JobSpec job;
  job.model = *ModelPreset("gpt-nano");
  std::get<GptSpec>(job.model.architecture).dropout = 0.1;
  job.mode = Mode::kLocalSgd;
  job.local_steps = 7;
  job.outer_optimizer = OuterOptimizerKind::kNesterov;
  job.outer_learning_rate = 0.65;
  job.outer_momentum = 0.85;
  job.optimizer.kind = OptimizerKind::kAdamW;
  job.optimizer.beta2 = 0.97;
  job.optimizer.epsilon = 1e-7;
  job.optimizer.weight_decay = 0.125;
  job.schedule = {ScheduleKind::kCosine, 0.01, 0.001, 5, 500};
  job.clip_norm = 1.5;
  job.batch_size = 16;
  job.min_workers = 3;
  job.keep_workers = 2;
  job.seed = 0xfedcba9876543210;
  job.eval_every = 10;
  job.eval_samples = 64;
  job.bucket_bytes = 1 << 20;
  job.push_encoding = Encoding::kInt8;
  job.pull_encoding = Encoding::kBf16;
  return job;
}

TEST(ConvertTest, ModelSpecOfEveryPresetSurvives) {
  for (const std::string& name : ModelPresetNames()) {
    ASSERT_OK_AND_ASSIGN(const ModelSpec spec, ModelPreset(name));
    EXPECT_THAT(FromProto(ToProto(spec)), IsOkAndHolds(spec)) << name;
  }
}

TEST(ConvertTest, JobSpecSurvives) {
  const v1::JobSpec wire = ToProto(SomeJob());
  ASSERT_OK_AND_ASSIGN(const JobSpec job, FromProto(wire));
  EXPECT_EQ(job.mode, Mode::kLocalSgd);
  EXPECT_EQ(job.seed, SomeJob().seed);
  EXPECT_EQ(job.schedule.warmup_rounds, 5);
  EXPECT_EQ(ToProto(job).SerializeAsString(), wire.SerializeAsString());
}

TEST(ConvertTest, JobWithoutEncodingsIsFp32) {
  v1::JobSpec wire = ToProto(SomeJob());
  wire.clear_push_encoding();
  wire.clear_pull_encoding();
  ASSERT_OK_AND_ASSIGN(const JobSpec job, FromProto(wire));
  EXPECT_EQ(job.push_encoding, Encoding::kFp32);
  EXPECT_EQ(job.pull_encoding, Encoding::kFp32);
  wire.set_pull_encoding(static_cast<v1::Encoding>(99));
  EXPECT_THAT(FromProto(wire),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("pull_encoding is 99")));
}

// Every field of the message is set by SomeJob() or listed here, so that a field that ToProto()
// forgets is noticed when it is added to the message.
TEST(ConvertTest, EveryFieldOfJobSpecIsWritten) {
  JobSpec job = SomeJob();
  job.quorum = 1;
  job.max_rounds_ahead = 3;
  job.global_batch_size = 32;
  job.staleness_scaling = StalenessScaling::kInverse;
  const v1::JobSpec wire = ToProto(job);
  std::vector<const google::protobuf::FieldDescriptor*> set;
  wire.GetReflection()->ListFields(wire, &set);
  EXPECT_EQ(set.size(), wire.GetDescriptor()->field_count());
}

TEST(ConvertTest, UnknownEnumValueIsNamed) {
  v1::JobSpec wire = ToProto(SomeJob());
  wire.set_mode(static_cast<v1::Mode>(77));
  EXPECT_THAT(FromProto(wire),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("mode is 77")));
  wire = ToProto(SomeJob());
  wire.mutable_optimizer()->clear_kind();
  EXPECT_THAT(FromProto(wire),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("optimizer.kind is 0")));
  wire = ToProto(SomeJob());
  wire.mutable_schedule()->set_kind(static_cast<v1::ScheduleKind>(-1));
  EXPECT_THAT(FromProto(wire),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("schedule.kind is -1")));
}

TEST(ConvertTest, MissingAndSenselessPartsAreRefused) {
  v1::JobSpec wire = ToProto(SomeJob());
  wire.clear_model();
  EXPECT_THAT(FromProto(wire),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("architecture is missing")));
  wire = ToProto(SomeJob());
  wire.mutable_model()->mutable_gpt()->set_width(-128);
  EXPECT_THAT(FromProto(wire), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("width")));
  wire = ToProto(SomeJob());
  wire.set_batch_size(std::numeric_limits<int64_t>::max());
  EXPECT_THAT(FromProto(wire), StatusIs(absl::StatusCode::kInvalidArgument));
  wire = ToProto(SomeJob());
  wire.mutable_model()->set_name(std::string(1000, 'x'));
  EXPECT_THAT(FromProto(wire), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("name")));
}

TEST(ConvertTest, LayoutSurvivesAndItsHashIsChecked) {
  ASSERT_OK_AND_ASSIGN(const ModelSpec spec, ModelPreset("gpt-nano"));
  ASSERT_OK_AND_ASSIGN(const Layout layout, BuildLayout(spec));
  v1::Layout wire = ToProto(layout);
  ASSERT_OK_AND_ASSIGN(const Layout back, FromProto(wire));
  EXPECT_OK(CheckSameLayout(layout, "sent", back, "received"));
  EXPECT_EQ(back.hash(), layout.hash());
  wire.mutable_tensors(0)->set_shape(0, 3);
  EXPECT_THAT(FromProto(wire),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(layout.hash())));
}

TEST(ConvertTest, LayoutWithOverflowingShapeIsRefused) {
  v1::Layout wire;
  v1::TensorSpec* tensor = wire.add_tensors();
  tensor->set_name("w");
  for (int i = 0; i < 3; ++i) tensor->add_shape(std::numeric_limits<int64_t>::max());
  EXPECT_THAT(FromProto(wire), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("w")));
  tensor->clear_shape();
  tensor->add_shape(-4);
  EXPECT_THAT(FromProto(wire), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("w")));
  EXPECT_THAT(FromProto(v1::Layout()), StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(ConvertTest, ContributionKindsAndEncodingsSurvive) {
  for (const ContributionKind kind :
       {ContributionKind::kGradient, ContributionKind::kPseudoGradient,
        ContributionKind::kInitialWeights, ContributionKind::kWeights}) {
    EXPECT_THAT(FromProto(ToProto(kind)), IsOkAndHolds(kind));
  }
  for (const Encoding encoding : kAllEncodings) {
    EXPECT_THAT(FromProto(ToProto(encoding)), IsOkAndHolds(encoding));
  }
  EXPECT_THAT(FromProto(v1::CONTRIBUTION_KIND_UNSPECIFIED),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(FromProto(v1::ENCODING_UNSPECIFIED), StatusIs(absl::StatusCode::kInvalidArgument));
}

// Whatever bytes arrive, there is an answer, and what is accepted is valid.
TEST(ConvertTest, MutatedJobSpecsAreRefusedOrValid) {
  const std::string good = ToProto(SomeJob()).SerializeAsString();
  std::minstd_rand random(20240601);
  int accepted = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string bytes = good;
    for (int flips = 1 + i % 3; flips > 0; --flips) {
      bytes[random() % bytes.size()] = static_cast<char>(random());
    }
    v1::JobSpec wire;
    if (!wire.ParseFromString(bytes)) continue;
    const absl::StatusOr<JobSpec> job = FromProto(wire);
    if (!job.ok()) continue;
    ++accepted;
    ASSERT_OK(ValidateJobSpec(*job));
  }
  EXPECT_GT(accepted, 0);
}

TEST(ConvertTest, ALossThatIsNotKnownStaysUnknown) {
  JobLoss loss;
  EXPECT_EQ(FromProto(ToProto(loss)), loss);
  loss.train = 0.0;
  loss.train_round = Round(7);
  EXPECT_EQ(FromProto(ToProto(loss)), loss);
  loss.heldout = 2.5;
  loss.heldout_accuracy = 0.5;
  loss.heldout_round = Round(8);
  EXPECT_EQ(FromProto(ToProto(loss)), loss);
}

}  // namespace
}  // namespace lodestar
