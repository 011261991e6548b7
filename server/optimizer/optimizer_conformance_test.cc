// SPDX-License-Identifier: Apache-2.0

// Tests the laws that every server optimizer must keep, against a reference in double.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "server/optimizer/adamw.h"
#include "server/optimizer/optimizer.h"
#include "server/optimizer/optimizer_factory.h"
#include "server/optimizer/outer.h"
#include "server/optimizer/sgd.h"

namespace lodestar::optimizer {
namespace {

// State of one element in the reference computation.
struct ReferenceElement {
  double weight = 0.0;
  double state[kMaxStateVectors] = {};
};

using ReferenceStep = std::function<void(const OptimizerCall&, double gradient, bool decays,
                                         ReferenceElement& element)>;

struct Case {
  std::string name;
  std::function<std::unique_ptr<Optimizer>()> make;
  ReferenceStep reference;
  bool uses_decay = true;
};

std::ostream& operator<<(std::ostream& out, const Case& c) { return out << c.name; }

constexpr double kDecay = 0.25;
constexpr double kMomentum = 0.9;
constexpr int kSize = 203;  // not a multiple of any vector width

ReferenceStep MomentumReference(bool nesterov) {
  return [nesterov](const OptimizerCall& call, double g, bool decays, ReferenceElement& e) {
    e.state[0] = kMomentum * e.state[0] + g;
    if (decays) e.weight -= call.learning_rate * kDecay * e.weight;
    e.weight -= call.learning_rate * (nesterov ? g + kMomentum * e.state[0] : e.state[0]);
  };
}

void AdamWReference(const OptimizerCall& call, double g, bool decays, ReferenceElement& e) {
  e.state[0] = 0.9 * e.state[0] + (1 - 0.9) * g;
  e.state[1] = 0.95 * e.state[1] + (1 - 0.95) * g * g;
  if (decays) e.weight -= call.learning_rate * kDecay * e.weight;
  const double m = e.state[0] / (1 - std::pow(0.9, call.step));
  const double v = e.state[1] / (1 - std::pow(0.95, call.step));
  e.weight -= call.learning_rate * m / (std::sqrt(v) + 1e-8);
}

// Returns the reference for averaging. The optimizer ignores the scale of gradients, so the
// reference divides `scaled` by that scale.
ReferenceStep AveragingReference(bool is_of_changes) {
  return [is_of_changes](const OptimizerCall& call, double scaled, bool, ReferenceElement& e) {
    const double mean = scaled / call.gradient_scale;
    e.weight = is_of_changes ? e.weight - mean : mean;
  };
}

std::vector<Case> Cases() {
  return {
      {"Sgd", [] { return std::make_unique<Sgd>(Sgd::Config{.weight_decay = kDecay}); },
       [](const OptimizerCall& call, double g, bool decays, ReferenceElement& e) {
         if (decays) e.weight -= call.learning_rate * kDecay * e.weight;
         e.weight -= call.learning_rate * g;
       }},
      {"Momentum",
       [] {
         return std::make_unique<Momentum>(
             Momentum::Config{.momentum = kMomentum, .weight_decay = kDecay});
       },
       MomentumReference(false)},
      {"Nesterov",
       [] {
         return std::make_unique<Nesterov>(
             Nesterov::Config{.momentum = kMomentum, .weight_decay = kDecay});
       },
       MomentumReference(true)},
      {"AdamW", [] { return std::make_unique<AdamW>(AdamW::Config{.weight_decay = kDecay}); },
       AdamWReference},
      {"Reduce",
       [] {
         return MakeGradientOptimizer(
             {.kind = job::OptimizerKind::kReduce, .weight_decay = kDecay});
       },
       [](const OptimizerCall&, double g, bool, ReferenceElement& e) { e.weight = g; },
       /*uses_decay=*/false},
      {"OuterAverage", [] { return std::make_unique<OuterAverage>(); },
       [](const OptimizerCall&, double mean, bool, ReferenceElement& e) { e.weight = mean; },
       /*uses_decay=*/false},
      {"OuterSgd", [] { return std::make_unique<OuterSgd>(0.3); },
       [](const OptimizerCall&, double d, bool, ReferenceElement& e) { e.weight -= 0.3 * d; },
       /*uses_decay=*/false},
      {"AveragingOfValues",
       [] {
         job::JobSpec job;
         job.optimizer = {.kind = job::OptimizerKind::kAdamW, .weight_decay = kDecay};
         return MakeAveraging(job);
       },
       AveragingReference(/*is_of_changes=*/false), /*uses_decay=*/false},
      {"AveragingOfChanges",
       [] {
         job::JobSpec job;
         job.mode = job::Mode::kLocalSgd;
         job.outer_optimizer = job::OuterOptimizerKind::kNesterov;
         return MakeAveraging(job);
       },
       AveragingReference(/*is_of_changes=*/true), /*uses_decay=*/false},
      {"OuterNesterov",
       [] {
         return std::make_unique<OuterNesterov>(
             OuterNesterov::Config{.learning_rate = 0.7, .momentum = kMomentum});
       },
       [](const OptimizerCall&, double d, bool, ReferenceElement& e) {
         e.state[0] = kMomentum * e.state[0] + d;
         e.weight -= 0.7 * (d + kMomentum * e.state[0]);
       },
       /*uses_decay=*/false},
      {"OuterDelayedNesterov",
       [] {
         return std::make_unique<OuterDelayedNesterov>(
             OuterNesterov::Config{.learning_rate = 0.7, .momentum = kMomentum});
       },
       [](const OptimizerCall& call, double d, bool, ReferenceElement& e) {
         double& momentum = e.state[0];
         double& sum = e.state[1];
         double& anchor = e.state[2];
         if (call.part.is_first) anchor = e.weight;
         sum = call.part.is_first ? d : sum + d;
         e.weight = anchor - 0.7 * sum;
         if (!call.part.is_last) return;
         sum *= call.part.rescale;
         momentum = kMomentum * momentum + sum;
         e.weight = anchor - 0.7 * (sum + kMomentum * momentum);
       },
       /*uses_decay=*/false},
      {"OuterAdam",
       [] {
         return std::make_unique<OuterAdam>(OuterAdam::Config{
             .learning_rate = 0.3, .beta1 = kMomentum, .beta2 = 0.95, .epsilon = 0.1});
       },
       [](const OptimizerCall& call, double d, bool, ReferenceElement& e) {
         e.state[0] = kMomentum * e.state[0] + (1 - kMomentum) * d;
         e.state[1] = 0.95 * e.state[1] + (1 - 0.95) * d * d;
         const double step = static_cast<double>(call.step);
         const double first = e.state[0] / (1 - std::pow(kMomentum, step));
         const double second = e.state[1] / (1 - std::pow(0.95, step));
         e.weight -= 0.3 * first / (std::sqrt(second) + 0.1);
       },
       /*uses_decay=*/false},
  };
}

float Gradient(int step, int i) { return std::sin(0.7f * i + 1.3f * step) + 0.1f; }
float Weight(int i) { return std::cos(0.3f * i); }

// Returns the arguments of update number `step`. Optimizers that know parts make one step of
// updates 2 and 3.
OptimizerCall CallOf(int step) {
  return {
      .step = step,
      .learning_rate = 0.05 / step,
      .gradient_scale = step == 2 ? 0.5f : 1.0f,
      .part = {.is_first = step != 3, .is_last = step != 2, .rescale = step == 3 ? 0.625f : 1.0f}};
}

const std::vector<params::ElementRange> kDecayRanges = {{10, 75}, {75, 76}, {130, kSize}};

bool Decays(int i) { return (i >= 10 && i < 76) || i >= 130; }

struct Vectors {
  std::vector<float> weights;
  std::vector<float> state[kMaxStateVectors];

  explicit Vectors(int num_state_vectors) {
    for (int i = 0; i < kSize; ++i) weights.push_back(Weight(i));
    for (int s = 0; s < num_state_vectors; ++s) state[s].assign(kSize, 0.0f);
  }
  friend bool operator==(const Vectors& a, const Vectors& b) {
    auto same = [](const std::vector<float>& x, const std::vector<float>& y) {
      return x.size() == y.size() && std::memcmp(x.data(), y.data(), x.size() * 4) == 0;
    };
    return same(a.weights, b.weights) && same(a.state[0], b.state[0]) &&
           same(a.state[1], b.state[1]) && same(a.state[2], b.state[2]);
  }
};

class OptimizerConformanceTest : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    optimizer_ = GetParam().make();
    for (int step = 1; step <= kSteps; ++step) {
      for (int i = 0; i < kSize; ++i) gradients_[step].push_back(Gradient(step, i));
    }
  }

  // Makes one update of the elements [begin, end).
  void Apply(Vectors& vectors, int step, int begin, int end,
             std::vector<params::ElementRange> decay) {
    const size_t n = end - begin;
    OptimizerVectors part = {
        .gradient = {gradients_[step].data() + begin, n},
        .weights_in = {vectors.weights.data() + begin, n},
        .weights_out = {vectors.weights.data() + begin, n},
        .state = {},
    };
    for (int s = 0; s < optimizer_->num_state_vectors(); ++s) {
      part.state[s] = {vectors.state[s].data() + begin, n};
    }
    optimizer_->Apply(CallOf(step), part, decay);
  }
  void ApplyWhole(Vectors& vectors, int step) { Apply(vectors, step, 0, kSize, kDecayRanges); }

  static constexpr int kSteps = 4;
  std::unique_ptr<Optimizer> optimizer_;
  std::vector<float> gradients_[kSteps + 1];
};

TEST_P(OptimizerConformanceTest, FollowsTheReferenceInDouble) {
  Vectors vectors(optimizer_->num_state_vectors());
  std::vector<ReferenceElement> reference(kSize);
  for (int i = 0; i < kSize; ++i) reference[i].weight = Weight(i);
  for (int step = 1; step <= kSteps; ++step) {
    ApplyWhole(vectors, step);
    const OptimizerCall call = CallOf(step);
    for (int i = 0; i < kSize; ++i) {
      GetParam().reference(call, static_cast<double>(gradients_[step][i]) * call.gradient_scale,
                           Decays(i), reference[i]);
    }
  }
  for (int i = 0; i < kSize; ++i) {
    // The tolerance allows for a few fp32 roundings per step.
    ASSERT_NEAR(vectors.weights[i], reference[i].weight, 2e-6) << "element " << i;
    for (int s = 0; s < optimizer_->num_state_vectors(); ++s) {
      ASSERT_NEAR(vectors.state[s][i], reference[i].state[s], 2e-6) << "element " << i;
    }
  }
}

TEST_P(OptimizerConformanceTest, CuttingChangesNoBit) {
  Vectors whole(optimizer_->num_state_vectors());
  Vectors cut(optimizer_->num_state_vectors());
  for (int step = 1; step <= kSteps; ++step) {
    ApplyWhole(whole, step);
    Apply(cut, step, 0, 33, {{10, 33}});
    Apply(cut, step, 33, 101, {{0, 43}});
    Apply(cut, step, 101, kSize, {{29, kSize - 101}});
  }
  EXPECT_TRUE(whole == cut);
}

TEST_P(OptimizerConformanceTest, DecaysOnlyWhereMarked) {
  Vectors marked(optimizer_->num_state_vectors());
  Vectors plain(optimizer_->num_state_vectors());
  ApplyWhole(marked, 1);
  Apply(plain, 1, 0, kSize, {});
  for (int i = 0; i < kSize; ++i) {
    const bool differs = marked.weights[i] != plain.weights[i];
    // A weight of zero does not change by decay.
    if (Weight(i) != 0.0f) {
      ASSERT_EQ(differs, GetParam().uses_decay && Decays(i)) << "element " << i;
    }
  }
}

TEST_P(OptimizerConformanceTest, WritesElsewhereWithTheSameBits) {
  Vectors in_place(optimizer_->num_state_vectors());
  Vectors elsewhere(optimizer_->num_state_vectors());
  std::vector<float> out(kSize, -7.0f);
  ApplyWhole(in_place, 1);
  OptimizerVectors vectors = {
      .gradient = gradients_[1],
      .weights_in = elsewhere.weights,
      .weights_out = absl::MakeSpan(out),
      .state = {absl::MakeSpan(elsewhere.state[0]), absl::MakeSpan(elsewhere.state[1]),
                absl::MakeSpan(elsewhere.state[2])},
  };
  optimizer_->Apply(CallOf(1), vectors, kDecayRanges);
  EXPECT_EQ(elsewhere.weights[5], Weight(5)) << "the old weights were touched";
  elsewhere.weights = out;
  EXPECT_TRUE(in_place == elsewhere);
}

TEST_P(OptimizerConformanceTest, GoesOnFromSavedStateWithTheSameBits) {
  Vectors straight(optimizer_->num_state_vectors());
  for (int step = 1; step <= 2; ++step) ApplyWhole(straight, step);
  Vectors restored = straight;
  optimizer_ = GetParam().make();
  for (int step = 3; step <= kSteps; ++step) ApplyWhole(restored, step);
  optimizer_ = GetParam().make();
  Vectors again(optimizer_->num_state_vectors());
  for (int step = 1; step <= kSteps; ++step) ApplyWhole(again, step);
  EXPECT_TRUE(again == restored);
}

INSTANTIATE_TEST_SUITE_P(All, OptimizerConformanceTest, testing::ValuesIn(Cases()),
                         [](const auto& info) { return info.param.name; });

TEST(OptimizerFactoryTest, GradientOptimizerInSyncAndAsyncOuterOneInLocalSgd) {
  job::JobSpec job;
  job.optimizer.kind = job::OptimizerKind::kAdamW;
  job.outer_optimizer = job::OuterOptimizerKind::kNesterov;
  job.mode = job::Mode::kSync;
  EXPECT_EQ(MakeServerOptimizer(job)->num_state_vectors(), 2);
  job.mode = job::Mode::kAsync;
  EXPECT_EQ(MakeServerOptimizer(job)->num_state_vectors(), 2);
  job.mode = job::Mode::kLocalSgd;
  EXPECT_EQ(MakeServerOptimizer(job)->state_names(), std::vector<std::string>{"outer_momentum"});
  job.outer_optimizer = job::OuterOptimizerKind::kAverage;
  EXPECT_EQ(MakeServerOptimizer(job)->num_state_vectors(), 0);
  job.outer_optimizer = job::OuterOptimizerKind::kSgd;
  EXPECT_EQ(MakeServerOptimizer(job)->num_state_vectors(), 0);
  job.outer_optimizer = job::OuterOptimizerKind::kAdam;
  EXPECT_EQ(MakeServerOptimizer(job)->num_state_vectors(), 2);
}

TEST(OptimizerFactoryTest, AverageTakesWhatTheJobsWorkersSend) {
  job::JobSpec job;
  job.mode = job::Mode::kLocalSgd;
  job.outer_optimizer = job::OuterOptimizerKind::kAverage;
  const std::vector<float> sent = {0.25f};
  const std::vector<float> old = {1.0f};
  std::vector<float> out(1);
  const OptimizerVectors vectors = {
      .gradient = sent, .weights_in = old, .weights_out = absl::MakeSpan(out), .state = {}};
  MakeServerOptimizer(job)->Apply({}, vectors, {});
  EXPECT_EQ(out[0], 0.25f);
  job.pull_encoding = params::Encoding::kBf16;
  MakeServerOptimizer(job)->Apply({}, vectors, {});
  EXPECT_EQ(out[0], 0.75f);
  job.pull_encoding = params::Encoding::kFp32;
  job.push_encoding = params::Encoding::kInt8;
  MakeServerOptimizer(job)->Apply({}, vectors, {});
  EXPECT_EQ(out[0], 0.75f);
}

TEST(OptimizerFactoryTest, WhatIsAveragedHasTheStateOfTheJobsOptimizer) {
  job::JobSpec job;
  for (const job::OptimizerKind kind : {job::OptimizerKind::kSgd, job::OptimizerKind::kMomentum,
                                        job::OptimizerKind::kAdamW, job::OptimizerKind::kReduce}) {
    job.optimizer.kind = kind;
    EXPECT_EQ(MakeAveraging(job)->state_names(), MakeServerOptimizer(job)->state_names());
  }
  job.mode = job::Mode::kLocalSgd;
  for (const job::OuterOptimizerKind kind :
       {job::OuterOptimizerKind::kAverage, job::OuterOptimizerKind::kSgd,
        job::OuterOptimizerKind::kNesterov, job::OuterOptimizerKind::kAdam}) {
    job.outer_optimizer = kind;
    EXPECT_EQ(MakeAveraging(job)->state_names(), MakeServerOptimizer(job)->state_names());
  }
}

TEST(OptimizerFactoryTest, SgdOfRateOneIsTheAverageOfChanges) {
  job::JobSpec job;
  job.mode = job::Mode::kLocalSgd;
  job.outer_optimizer = job::OuterOptimizerKind::kSgd;
  job.outer_learning_rate = 1.0;
  const std::vector<float> sent = {0.3f, -2e-7f};
  const std::vector<float> old = {1.0f, 0.1f};
  std::vector<float> stepped(2), averaged(2);
  MakeServerOptimizer(job)->Apply({}, {sent, old, absl::MakeSpan(stepped), {}}, {});
  job.outer_optimizer = job::OuterOptimizerKind::kAverage;
  job.push_encoding = params::Encoding::kInt8;  // so that workers send changes
  MakeServerOptimizer(job)->Apply({}, {sent, old, absl::MakeSpan(averaged), {}}, {});
  EXPECT_EQ(stepped, averaged);
}

TEST(OuterOptimizerTest, AverageOfOneKeepsEveryBit) {
  const std::vector<float> mean = {0.1f, -0.0f, 3e-42f, 1e38f};
  const std::vector<float> old = {1.0f, 2.0f, 3.0f, 4.0f};
  std::vector<float> out(4);
  OuterAverage().Apply(
      {}, {.gradient = mean, .weights_in = old, .weights_out = absl::MakeSpan(out), .state = {}},
      {});
  EXPECT_EQ(std::memcmp(out.data(), mean.data(), 16), 0);
}

}  // namespace
}  // namespace lodestar::optimizer
