// SPDX-License-Identifier: Apache-2.0

#include "worker/data/text_reader.h"

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/data/testing/test_folder.h"

namespace lodestar::data {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kContext = 8;

WindowCut Cut(uint64_t seed = 1) { return {kContext, 256, seed}; }

absl::StatusOr<std::unique_ptr<Dataset>> Open(const std::string& path,
                                              const WindowCut& cut = Cut()) {
  absl::StatusOr<TokenCorpus> corpus = OpenText({.path = path});
  if (!corpus.ok()) return corpus.status();
  return MakeWindowDataset(*std::move(corpus), TokenWidth::kOneByte, cut);
}

std::unique_ptr<Dataset> OpenOrDie(const std::string& path, const WindowCut& cut = Cut()) {
  auto dataset = Open(path, cut);
  EXPECT_TRUE(dataset.ok()) << dataset.status();
  return dataset.ok() ? *std::move(dataset) : nullptr;
}

// Returns text whose byte at i depends on i, so that a window shows where it begins.
std::string Ramp(int64_t begin, int64_t count) {
  std::string text;
  for (int64_t i = begin; i < begin + count; ++i) text.push_back(static_cast<char>(i % 251));
  return text;
}

TEST(TextReaderTest, HoldsOutTheLastTenthOfEveryFile) {
  TestFolder folder;
  folder.Write("a", std::string(109, 'a'));  // 10 bytes are held out.
  folder.Write("b", std::string(90, 'b') + std::string(10, 'B'));
  folder.Write("c", std::string(9, 'c'));  // Too short to hold out a byte.
  folder.Write("empty", "");
  auto dataset = OpenOrDie(folder.root());
  ASSERT_NE(dataset, nullptr);
  // For training: 99 bytes of `a`, 90 of `b` and 9 of `c`. Held out: 10 bytes of `a` and 10 of `b`.
  // The two held-out windows begin at bytes 0 and 8 of these 20.
  EXPECT_EQ(dataset->num_train_samples(), (99 + 90 + 9) / kContext - 1);
  ASSERT_EQ(dataset->num_heldout_samples(), (20 - 1) / kContext);
  HostBatch batch;
  ASSERT_TRUE(dataset->ReadHeldout({0, 1}, &batch).ok());
  EXPECT_EQ(batch.num_samples, 2);
  EXPECT_EQ(std::string(batch.tokens.begin(), batch.tokens.end()), "aaaaaaaaaaBBBBBB");
  EXPECT_EQ(std::string(batch.targets.begin(), batch.targets.end()), "aaaaaaaaaBBBBBBB");
  for (int64_t i = 0; i < dataset->num_train_samples(); ++i) {
    ASSERT_TRUE(dataset->ReadTrain({SampleRef{0, i}}, &batch).ok());
    for (int32_t token : batch.targets) EXPECT_NE(token, 'B');
  }
}

TEST(TextReaderTest, AnEpochIsOnePassInWindowsThatShiftByEpoch) {
  TestFolder folder;
  const int64_t num_train = 1000 - 100;
  const std::string path = folder.Write("ramp", Ramp(0, 1000));
  auto dataset = OpenOrDie(path);
  ASSERT_NE(dataset, nullptr);
  std::set<int32_t> phases;
  for (int64_t epoch = 0; epoch < 40; ++epoch) {
    HostBatch batch;
    ASSERT_TRUE(dataset->ReadTrain({SampleRef{epoch, 0}}, &batch).ok());
    const int64_t phase = batch.tokens[0];
    ASSERT_LT(phase, kContext);
    phases.insert(phase);
    for (int64_t i = 0; i < dataset->num_train_samples(); ++i) {
      ASSERT_TRUE(dataset->ReadTrain({SampleRef{epoch, i}}, &batch).ok());
      for (int64_t t = 0; t < kContext; ++t) {
        const int64_t at = phase + i * kContext + t;
        ASSERT_LT(at + 1, num_train);
        ASSERT_EQ(batch.tokens[t], at % 251);
        ASSERT_EQ(batch.targets[t], (at + 1) % 251);
      }
    }
  }
  EXPECT_EQ(phases.size(), kContext);
  EXPECT_GE((dataset->num_train_samples() + 2) * kContext, num_train);
}

TEST(TextReaderTest, WindowsCrossFiles) {
  TestFolder folder;
  folder.Write("1", Ramp(0, 7));
  folder.Write("2", Ramp(7, 9));
  folder.Write("3", Ramp(16, 8));
  folder.Write("z", Ramp(24, 100));
  auto dataset = OpenOrDie(folder.root());
  ASSERT_NE(dataset, nullptr);
  HostBatch batch;
  ASSERT_TRUE(dataset->ReadTrain({SampleRef{3, 0}, SampleRef{3, 1}}, &batch).ok());
  for (size_t i = 1; i < batch.tokens.size(); ++i) {
    EXPECT_EQ(batch.tokens[i], batch.tokens[0] + static_cast<int32_t>(i));
  }
}

TEST(TextReaderTest, ShortCorpusStillGivesOneWindow) {
  TestFolder folder;
  // There are 90 training bytes, and the context is 9. One window needs 10 bytes.
  auto dataset = OpenOrDie(folder.Write("f", Ramp(0, 100)), {9, 256, 1});
  ASSERT_NE(dataset, nullptr);
  EXPECT_EQ(dataset->num_train_samples(), 9);
  EXPECT_EQ(dataset->num_heldout_samples(), 1);
}

TEST(TextReaderTest, TooShortCorpusNamesSizes) {
  TestFolder folder;
  const auto dataset = Open(folder.Write("f", Ramp(0, 89)));
  EXPECT_EQ(dataset.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(dataset.status().message()),
              AllOf(HasSubstr("needs 9 tokens"), HasSubstr("81 tokens for training"),
                    HasSubstr("8 held out")));
}

TEST(TextReaderTest, EmptyCorpusIsAnError) {
  TestFolder folder;
  folder.Write("a", "");
  const auto dataset = Open(folder.root());
  EXPECT_EQ(dataset.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(dataset.status().message()), HasSubstr("empty corpus"));
}

TEST(TextReaderTest, ByteOutsideASmallVocabularyNamesFileAndOffset) {
  TestFolder folder;
  std::string text(600000, 'a');
  text[500001] = 'z';
  const auto dataset = Open(folder.Write("f", text), {kContext, 'z', 1});
  EXPECT_EQ(dataset.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(
      std::string(dataset.status().message()),
      AllOf(HasSubstr("/f: the token at offset 500001 is 122"), HasSubstr("vocabulary is 122")));
  EXPECT_TRUE(Open(folder.Path("f"), {kContext, 'z' + 1, 1}).ok());
}

TEST(TextReaderTest, FingerprintTellsContentAndCutButNotPlace) {
  TestFolder folder;
  const std::string text = Ramp(0, 1000);
  const std::string base = OpenOrDie(folder.Write("one/f", text))->fingerprint();
  EXPECT_EQ(OpenOrDie(folder.Write("two/g", text))->fingerprint(), base);
  EXPECT_NE(OpenOrDie(folder.Write("one/f", text), {9, 256, 1})->fingerprint(), base);
  std::string changed = text;
  changed[500] ^= 1;
  EXPECT_NE(OpenOrDie(folder.Write("three", changed))->fingerprint(), base);
  folder.Write("cut/1", text.substr(0, 500));
  folder.Write("cut/2", text.substr(500));
  EXPECT_NE(OpenOrDie(folder.Path("cut"))->fingerprint(), base);
}

TEST(TextReaderTest, SampleOutsideTheRangeIsAnError) {
  TestFolder folder;
  auto dataset = OpenOrDie(folder.Write("f", Ramp(0, 1000)));
  HostBatch batch;
  EXPECT_EQ(dataset->ReadTrain({SampleRef{0, dataset->num_train_samples()}}, &batch).code(),
            absl::StatusCode::kOutOfRange);
  EXPECT_EQ(dataset->ReadHeldout({-1}, &batch).code(), absl::StatusCode::kOutOfRange);
}

// A tenth of each file is shorter than a window, which is 9 bytes long.
TEST(TextReaderTest, HoldsOutWholeFilesWhereTenthsAreShorterThanAWindow) {
  TestFolder folder;
  for (int i = 0; i < 40; ++i) {
    folder.Write(absl::StrCat("many/", 100 + i), std::string(20, static_cast<char>('0' + i)));
  }
  const auto dataset = OpenOrDie(folder.Path("many"), {8, 256, 1});
  EXPECT_THAT(dataset->Describe(), HasSubstr("4 whole files"));
  ASSERT_EQ(dataset->num_heldout_samples(), 79 / 8);
  HostBatch batch;
  ASSERT_TRUE(dataset->ReadHeldout({0, 1, 2}, &batch).ok());
  for (int i = 0; i < 20; ++i) EXPECT_EQ(batch.tokens[i], '5');
  for (int64_t i = 0; i < dataset->num_train_samples(); ++i) {
    ASSERT_TRUE(dataset->ReadTrain({SampleRef{i % 3, i}}, &batch).ok());
    for (const int32_t token : batch.tokens) EXPECT_NE(token, '5');
  }
}

// There are 41 documents. For each, the folder has a file and a link to that file.
TEST(TextReaderTest, CopiesOfWholeHeldOutFilesAreNotTrainedOn) {
  TestFolder folder;
  for (int i = 0; i < 41; ++i) {
    folder.Write(absl::StrCat("d/", 100 + i), std::string(20, static_cast<char>('0' + i)));
    folder.Link(absl::StrCat(100 + i), absl::StrCat("d/", 200 + i));
  }
  const auto dataset = OpenOrDie(folder.Path("d"), {8, 256, 1});
  EXPECT_THAT(dataset->Describe(),
              AllOf(HasSubstr("8 whole files"), HasSubstr("8 files are not trained on")));
  std::set<int32_t> heldout;
  HostBatch batch;
  for (int64_t i = 0; i < dataset->num_heldout_samples(); ++i) {
    ASSERT_TRUE(dataset->ReadHeldout({i}, &batch).ok());
    heldout.insert(batch.tokens.begin(), batch.tokens.end());
  }
  EXPECT_EQ(heldout.size(), 8);
  for (int64_t i = 0; i < dataset->num_train_samples(); ++i) {
    ASSERT_TRUE(dataset->ReadTrain({SampleRef{i % 3, i}}, &batch).ok());
    for (const int32_t token : batch.tokens) EXPECT_EQ(heldout.count(token), 0) << token;
  }
}

// All files are equal. If whole files were held out, all other files would be removed as their
// copies, and no training data would be left. So the last tenth of every file is held out.
TEST(TextReaderTest, KeepsTenthsWhereAllFilesAreCopies) {
  TestFolder folder;
  for (int i = 0; i < 40; ++i) folder.Write(absl::StrCat("d/", i), "one document, many times");
  EXPECT_THAT(OpenOrDie(folder.Path("d"), {8, 256, 1})->Describe(),
              HasSubstr("the last tenth of every file"));
}

TEST(TextReaderTest, KeepsTenthsWhereTheyHoldAWindow) {
  TestFolder folder;
  for (int i = 0; i < 40; ++i) folder.Write(absl::StrCat("short/", i), "text");
  folder.Write("short/long", std::string(1000, 'x'));
  EXPECT_THAT(OpenOrDie(folder.Path("short"), {8, 256, 1})->Describe(),
              HasSubstr("the last tenth of every file"));
  for (int i = 0; i < 3; ++i) folder.Write(absl::StrCat("few/", i), std::string(80, 'x'));
  EXPECT_THAT(OpenOrDie(folder.Path("few"), {8, 256, 1})->Describe(),
              HasSubstr("the last tenth of every file"));
}

}  // namespace
}  // namespace lodestar::data
