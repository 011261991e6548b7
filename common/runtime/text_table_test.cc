// SPDX-License-Identifier: Apache-2.0

#include "common/runtime/text_table.h"

#include "absl/strings/str_split.h"
#include "gtest/gtest.h"

namespace lodestar {
namespace {

using Align = TextTable::Align;

TextTable Sample() {
  TextTable table({{.title = "NAME"},
                   {.title = "ROUND", .align = Align::kRight, .rank = 1},
                   {.title = "ID", .align = Align::kRight, .rank = 2},
                   {.title = "DEVICE", .rank = 1}});
  table.AddRow({"a", "7", "1", "cpu"});
  table.AddRow({"longer", "1234567", "2", "cuda:0"});
  return table;
}

TEST(TextTableTest, ColumnsAreAsWideAsTheirCells) {
  EXPECT_EQ(Sample().Format(kUnlimitedColumns),
            "NAME      ROUND  ID  DEVICE\n"
            "a             7   1  cpu\n"
            "longer  1234567   2  cuda:0\n");
}

TEST(TextTableTest, LeavesOutWhatCountsLeastUntilItFits) {
  EXPECT_EQ(Sample().Format(27), Sample().Format(kUnlimitedColumns));
  EXPECT_EQ(Sample().Format(26),
            "NAME      ROUND  DEVICE\n"
            "a             7  cpu\n"
            "longer  1234567  cuda:0\n");
  EXPECT_EQ(Sample().Format(22),
            "NAME    DEVICE\n"
            "a       cpu\n"
            "longer  cuda:0\n");
  EXPECT_EQ(Sample().Format(4), "NAME\na\nlong\n");
}

TEST(TextTableTest, CountsCharactersAndNotBytes) {
  TextTable table({{.title = "N"}, {.title = "X"}});
  table.AddRow({"\xc3\xa4\xc3\xb6", "1"});
  EXPECT_EQ(table.Format(kUnlimitedColumns), "N   X\n\xc3\xa4\xc3\xb6  1\n");
  EXPECT_EQ(table.Format(1), "N\n\xc3\xa4\n");
}

TEST(ParagraphTest, BreaksBetweenWordsBehindTheLabel) {
  EXPECT_EQ(Paragraph("job  ", "one two three", kUnlimitedColumns), "job  one two three\n");
  EXPECT_EQ(Paragraph("job  ", "one two three", 12), "job  one two\n     three\n");
  EXPECT_EQ(Paragraph("job  ", "one two three", 11), "job  one\n     two\n     three\n");
  EXPECT_EQ(Paragraph("job  ", "uninterrupted x", 8), "job  uninterrupted\n     x\n");
  EXPECT_EQ(Paragraph("job  ", "", 8), "job  \n");
}

}  // namespace
}  // namespace lodestar
