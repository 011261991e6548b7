// SPDX-License-Identifier: Apache-2.0

#include "worker/data/token_corpus.h"

#include <unistd.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/data/testing/test_folder.h"

namespace lodestar::data {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class TokenCorpusTest : public testing::Test {
 protected:
  static absl::StatusOr<TokenCorpus> OpenAs(const DataConfig& config) {
    static constexpr absl::string_view kSuffixes[] = {".bin"};
    absl::StatusOr<TokenCorpus> corpus =
        OpenTokenCorpus(config, {.suffixes = kSuffixes, .empty_files = EmptyFiles::kRefused});
    if (!corpus.ok()) return corpus.status();
    if (const absl::Status left = LeaveOutHeldoutCopies(&*corpus); !left.ok()) return left;
    return corpus;
  }
  absl::StatusOr<TokenCorpus> Open(const std::string& heldout_path = "") {
    return OpenAs({.path = folder_.Path("data"), .heldout_path = heldout_path});
  }
  void Write(const std::string& name) { WriteAs(name, absl::StrCat("tokens of ", name)); }
  void WriteAs(const std::string& name, const std::string& content) {
    folder_.Write(absl::StrCat("data/", name), content);
  }
  // Opens the folder "data" as text.
  absl::StatusOr<TokenCorpus> OpenText() {
    return OpenTokenCorpus({.path = folder_.Path("data")}, {.names = NameRule::kAllOrNone});
  }

  // Returns a text such as "train.bin train, val.bin heldout".
  static std::string PartsOf(const TokenCorpus& corpus) {
    std::vector<std::string> parts;
    for (const TokenFile& file : corpus.files) {
      const std::string& path = file.file->path();
      parts.push_back(absl::StrCat(path.substr(path.rfind('/') + 1),
                                   file.part == FilePart::kHeldout ? " heldout"
                                   : file.part == FilePart::kTrain ? " train"
                                                                   : " cut"));
    }
    return absl::StrJoin(parts, ", ");
  }

  TestFolder folder_;
};

TEST_F(TokenCorpusTest, HoldsOutByNameAndSaysSo) {
  for (const char* name : {"train.bin", "val.bin", "test.bin", "meta.pkl"}) Write(name);
  ASSERT_OK_AND_ASSIGN(const TokenCorpus corpus, Open());
  EXPECT_EQ(PartsOf(corpus), "train.bin train, val.bin heldout");
  EXPECT_EQ(corpus.heldout_name, "1 file by name, such as val.bin");
  EXPECT_EQ(absl::StrJoin(corpus.notes, "|"),
            "left out because of their names: 1 file, such as test.bin");
}

TEST_F(TokenCorpusTest, CutsWhatHasNoNames) {
  Write("0.bin");
  Write("1.bin");
  ASSERT_OK_AND_ASSIGN(const TokenCorpus corpus, Open());
  EXPECT_EQ(PartsOf(corpus), "0.bin cut, 1.bin cut");
  EXPECT_EQ(corpus.heldout_name, "the last tenth of every file");
}

TEST_F(TokenCorpusTest, HeldOutDataOfItsOwnLeavesTheRestWhole) {
  Write("train.bin");
  Write("val.bin");
  const std::string heldout = folder_.Write("other.bin", "tokens");
  ASSERT_OK_AND_ASSIGN(const TokenCorpus corpus, Open(heldout));
  EXPECT_EQ(PartsOf(corpus), "train.bin train, other.bin heldout");
  EXPECT_EQ(corpus.heldout_name, absl::StrCat("--heldout_data=", heldout));
}

TEST_F(TokenCorpusTest, WhatIsHeldOutByItsOwnPathIsNotSaidToBeLeftOut) {
  for (const char* name : {"train.bin", "val.bin", "test.bin"}) Write(name);
  folder_.Link("data/val.bin", "link.bin");
  for (const char* heldout : {"data/val.bin", "link.bin"}) {
    ASSERT_OK_AND_ASSIGN(const TokenCorpus corpus, Open(folder_.Path(heldout)));
    EXPECT_EQ(absl::StrJoin(corpus.notes, "|"),
              "left out because of their names: 1 file, such as test.bin");
  }
}

TEST_F(TokenCorpusTest, NothingIsTrainedOnThatIsHeldOut) {
  Write("0.bin");
  Write("1.bin");
  folder_.Link("data/1.bin", "link.bin");
  ASSERT_OK_AND_ASSIGN(const TokenCorpus corpus, Open(folder_.Path("link.bin")));
  EXPECT_EQ(PartsOf(corpus), "0.bin train, link.bin heldout");
  EXPECT_THAT(absl::StrJoin(corpus.notes, "|"), HasSubstr("1 file is not trained on"));
  EXPECT_THAT(Open(folder_.Path("data")),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("data/0.bin"), HasSubstr("no training data are left"))));
}

TEST_F(TokenCorpusTest, TrainAndValThatAreOneFileAreRefused) {
  Write("train.bin");
  folder_.Link("train.bin", "data/val.bin");
  EXPECT_THAT(Open(), StatusIs(absl::StatusCode::kInvalidArgument,
                               AllOf(HasSubstr("train.bin"), HasSubstr("val.bin"))));
  // If one of several shards is a copy of held-out data, it is left out of the training data.
  Write("train_2.bin");
  ASSERT_OK_AND_ASSIGN(const TokenCorpus corpus, Open());
  EXPECT_EQ(PartsOf(corpus), "train_2.bin train, val.bin heldout");
}

TEST_F(TokenCorpusTest, CopyOfHeldOutDataIsNotTrainedOn) {
  const std::string content(600'000, 'x');
  WriteAs("train_1.bin", content + "1");
  WriteAs("train_2.bin", content + "2");
  WriteAs("val.bin", content + "2");
  ASSERT_OK_AND_ASSIGN(const TokenCorpus corpus, Open());
  EXPECT_EQ(PartsOf(corpus), "train_1.bin train, val.bin heldout");
  EXPECT_THAT(absl::StrJoin(corpus.notes, "|"), HasSubstr("train_2.bin"));
}

TEST_F(TokenCorpusTest, EmptyShardIsRefused) {
  for (const char* name : {"train_1.bin", "train_2.bin"}) Write(name);
  for (const char* name : {"train_3.bin", "val.bin", "0.bin"}) {
    WriteAs(name, "");
    EXPECT_THAT(Open(), StatusIs(absl::StatusCode::kInvalidArgument,
                                 AllOf(HasSubstr(name), HasSubstr("0 bytes"))));
    std::filesystem::remove(folder_.Path(absl::StrCat("data/", name)));
  }
}

TEST_F(TokenCorpusTest, EmptyTextIsCountedUnlessItsNameGivesItAPart) {
  Write("main.py");
  WriteAs("__init__.py", "");
  WriteAs("test.py", "");
  ASSERT_OK_AND_ASSIGN(const TokenCorpus corpus, OpenText());
  EXPECT_EQ(PartsOf(corpus), "main.py cut");
  EXPECT_EQ(absl::StrJoin(corpus.notes, "|"), "left out because of 0 bytes: 2 files");
  for (const char* name : {"main.py", "__init__.py", "test.py"}) {
    std::filesystem::remove(folder_.Path(absl::StrCat("data/", name)));
  }
  Write("train.txt");
  WriteAs("validation.txt", "");
  EXPECT_THAT(OpenText(), StatusIs(absl::StatusCode::kInvalidArgument,
                                   AllOf(HasSubstr("validation.txt"), HasSubstr("0 bytes"))));
}

TEST_F(TokenCorpusTest, CountsHiddenBackupAndPartialEntries) {
  for (const char* name : {".nfs01", "a.txt~"}) Write(name);
  EXPECT_THAT(OpenText(), StatusIs(absl::StatusCode::kNotFound,
                                   AllOf(HasSubstr("2 hidden"), HasSubstr(".nfs01"))));
  Write("a.txt");
  ASSERT_OK_AND_ASSIGN(const TokenCorpus corpus, OpenText());
  EXPECT_EQ(PartsOf(corpus), "a.txt cut");
  EXPECT_EQ(
      absl::StrJoin(corpus.notes, "|"),
      "left out: 2 hidden files, backups, partial downloads or files of a run, such as .nfs01");
}

TEST_F(TokenCorpusTest, DocumentationDoesNotUndoASplit) {
  for (const char* name : {"train.txt", "validation.txt", "test.txt", "README.md"}) Write(name);
  ASSERT_OK_AND_ASSIGN(const TokenCorpus split, OpenText());
  EXPECT_EQ(PartsOf(split), "train.txt train, validation.txt heldout");
  EXPECT_EQ(absl::StrJoin(split.notes, "|"),
            "left out because of their names: 2 files, such as README.md");
  Write("more.txt");
  ASSERT_OK_AND_ASSIGN(const TokenCorpus undone, OpenText());
  EXPECT_EQ(undone.files.size(), 5);
  EXPECT_THAT(absl::StrJoin(undone.notes, "|"),
              AllOf(HasSubstr("validation.txt is used for training"), HasSubstr("more.txt")));
}

TEST_F(TokenCorpusTest, OnlyHeldOutDataIsNoTrainingData) {
  Write("val_0.bin");
  Write("val_1.bin");
  EXPECT_THAT(Open(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("only held-out or test data"), HasSubstr("val_0.bin"))));
  EXPECT_OK(OpenAs({.path = folder_.Path("data/val_0.bin")}));
}

TEST_F(TokenCorpusTest, MissingAndEmptyDataAreErrors) {
  folder_.Write("data/a.txt", "text");
  EXPECT_THAT(Open(), StatusIs(absl::StatusCode::kNotFound, HasSubstr("looked for *.bin")));
  folder_.Write("data/a.bin", "");
  EXPECT_THAT(Open(), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("empty corpus")));
  Write("a.bin");
  EXPECT_THAT(Open(folder_.Path("none")), StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(TokenCorpusTest, TakesMoreFilesThanAProcessMayHaveOpen) {
  for (size_t i = 0; i < DataFile::kMaxKeptDescriptors + 100; ++i) Write(absl::StrCat(i, ".bin"));
  ASSERT_OK_AND_ASSIGN(const TokenCorpus corpus, Open());
  ASSERT_EQ(corpus.files.size(), DataFile::kMaxKeptDescriptors + 100);
  uint8_t byte = 0;
  for (const TokenFile& file : corpus.files) {
    EXPECT_OK(file.file->Read(5, absl::MakeSpan(&byte, 1)));
  }
  int last_descriptor = dup(0);
  close(last_descriptor);
  EXPECT_LT(last_descriptor, DataFile::kMaxKeptDescriptors + 50);
}

}  // namespace
}  // namespace lodestar::data
