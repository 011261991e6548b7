// SPDX-License-Identifier: Apache-2.0

#include "server/coordinator/rounds/data_sets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "common/testing/status_matchers.h"

namespace lodestar::rounds {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

messages::DatasetInfo Shared(const std::string& fingerprint, int64_t samples = 100) {
  return {.fingerprint = fingerprint, .num_train_samples = samples, .num_heldout_samples = 9};
}

messages::DatasetInfo Own(const std::string& fingerprint, int64_t samples = 100) {
  messages::DatasetInfo data = Shared(fingerprint, samples);
  data.own_partition = true;
  return data;
}

constexpr WorkerId kAnn(1);
constexpr WorkerId kBob(2);
constexpr WorkerId kEve(3);

TEST(DataSetsTest, SharedDataIsComparedWhoeverJoinedFirst) {
  DataSets data;
  ASSERT_OK(data.Admit(kAnn, "ann", Own("ann's")));
  ASSERT_OK(data.Admit(kBob, "bob", Shared("a")));
  const absl::Status refused = data.Admit(kEve, "eve", Shared("b", 77));
  EXPECT_THAT(refused, StatusIs(absl::StatusCode::kFailedPrecondition,
                                AllOf(HasSubstr("fingerprint a"), HasSubstr("fingerprint b"),
                                      HasSubstr("77 training"), HasSubstr("100 training"),
                                      HasSubstr("--data_partition=own"))));
  EXPECT_OK(data.Admit(kEve, "eve", Own("b", 77)));
  EXPECT_EQ(data.Present().size(), 3);
}

TEST(DataSetsTest, ARefusalNamesWhoBroughtTheJobsData) {
  DataSets data;
  ASSERT_OK(data.Admit(kAnn, "ann", Shared("a")));
  ASSERT_OK(data.Admit(kBob, "bob", Shared("a")));
  EXPECT_THAT(data.Admit(kEve, "eve", Shared("b")),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("which worker 'ann' has"), HasSubstr("as worker 'ann'"))));
  DataSets restored({{Shared("a"), 5}});  // from a release that did not keep the name
  EXPECT_THAT(
      restored.Admit(kEve, "eve", Shared("b")),
      StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("which its checkpoint names")));
}

TEST(DataSetsTest, WorkerThatComesBackWithOtherDataIsNotReferredToItself) {
  DataSets data;
  ASSERT_OK(data.Admit(kAnn, "ann", Shared("a")));
  data.Take(data.SetOf(kAnn), 5);
  data.Release(kAnn);
  EXPECT_THAT(data.Admit(kAnn, "ann", Shared("b")),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(Not(HasSubstr("'ann'")), HasSubstr("--data"))));
}

TEST(DataSetsTest, EqualSizesDoNotMakeEqualData) {
  DataSets data;
  ASSERT_OK(data.Admit(kAnn, "ann", Shared("a")));
  messages::DatasetInfo other = Shared("a");
  other.num_heldout_samples = 8;
  EXPECT_FALSE(data.Admit(kBob, "bob", other).ok());
  EXPECT_FALSE(data.Admit(kBob, "bob", Shared("b")).ok());
}

TEST(DataSetsTest, WorkersWithTheSameDataShareItsCursor) {
  DataSets data;
  ASSERT_OK(data.Admit(kAnn, "ann", Own("a")));
  ASSERT_OK(data.Admit(kBob, "bob", Own("b")));
  ASSERT_OK(data.Admit(kEve, "eve", Own("a")));
  EXPECT_EQ(data.Take(data.SetOf(kAnn), 5), 0);
  EXPECT_EQ(data.Take(data.SetOf(kBob), 7), 0);
  EXPECT_EQ(data.Take(data.SetOf(kEve), 5), 5);
  EXPECT_EQ(data.Take(data.SetOf(kBob), 7), 7);
}

TEST(DataSetsTest, OwnDataThatIsTheSharedSetIsThatSet) {
  DataSets data;
  ASSERT_OK(data.Admit(kAnn, "ann", Own("a")));
  data.Take(data.SetOf(kAnn), 5);
  ASSERT_OK(data.Admit(kBob, "bob", Shared("a")));
  EXPECT_EQ(data.Take(data.SetOf(kBob), 5), 5);
  EXPECT_FALSE(data.Admit(kEve, "eve", Shared("b")).ok()) << "now the job has shared data";
}

TEST(DataSetsTest, ASetGoesOnWhereItsWorkerLeftIt) {
  DataSets data;
  ASSERT_OK(data.Admit(kAnn, "ann", Own("a")));
  data.Take(data.SetOf(kAnn), 5);
  data.Release(kAnn);
  EXPECT_TRUE(data.Present().empty());
  ASSERT_OK(data.Admit(kBob, "bob", Own("a"))) << "under another name";
  EXPECT_EQ(data.Take(data.SetOf(kBob), 1), 5);
}

TEST(DataSetsTest, DataMayChangeWhileNothingWasHandedOutAndNobodyIsThere) {
  DataSets data;
  ASSERT_OK(data.Admit(kAnn, "ann", Shared("wrong")));
  EXPECT_FALSE(data.Admit(kBob, "bob", Shared("a")).ok());
  data.Release(kAnn);
  ASSERT_OK(data.Admit(kBob, "bob", Shared("a")));
  data.Take(data.SetOf(kBob), 1);
  data.Release(kBob);
  EXPECT_FALSE(data.Admit(kAnn, "ann", Shared("wrong")).ok());
}

TEST(DataSetsTest, AWorkerThatComesBackWithOtherDataHasThat) {
  DataSets data;
  ASSERT_OK(data.Admit(kAnn, "ann", Shared("a")));
  ASSERT_OK(data.Admit(kAnn, "ann", Shared("b")));
  EXPECT_EQ(data.at(data.SetOf(kAnn)).info.fingerprint, "b");
}

TEST(DataSetsTest, EpochsGoByTheSumOfSizes) {
  DataSets data;
  EXPECT_EQ(data.Epoch(), 0.0);
  ASSERT_OK(data.Admit(kAnn, "ann", Own("small", 10)));
  ASSERT_OK(data.Admit(kBob, "bob", Own("large", 90)));
  data.Take(data.SetOf(kAnn), 25);
  data.Take(data.SetOf(kBob), 25);
  EXPECT_DOUBLE_EQ(data.Epoch(), 0.5);
  EXPECT_DOUBLE_EQ(EpochOf(data.at(data.SetOf(kAnn))), 2.5);
}

TEST(DataSetsTest, WhoHasLeftCountsInNoEpochAsLongAsOthersAreThere) {
  DataSets data;
  ASSERT_OK(data.Admit(kAnn, "ann", Own("small", 10)));
  ASSERT_OK(data.Admit(kEve, "eve", Own("huge", DataSets::kMaxSamples)));
  data.Take(data.SetOf(kAnn), 25);
  data.Take(data.SetOf(kEve), 25);
  EXPECT_LT(data.Epoch(), 0.01);
  data.Release(kEve);
  EXPECT_DOUBLE_EQ(data.Epoch(), 2.5);
  data.Release(kAnn);
  EXPECT_LT(data.Epoch(), 0.01) << "all that was handed out";
  EXPECT_THAT(data.Admit(kEve, "eve", Own("absurd", std::numeric_limits<int64_t>::max())),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("more than 281474976710656 samples"),
                             HasSubstr("9223372036854775807 training"))));
  messages::DatasetInfo heldout = Own("absurd", 10);
  heldout.num_heldout_samples = DataSets::kMaxSamples + 1;
  EXPECT_THAT(data.Admit(kEve, "eve", heldout), StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(DataSetsTest, ClientsWithoutFingerprintAreComparedWithNobody) {
  DataSets data;
  ASSERT_OK(data.Admit(kAnn, "ann", Shared("a")));
  ASSERT_OK(data.Admit(kBob, "bob", {}));
  ASSERT_OK(data.Admit(kEve, "eve", {.fingerprint = "", .num_train_samples = 5}));
  data.Take(data.SetOf(kBob), 3);
  EXPECT_EQ(data.Epoch(), 0.0) << "no size, no epoch";
}

TEST(DataSetsTest, SizesOfSharedDataAreComparedWithoutFingerprints) {
  DataSets data;
  const messages::DatasetInfo five = {
      .fingerprint = "", .num_train_samples = 5, .num_heldout_samples = 2};
  ASSERT_OK(data.Admit(kAnn, "ann", five));
  ASSERT_OK(data.Admit(kBob, "bob", five));
  EXPECT_EQ(data.SetOf(kAnn), data.SetOf(kBob));
  for (const messages::DatasetInfo& other :
       {messages::DatasetInfo{.fingerprint = "", .num_train_samples = 4, .num_heldout_samples = 2},
        messages::DatasetInfo{.fingerprint = "", .num_train_samples = 5}}) {
    EXPECT_THAT(data.Admit(kEve, "eve", other),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         HasSubstr("the job has 5 training and 2 held-out samples")));
  }
  ASSERT_OK(
      data.Admit(kEve, "eve", {.fingerprint = "", .num_train_samples = 4, .own_partition = true}));
}

TEST(DataSetsTest, OwnDataWithoutFingerprintIsOfOneWorker) {
  DataSets data;
  ASSERT_OK(data.Admit(kAnn, "ann", {.fingerprint = "", .own_partition = true}));
  ASSERT_OK(data.Admit(kBob, "bob", {.fingerprint = "", .own_partition = true}));
  data.Take(data.SetOf(kAnn), 3);
  EXPECT_EQ(data.Take(data.SetOf(kBob), 3), 0);
}

TEST(DataSetsTest, ClaimsThatContradictThemselvesAreRefused) {
  DataSets data;
  for (const messages::DatasetInfo& claim :
       {messages::DatasetInfo{.fingerprint = "a"},
        messages::DatasetInfo{.fingerprint = "", .num_train_samples = -1},
        messages::DatasetInfo{.fingerprint = "", .num_heldout_samples = -1},
        messages::DatasetInfo{.fingerprint = "", .tokens_per_sample = -1}}) {
    EXPECT_THAT(data.Admit(kAnn, "ann", claim), StatusIs(absl::StatusCode::kInvalidArgument));
  }
}

TEST(DataSetsTest, ExportsWhatWasHandedOutOf) {
  DataSets data;
  ASSERT_OK(data.Admit(kAnn, "ann", Own("untouched")));
  ASSERT_OK(data.Admit(kBob, "bob", Own("b")));
  data.Take(data.SetOf(kBob), 3);
  EXPECT_THAT(data.Export(), ElementsAre(checkpoints::DataSetState{Own("b"), 3, "bob"}));
  DataSets restored(data.Export());
  ASSERT_OK(restored.Admit(kAnn, "ann", Own("b")));
  EXPECT_EQ(restored.Take(restored.SetOf(kAnn), 1), 3);
}

}  // namespace
}  // namespace lodestar::rounds
