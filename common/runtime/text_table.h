// Tables and paragraphs for a terminal or a pipe.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace lodestar {

// No limit: a pipe, where every line is whole.
inline constexpr int kUnlimitedColumns = 0;

// `text` behind `label`, whose width is kept as the margin of the lines that follow, broken between
// words so that lines have at most `columns` characters; a longer word has a line of its own. With
// the last line's end.
std::string Paragraph(absl::string_view label, absl::string_view text, int columns);

class TextTable {
 public:
  enum class Align { kLeft, kRight };
  struct Column {
    std::string title;
    Align align = Align::kLeft;
    // Where there is no space for all columns, those with the highest rank are left out first; 0
    // stays.
    int rank = 0;
  };

  explicit TextTable(std::vector<Column> columns) : columns_(std::move(columns)) {}

  // `cells`: one per column.
  void AddRow(std::vector<std::string> cells);
  // A line of titles and one per row, each with its end. What is still too wide is cut at the end.
  std::string Format(int columns) const;

 private:
  // Returns the width of each column. 0 means that the column is left out.
  std::vector<size_t> FitWidths(int columns) const;

  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace lodestar
