// LogFeed: the lines of a server's log, as text, each once, across its restarts.
#pragma once

#include <functional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "common/clock.h"
#include "common/log_tail.h"
#include "proto/log_convert.h"

namespace lodestar {

class LogFeed {
 public:
  // See ClusterClient::ReadLog().
  using Reader =
      std::function<absl::StatusOr<LogPage>(const LogQuery& query, const std::string& log_id)>;

  // `query`: which lines, and how many of those that are there at first. `as_json`: lines as
  // --log_format=json of ps_server has them. `clock` outlives it.
  LogFeed(Reader read, LogQuery query, bool as_json, Clock* clock)
      : read_(std::move(read)), query_(std::move(query)), as_json_(as_json), clock_(clock) {}

  // The lines that are new since the last call, as text; of the first call the newest
  // `query.most_lines`. Lines that the server has forgotten before they were asked for are told of
  // in one of their own. Errors: those of the reader; the lines come with the next call then.
  absl::StatusOr<std::string> Next();

 private:
  std::string TextOf(const LogPage& page) const;

  const Reader read_;
  LogQuery query_;
  const bool as_json_;
  Clock* const clock_;
  bool has_begun_ = false;
  std::string log_id_;
};

}  // namespace lodestar
