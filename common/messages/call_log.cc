// SPDX-License-Identifier: Apache-2.0

#include "common/messages/call_log.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/runtime/peer_text.h"
#include "common/runtime/request_id.h"

namespace lodestar::messages {
namespace {

constexpr size_t kMaxReasonBytes = 512;

std::string FailureText(const CallFacts& facts, const absl::Status& status) {
  return absl::StrCat(
      "call failed ", CallText(facts), " reason=",
      PeerText(status.ToString(absl::StatusToStringMode::kWithNoExtraData), kMaxReasonBytes));
}

}  // namespace

std::string CallText(const CallFacts& facts) {
  std::string text = absl::StrCat("call=", facts.call);
  const auto add = [&text](absl::string_view key, const auto& value) {
    absl::StrAppend(&text, " ", key, "=", value);
  };
  if (!facts.request.empty()) add("request", PeerWord(facts.request));
  if (!facts.name.empty()) add("name", PeerWord(facts.name));
  if (facts.life.has_value()) {
    add("worker", facts.life->worker.value());
    add("incarnation", facts.life->incarnation.value());
  }
  if (facts.round.has_value()) add("round", facts.round->value());
  if (!facts.peer.empty()) add("peer", facts.peer);
  return text;
}

std::optional<int64_t> CallQuota::Take(absl::Time now) {
  // The difference is negative if the clock was set back.
  if (last_ != absl::InfinitePast()) {
    room_ += std::max(0.0, absl::FDivDuration(now - last_, kPerLine));
  }
  room_ = std::min<double>(room_, kMostAtOnce);
  last_ = now;
  if (room_ < 1.0) {
    ++left_out_;
    return std::nullopt;
  }
  room_ -= 1.0;
  return std::exchange(left_out_, 0);
}

void CallLog::Note(const CallFacts& facts, const absl::Status& status) {
  if (status.ok() || absl::IsCancelled(status)) return NoteQuietly(facts, status);
  std::optional<int64_t> left_out;
  {
    absl::MutexLock lock(&mutex_);
    left_out = quota_.Take(clock_->Now());
  }
  if (!left_out.has_value()) return NoteQuietly(facts, status);
  sink_(logging::LogLevel::kInfo,
        absl::StrCat(FailureText(facts, status),
                     *left_out == 0 ? ""
                                    : absl::StrCat(" (", *left_out,
                                                   " earlier failed calls are not in the log; "
                                                   "--log_level=debug logs all of them)")));
}

void CallLog::NoteQuietly(const CallFacts& facts, const absl::Status& status) const {
  if (!logging::IsLogged(logging::LogLevel::kDebug)) return;
  sink_(logging::LogLevel::kDebug,
        status.ok() ? absl::StrCat("call answered ", CallText(facts)) : FailureText(facts, status));
}

}  // namespace lodestar::messages
