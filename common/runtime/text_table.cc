// SPDX-License-Identifier: Apache-2.0

#include "common/runtime/text_table.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/runtime/check.h"

namespace lodestar {
namespace {

constexpr size_t kGap = 2;  // spaces between columns

// Returns the number of characters of `text`, which is UTF-8.
size_t WidthOf(absl::string_view text) {
  return std::count_if(text.begin(), text.end(),
                       [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

// Returns the first `width` characters of `text`.
absl::string_view Cut(absl::string_view text, size_t width) {
  size_t bytes = 0;
  size_t characters = 0;
  for (; bytes < text.size(); ++bytes) {
    const bool begins = (static_cast<unsigned char>(text[bytes]) & 0xC0) != 0x80;
    if (begins && ++characters > width) break;
  }
  return text.substr(0, bytes);
}

size_t TotalWidth(const std::vector<size_t>& widths) {
  size_t total = 0;
  for (const size_t width : widths) {
    if (width > 0) total += width + (total > 0 ? kGap : 0);
  }
  return total;
}

}  // namespace

std::string Paragraph(absl::string_view label, absl::string_view text, int columns) {
  std::string result(label);
  size_t used = WidthOf(label);
  bool is_at_start = true;
  for (absl::string_view word : absl::StrSplit(text, ' ', absl::SkipEmpty())) {
    const size_t width = WidthOf(word);
    if (!is_at_start && columns != kUnlimitedColumns &&
        used + 1 + width > static_cast<size_t>(columns)) {
      absl::StrAppend(&result, "\n", std::string(WidthOf(label), ' '));
      used = WidthOf(label);
      is_at_start = true;
    }
    absl::StrAppend(&result, is_at_start ? "" : " ", word);
    used += width + (is_at_start ? 0 : 1);
    is_at_start = false;
  }
  return result + "\n";
}

void TextTable::AddRow(std::vector<std::string> cells) {
  LODESTAR_CHECK(cells.size() == columns_.size())
      << cells.size() << " cells for " << columns_.size() << " columns";
  rows_.push_back(std::move(cells));
}

std::vector<size_t> TextTable::FitWidths(int columns) const {
  std::vector<size_t> widths;
  for (size_t i = 0; i < columns_.size(); ++i) {
    widths.push_back(WidthOf(columns_[i].title));
    for (const std::vector<std::string>& row : rows_) {
      widths[i] = std::max(widths[i], WidthOf(row[i]));
    }
  }
  while (columns != kUnlimitedColumns && TotalWidth(widths) > static_cast<size_t>(columns)) {
    // Among the columns still shown, leaves out the one with the highest rank. If several have that
    // rank, leaves out the first of them.
    size_t least = columns_.size();
    for (size_t i = 0; i < columns_.size(); ++i) {
      const bool may_go = widths[i] > 0 && columns_[i].rank > 0;
      if (may_go && (least == columns_.size() || columns_[i].rank > columns_[least].rank))
        least = i;
    }
    if (least == columns_.size()) break;
    widths[least] = 0;
  }
  return widths;
}

std::string TextTable::Format(int columns) const {
  const std::vector<size_t> widths = FitWidths(columns);
  std::string text;
  const auto add_line = [&](const auto& cell_of) {
    std::string line;
    for (size_t i = 0; i < columns_.size(); ++i) {
      if (widths[i] == 0) continue;
      const absl::string_view cell = cell_of(i);
      const std::string padding(widths[i] - WidthOf(cell), ' ');
      const bool is_right = columns_[i].align == Align::kRight;
      absl::StrAppend(&line, line.empty() ? "" : std::string(kGap, ' '), is_right ? padding : "",
                      cell, is_right ? "" : padding);
    }
    absl::string_view shown = absl::StripTrailingAsciiWhitespace(line);
    if (columns != kUnlimitedColumns) shown = Cut(shown, static_cast<size_t>(columns));
    absl::StrAppend(&text, shown, "\n");
  };
  add_line([this](size_t i) { return absl::string_view(columns_[i].title); });
  for (const std::vector<std::string>& row : rows_) {
    add_line([&row](size_t i) { return absl::string_view(row[i]); });
  }
  return text;
}

}  // namespace lodestar
