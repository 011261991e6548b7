// SPDX-License-Identifier: Apache-2.0

#include "proto/log_convert.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/runtime/peer_text.h"

namespace lodestar::wire {
namespace {

constexpr size_t kMaxLines = 1000;
constexpr size_t kMaxBytes = 1 << 20;
constexpr size_t kMaxWorkerBytes = 64;
constexpr size_t kMaxIdBytes = 64;
constexpr size_t kMaxLineBytes = 64 << 10;  // after escaping

v1::LogSeverity SeverityOf(logging::LogLevel level) {
  switch (level) {
    case logging::LogLevel::kDebug:
      return v1::LOG_SEVERITY_DEBUG;
    case logging::LogLevel::kInfo:
      return v1::LOG_SEVERITY_INFO;
    case logging::LogLevel::kWarn:
      return v1::LOG_SEVERITY_WARN;
    case logging::LogLevel::kError:
      return v1::LOG_SEVERITY_ERROR;
  }
  return v1::LOG_SEVERITY_INFO;
}

// Returns the level. If this release does not know the severity, or none is set, returns
// `if_unknown`.
logging::LogLevel LevelOf(v1::LogSeverity severity, logging::LogLevel if_unknown) {
  switch (severity) {
    case v1::LOG_SEVERITY_DEBUG:
      return logging::LogLevel::kDebug;
    case v1::LOG_SEVERITY_INFO:
      return logging::LogLevel::kInfo;
    case v1::LOG_SEVERITY_WARN:
      return logging::LogLevel::kWarn;
    case v1::LOG_SEVERITY_ERROR:
      return logging::LogLevel::kError;
    default:
      return if_unknown;
  }
}

}  // namespace

v1::ReadLogRequest ToProto(const logging::LogQuery& query, const std::string& log_id) {
  v1::ReadLogRequest request;
  request.set_log_id(log_id);
  request.set_after(query.after);
  request.set_least_severity(SeverityOf(query.least_level));
  request.set_worker(query.worker);
  if (query.round.has_value()) request.set_round(*query.round);
  request.set_max_lines(static_cast<uint32_t>(std::min(query.most_lines, kMaxLines)));
  request.set_oldest_first(query.oldest_first);
  return request;
}

absl::StatusOr<logging::LogQuery> FromProto(const v1::ReadLogRequest& request,
                                            absl::string_view log_id) {
  if (request.worker().size() > kMaxWorkerBytes) {
    return absl::InvalidArgumentError(absl::StrCat("the name of a worker has ",
                                                   request.worker().size(), " bytes; at most ",
                                                   kMaxWorkerBytes, " are allowed"));
  }
  if (request.has_round() && request.round() < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("round is ", request.round(), "; wanted is at least 0"));
  }
  logging::LogQuery query;
  if (request.log_id() == log_id) query.after = request.after();
  query.least_level = LevelOf(request.least_severity(), logging::LogLevel::kDebug);
  query.worker = request.worker();
  if (request.has_round()) query.round = request.round();
  query.most_lines =
      request.max_lines() == 0 ? kMaxLines : std::min<size_t>(request.max_lines(), kMaxLines);
  query.most_bytes = kMaxBytes;
  query.oldest_first = request.oldest_first();
  return query;
}

v1::ReadLogReply ToProto(const LogPage& page) {
  v1::ReadLogReply reply;
  reply.set_log_id(page.log_id);
  reply.set_process(page.process);
  for (const logging::LogLineRecord& record : page.excerpt.lines) {
    v1::LogLine* const line = reply.add_lines();
    line->set_number(record.number);
    line->set_time_us(absl::ToUnixMicros(record.time));
    line->set_severity(SeverityOf(record.level));
    line->set_text(record.text);
  }
  reply.set_last_number(page.excerpt.last_number);
  reply.set_num_gone(page.excerpt.num_gone);
  reply.set_has_more(page.excerpt.has_more);
  return reply;
}

absl::StatusOr<LogPage> FromProto(const v1::ReadLogReply& reply) {
  if (reply.lines_size() > static_cast<int>(kMaxLines)) {
    return absl::InvalidArgumentError(absl::StrCat("the answer has ", reply.lines_size(),
                                                   " lines of a log; at most ", kMaxLines,
                                                   " are allowed"));
  }
  LogPage page;
  page.log_id = PeerText(reply.log_id(), kMaxIdBytes);
  page.process = PeerText(reply.process(), kMaxIdBytes);
  for (const v1::LogLine& line : reply.lines()) {
    page.excerpt.lines.push_back({.number = line.number(),
                                  .time = absl::FromUnixMicros(line.time_us()),
                                  .level = LevelOf(line.severity(), logging::LogLevel::kInfo),
                                  .text = PeerText(line.text(), kMaxLineBytes)});
  }
  page.excerpt.last_number = reply.last_number();
  page.excerpt.num_gone = reply.num_gone();
  page.excerpt.has_more = reply.has_more();
  return page;
}

}  // namespace lodestar::wire
