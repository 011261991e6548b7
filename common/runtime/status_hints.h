// SPDX-License-Identifier: Apache-2.0

// Facts for programs that an error has besides its text, as payloads of absl::Status. All facts
// except that of WithAnswered() are sent over the network: proto/status_mapping.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace lodestar {

// Says that the call is unlikely to succeed before this time has passed, and may succeed
// afterwards.
absl::Status WithRetryAfter(absl::Status status, absl::Duration retry_after);
std::optional<absl::Duration> RetryAfterOf(const absl::Status& status);

// For a call that failed because another process holds a lease. Says how often that lease was
// renewed since the start of the server that answered.
absl::Status WithTimesRenewed(absl::Status status, int64_t times);
std::optional<int64_t> TimesRenewedOf(const absl::Status& status);

// Says that the answering server is not the coordinator, and gives the coordinator's HOST:PORT.
absl::Status WithCoordinator(absl::Status status, absl::string_view address);
std::optional<std::string> CoordinatorOf(const absl::Status& status);

// Says that there is no work left. A program that receives this ends without a failure.
absl::Status WithJobOver(absl::Status status);
bool IsJobOver(const absl::Status& status);

// Says that a server has given this answer. Without this mark, Unavailable may also mean that the
// network failed. The caller adds the mark, and it is not sent over the network.
absl::Status WithAnswered(absl::Status status);
bool IsAnswered(const absl::Status& status);

}  // namespace lodestar
