// SPDX-License-Identifier: Apache-2.0

#include "deploy/psctl/log_feed.h"

#include "absl/strings/str_cat.h"
#include "common/logging/logging.h"
#include "common/runtime/status_macros.h"

namespace lodestar::psctl {

// Approximate maximum length of one answer of Next(). The rest comes with the next answer.
constexpr size_t kMostBytes = size_t{4} << 20;

absl::StatusOr<std::string> LogFeed::Next() {
  std::string text;
  bool has_more = true;
  while (has_more) {
    absl::StatusOr<wire::LogPage> page = read_(query_, log_id_);
    // If lines have come before the error, they are returned. The next call then returns the error,
    // if it persists.
    if (!page.ok() && !text.empty()) return text;
    RETURN_IF_ERROR(page.status());
    if (has_begun_ && page->log_id == log_id_ && page->excerpt.num_gone > 0) {
      wire::LogPage note = {.log_id = log_id_, .process = "psctl", .excerpt = {}};
      note.excerpt.lines.push_back(
          {.number = 0,
           .time = clock_->Now(),
           .level = logging::LogLevel::kWarn,
           .text = absl::StrCat(page->excerpt.num_gone,
                                " lines of the log were overwritten before psctl read them")});
      absl::StrAppend(&text, TextOf(note));
    }
    absl::StrAppend(&text, TextOf(*page));
    has_more = has_begun_ && page->excerpt.has_more;
    if (has_more && page->log_id == log_id_ && page->excerpt.last_number <= query_.after) {
      return absl::InternalError(absl::StrCat(
          "the server says that its log has lines after line ", query_.after,
          ", but it sent none of them. Check that --server is the address of a ps_server"));
    }
    has_more = has_more && text.size() < kMostBytes;
    has_begun_ = true;
    log_id_ = page->log_id;
    query_.after = page->excerpt.last_number;
    // The first page has the newest lines. All later pages begin with the oldest line that is new,
    // so that no line is left out.
    query_.oldest_first = true;
    query_.most_lines = logging::LogQuery().most_lines;
  }
  return text;
}

std::string LogFeed::TextOf(const wire::LogPage& page) const {
  std::string text;
  for (const logging::LogLineRecord& line : page.excerpt.lines) {
    absl::StrAppend(&text,
                    as_json_ ? logging::LogJson(line.level, page.process, line.text, line.time)
                             : logging::LogText(line.level, page.process, line.text, line.time),
                    "\n");
  }
  return text;
}

}  // namespace lodestar::psctl
