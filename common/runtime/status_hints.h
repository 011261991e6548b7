// Facts for programs that a refusal carries beside its text, as payloads of absl::Status. They
// cross the wire, but for WithAnswered(): proto/status_mapping.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace lodestar {

// The call may succeed after this time, and hardly before.
absl::Status WithRetryAfter(absl::Status status, absl::Duration retry_after);
std::optional<absl::Duration> RetryAfterOf(const absl::Status& status);

// How often what is in the way was renewed since the server that answers began to count. Each start
// of a server begins to count anew.
absl::Status WithTimesRenewed(absl::Status status, int64_t times);
std::optional<int64_t> TimesRenewedOf(const absl::Status& status);

// The server that answered is not the coordinator; the coordinator is at this HOST:PORT.
absl::Status WithCoordinator(absl::Status status, absl::string_view address);
std::optional<std::string> CoordinatorOf(const absl::Status& status);

// There is nothing left to do: a program that is told so ends, and has not failed.
absl::Status WithJobOver(absl::Status status);
bool IsJobOver(const absl::Status& status);

// A server has given this answer. Without it a status Unavailable may be of the way there. The
// caller adds it; it does not cross the wire.
absl::Status WithAnswered(absl::Status status);
bool IsAnswered(const absl::Status& status);

}  // namespace lodestar
