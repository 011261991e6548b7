// SPDX-License-Identifier: Apache-2.0

// Compares an update in one pass with the same update in steps: all bits must be the same.
#include "server/shard/bucket_weights.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <tuple>
#include <vector>

#include "common/testing/status_matchers.h"
#include "kernels/codec/codec.h"
#include "server/optimizer/optimizer_factory.h"

namespace lodestar::shard {
namespace {

// The bucket has several parts of kMeanPartElements elements. The last part is shorter.
constexpr int64_t kElements = 3 * 16384 + 5;
// Weight decay begins within one part, and ends within another.
constexpr int64_t kDecayBegin = 5;
constexpr int64_t kDecayEnd = 20'005;

std::vector<float> Random(int seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(kElements);
  for (float& value : values) value = normal(generator);
  return values;
}

std::vector<std::byte> Encoded(params::Encoding encoding, int seed) {
  std::vector<std::byte> bytes(params::EncodedBytes(encoding, kElements));
  codec::CodecOf(encoding).Encode(Random(seed).data(), kElements, {}, bytes.data());
  return bytes;
}

enum class First { kNone, kAdded, kAdopted };

class BucketWeightsTest : public ::testing::TestWithParam<params::Encoding> {
 protected:
  BucketWeightsTest()
      : layout_(*params::Layout::FromTensors(
            {{"a", {kDecayBegin}, 0, 0, false, {}},
             {"b", {kDecayEnd - kDecayBegin}, kDecayBegin, 0, true, {}},
             {"c", {kElements - kDecayEnd}, kDecayEnd, 0, false, {}}})) {
    job_.optimizer.kind = job::OptimizerKind::kAdamW;
    job_.optimizer.weight_decay = 0.1;
    optimizer_ = optimizer::MakeServerOptimizer(job_);
  }

  // Returns weights with a mean of one contribution, which was added or adopted. kNone means that
  // the mean is empty.
  std::unique_ptr<BucketWeights> Make(First first) {
    auto weights = std::make_unique<BucketWeights>(BucketWeights::Part{.range = {0, kElements}},
                                                   job_, layout_, *optimizer_, pages_);
    const absl::StatusOr<absl::Span<float>> space = weights->InitialWeights();
    EXPECT_TRUE(space.ok()) << space.status();
    const std::vector<float> values = Random(1);
    std::copy(values.begin(), values.end(), space->begin());
    if (first == First::kAdded) {
      weights->mean().Add(GetParam(), Encoded(GetParam(), 2).data(), Share(1));
    } else if (first == First::kAdopted) {
      const std::shared_ptr<Page> page = pages_.Allocate(kElements);
      const std::vector<std::byte> bytes = Encoded(GetParam(), 2);
      std::copy(bytes.begin(), bytes.end(), reinterpret_cast<std::byte*>(page->data()));
      EXPECT_TRUE(weights->mean().CanAdopt(GetParam(), page->size()));
      weights->mean().Adopt(page, GetParam(), Share(1));
    }
    return weights;
  }

  static MeanShare Share(uint32_t order) { return {.factor = 0.3f, .order = order}; }

  // Returns weights and optimizer state, one after the other.
  static std::vector<float> All(const BucketWeights& weights) {
    BucketState state;
    weights.LendTo(state);
    std::vector<float> all(state.weights->data(), state.weights->data() + kElements);
    for (const auto& page : state.optimizer_state) {
      all.insert(all.end(), page->data(), page->data() + kElements);
    }
    return all;
  }

  job::JobSpec job_;
  const params::Layout layout_;
  std::unique_ptr<const optimizer::Optimizer> optimizer_;
  PagePool pages_;
};

TEST_P(BucketWeightsTest, OnePassHasTheBitsOfItsSteps) {
  const params::Encoding encoding = GetParam();
  const std::vector<std::byte> last_bytes = Encoded(encoding, 3);
  const optimizer::OptimizerCall call = {.step = 3, .learning_rate = 0.1, .gradient_scale = 0.9f};
  for (const First first : {First::kNone, First::kAdded, First::kAdopted}) {
    for (const bool has_last : {false, true}) {
      for (const float rescale : {1.0f, 0.7f}) {
        SCOPED_TRACE(testing::Message() << static_cast<int>(first) << has_last << rescale);
        const auto stepwise = Make(first);
        if (has_last) stepwise->mean().Add(encoding, last_bytes.data(), Share(2));
        stepwise->FinishMean(rescale, /*clip=*/1.0f);
        EXPECT_TRUE(stepwise->ApplyMean(call, /*has_update=*/true));
        const auto at_once = Make(first);
        const std::vector<float> before = All(*at_once);
        std::optional<LastContribution> last;
        if (has_last) last = {encoding, last_bytes.data(), Share(2)};
        EXPECT_TRUE(at_once->FinishAndApply(call, last, rescale));
        EXPECT_EQ(All(*at_once), All(*stepwise));
        EXPECT_EQ(All(*at_once) == before, first == First::kNone && !has_last);
        if (first == First::kAdopted) {
          const auto added = Make(First::kAdded);
          EXPECT_TRUE(added->FinishAndApply(call, last, rescale));
          EXPECT_EQ(All(*at_once), All(*added));
        }
        EXPECT_EQ(at_once->mean().mean(), nullptr);
      }
    }
  }
}

TEST_P(BucketWeightsTest, AContributionAloneHasTheBitsOfAMeanOfOne) {
  const std::vector<std::byte> bytes = Encoded(GetParam(), 3);
  const optimizer::OptimizerCall call = {.step = 3, .learning_rate = 0.1, .gradient_scale = 0.9f};
  const auto mean_of_one = Make(First::kNone);
  mean_of_one->mean().Add(GetParam(), bytes.data(), MeanShare());
  mean_of_one->FinishMean(/*rescale=*/1.0f, /*clip=*/1.0f);
  EXPECT_TRUE(mean_of_one->ApplyMean(call, /*has_update=*/true));
  const auto alone = Make(First::kNone);
  EXPECT_TRUE(
      alone->ApplyAlone(call, messages::ContributionKind::kGradient, GetParam(), bytes.data()));
  EXPECT_EQ(All(*alone), All(*mean_of_one));
}

TEST_P(BucketWeightsTest, OnePassLeavesReadersWhatTheyRead) {
  const std::vector<std::byte> bytes = Encoded(GetParam(), 3);
  const auto weights = Make(First::kAdded);
  const std::shared_ptr<const Page> lent = weights->LendWeights();
  const std::vector<float> read(lent->data(), lent->data() + kElements);
  EXPECT_TRUE(weights->FinishAndApply({.learning_rate = 0.1},
                                      LastContribution{GetParam(), bytes.data(), Share(2)}, 1.0f));
  EXPECT_EQ(std::vector<float>(lent->data(), lent->data() + kElements), read);
  const std::vector<float> all = All(*weights);
  EXPECT_NE(std::vector<float>(all.begin(), all.begin() + kElements), read);
}

// The value that is not finite lies in a part that is neither the first nor the last.
TEST_P(BucketWeightsTest, OnePassTellsOfWhatIsNotFinite) {
  const auto weights = Make(First::kNone);
  std::vector<float> values = Random(3);
  values[16384 + 7] = 3e38f;
  const auto* const bytes = reinterpret_cast<const std::byte*>(values.data());
  EXPECT_FALSE(weights->FinishAndApply({.learning_rate = 0.1, .gradient_scale = 1e30f},
                                       LastContribution{params::Encoding::kFp32, bytes, {}}, 1.0f));
}

class BucketShadowTest : public ::testing::TestWithParam<std::tuple<params::Encoding, bool>> {};

// Makes updates in every way: with a finished mean, in one pass, with one contribution alone, and
// with an empty mean. The changes that workers get must equal those of a shadow that encodes whole
// vectors after each update.
TEST_P(BucketShadowTest, FollowsEveryKindOfUpdate) {
  const auto [encoding, error_feedback] = GetParam();
  job::JobSpec job;
  job.pull_encoding = encoding;
  job.error_feedback = error_feedback;
  job.seed = 7;
  const params::Layout layout =
      *params::Layout::FromTensors({{"a", {kElements}, 0, 0, /*decay=*/false, /*init=*/{}}});
  const std::unique_ptr<const optimizer::Optimizer> optimizer = optimizer::MakeServerOptimizer(job);
  PagePool pages;
  BucketWeights weights({.range = {0, kElements}}, job, layout, *optimizer, pages);
  const std::vector<float> first = Random(1);
  const absl::StatusOr<absl::Span<float>> space = weights.InitialWeights();
  ASSERT_TRUE(space.ok()) << space.status();
  std::copy(first.begin(), first.end(), space->begin());
  weights.ResetShadow(Version(0));

  // The reference does the same as BucketShadow, on whole vectors of its own.
  BucketShadow reference({.encoding = encoding, .error_feedback = error_feedback, .seed = 7},
                         {0, kElements}, pages);
  ASSERT_TRUE(reference.Allocate());
  reference.Reset(*weights.LendWeights(), Version(0));

  const std::vector<float> gradient = Random(2);
  const auto* const bytes = reinterpret_cast<const std::byte*>(gradient.data());
  for (int step = 1; step <= 5; ++step) {
    SCOPED_TRACE(step);
    const optimizer::OptimizerCall call = {.step = step, .learning_rate = 0.1};
    const std::vector<float> before(weights.data(), weights.data() + kElements);
    const LastContribution last = {params::Encoding::kFp32, bytes, MeanShare()};
    switch (step) {
      case 1:
        EXPECT_TRUE(weights.FinishAndApply(call, last, /*rescale=*/1.0f));
        break;
      case 2:
        weights.mean().Add(params::Encoding::kFp32, bytes, MeanShare());
        EXPECT_TRUE(weights.FinishAndApply(call, std::nullopt, /*rescale=*/1.0f));
        break;
      case 3:
        weights.mean().Add(params::Encoding::kFp32, bytes, MeanShare());
        weights.FinishMean(/*rescale=*/1.0f, /*clip=*/1.0f);
        EXPECT_TRUE(weights.ApplyMean(call, /*has_update=*/true));
        break;
      case 4:
        EXPECT_TRUE(weights.ApplyAlone(call, messages::ContributionKind::kGradient,
                                       params::Encoding::kFp32, bytes));
        break;
      case 5:  // as if there had been no memory for the mean
        EXPECT_TRUE(weights.ApplyMean(call, /*has_update=*/true));
    }
    EXPECT_EQ(before == std::vector<float>(weights.data(), weights.data() + kElements), step == 5);
    reference.BeginAdvance(Version(step));
    reference.AdvancePart(0, {weights.data(), static_cast<size_t>(kElements)});
    reference.EndAdvance();

    const auto change_of = [step](const PublishedBucket& lent) {
      EXPECT_EQ(lent.version, Version(step));
      EXPECT_EQ(lent.changes.size(), 1u);
      const auto* const begin = reinterpret_cast<const std::byte*>(lent.changes.at(0)->data());
      return std::vector<std::byte>(begin, begin + params::EncodedBytes(lent.encoding, kElements));
    };
    const ReadView view = {.shadow = true, .held = Version(step - 1)};
    EXPECT_EQ(change_of(weights.Lend(view, Version(step))),
              change_of(reference.Lend(Version(step - 1))));
    const auto whole = [](const std::shared_ptr<const Page>& page) {
      return std::vector<float>(page->data(), page->data() + kElements);
    };
    EXPECT_EQ(whole(weights.LendShadow()), whole(reference.Lend(std::nullopt).page));
  }
}

INSTANTIATE_TEST_SUITE_P(Encodings, BucketShadowTest,
                         ::testing::Combine(::testing::Values(params::Encoding::kBf16,
                                                              params::Encoding::kInt8),
                                            ::testing::Bool()));

INSTANTIATE_TEST_SUITE_P(Encodings, BucketWeightsTest, ::testing::ValuesIn(params::kAllEncodings));

}  // namespace
}  // namespace lodestar::shard
