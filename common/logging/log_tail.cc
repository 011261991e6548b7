// SPDX-License-Identifier: Apache-2.0

#include "common/logging/log_tail.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/logging/log_fields.h"
#include "common/runtime/one_line.h"
#include "common/runtime/peer_text.h"

namespace lodestar::logging {
namespace {

// Returns true if `c` may be part of a worker's name.
bool IsWordByte(char c) { return absl::ascii_isalnum(c) || c == '.' || c == '_' || c == '-'; }

bool HasWord(absl::string_view text, absl::string_view word) {
  for (size_t at = text.find(word); at != text.npos; at = text.find(word, at + 1)) {
    const size_t end = at + word.size();
    const bool begins = at == 0 || !IsWordByte(text[at - 1]);
    // A name may be followed by the full stop of a sentence.
    const bool ends = end == text.size() || !IsWordByte(text[end]) ||
                      (text[end] == '.' && (end + 1 == text.size() || text[end + 1] == ' '));
    if (begins && ends) return true;
  }
  return false;
}

bool IsOfWorker(const LogLineRecord& line, const LogQuery& query) {
  // A worker's name that is only digits is not searched in the text, because a number in the text
  // may be anything else.
  const bool is_number = std::all_of(query.worker.begin(), query.worker.end(), absl::ascii_isdigit);
  if (!is_number && HasWord(line.text, query.worker)) return true;
  for (const auto& [key, value] : LogFields(line.text)) {
    if (key == "name" && value == query.worker) return true;
    if (key == "worker" && (value == query.worker || value == query.worker_id)) return true;
  }
  return false;
}

bool IsOfRound(const LogLineRecord& line, int64_t round) {
  for (const auto& [key, value] : LogFields(line.text)) {
    if (key == "round") return value == absl::StrCat(round);
  }
  return false;
}

}  // namespace

bool FitsQuery(const LogLineRecord& line, const LogQuery& query) {
  return line.number > query.after && line.level >= query.least_level &&
         (query.worker.empty() || IsOfWorker(line, query)) &&
         (!query.round.has_value() || IsOfRound(line, *query.round));
}

void LogTail::Add(LogLevel level, absl::string_view text, absl::Time now) {
  LogLineRecord line = {
      .time = now, .level = level, .text = PeerText(OneLine(text), kMaxLineBytes)};
  absl::MutexLock lock(&mutex_);
  line.number = ++last_number_;
  num_bytes_ += line.text.size();
  lines_.push_back(std::move(line));
  while (lines_.size() > kMaxLines || num_bytes_ > kMaxBytes) {
    num_bytes_ -= lines_.front().text.size();
    lines_.pop_front();
  }
}

LogExcerpt LogTail::Read(const LogQuery& query) const {
  LogExcerpt excerpt;
  absl::MutexLock lock(&mutex_);
  excerpt.last_number = last_number_;
  const uint64_t first_kept = last_number_ - lines_.size() + 1;
  if (first_kept > 0 && first_kept - 1 > query.after) {
    excerpt.num_gone = first_kept - 1 - query.after;
  }
  size_t num_bytes = 0;
  const auto has_room = [&](const LogLineRecord& line) {
    num_bytes += line.text.size();
    return excerpt.lines.size() < query.most_lines && num_bytes <= query.most_bytes;
  };
  if (query.oldest_first) {
    for (const LogLineRecord& line : lines_) {
      if (!FitsQuery(line, query)) continue;
      if (!has_room(line)) {
        excerpt.has_more = true;
        excerpt.last_number = line.number - 1;
        break;
      }
      excerpt.lines.push_back(line);
    }
    return excerpt;
  }
  for (auto line = lines_.rbegin(); line != lines_.rend(); ++line) {
    if (!FitsQuery(*line, query)) continue;
    if (!has_room(*line)) break;
    excerpt.lines.push_back(*line);
  }
  std::reverse(excerpt.lines.begin(), excerpt.lines.end());
  return excerpt;
}

}  // namespace lodestar::logging
