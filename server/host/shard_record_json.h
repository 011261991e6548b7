// SPDX-License-Identifier: Apache-2.0

// Converts the records that a shard writes to JSON and back. The elements of contributions are
// stored outside of the JSON.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/runtime/json.h"
#include "server/shard/shard_journal.h"

namespace lodestar::host {

// Returns an object with a member "kind". All bits of numbers are preserved.
Json ShardRecordToJson(const shard::ShardRecord& record);
// Reads a record. Unknown members are ignored. Errors: InvalidArgument, naming the member.
absl::StatusOr<shard::ShardRecord> ShardRecordFromJson(const Json& json);

}  // namespace lodestar::host
