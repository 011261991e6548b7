// SPDX-License-Identifier: Apache-2.0

// Finds the ids in a log line. All programs of a cluster write ids in the same form.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

namespace lodestar::logging {

// Keys of fields of a line, which stand before '='. Other words with '=' are text. `request` is the
// id of a call (see common/runtime/request_id.h), `call` is its method, and `name` is a worker's
// name. `incarnation` may exceed the whole numbers that a double can hold, so it is text.
inline constexpr absl::string_view kLogKeys[] = {"call",  "incarnation", "name", "peer",  "request",
                                                 "round", "shard",       "view", "worker"};

// Returns true if values of `key` are numbers: only digits, and at most 2^53. Otherwise they are
// text.
bool IsNumberLogKey(absl::string_view key);

// Returns the {key, value} pairs of a log line, with each key once:
//   First come the keys in the form "round=7", in the order of `message`.
//   Then come round, shard and name from the forms "round 7", "shard 1" and "worker 'a'", if these
//     keys were not found before.
// The value of "shard=0/2" is its first number, 0. Other words are ignored.
std::vector<std::pair<std::string, std::string>> LogFields(absl::string_view message);

}  // namespace lodestar::logging
