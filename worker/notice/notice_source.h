// NoticeSource: where a machine is told that it will be taken away, as clouds do with spot
// machines. One class per way of telling, chosen in notice_source_factory.h.
#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"

namespace lodestar::notice {

class NoticeSource {
 public:
  virtual ~NoticeSource() = default;

  // Returns the notice, in words for people; nullopt if there is none yet. May block for a few
  // seconds. Errors say why it is not known whether there is one. Called by one thread.
  virtual absl::StatusOr<std::optional<std::string>> Look() = 0;
};

}  // namespace lodestar::notice
