// SPDX-License-Identifier: Apache-2.0

#include "common/net/address_list.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/net/host_port.h"
#include "common/runtime/status_hints.h"
#include "common/runtime/status_macros.h"

namespace lodestar::net {
namespace {

// Maximum number of times that a call may be redirected from one server to another.
constexpr int kMaxHops = 3;

}  // namespace

absl::StatusOr<AddressList> AddressList::Parse(absl::string_view flag, absl::string_view value) {
  std::vector<std::string> addresses = absl::StrSplit(value, ',');
  for (auto address = addresses.begin(); address != addresses.end(); ++address) {
    RETURN_IF_ERROR(ParseHostPort(flag, *address, /*lowest_port=*/1).status());
    if (std::find(addresses.begin(), address, *address) == address) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("--", flag, "=", value, " has ", *address, " twice; give each address once"));
  }
  return AddressList(std::move(addresses));
}

std::string AddressList::ToString() const { return absl::StrJoin(addresses_, ", "); }

bool AddressList::IsElsewhere(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) ||
         absl::IsUnimplemented(status);
}

absl::Status AskCoordinator(absl::Span<const std::string> servers,
                            absl::FunctionRef<absl::Status(const std::string& server)> ask) {
  absl::Status answer;
  for (const std::string& server : servers) {
    answer = ask(server);
    for (int hop = 0; hop < kMaxHops; ++hop) {
      const std::optional<std::string> coordinator = CoordinatorOf(answer);
      if (!coordinator.has_value()) break;
      answer = ask(*coordinator);
    }
    // The coordinator's refusal is final. Other servers do not know the reason for it, or do not
    // answer, so asking them would hide the reason.
    if (answer.ok() || absl::IsPermissionDenied(answer) || absl::IsUnauthenticated(answer)) break;
  }
  return answer;
}

bool AddressSearch::GoesOn(const absl::Status& answer) {
  answers_.push_back(answer);
  if (!AddressList::IsElsewhere(answer)) return false;
  addresses_.Next();
  return answers_.size() < addresses_.size();
}

absl::Status AddressSearch::Outcome() const {
  const absl::Status& last = answers_.back();
  if (addresses_.size() == 1 || !AddressList::IsElsewhere(last)) return last;
  // The answers do not show which server is the coordinator. It may be away only for now, so the
  // error is temporary.
  absl::Status outcome = absl::UnavailableError(
      absl::StrCat("no server of ", addresses_.ToString(), " answers as the coordinator: ",
                   absl::StrJoin(answers_, "; ", [](std::string* out, const absl::Status& answer) {
                     absl::StrAppend(out, answer.message());
                   })));
  const bool is_answered = std::any_of(answers_.begin(), answers_.end(), IsAnswered);
  return is_answered ? WithAnswered(std::move(outcome)) : outcome;
}

}  // namespace lodestar::net
