// SPDX-License-Identifier: Apache-2.0

// LogFeed returns the lines of a server's log as text. Each line is returned once, even if the
// server restarts.
#pragma once

#include <functional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "common/logging/log_tail.h"
#include "common/runtime/clock.h"
#include "proto/log_convert.h"

namespace lodestar::psctl {

class LogFeed {
 public:
  // See ClusterClient::ReadLog().
  using Reader = std::function<absl::StatusOr<wire::LogPage>(const logging::LogQuery& query,
                                                             const std::string& log_id)>;

  // `query` says which lines are read, and how many older lines the first call of Next() returns.
  // With `as_json`, lines have the form of --log_format=json of ps_server. `clock` must outlive the
  // feed.
  LogFeed(Reader read, logging::LogQuery query, bool as_json, Clock* clock)
      : read_(std::move(read)), query_(std::move(query)), as_json_(as_json), clock_(clock) {}

  // Returns the lines that are new since the last call, as text. The first call returns the newest
  // `query.most_lines`. If the server has dropped lines before they were read, an extra line says
  // so. Errors: those of the reader. After an error, the next call returns the lines.
  absl::StatusOr<std::string> Next();

 private:
  std::string TextOf(const wire::LogPage& page) const;

  const Reader read_;
  logging::LogQuery query_;
  const bool as_json_;
  Clock* const clock_;
  bool has_begun_ = false;
  std::string log_id_;
};

}  // namespace lodestar::psctl
