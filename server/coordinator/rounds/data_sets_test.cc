// SPDX-License-Identifier: Apache-2.0

#include "server/coordinator/rounds/data_sets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace lodestar::rounds {
namespace {

using ::testing::ElementsAre;

messages::DatasetInfo Shared(const std::string& fingerprint, int64_t samples = 100) {
  return {.fingerprint = fingerprint, .num_train_samples = samples, .num_heldout_samples = 9};
}

messages::DatasetInfo Own(const std::string& fingerprint, int64_t samples = 100) {
  messages::DatasetInfo data = Shared(fingerprint, samples);
  data.own_partition = true;
  return data;
}

using Kind = DataRefusal::Kind;

// Returns the kind of the refusal, or nothing if there is no refusal.
std::optional<Kind> KindOf(const std::optional<DataRefusal>& refusal) {
  return refusal.has_value() ? std::optional(refusal->kind) : std::nullopt;
}

constexpr WorkerId kAnn(1);
constexpr WorkerId kBob(2);
constexpr WorkerId kEve(3);

TEST(DataSetsTest, SharedDataIsComparedWhoeverJoinedFirst) {
  DataSets data;
  ASSERT_EQ(data.Admit(kAnn, "ann", Own("ann's")), std::nullopt);
  ASSERT_EQ(data.Admit(kBob, "bob", Shared("a")), std::nullopt);
  EXPECT_EQ(KindOf(data.Admit(kEve, "eve", Shared("b", 77))), Kind::kOtherData);
  EXPECT_EQ(data.Admit(kEve, "eve", Own("b", 77)), std::nullopt);
  EXPECT_EQ(data.Present().size(), 3);
}

TEST(DataSetsTest, ARefusalNamesWhoBroughtTheJobsData) {
  DataSets data;
  ASSERT_EQ(data.Admit(kAnn, "ann", Shared("a")), std::nullopt);
  ASSERT_EQ(data.Admit(kBob, "bob", Shared("a")), std::nullopt);
  const std::optional<DataRefusal> refusal = data.Admit(kEve, "eve", Shared("b"));
  ASSERT_EQ(KindOf(refusal), Kind::kOtherData);
  EXPECT_EQ(refusal->job, (checkpoints::DataSetState{Shared("a"), 0, "ann"}));
}

TEST(DataSetsTest, RefusesOtherDataOfWorkerThatBroughtTheJobsData) {
  DataSets data;
  ASSERT_EQ(data.Admit(kAnn, "ann", Shared("a")), std::nullopt);
  data.Take(data.SetOf(kAnn), 5);
  data.Release(kAnn);
  EXPECT_EQ(KindOf(data.Admit(kAnn, "ann", Shared("b"))), Kind::kOtherData);
}

TEST(DataSetsTest, RefusesAnotherSetOnceJobHasUsedMaximumNumber) {
  DataSets data(std::vector<checkpoints::DataSetState>(DataSets::kMaxSets, {Own("a"), 1, "ann"}));
  const DataRefusal refusal = {.kind = Kind::kTooManySets, .allowed = DataSets::kMaxSets};
  EXPECT_EQ(data.Admit(kBob, "bob", Own("b")), refusal);
  EXPECT_EQ(data.Admit(kBob, "bob", Own("a")), std::nullopt);
}

TEST(DataSetsTest, EqualSizesDoNotMakeEqualData) {
  DataSets data;
  ASSERT_EQ(data.Admit(kAnn, "ann", Shared("a")), std::nullopt);
  messages::DatasetInfo other = Shared("a");
  other.num_heldout_samples = 8;
  EXPECT_EQ(KindOf(data.Admit(kBob, "bob", other)), Kind::kOtherData);
  EXPECT_EQ(KindOf(data.Admit(kBob, "bob", Shared("b"))), Kind::kOtherData);
}

TEST(DataSetsTest, WorkersWithTheSameDataShareItsCursor) {
  DataSets data;
  ASSERT_EQ(data.Admit(kAnn, "ann", Own("a")), std::nullopt);
  ASSERT_EQ(data.Admit(kBob, "bob", Own("b")), std::nullopt);
  ASSERT_EQ(data.Admit(kEve, "eve", Own("a")), std::nullopt);
  EXPECT_EQ(data.Take(data.SetOf(kAnn), 5), 0);
  EXPECT_EQ(data.Take(data.SetOf(kBob), 7), 0);
  EXPECT_EQ(data.Take(data.SetOf(kEve), 5), 5);
  EXPECT_EQ(data.Take(data.SetOf(kBob), 7), 7);
}

TEST(DataSetsTest, OwnDataThatIsTheSharedSetIsThatSet) {
  DataSets data;
  ASSERT_EQ(data.Admit(kAnn, "ann", Own("a")), std::nullopt);
  data.Take(data.SetOf(kAnn), 5);
  ASSERT_EQ(data.Admit(kBob, "bob", Shared("a")), std::nullopt);
  EXPECT_EQ(data.Take(data.SetOf(kBob), 5), 5);
  EXPECT_EQ(KindOf(data.Admit(kEve, "eve", Shared("b"))), Kind::kOtherData)
      << "now the job has shared data";
}

TEST(DataSetsTest, ASetGoesOnWhereItsWorkerLeftIt) {
  DataSets data;
  ASSERT_EQ(data.Admit(kAnn, "ann", Own("a")), std::nullopt);
  data.Take(data.SetOf(kAnn), 5);
  data.Release(kAnn);
  EXPECT_TRUE(data.Present().empty());
  ASSERT_EQ(data.Admit(kBob, "bob", Own("a")), std::nullopt) << "under another name";
  EXPECT_EQ(data.Take(data.SetOf(kBob), 1), 5);
}

TEST(DataSetsTest, DataMayChangeWhileNothingWasHandedOutAndNobodyIsThere) {
  DataSets data;
  ASSERT_EQ(data.Admit(kAnn, "ann", Shared("wrong")), std::nullopt);
  EXPECT_EQ(KindOf(data.Admit(kBob, "bob", Shared("a"))), Kind::kOtherData);
  data.Release(kAnn);
  ASSERT_EQ(data.Admit(kBob, "bob", Shared("a")), std::nullopt);
  data.Take(data.SetOf(kBob), 1);
  data.Release(kBob);
  EXPECT_EQ(KindOf(data.Admit(kAnn, "ann", Shared("wrong"))), Kind::kOtherData);
}

TEST(DataSetsTest, AWorkerThatComesBackWithOtherDataHasThat) {
  DataSets data;
  ASSERT_EQ(data.Admit(kAnn, "ann", Shared("a")), std::nullopt);
  ASSERT_EQ(data.Admit(kAnn, "ann", Shared("b")), std::nullopt);
  EXPECT_EQ(data.at(data.SetOf(kAnn)).info.fingerprint, "b");
}

TEST(DataSetsTest, EpochsGoByTheSumOfSizes) {
  DataSets data;
  EXPECT_EQ(data.Epoch(), 0.0);
  ASSERT_EQ(data.Admit(kAnn, "ann", Own("small", 10)), std::nullopt);
  ASSERT_EQ(data.Admit(kBob, "bob", Own("large", 90)), std::nullopt);
  data.Take(data.SetOf(kAnn), 25);
  data.Take(data.SetOf(kBob), 25);
  EXPECT_DOUBLE_EQ(data.Epoch(), 0.5);
  EXPECT_DOUBLE_EQ(EpochOf(data.at(data.SetOf(kAnn))), 2.5);
}

TEST(DataSetsTest, WhoHasLeftCountsInNoEpochAsLongAsOthersAreThere) {
  DataSets data;
  ASSERT_EQ(data.Admit(kAnn, "ann", Own("small", 10)), std::nullopt);
  ASSERT_EQ(data.Admit(kEve, "eve", Own("huge", DataSets::kMaxSamples)), std::nullopt);
  data.Take(data.SetOf(kAnn), 25);
  data.Take(data.SetOf(kEve), 25);
  EXPECT_LT(data.Epoch(), 0.01);
  data.Release(kEve);
  EXPECT_DOUBLE_EQ(data.Epoch(), 2.5);
  data.Release(kAnn);
  EXPECT_LT(data.Epoch(), 0.01) << "all that was handed out";
  const DataRefusal too_large = {.kind = Kind::kTooLarge, .allowed = DataSets::kMaxSamples};
  EXPECT_EQ(data.Admit(kEve, "eve", Own("absurd", std::numeric_limits<int64_t>::max())), too_large);
  messages::DatasetInfo heldout = Own("absurd", 10);
  heldout.num_heldout_samples = DataSets::kMaxSamples + 1;
  EXPECT_EQ(data.Admit(kEve, "eve", heldout), too_large);
}

TEST(DataSetsTest, ClientsWithoutFingerprintAreComparedWithNobody) {
  DataSets data;
  ASSERT_EQ(data.Admit(kAnn, "ann", Shared("a")), std::nullopt);
  ASSERT_EQ(data.Admit(kBob, "bob", {}), std::nullopt);
  ASSERT_EQ(data.Admit(kEve, "eve", {.fingerprint = "", .num_train_samples = 5}), std::nullopt);
  data.Take(data.SetOf(kBob), 3);
  EXPECT_EQ(data.Epoch(), 0.0) << "no size, no epoch";
}

TEST(DataSetsTest, SizesOfSharedDataAreComparedWithoutFingerprints) {
  DataSets data;
  const messages::DatasetInfo five = {
      .fingerprint = "", .num_train_samples = 5, .num_heldout_samples = 2};
  ASSERT_EQ(data.Admit(kAnn, "ann", five), std::nullopt);
  ASSERT_EQ(data.Admit(kBob, "bob", five), std::nullopt);
  EXPECT_EQ(data.SetOf(kAnn), data.SetOf(kBob));
  for (const messages::DatasetInfo& other :
       {messages::DatasetInfo{.fingerprint = "", .num_train_samples = 4, .num_heldout_samples = 2},
        messages::DatasetInfo{.fingerprint = "", .num_train_samples = 5}}) {
    const std::optional<DataRefusal> refusal = data.Admit(kEve, "eve", other);
    ASSERT_EQ(KindOf(refusal), Kind::kOtherData);
    EXPECT_EQ(refusal->job.info, five);
  }
  ASSERT_EQ(
      data.Admit(kEve, "eve", {.fingerprint = "", .num_train_samples = 4, .own_partition = true}),
      std::nullopt);
}

TEST(DataSetsTest, OwnDataWithoutFingerprintIsOfOneWorker) {
  DataSets data;
  ASSERT_EQ(data.Admit(kAnn, "ann", {.fingerprint = "", .own_partition = true}), std::nullopt);
  ASSERT_EQ(data.Admit(kBob, "bob", {.fingerprint = "", .own_partition = true}), std::nullopt);
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
    EXPECT_EQ(KindOf(data.Admit(kAnn, "ann", claim)), Kind::kNotSound);
  }
}

TEST(DataSetsTest, ExportsWhatWasHandedOutOf) {
  DataSets data;
  ASSERT_EQ(data.Admit(kAnn, "ann", Own("untouched")), std::nullopt);
  ASSERT_EQ(data.Admit(kBob, "bob", Own("b")), std::nullopt);
  data.Take(data.SetOf(kBob), 3);
  EXPECT_THAT(data.Export(), ElementsAre(checkpoints::DataSetState{Own("b"), 3, "bob"}));
  DataSets restored(data.Export());
  ASSERT_EQ(restored.Admit(kAnn, "ann", Own("b")), std::nullopt);
  EXPECT_EQ(restored.Take(restored.SetOf(kAnn), 1), 3);
}

}  // namespace
}  // namespace lodestar::rounds
