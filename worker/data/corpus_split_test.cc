#include "worker/data/corpus_split.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lodestar {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

constexpr FilePart kCut = FilePart::kCut;
constexpr FilePart kTrain = FilePart::kTrain;
constexpr FilePart kHeldout = FilePart::kHeldout;
constexpr FilePart kLeftOut = FilePart::kLeftOut;
constexpr NameRule kEach = NameRule::kEachByItself;
constexpr NameRule kAllOrNone = NameRule::kAllOrNone;

TEST(PartByNameTest, KnowsTheNamesThatPeopleGive) {
  for (const char* name : {"train.bin", "train_000.bin", "tiny_shakespeare_train.bin", "Train1.BIN",
                           "wiki.train.tokens", "train/000.bin", "fineweb_training_1.bin"}) {
    EXPECT_EQ(PartByName(name), kTrain) << name;
  }
  for (const char* name : {"val.bin", "val0.bin", "fineweb_val_000001.bin", "wiki.valid.tokens",
                           "validation-00000-of-00001.txt", "val/train.bin", "a/valid/b.bin"}) {
    EXPECT_EQ(PartByName(name), kHeldout) << name;
  }
  for (const char* name : {"test.bin", "wiki.test.tokens", "test/1.bin"}) {
    EXPECT_EQ(PartByName(name), kLeftOut) << name;
  }
  for (const char* name : {"values.bin", "trains.bin", "interval.bin", "latest.bin", "contest.txt",
                           "my_val_runs/1.bin", "000.bin", ""}) {
    EXPECT_EQ(PartByName(name), kCut) << name;
  }
}

TEST(SplitByNamesTest, WithoutNamesEveryFileIsCut) {
  EXPECT_THAT(SplitByNames({"1.bin", "2.bin"}, kEach, false), Each(kCut));
  EXPECT_THAT(SplitByNames({"train_1.bin", "train_2.bin"}, kEach, false), Each(kCut));
}

TEST(SplitByNamesTest, HeldOutFilesMakeTheOthersWhole) {
  EXPECT_THAT(SplitByNames({"a.bin", "test.bin", "train.bin", "val.bin"}, kEach, false),
              ElementsAre(kTrain, kLeftOut, kTrain, kHeldout));
}

TEST(SplitByNamesTest, TestSetsAreLeftOut) {
  EXPECT_THAT(SplitByNames({"test.bin", "train.bin"}, kEach, false), ElementsAre(kLeftOut, kCut));
}

TEST(SplitByNamesTest, OtherHeldOutDataTakesTheirPlace) {
  EXPECT_THAT(SplitByNames({"train.bin", "val.bin", "x.bin"}, kEach, true),
              ElementsAre(kTrain, kLeftOut, kTrain));
  EXPECT_THAT(SplitByNames({"a.txt", "b.txt"}, kAllOrNone, true), Each(kTrain));
}

TEST(SplitByNamesTest, InASourceTreeNamesSayNothing) {
  EXPECT_THAT(SplitByNames({"main.cc", "test.cc", "val.h"}, kAllOrNone, false), Each(kCut));
  EXPECT_THAT(SplitByNames({"test/a", "test/b"}, kAllOrNone, false), Each(kCut));
  EXPECT_THAT(SplitByNames({"test.txt", "train.txt", "valid.txt"}, kAllOrNone, false),
              ElementsAre(kLeftOut, kTrain, kHeldout));
}

TEST(SplitByNamesTest, AFileGivenByItselfIsWhatItWasGivenFor) {
  for (const NameRule rule : {kEach, kAllOrNone}) {
    EXPECT_THAT(SplitByNames({"val.bin"}, rule, false), ElementsAre(kCut));
    EXPECT_THAT(SplitByNames({"val.bin"}, rule, true), ElementsAre(kTrain));
  }
}

}  // namespace
}  // namespace lodestar
