// SPDX-License-Identifier: Apache-2.0

#include "worker/data/corpus_split.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lodestar::data {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

constexpr FilePart kCut = FilePart::kCut;
constexpr FilePart kTrain = FilePart::kTrain;
constexpr FilePart kHeldout = FilePart::kHeldout;
constexpr FilePart kLeftOut = FilePart::kLeftOut;
constexpr NameRule kEach = NameRule::kEachByItself;
constexpr NameRule kAllOrNone = NameRule::kAllOrNone;

std::vector<FilePart> Parts(const std::vector<absl::string_view>& paths, NameRule rule,
                            bool has_other_heldout) {
  return SplitByNames(paths, rule, has_other_heldout).parts;
}

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
  EXPECT_THAT(Parts({"1.bin", "2.bin"}, kEach, false), Each(kCut));
  EXPECT_THAT(Parts({"train_1.bin", "train_2.bin"}, kEach, false), Each(kCut));
}

TEST(SplitByNamesTest, HeldOutFilesMakeTheOthersWhole) {
  EXPECT_THAT(Parts({"a.bin", "test.bin", "train.bin", "val.bin"}, kEach, false),
              ElementsAre(kTrain, kLeftOut, kTrain, kHeldout));
}

TEST(SplitByNamesTest, TestSetsAreLeftOut) {
  EXPECT_THAT(Parts({"test.bin", "train.bin"}, kEach, false), ElementsAre(kLeftOut, kCut));
}

TEST(SplitByNamesTest, MoreNamesOfHeldOutDataCountBesideTrainingData) {
  for (const char* name : {"dev.txt", "eval.txt", "heldout.txt", "held-out.txt", "x_dev_01.txt",
                           "dev/1.txt", "validation-shuffled/1.txt", "books_val/1.txt"}) {
    for (const NameRule rule : {kEach, kAllOrNone}) {
      EXPECT_THAT(Parts({name, "train.txt"}, rule, false), ElementsAre(kHeldout, kTrain)) << name;
      EXPECT_THAT(Parts({name, "train.txt"}, rule, true), ElementsAre(kLeftOut, kTrain)) << name;
      EXPECT_THAT(Parts({name, "part.txt"}, rule, false), Each(kCut)) << name;
    }
  }
  for (const char* name : {"device.txt", "evaluated.txt", "my_val_runs/1.txt", "devs/1.txt"}) {
    EXPECT_THAT(Parts({name, "train.txt"}, kEach, false), Each(kCut)) << name;
  }
  EXPECT_THAT(
      Parts({"heldout-x/heldout-1-of-50", "training-x/news.en-1-of-100"}, kAllOrNone, false),
      ElementsAre(kHeldout, kTrain));
  EXPECT_THAT(Parts({"testing/a.txt", "training/a.txt", "validation/a.txt"}, kAllOrNone, false),
              ElementsAre(kLeftOut, kTrain, kHeldout));
}

TEST(SplitByNamesTest, OfSeveralHeldOutSplitsOneCounts) {
  EXPECT_THAT(Parts({"dev.txt", "eval.txt", "test.txt", "train.txt"}, kAllOrNone, false),
              ElementsAre(kHeldout, kLeftOut, kLeftOut, kTrain));
  EXPECT_THAT(Parts({"dev.bin", "train.bin", "val.bin"}, kEach, false),
              ElementsAre(kLeftOut, kTrain, kHeldout));
}

TEST(SplitByNamesTest, OtherHeldOutDataTakesTheirPlace) {
  EXPECT_THAT(Parts({"train.bin", "val.bin", "x.bin"}, kEach, true),
              ElementsAre(kTrain, kLeftOut, kTrain));
  EXPECT_THAT(Parts({"a.txt", "b.txt"}, kAllOrNone, true), Each(kTrain));
}

TEST(SplitByNamesTest, InASourceTreeNamesSayNothing) {
  EXPECT_THAT(Parts({"main.cc", "test.cc", "val.h"}, kAllOrNone, false), Each(kCut));
  EXPECT_THAT(Parts({"test/a", "test/b"}, kAllOrNone, false), Each(kCut));
  EXPECT_THAT(Parts({"test.txt", "train.txt", "valid.txt"}, kAllOrNone, false),
              ElementsAre(kLeftOut, kTrain, kHeldout));
}

TEST(SplitByNamesTest, AFileGivenByItselfIsWhatItWasGivenFor) {
  for (const NameRule rule : {kEach, kAllOrNone}) {
    EXPECT_THAT(Parts({"val.bin"}, rule, false), ElementsAre(kCut));
    EXPECT_THAT(Parts({"val.bin"}, rule, true), ElementsAre(kTrain));
  }
}

TEST(SplitByNamesTest, DocumentationBesideASplitIsLeftOut) {
  EXPECT_THAT(Parts({"LICENSE", "README.md", "data/sha256sums.txt", "test.txt", "train.txt",
                     "validation.txt"},
                    kAllOrNone, false),
              ElementsAre(kLeftOut, kLeftOut, kLeftOut, kLeftOut, kTrain, kHeldout));
  EXPECT_THAT(Parts({"README.md", "main.cc"}, kAllOrNone, false), Each(kCut));
  EXPECT_THAT(Parts({"README.md", "train.txt"}, kAllOrNone, false), ElementsAre(kLeftOut, kCut));
  EXPECT_FALSE(IsDocumentation("readme_train.txt"));
}

TEST(SplitByNamesTest, SaysWhichFileKeepsNamesFromCounting) {
  const NameSplit split =
      SplitByNames({"README", "main.cc", "train.cc", "val.cc"}, kAllOrNone, false);
  EXPECT_THAT(split.parts, Each(kCut));
  ASSERT_TRUE(split.ignored.has_value());
  EXPECT_EQ(split.ignored->because_of, 1);
  EXPECT_EQ(split.ignored->example, 3);
  EXPECT_EQ(SplitByNames({"README", "main.cc", "test.cc", "train.cc"}, kAllOrNone, false)
                .ignored->example,
            2);
  EXPECT_FALSE(SplitByNames({"main.cc", "test.cc"}, kAllOrNone, false).ignored.has_value());
}

TEST(TypicalFileTokensTest, HalfOfAllTokensLieInFilesOfAtMostThatSize) {
  EXPECT_EQ(TypicalFileTokens({}), 0);
  EXPECT_EQ(TypicalFileTokens({7}), 7);
  EXPECT_EQ(TypicalFileTokens({5, 1, 1, 1, 1}), 5);
  EXPECT_EQ(TypicalFileTokens({1, 5, 1, 1, 1, 1, 1}), 1);
}

TEST(HoldOutWholeFilesTest, TakesATenthEvenly) {
  const std::vector<FilePart> equal = HoldOutWholeFiles(std::vector<int64_t>(30, 7));
  for (size_t i = 0; i < equal.size(); ++i) {
    EXPECT_EQ(equal[i], i % 10 == 5 ? kHeldout : kTrain) << i;
  }
  std::vector<int64_t> sizes;
  for (int64_t i = 0; i < 1000; ++i) sizes.push_back(1 + i * i % 97);
  int64_t total = 0;
  int64_t heldout = 0;
  const std::vector<FilePart> parts = HoldOutWholeFiles(sizes);
  for (size_t i = 0; i < sizes.size(); ++i) {
    total += sizes[i];
    if (parts[i] == kHeldout) heldout += sizes[i];
  }
  EXPECT_NEAR(static_cast<double>(heldout) / total, 0.1, 0.002);
  EXPECT_THAT(HoldOutWholeFiles({7, 7, 7}), Each(kTrain));
}

}  // namespace
}  // namespace lodestar::data
