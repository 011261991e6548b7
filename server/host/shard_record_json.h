// The text form of what a shard writes down; the numbers of contributions are beside it.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/runtime/json.h"
#include "server/shard/shard_journal.h"

namespace lodestar::host {

// An object with a member "kind"; numbers come back to the bit.
Json ShardRecordToJson(const shard::ShardRecord& record);
// Members that are not known are passed over. Errors: InvalidArgument, naming the member.
absl::StatusOr<shard::ShardRecord> ShardRecordFromJson(const Json& json);

}  // namespace lodestar::host
