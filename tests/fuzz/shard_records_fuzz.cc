// SPDX-License-Identifier: Apache-2.0

// Fuzzes the text form of the records that a shard writes into its journal. It is a separate target
// because clang does not compile the parts of kernels/ that it needs.

#include "common/runtime/json.h"
#include "server/host/shard_record_json.h"
#include "tests/fuzz/fuzz_target.h"

namespace lodestar::fuzz {
namespace {

using Seeds = std::vector<std::string>;

void ReadShardRecord(absl::string_view bytes) {
  const auto parse = [](const std::string& text) -> absl::StatusOr<shard::ShardRecord> {
    const absl::StatusOr<Json> json = ParseJson(text);
    if (!json.ok()) return json.status();
    return host::ShardRecordFromJson(*json);
  };
  CheckText(bytes, parse, [](const shard::ShardRecord& record) {
    return FormatJson(host::ShardRecordToJson(record));
  });
}

Seeds ShardRecordSeeds() {
  const sync::RoundPlan plan = {Round(5), ViewId(6), {{WorkerId(1), Incarnation(2), 3}}, 0.1};
  shard::StepRecord step;
  step.bucket = 3;
  step.step.kind = shard::BucketStep::Kind::kAccumulate;
  step.step.round = Round(5);
  step.step.weight = 3;
  step.key = {WorkerId(1), Incarnation(2), Round(5), Version(4)};
  Seeds seeds;
  for (const shard::ShardRecord& record : std::vector<shard::ShardRecord>{
           plan, step, shard::ShadowRecord{3, Version(4)}, shard::NormRecord{Round(5), 0.1}}) {
    seeds.push_back(FormatJson(host::ShardRecordToJson(record)));
  }
  return seeds;
}

}  // namespace

absl::Span<const Case> Cases() {
  static constexpr Case kCases[] = {{"shard_record", ReadShardRecord, ShardRecordSeeds}};
  return kCases;
}

}  // namespace lodestar::fuzz
