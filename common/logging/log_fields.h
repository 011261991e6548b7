// The ids that a line of a log names, as every program of a cluster writes them.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

namespace lodestar {

// Words before '=' that are fields of a line; others are text. `request`: of a call, see
// common/runtime/request_id.h; `call`: its method; `name`: of a worker; `incarnation`: beyond the
// whole numbers that a double has, so that readers who know no others take it as text.
inline constexpr absl::string_view kLogKeys[] = {"call",  "incarnation", "name", "peer",  "request",
                                                 "round", "shard",       "view", "worker"};

// Whether each value of `key` is a number, of digits alone and at most 2^53; else each is text.
bool IsNumberLogKey(absl::string_view key);

// {key, value} of each key that `message` names as "round=7", in that order, each once; then of
// round, shard and name what it says in words, "round 7", "shard 1" and "worker 'a'", if they are
// not there. Of "shard=0/2" the number; what is none is no field.
std::vector<std::pair<std::string, std::string>> LogFields(absl::string_view message);

}  // namespace lodestar
