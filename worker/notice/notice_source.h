// NoticeSource: where a machine is told that it will be taken away, as clouds do with spot
// machines. One class per way of telling, chosen in notice_source_factory.h.
#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"

namespace lodestar {

class NoticeSource {
 public:
  virtual ~NoticeSource() = default;

  // The notice, in words for people; none: there is none yet. May block for a few seconds. Errors:
  // nobody can say whether there is one, and why. Called by one thread.
  virtual absl::StatusOr<std::optional<std::string>> Look() = 0;
};

}  // namespace lodestar
