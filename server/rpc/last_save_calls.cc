// SPDX-License-Identifier: Apache-2.0

#include "server/rpc/last_save_calls.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/runtime/remedy.h"

namespace lodestar::rpc {
namespace {

// Time that is added to a call's deadline, so that the coordinator can answer when the patience is
// over. Its answer says more than an exceeded deadline.
constexpr absl::Duration kAnswerGrace = absl::Seconds(2);

// Returns true if the next call may succeed: the connection has failed, or the server is not
// attached.
bool MayComeOtherwise(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsAborted(status) ||  // not attached, or not yet
         RemedyFor(status) == Remedy::kReconnect;
}

}  // namespace

LastSaveCalls::LastSaveCalls(absl::Duration patience, absl::Time now, absl::Duration longest_call)
    : patience_(patience), until_(now + patience), longest_call_(longest_call) {}

LastSaveCalls::Call LastSaveCalls::Next(uint64_t server_incarnation, absl::Time now) {
  called_in_ = server_incarnation;
  called_at_ = now;
  const absl::Duration left = std::max(until_ - now, absl::ZeroDuration());
  call_ = {.patience = left,
           .deadline = left > longest_call_ ? longest_call_ : left + kAnswerGrace};
  return *call_;
}

std::optional<LastSaveCalls::Outcome> LastSaveCalls::OnAnswer(const Outcome& answer,
                                                              uint64_t server_incarnation,
                                                              absl::Time now) {
  const bool is_of_now = server_incarnation == called_in_;
  const bool is_timed_out = absl::IsDeadlineExceeded(answer.status());
  if (is_of_now && !is_timed_out && !MayComeOtherwise(answer.status())) return answer;
  if (now < until_) return std::nullopt;
  // A DeadlineExceeded before the call's own deadline is the coordinator's answer: it could not
  // finish the save in time.
  if (is_of_now && is_timed_out && now - called_at_ < call_->deadline) return answer;
  return NotAnswered(
      is_of_now || is_timed_out
          ? answer.status().message()
          : "the coordinator's answer was about weights that the servers have replaced since");
}

std::optional<LastSaveCalls::Outcome> LastSaveCalls::OnDisconnected(const absl::Status& connection,
                                                                    uint64_t server_incarnation,
                                                                    absl::Time now) const {
  if (absl::IsAborted(connection) || server_incarnation == 0) return connection;
  if (now < until_) return std::nullopt;
  return call_.has_value() ? NotAnswered(connection.message()) : connection;
}

LastSaveCalls::Outcome LastSaveCalls::NotAnswered(absl::string_view last) const {
  return absl::DataLossError(
      absl::StrCat("it is not known whether the last checkpoint was saved, because the coordinator "
                   "did not answer within ",
                   absl::FormatDuration(patience_), ": ", last));
}

}  // namespace lodestar::rpc
