// SPDX-License-Identifier: Apache-2.0

// Facts that an error carries for programs, besides its text. They are payloads of absl::Status.
// All of them, except that of WithAnswered(), are sent over the network (proto/status_mapping.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace lodestar {

// Says that a call is unlikely to succeed before `retry_after` has passed, and may succeed after
// that.
absl::Status WithRetryAfter(absl::Status status, absl::Duration retry_after);
std::optional<absl::Duration> RetryAfterOf(const absl::Status& status);

// Says how often a lease was renewed since the start of the server that answered. The call failed
// because another process holds that lease.
absl::Status WithTimesRenewed(absl::Status status, int64_t times);
std::optional<int64_t> TimesRenewedOf(const absl::Status& status);

// Says that the answering server is not the coordinator, and gives the coordinator's HOST:PORT.
absl::Status WithCoordinator(absl::Status status, absl::string_view address);
std::optional<std::string> CoordinatorOf(const absl::Status& status);

// Says that there is no work left. A program that receives this ends without a failure.
absl::Status WithJobOver(absl::Status status);
bool IsJobOver(const absl::Status& status);

// Says that a server has given this answer. Without this mark, Unavailable may also mean that the
// network failed. The caller of the server adds the mark. It is not sent over the network.
absl::Status WithAnswered(absl::Status status);
bool IsAnswered(const absl::Status& status);

}  // namespace lodestar
