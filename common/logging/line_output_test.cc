// SPDX-License-Identifier: Apache-2.0

#include "common/logging/line_output.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"

namespace lodestar::logging {
namespace {

using ::testing::EndsWith;
using ::testing::StartsWith;

class LineOutputTest : public testing::Test {
 protected:
  LineOutputTest() {
    EXPECT_EQ(pipe(ends_), 0);
    capacity_ = fcntl(ends_[1], F_SETPIPE_SZ, 4 * 4096);
  }
  ~LineOutputTest() override {
    close(ends_[0]);
    if (ends_[1] >= 0) close(ends_[1]);
  }
  // Reads all bytes in the pipe.
  std::string Read() {
    std::string text(1 << 20, '\0');
    const ssize_t size = read(ends_[0], text.data(), text.size());
    text.resize(size > 0 ? static_cast<size_t>(size) : 0);
    return text;
  }

  int ends_[2] = {-1, -1};
  int capacity_ = 0;
};

TEST_F(LineOutputTest, WritesLines) {
  LineOutput output(ends_[1]);
  output.Write("one\n");
  output.Write("two\n");
  EXPECT_EQ(Read(), "one\ntwo\n");
}

TEST_F(LineOutputTest, DropsWhatNobodyReadsAndSaysHowMuch) {
  LineOutput output(ends_[1]);
  const std::string full(static_cast<size_t>(capacity_) - 1, 'x');
  output.Write(full + "\n");
  output.Write("lost\n");
  output.Write("lost, too\n");
  EXPECT_EQ(Read(), full + "\n");
  output.Write("read again\n");
  EXPECT_EQ(
      Read(),
      "(2 lines were dropped here, because the reader of this output was too slow)\nread again\n");
  output.Write("and again\n");
  EXPECT_EQ(Read(), "and again\n");
}

TEST_F(LineOutputTest, ALineThatIsCutIsEnded) {
  LineOutput output(ends_[1]);
  output.Write(std::string(static_cast<size_t>(2 * capacity_), 'x') + "\n");
  EXPECT_EQ(Read(), std::string(static_cast<size_t>(capacity_), 'x'));
  output.Write("next\n");
  EXPECT_EQ(Read(),
            "\n(1 line was dropped here, because the reader of this output was too slow)\nnext\n");
}

TEST_F(LineOutputTest, AReaderThatKeepsUpGetsLinesOfAnyLength) {
  const std::string path = absl::StrCat(testing::TempDir(), "/line_output");
  const int file = open(path.c_str(), O_CREAT | O_TRUNC | O_RDWR, 0600);
  LineOutput output(file);
  const std::string line(100'000, 'x');
  output.Write(line + "\n");
  std::string text(200'000, '\0');
  const ssize_t size = pread(file, text.data(), text.size(), 0);
  close(file);
  EXPECT_EQ(size, 100'001);
  EXPECT_THAT(text.substr(0, 100'001), AllOf(StartsWith("xxx"), EndsWith("x\n")));
}

}  // namespace
}  // namespace lodestar::logging
