// SPDX-License-Identifier: Apache-2.0

// Fuzzes lines of logs, which contain texts of peers, and the requests and answers about logs.

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <limits>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/logging/log_fields.h"
#include "common/logging/log_tail.h"
#include "proto/log_convert.h"
#include "tests/fuzz/fuzz_target.h"

namespace lodestar::fuzz {
namespace {

void ReadFields(absl::string_view bytes) {
  const std::vector<std::pair<std::string, std::string>> fields = logging::LogFields(bytes);
  std::set<std::string> keys;
  for (const auto& [key, value] : fields) {
    LODESTAR_CHECK(std::find(std::begin(logging::kLogKeys), std::end(logging::kLogKeys), key) !=
                   std::end(logging::kLogKeys))
        << key;
    LODESTAR_CHECK(keys.insert(key).second) << key << " twice";
    LODESTAR_CHECK(bytes.find(value) != bytes.npos) << value << " is not there";
  }
  if (!fields.empty()) Accept();
}

std::vector<std::string> FieldsSeeds() {
  return {
      "call failed call=Join request=3fa9c1d2-17 name=a worker=1 incarnation=5 round=7 "
      "peer=ipv4:10.0.0.1:40312 reason=ABORTED: x",
      "round 7 waits for worker 'a' on shard 1", "server=1 view=3"};
}

// Fuzzes a request to a server, which answers it.
void AskForLog(absl::string_view bytes) {
  v1::ReadLogRequest request;
  if (!request.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return;
  const absl::StatusOr<logging::LogQuery> query = wire::FromProto(request, "log");
  if (!query.ok()) return Refuse(query.status());
  Accept();
  logging::LogTail tail("log", "ps_server");
  constexpr uint64_t kNumLines = 3;
  tail.Add(logging::LogLevel::kInfo, "call failed call=Join name=a worker=1 round=7",
           absl::UnixEpoch());
  tail.Add(logging::LogLevel::kWarn, "round 7 waits for worker 'a'", absl::UnixEpoch());
  tail.Add(logging::LogLevel::kError, "disk full", absl::UnixEpoch());
  const logging::LogExcerpt excerpt = tail.Read(*query);
  LODESTAR_CHECK(excerpt.num_gone == 0) << excerpt.num_gone;
  LODESTAR_CHECK(excerpt.last_number <= kNumLines) << excerpt.last_number;
  LODESTAR_CHECK(!excerpt.has_more || excerpt.last_number >= query->after) << query->after;
  for (const logging::LogLineRecord& line : excerpt.lines) {
    LODESTAR_CHECK(line.number > query->after && line.level >= query->least_level) << line.number;
  }
  LODESTAR_CHECK(wire::FromProto(wire::ToProto(wire::LogPage{"log", "ps_server", excerpt})).ok());
}

std::vector<std::string> RequestSeeds() {
  logging::LogQuery query;
  query.after = 1;
  query.worker = "a";
  query.round = 7;
  query.oldest_first = true;
  logging::LogQuery behind_all;
  behind_all.after = std::numeric_limits<uint64_t>::max();
  return {wire::ToProto(query, "log").SerializeAsString(),
          wire::ToProto(logging::LogQuery(), "").SerializeAsString(),
          wire::ToProto(behind_all, "log").SerializeAsString()};
}

// Fuzzes a server's answer, which is read for a terminal.
void ReadAnswer(absl::string_view bytes) {
  v1::ReadLogReply reply;
  if (!reply.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return;
  const absl::StatusOr<wire::LogPage> page = wire::FromProto(reply);
  if (!page.ok()) return Refuse(page.status());
  Accept();
  for (const logging::LogLineRecord& line : page->excerpt.lines) {
    for (const char c : line.text) LODESTAR_CHECK(!absl::ascii_iscntrl(c)) << line.text;
  }
}

std::vector<std::string> AnswerSeeds() {
  wire::LogPage page = {.log_id = "log", .process = "ps_server", .excerpt = {}};
  page.excerpt.lines = {
      {1, absl::UnixEpoch(), logging::LogLevel::kInfo, "worker joined name=a worker=1"}};
  page.excerpt.last_number = 1;
  page.excerpt.has_more = true;
  return {wire::ToProto(page).SerializeAsString()};
}

}  // namespace

absl::Span<const Case> Cases() {
  static constexpr Case kCases[] = {{"fields", ReadFields, FieldsSeeds},
                                    {"request", AskForLog, RequestSeeds},
                                    {"answer", ReadAnswer, AnswerSeeds}};
  return kCases;
}

}  // namespace lodestar::fuzz
