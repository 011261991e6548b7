// SPDX-License-Identifier: Apache-2.0

#include "proto/convert.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/testing/status_matchers.h"
#include "proto/convert_cluster.h"

namespace lodestar::wire {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

job::JobSpec SomeJob() {
  job::JobSpec job;
  job.model = *params::ModelPreset("gpt-nano");
  std::get<params::GptSpec>(job.model.architecture).dropout = 0.1;
  job.mode = job::Mode::kLocalSgd;
  job.local_steps = 7;
  job.outer_optimizer = job::OuterOptimizerKind::kNesterov;
  job.outer_learning_rate = 0.65;
  job.outer_momentum = 0.85;
  job.outer_beta2 = 0.97;
  job.outer_epsilon = 0.01;
  job.optimizer.kind = job::OptimizerKind::kAdamW;
  job.optimizer.beta2 = 0.97;
  job.optimizer.epsilon = 1e-7;
  job.optimizer.weight_decay = 0.125;
  job.schedule = {job::ScheduleKind::kCosine, 0.01, 0.001, 5, 500};
  job.clip_norm = 1.5;
  job.batch_size = 16;
  job.min_workers = 3;
  job.keep_workers = 2;
  job.seed = 0xfedcba9876543210;
  job.eval_every = 10;
  job.eval_samples = 64;
  job.bucket_bytes = 1 << 20;
  job.push_encoding = params::Encoding::kInt8;
  job.feedback_decay = 0.9;
  job.pull_encoding = params::Encoding::kBf16;
  job.robust_mean = {job::RobustMean::Kind::kTrimmed, 1};
  return job;
}

// Returns the fields of the message that are not set. With this, the test notices if ToProto()
// forgets a new field.
std::vector<std::string> UnsetFields(const google::protobuf::Message& message) {
  std::vector<std::string> unset;
  for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
    const google::protobuf::FieldDescriptor* field = message.GetDescriptor()->field(i);
    const bool is_set = field->is_repeated()
                            ? message.GetReflection()->FieldSize(message, field) > 0
                            : message.GetReflection()->HasField(message, field);
    if (!is_set) unset.push_back(field->name());
  }
  return unset;
}

TEST(ConvertTest, ModelSpecOfEveryPresetSurvives) {
  for (const std::string& name : params::ModelPresetNames()) {
    ASSERT_OK_AND_ASSIGN(const params::ModelSpec spec, params::ModelPreset(name));
    EXPECT_THAT(FromProto(ToProto(spec)), IsOkAndHolds(spec)) << name;
  }
}

TEST(ConvertTest, JobSpecSurvives) {
  const v1::JobSpec wire = ToProto(SomeJob());
  ASSERT_OK_AND_ASSIGN(const job::JobSpec job, FromProto(wire));
  EXPECT_EQ(job.mode, job::Mode::kLocalSgd);
  EXPECT_EQ(job.seed, SomeJob().seed);
  EXPECT_EQ(job.schedule.warmup_rounds, 5);
  EXPECT_EQ(ToProto(job).SerializeAsString(), wire.SerializeAsString());
}

TEST(ConvertTest, SettingsOfAsyncLocalSgdSurvive) {
  job::JobSpec job = SomeJob();
  job.mode = job::Mode::kAsyncLocalSgd;
  job.robust_mean = {};
  job.balance = job::Balance::kSpeed;
  for (const int64_t max_staleness : {-1, 0, 7}) {
    job.max_staleness = max_staleness;
    ASSERT_OK_AND_ASSIGN(const job::JobSpec back, FromProto(ToProto(job)));
    EXPECT_EQ(back.mode, job::Mode::kAsyncLocalSgd);
    EXPECT_EQ(back.max_staleness, max_staleness);
    EXPECT_EQ(back.balance, job::Balance::kSpeed);
  }
  job.momentum_correction = job::MomentumCorrectionKind::kHeloco;
  job.anchor = job::Anchor::kServer;
  job.push_encoding = job.pull_encoding = params::Encoding::kFp32;
  v1::JobSpec wire = ToProto(job);
  ASSERT_OK_AND_ASSIGN(const job::JobSpec back, FromProto(wire));
  EXPECT_EQ(back.momentum_correction, job::MomentumCorrectionKind::kHeloco);
  EXPECT_EQ(back.anchor, job::Anchor::kServer);
  // Earlier releases that do not know these two fields do not send them.
  wire.clear_momentum_correction();
  wire.clear_anchor();
  ASSERT_OK_AND_ASSIGN(const job::JobSpec old, FromProto(wire));
  EXPECT_EQ(old.momentum_correction, job::MomentumCorrectionKind::kNone);
  EXPECT_EQ(old.anchor, job::Anchor::kWorker);
}

TEST(ConvertTest, OuterReductionSurvives) {
  job::JobSpec job = SomeJob();
  job.robust_mean = {};
  job.outer_reduction = job::OuterReduction::kDirection;
  v1::JobSpec wire = ToProto(job);
  ASSERT_OK_AND_ASSIGN(const job::JobSpec back, FromProto(wire));
  EXPECT_EQ(back.outer_reduction, job::OuterReduction::kDirection);
  // An earlier release that knows no outer_reduction does not send the field.
  wire.clear_outer_reduction();
  ASSERT_OK_AND_ASSIGN(const job::JobSpec old, FromProto(wire));
  EXPECT_EQ(old.outer_reduction, job::OuterReduction::kMean);
}

TEST(ConvertTest, EveryOuterOptimizerSurvives) {
  for (const job::OuterOptimizerKind kind :
       {job::OuterOptimizerKind::kAverage, job::OuterOptimizerKind::kSgd,
        job::OuterOptimizerKind::kNesterov, job::OuterOptimizerKind::kAdam,
        job::OuterOptimizerKind::kEasgd}) {
    job::JobSpec job = SomeJob();
    job.outer_optimizer = kind;
    ASSERT_OK_AND_ASSIGN(const job::JobSpec back, FromProto(ToProto(job)));
    EXPECT_EQ(back.outer_optimizer, kind);
  }
}

TEST(ConvertTest, JobWithoutEncodingsIsFp32) {
  v1::JobSpec wire = ToProto(SomeJob());
  wire.clear_push_encoding();
  wire.clear_pull_encoding();
  ASSERT_OK_AND_ASSIGN(const job::JobSpec job, FromProto(wire));
  EXPECT_EQ(job.push_encoding, params::Encoding::kFp32);
  EXPECT_EQ(job.pull_encoding, params::Encoding::kFp32);
  wire.set_pull_encoding(static_cast<v1::Encoding>(99));
  EXPECT_THAT(FromProto(wire),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("pull_encoding is 99")));
}

TEST(ConvertTest, EveryFieldOfJobSpecIsWritten) {
  job::JobSpec job = SomeJob();
  job.quorum = 1;
  job.max_rounds_ahead = 3;
  job.max_staleness = 4;
  job.balance = job::Balance::kSpeed;
  job.global_batch_size = 32;
  job.staleness_scaling = job::StalenessScaling::kInverse;
  job.fragments = 3;
  job.overlap_steps = 2;
  job.merge = job::MergeKind::kKeep;
  job.overlap_rounds = true;
  job.push_encoding = params::Encoding::TopK(32, 4);
  EXPECT_THAT(UnsetFields(ToProto(job)), IsEmpty());
}

TEST(ConvertTest, TopKAndItsParametersSurvive) {
  job::JobSpec job = SomeJob();
  job.robust_mean = {};
  job.topk_divisor = job::TopKDivisor::kSenders;
  for (const params::Encoding encoding :
       {params::Encoding::TopK(32, 4), params::Encoding::TopK(1024, 2)}) {
    job.push_encoding = encoding;
    ASSERT_OK_AND_ASSIGN(const job::JobSpec back, FromProto(ToProto(job)));
    EXPECT_EQ(back.push_encoding, encoding);
    EXPECT_EQ(back.topk_divisor, job::TopKDivisor::kSenders);
    EXPECT_EQ(back.feedback_decay, 0.9);
  }
  v1::JobSpec wire = ToProto(job);
  wire.set_topk(5000);
  EXPECT_THAT(FromProto(wire),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("--topk=5000")));
  wire = ToProto(job);
  wire.set_pull_encoding(v1::ENCODING_TOPK2);
  EXPECT_THAT(FromProto(wire),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("--pull_encoding=topk")));
  // Earlier releases that do not know these two fields do not send them.
  wire = ToProto(SomeJob());
  wire.clear_feedback_decay();
  wire.clear_topk_divisor();
  ASSERT_OK_AND_ASSIGN(const job::JobSpec old, FromProto(wire));
  EXPECT_EQ(old.feedback_decay, 1.0);
  EXPECT_EQ(old.topk_divisor, job::TopKDivisor::kWorkers);
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

// A coordinator must not accept a model name that its workers refuse.
TEST(ConvertTest, ModelNameThatIsTakenIsTakenAgain) {
  v1::ModelSpec wire = ToProto(*params::ModelPreset("gpt-nano"));
  for (const int num_controls : {60, 70}) {
    wire.set_name(std::string(num_controls, '\x01'));
    const absl::StatusOr<params::ModelSpec> spec = FromProto(wire);
    EXPECT_EQ(spec.ok(), num_controls == 60) << spec.status();
    if (!spec.ok()) continue;
    EXPECT_THAT(FromProto(ToProto(*spec)), IsOkAndHolds(*spec));
  }
}

TEST(ConvertTest, LayoutSurvivesAndItsHashIsChecked) {
  ASSERT_OK_AND_ASSIGN(const params::ModelSpec spec, params::ModelPreset("gpt-nano"));
  ASSERT_OK_AND_ASSIGN(const params::Layout layout, params::BuildLayout(spec));
  v1::Layout wire = ToProto(layout);
  ASSERT_OK_AND_ASSIGN(const params::Layout back, FromProto(wire));
  EXPECT_OK(params::CheckSameLayout(layout, "sent", back, "received"));
  EXPECT_EQ(back.hash(), layout.hash());
  wire.mutable_tensors(0)->set_shape(0, 3);
  EXPECT_THAT(FromProto(wire),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(layout.hash())));
}

TEST(ConvertTest, WhatALayoutMarksSurvives) {
  params::TensorSpec weight;
  weight.name = "weight";
  weight.decay = true;
  params::TensorSpec mean;
  mean.name = "mean";
  mean.block = 1;
  mean.averaged = true;
  weight.embedding = true;
  const params::Layout layout = *params::Layout::FromTensors({weight, mean});
  ASSERT_OK_AND_ASSIGN(const params::Layout back, FromProto(ToProto(layout)));
  EXPECT_OK(params::CheckSameLayout(layout, "sent", back, "received"));
  EXPECT_TRUE(back.is_averaged(1));
  EXPECT_FALSE(back.is_averaged(0));
  // TensorSpec.embedding is not part of the layout's hash, so it is checked here.
  EXPECT_TRUE(back.tensors()[0].embedding);
  EXPECT_FALSE(back.tensors()[1].embedding);
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
  for (const messages::ContributionKind kind :
       {messages::ContributionKind::kGradient, messages::ContributionKind::kPseudoGradient,
        messages::ContributionKind::kInitialWeights, messages::ContributionKind::kWeights}) {
    EXPECT_THAT(FromProto(ToProto(kind)), IsOkAndHolds(kind));
  }
  for (const params::Encoding encoding : params::kAllEncodings) {
    EXPECT_THAT(FromProto(ToProto(encoding.kind())), IsOkAndHolds(encoding.kind()));
  }
  EXPECT_THAT(FromProto(v1::CONTRIBUTION_KIND_UNSPECIFIED),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(FromProto(v1::ENCODING_UNSPECIFIED), StatusIs(absl::StatusCode::kInvalidArgument));
}

// Any bytes must give an error or a valid job.
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
    const absl::StatusOr<job::JobSpec> job = FromProto(wire);
    if (!job.ok()) continue;
    ++accepted;
    ASSERT_OK(job::ValidateJobSpec(*job));
  }
  EXPECT_GT(accepted, 0);
}

TEST(ConvertTest, ALossThatIsNotKnownStaysUnknown) {
  job::JobLoss loss;
  EXPECT_EQ(FromProto(ToProto(loss)), loss);
  loss.train = 0.0;
  loss.train_round = Round(7);
  EXPECT_EQ(FromProto(ToProto(loss)), loss);
  loss.heldout = 2.5;
  loss.heldout_accuracy = 0.5;
  loss.heldout_round = Round(8);
  EXPECT_EQ(FromProto(ToProto(loss)), loss);
}

messages::Registration SomeRegistration() {
  messages::Registration registration;
  registration.life = {WorkerId(3), Incarnation(0xfedcba9876543210)};
  registration.server_incarnation = 9;
  registration.lease = absl::Seconds(10);
  registration.heartbeat_interval = absl::Milliseconds(3333);
  registration.job = SomeJob();
  registration.needs_initial_weights = true;
  auto map = std::make_shared<messages::ClusterMap>();
  map->version = 4;
  map->layout = *params::BuildLayout(registration.job.model);
  const int64_t half = map->layout.num_elements() / 2;
  map->servers = {{0, "a:1", {0, half}}, {1, "b:2", {half, map->layout.num_elements()}}};
  map->buckets = *params::PlanBuckets(map->layout, {map->servers[0].range, map->servers[1].range},
                                      registration.job.bucket_bytes);
  registration.map = std::move(map);
  registration.life_secret = "0af3";
  registration.rounds_completed = 12;
  registration.next_round = Round(13);
  registration.index = 2;
  registration.live_workers = {.count = 3, .lowest_index = 1};
  return registration;
}

messages::Grant SomeGrant() {
  messages::Grant grant;
  grant.kind = messages::Grant::Kind::kTrain;
  grant.round = Round(5);
  grant.view = ViewId(6);
  grant.first_sample = 70;
  grant.first_position = 71;
  grant.round_first_sample = 69;
  grant.num_samples = 8;
  grant.local_steps = 2;
  grant.learning_rates = {0.5, 0.25};
  grant.min_round = Round(4);
  grant.first_heldout_sample = 9;
  grant.num_heldout_samples = 2;
  grant.evaluation_set_size = 11;
  grant.reason = "why";
  grant.has_failed = true;
  grant.total_rounds = 12;
  grant.loss.train = 1.5;
  grant.loss.train_round = Round(3);
  grant.round_samples = 24;
  grant.live_workers = {.count = 3, .lowest_index = 1};
  return grant;
}

v1::RoundReport SomeReport() {
  messages::RoundReport report;
  report.round = Round(5);
  report.loss_sum = 1.25;
  report.num_predictions = 6;
  report.num_samples = 7;
  report.compute = absl::Milliseconds(125);
  report.communication = absl::Milliseconds(250);
  report.wait = absl::Milliseconds(500);
  report.heldout_loss_sum = 2.5;
  report.heldout_correct = 8;
  report.heldout_predictions = 9;
  report.base_version = Version(10);
  report.metrics = {{"grad_norm", 1.5}};
  report.lost_residual_rounds = 11;
  report.leaves_nothing_in_hand = true;
  return ToProto(report);
}

template <typename Message>
void ExpectRefused(const Message& message, const std::string& text) {
  EXPECT_THAT(FromProto(message), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(text)));
}

TEST(ConvertClusterTest, RegistrationSurvives) {
  const v1::RegisterReply wire = ToProto(SomeRegistration());
  EXPECT_THAT(UnsetFields(wire), ElementsAre("keeps_dialled_address")) << "only servers know it";
  ASSERT_OK_AND_ASSIGN(const messages::Registration back, FromProto(wire));
  EXPECT_EQ(back.life, SomeRegistration().life);
  EXPECT_EQ(back.servers()[1].address, "b:2");
  EXPECT_EQ(ToProto(back).SerializeAsString(), wire.SerializeAsString());
}

TEST(ConvertClusterTest, IndexZeroDiffersFromNoIndex) {
  v1::RegisterReply wire = ToProto(SomeRegistration());
  wire.set_index(0);
  ASSERT_OK_AND_ASSIGN(const messages::Registration first, FromProto(wire));
  EXPECT_EQ(first.index, 0);
  wire.clear_index();
  wire.clear_live_workers();
  ASSERT_OK_AND_ASSIGN(const messages::Registration of_earlier_release, FromProto(wire));
  EXPECT_EQ(of_earlier_release.index, std::nullopt);
  EXPECT_EQ(of_earlier_release.live_workers, std::nullopt);
}

TEST(ConvertClusterTest, NegativeCountOfLiveWorkersIsRefused) {
  v1::RegisterReply registration = ToProto(SomeRegistration());
  registration.mutable_live_workers()->set_count(-1);
  ExpectRefused(registration, "live_workers.count=-1");
  v1::HeartbeatReply heartbeat;
  heartbeat.mutable_live_workers()->set_count(-1);
  ExpectRefused(heartbeat, "live_workers.count=-1");
  v1::Grant grant = ToProto(SomeGrant());
  grant.mutable_live_workers()->set_count(-1);
  ExpectRefused(grant, "live_workers.count=-1");
}

TEST(ConvertClusterTest, ARegistrationWhosePartsDoNotFitIsRefused) {
  const v1::RegisterReply good = ToProto(SomeRegistration());
  for (const int64_t milliseconds : {0, -1}) {
    v1::RegisterReply wire = good;
    wire.set_heartbeat_ms(milliseconds);
    ExpectRefused(wire, "heartbeat interval");
  }
  for (const std::string& secret : {std::string("a\r\nb"), std::string(129, 'a')}) {
    v1::RegisterReply wire = good;
    wire.set_life_secret(secret);
    ExpectRefused(wire, "life_secret of ");
  }
  v1::RegisterReply wire = good;
  wire.mutable_servers()->SwapElements(0, 1);
  ExpectRefused(wire, "server of shard 1 at place 0");
  wire = good;
  wire.mutable_buckets()->RemoveLast();
  ExpectRefused(wire, "the server plans");
  wire = good;
  wire.mutable_buckets(1)->set_end(wire.buckets(1).end() - 1);
  ExpectRefused(wire, "bucket 1 has elements");
  wire = good;
  wire.mutable_servers(1)->set_end(std::numeric_limits<int64_t>::max());
  EXPECT_FALSE(FromProto(wire).ok());
}

TEST(ConvertClusterTest, OnlyServersAtHostAndPortAreDialled) {
  const v1::RegisterReply good = ToProto(SomeRegistration());
  for (const std::string& address :
       {std::string(), std::string("unix:/run/docker.sock"), std::string("unix:1"),
        std::string("dns:///b:2"), std::string("b"), std::string(1 << 20, 'b') + ":2"}) {
    v1::RegisterReply wire = good;
    wire.mutable_servers(1)->set_address(address);
    ExpectRefused(wire, "the address of the server of shard 1");
    v1::HeartbeatReply moved = ToProto(
        messages::HeartbeatAnswer{ViewId(1), "", messages::ServerAddresses{8, {"a:1", address}}});
    ExpectRefused(moved, "the address of the server of shard 1");
  }
  ExpectRefused(
      ToProto(messages::HeartbeatAnswer{
          ViewId(1), "", messages::ServerAddresses{8, std::vector<std::string>(257, "a:1")}}),
      "257 servers; at most 256 are allowed");
}

// A very small message can describe a bucket plan that needs more memory than the machine has.
TEST(ConvertClusterTest, ARegistrationIsRefusedBeforeAnythingIsMadeOfIt) {
  v1::RegisterReply wire = ToProto(SomeRegistration());
  wire.mutable_job()->set_bucket_bytes(4);
  wire.mutable_layout()->clear_hash();
  wire.mutable_layout()->mutable_tensors()->DeleteSubrange(1, wire.layout().tensors_size() - 1);
  v1::TensorSpec& tensor = *wire.mutable_layout()->mutable_tensors(0);
  tensor.clear_shape();
  tensor.add_shape(params::Layout::kMaxElements);
  wire.mutable_servers()->RemoveLast();
  wire.mutable_servers(0)->set_end(params::Layout::kMaxElements);
  ExpectRefused(wire, "buckets, allowed are 1048576");
  tensor.add_shape(int64_t{1} << 40);
  ExpectRefused(wire, "elements");
  tensor.clear_shape();
  tensor.set_name(std::string(1 << 20, 'x'));
  ExpectRefused(wire, "has 1048576 bytes, allowed are 512");
  for (int i = 0; i < params::Layout::kMaxTensors; ++i) wire.mutable_layout()->add_tensors();
  ExpectRefused(wire, "1048577 tensors");
}

TEST(ConvertClusterTest, RegisterCallSurvives) {
  messages::RegisterCall call;
  call.name = "ann";
  call.instance_id = 7;
  call.device = "cpu";
  call.encodings = {params::Encoding::Kind::kFp32, params::Encoding::Kind::kInt8,
                    params::Encoding::Kind::kTopK2};
  call.layout = *params::BuildLayout(SomeJob().model);
  call.adopts_order = true;
  call.frozen_hash = "0123";
  call.proposed = {.optimizer = job::OptimizerKind::kNesterov,
                   .momentum = 0.1,
                   .beta1 = 0.2,
                   .beta2 = 0.3,
                   .epsilon = 0.4,
                   .weight_decay = 0.5,
                   .learning_rate = 0.6,
                   .clip_norm = 0.0,  // an explicit 0 is not the same as no value
                   .batch_size = 8,
                   .has_program_rates = true};
  call.process.age = absl::Milliseconds(1500);
  call.process.acknowledged = {.server_incarnation = 5, .life = Incarnation(6), .round = Round(7)};
  v1::RegisterRequest wire = ToProto(call);
  EXPECT_THAT(UnsetFields(wire), IsEmpty());
  EXPECT_THAT(UnsetFields(wire.proposed()), IsEmpty());
  wire.add_encodings(static_cast<v1::Encoding>(99));  // from a newer release
  ASSERT_OK_AND_ASSIGN(const messages::RegisterCall back, FromProto(wire));
  EXPECT_EQ(back.name, "ann");
  EXPECT_EQ(back.instance_id, 7);
  EXPECT_EQ(back.device, "cpu");
  EXPECT_EQ(back.layout->hash(), call.layout->hash());
  EXPECT_TRUE(back.adopts_order);
  EXPECT_EQ(back.frozen_hash, call.frozen_hash);
  EXPECT_EQ(back.proposed, call.proposed);
  EXPECT_EQ(back.process.age, call.process.age);
  EXPECT_EQ(back.process.acknowledged, call.process.acknowledged);
  v1::RegisterRequest odd = wire;
  odd.mutable_acknowledged()->set_round(-1);
  ExpectRefused(odd, "acknowledged.round");
  for (const int64_t senseless : {int64_t{-1}, std::numeric_limits<int64_t>::max()}) {
    wire.set_age_ms(senseless);
    EXPECT_EQ(FromProto(wire)->process.age, std::nullopt);
  }
  EXPECT_THAT(back.encodings,
              ElementsAre(params::Encoding::Kind::kFp32, params::Encoding::Kind::kInt8,
                          params::Encoding::Kind::kTopK2));
}

TEST(ConvertClusterTest, ARegisterCallOfAnotherWireVersionOrWithLongTextsIsRefused) {
  v1::RegisterRequest wire = ToProto(messages::RegisterCall());
  wire.set_wire_version(wire.wire_version() + 1);
  ExpectRefused(wire, "wire_version=");
  wire = ToProto(messages::RegisterCall());
  wire.set_name(std::string(257, 'x'));
  ExpectRefused(wire, "name has 257 bytes");
  wire = ToProto(messages::RegisterCall());
  wire.set_device(std::string(257, 'x'));
  ExpectRefused(wire, "device has 257 bytes");
  wire = ToProto(messages::RegisterCall());
  EXPECT_FALSE(wire.has_proposed());
  wire.mutable_proposed()->set_optimizer(static_cast<v1::OptimizerKind>(99));
  ExpectRefused(wire, "proposed.optimizer is 99");
  wire = ToProto(messages::RegisterCall());
  wire.mutable_layout()->add_tensors()->add_shape(-3);
  EXPECT_FALSE(FromProto(wire).ok());
}

TEST(ConvertClusterTest, DatasetInfoSurvivesWithoutNegativeSizes) {
  const messages::DatasetInfo dataset = {"f00d", 10, 2, 65, true};
  const v1::DatasetInfo good = ToProto(dataset);
  EXPECT_THAT(UnsetFields(good), IsEmpty());
  EXPECT_THAT(FromProto(good), IsOkAndHolds(dataset));
  EXPECT_THAT(FromProto(v1::DatasetInfo()), IsOkAndHolds(messages::DatasetInfo()));
  v1::DatasetInfo wire = good;
  wire.set_fingerprint(std::string(257, 'x'));
  ExpectRefused(wire, "dataset.fingerprint has 257 bytes");
  for (const char* field : {"num_train_samples", "num_heldout_samples", "tokens_per_sample"}) {
    wire = good;
    wire.GetReflection()->SetInt64(&wire, wire.GetDescriptor()->FindFieldByName(field), -1);
    ExpectRefused(wire, field);
  }
}

TEST(ConvertClusterTest, HeartbeatSurvivesWithoutNegativeNumbers) {
  const messages::HeartbeatCall call = {
      .life = {WorkerId(3), Incarnation(4)},
      .bytes_pushed = 5,
      .bytes_pulled = 6,
      .activity = "push",
      .standstill = messages::Standstill{1, absl::Milliseconds(1500)},
      .map_version = 7,
      .path = {1e6, 2e6, absl::Milliseconds(50)},
      .acknowledged = Round(8)};
  const v1::HeartbeatRequest good = ToProto(call);
  EXPECT_THAT(UnsetFields(good), IsEmpty());
  ASSERT_OK_AND_ASSIGN(const messages::HeartbeatCall back, FromProto(good));
  EXPECT_EQ(back.life, call.life);
  EXPECT_EQ(back.standstill->age, call.standstill->age);
  EXPECT_EQ(ToProto(back).SerializeAsString(), good.SerializeAsString());
  EXPECT_EQ(back.path, call.path);
  v1::HeartbeatRequest odd = good;
  odd.mutable_path()->set_down_bytes_per_second(-1.0);
  ExpectRefused(odd, "path.down_bytes_per_second=-1");
  odd = good;
  odd.mutable_path()->set_round_trip_seconds(std::numeric_limits<double>::quiet_NaN());
  ExpectRefused(odd, "path.round_trip_seconds=nan");
  EXPECT_FALSE(FromProto(v1::HeartbeatRequest())->standstill.has_value());
  EXPECT_FALSE(FromProto(v1::HeartbeatRequest())->map_version.has_value());
  EXPECT_FALSE(FromProto(v1::HeartbeatRequest())->acknowledged.has_value());
  const messages::HeartbeatAnswer answer = {ViewId(1), "shard 1",
                                            messages::ServerAddresses{8, {"a:1", "b:2"}},
                                            messages::LiveWorkers{.count = 3, .lowest_index = 1}};
  v1::HeartbeatReply reply = ToProto(answer);
  ASSERT_OK_AND_ASSIGN(const messages::HeartbeatAnswer received, FromProto(reply));
  EXPECT_EQ(received.servers->map_version, 8);
  EXPECT_EQ(received.servers->addresses, answer.servers->addresses);
  EXPECT_EQ(received.live_workers, answer.live_workers);
  std::swap(*reply.mutable_servers(0), *reply.mutable_servers(1));
  ExpectRefused(reply, "shard 1 at place 0");
  EXPECT_FALSE(FromProto(v1::HeartbeatReply())->servers.has_value());
  v1::HeartbeatRequest wire = good;
  wire.set_activity(std::string(257, 'x'));
  ExpectRefused(wire, "activity has 257 bytes");
  wire = good;
  wire.mutable_standstill()->set_shard(-1);
  ExpectRefused(wire, "standstill.shard=-1");
  wire = good;
  wire.mutable_standstill()->set_age_ms(-1);
  ExpectRefused(wire, "standstill.age_ms=-1");
}

TEST(ConvertClusterTest, GrantOfEveryKindSurvives) {
  EXPECT_THAT(UnsetFields(ToProto(SomeGrant())), IsEmpty());
  for (const messages::Grant::Kind kind :
       {messages::Grant::Kind::kTrain, messages::Grant::Kind::kEvaluate,
        messages::Grant::Kind::kDone}) {
    messages::Grant grant = SomeGrant();
    grant.kind = kind;
    EXPECT_THAT(FromProto(ToProto(grant)), IsOkAndHolds(grant));
  }
  messages::Grant wait = SomeGrant();
  wait.kind = messages::Grant::Kind::kWait;
  v1::Grant reason_only;
  reason_only.set_kind(v1::Grant::KIND_WAIT);
  reason_only.set_reason("why");
  EXPECT_EQ(ToProto(wait).SerializeAsString(), reason_only.SerializeAsString());
  EXPECT_EQ(FromProto(reason_only)->reason, "why");
  EXPECT_EQ(FromProto(v1::Grant())->kind, messages::Grant::Kind::kWait) << "of a newer release";
}

TEST(ConvertClusterTest, AGrantToTrainWhoseNumbersDoNotFitIsRefused) {
  const auto refused = [](void (*spoil)(messages::Grant&)) {
    messages::Grant grant = SomeGrant();
    spoil(grant);
    ExpectRefused(ToProto(grant), "do not fit each other");
  };
  refused([](messages::Grant& grant) { grant.num_samples = 0; });
  refused([](messages::Grant& grant) { grant.local_steps = 0; });
  refused([](messages::Grant& grant) { grant.num_samples = 1; });
  refused([](messages::Grant& grant) { grant.learning_rates.pop_back(); });
}

TEST(ConvertClusterTest, AGrantOfAnyKindWithNumbersOutOfRangeIsRefused) {
  constexpr int64_t kHuge = int64_t{1} << 61;
  const auto refused = [](const std::string& field,
                          const std::function<void(messages::Grant&)>& spoil) {
    for (const auto kind : {messages::Grant::Kind::kTrain, messages::Grant::Kind::kEvaluate,
                            messages::Grant::Kind::kDone}) {
      messages::Grant grant = SomeGrant();
      grant.kind = kind;
      spoil(grant);
      ExpectRefused(ToProto(grant), field);
    }
  };
  for (const int64_t value : {int64_t{-1}, kHuge}) {
    refused("grant.round", [=](messages::Grant& grant) { grant.round = Round(value); });
    refused("grant.min_round", [=](messages::Grant& grant) { grant.min_round = Round(value); });
    refused("grant.total_rounds", [=](messages::Grant& grant) { grant.total_rounds = value; });
    refused("grant.first_sample", [=](messages::Grant& grant) { grant.first_sample = value; });
    refused("grant.first_position", [=](messages::Grant& grant) { grant.first_position = value; });
    refused("grant.round_first_sample",
            [=](messages::Grant& grant) { grant.round_first_sample = value; });
    refused("grant.num_samples", [=](messages::Grant& grant) { grant.num_samples = value; });
    refused("grant.evaluation_set_size",
            [=](messages::Grant& grant) { grant.evaluation_set_size = value; });
    refused("grant.first_heldout_sample",
            [=](messages::Grant& g) { g.first_heldout_sample = value; });
    refused("grant.num_heldout_samples",
            [=](messages::Grant& g) { g.num_heldout_samples = value; });
  }
  refused("grant.num_samples",
          [](messages::Grant& grant) { grant.num_samples = int64_t{1} << 40; });
  refused("grant.local_steps", [](messages::Grant& grant) { grant.local_steps = 0x7fffffff; });
  refused("grant.local_steps", [](messages::Grant& grant) { grant.local_steps = -1; });
  refused("grant.num_heldout_samples",
          [](messages::Grant& grant) { grant.num_heldout_samples = 3; });
  for (const double rate : {-0.1, std::nan(""), HUGE_VAL}) {
    refused("grant.learning_rates",
            [=](messages::Grant& grant) { grant.learning_rates[1] = rate; });
  }
}

TEST(ConvertClusterTest, WhatAWorkerSaysOfItselfIsNoMoreThanText) {
  const std::string text = "a\x1b[2J\nb";
  const std::string shown = "a\\x1b[2J\\nb";
  v1::RegisterRequest call = ToProto(messages::RegisterCall());
  call.set_device(text);
  EXPECT_EQ(FromProto(call)->device, shown);
  v1::DatasetInfo dataset;
  dataset.set_fingerprint(text);
  EXPECT_EQ(FromProto(dataset)->fingerprint, shown);
  v1::HeartbeatRequest heartbeat;
  heartbeat.set_activity(text);
  EXPECT_EQ(FromProto(heartbeat)->activity, shown);
  call.set_wire_version(0);
  call.set_name(text);
  call.set_software_version(text + std::string(1 << 20, 'x'));
  const absl::Status refused = FromProto(call).status();
  EXPECT_THAT(std::string(refused.message()), HasSubstr(shown));
  EXPECT_EQ(refused.message().find('\x1b'), absl::string_view::npos);
  EXPECT_LT(refused.message().size(), 2000u);
}

TEST(ConvertClusterTest, WhatAWorkerIsToldIsNoMoreThanText) {
  v1::Grant wire = ToProto(SomeGrant());
  wire.set_kind(v1::Grant::KIND_WAIT);
  wire.set_reason("a\x1b[2J" + std::string(1 << 20, 'x'));
  EXPECT_THAT(FromProto(wire)->reason, testing::StartsWith("a\\x1b[2Jx"));
  EXPECT_LT(FromProto(wire)->reason.size(), 3000u);
  v1::HeartbeatReply reply;
  reply.set_waiting_for(wire.reason());
  EXPECT_EQ(FromProto(reply)->waiting_for, FromProto(wire)->reason);
}

TEST(ConvertClusterTest, RoundReportSurvives) {
  const v1::RoundReport wire = SomeReport();
  EXPECT_THAT(UnsetFields(wire), IsEmpty());
  ASSERT_OK_AND_ASSIGN(const messages::RoundReport back, FromProto(wire));
  EXPECT_EQ(ToProto(back).SerializeAsString(), wire.SerializeAsString());
}

TEST(ConvertClusterTest, AReportWithNegativeCountsOrImpossibleTimesIsRefused) {
  for (const char* field : {"round", "num_predictions", "num_samples", "heldout_correct",
                            "heldout_predictions", "lost_residual_rounds"}) {
    v1::RoundReport wire = SomeReport();
    wire.GetReflection()->SetInt64(&wire, wire.GetDescriptor()->FindFieldByName(field), -1);
    ExpectRefused(wire, field);
  }
  for (const char* field : {"compute_seconds", "communication_seconds", "wait_seconds"}) {
    // The last value is too large for absl::Duration.
    for (const double value : {-1.0, std::numeric_limits<double>::quiet_NaN(),
                               std::numeric_limits<double>::infinity(), 1e200}) {
      v1::RoundReport wire = SomeReport();
      wire.GetReflection()->SetDouble(&wire, wire.GetDescriptor()->FindFieldByName(field), value);
      ExpectRefused(wire, field);
    }
  }
  v1::RoundReport told = SomeReport();
  (*told.mutable_metrics())["no spaces"] = 1.0;
  ExpectRefused(told, "'no spaces'");
  told.clear_metrics();
  for (size_t i = 0; i <= messages::kMaxMetrics; ++i)
    (*told.mutable_metrics())[absl::StrCat("m", i)] = 1.0;
  ExpectRefused(told, "the number of report.metrics=33 is out of range; allowed are 0 to 32");
  v1::RoundReport diverged = SomeReport();
  diverged.set_loss_sum(std::numeric_limits<double>::quiet_NaN());
  EXPECT_OK(FromProto(diverged)) << "a diverged worker says so";
}

}  // namespace
}  // namespace lodestar::wire
