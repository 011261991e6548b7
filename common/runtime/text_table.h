// SPDX-License-Identifier: Apache-2.0

// Formats tables and paragraphs for a terminal or a pipe.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace lodestar {

// Number of columns that means no limit. Used for pipes, where lines are never cut.
inline constexpr int kUnlimitedColumns = 0;

// Returns `text` behind `label`, broken between words into lines of at most `columns` characters.
// Further lines are indented by the width of `label`. A word that is too long has a line of its
// own. The last line also ends with a newline.
std::string Paragraph(absl::string_view label, absl::string_view text, int columns);

class TextTable {
 public:
  enum class Align { kLeft, kRight };
  struct Column {
    std::string title;
    Align align = Align::kLeft;
    // If there is no space for all columns, the columns with the highest rank are left out first. 0
    // means that the column is never left out.
    int rank = 0;
  };

  explicit TextTable(std::vector<Column> columns) : columns_(std::move(columns)) {}

  // `cells` has one text per column.
  void AddRow(std::vector<std::string> cells);
  // Returns a line of titles and one line per row, each with a newline. Lines that are still too
  // wide are cut at the end.
  std::string Format(int columns) const;

 private:
  // Returns the width of each column. 0 means that the column is left out.
  std::vector<size_t> FitWidths(int columns) const;

  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace lodestar
