// SPDX-License-Identifier: Apache-2.0

// NoticeSource reports whether the machine will be taken away, as clouds do with spot machines.
// There is one class per cloud or kind of notice. notice_source_factory.h chooses the class.
#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"

namespace lodestar::notice {

class NoticeSource {
 public:
  virtual ~NoticeSource() = default;

  // Asks the source for a notice and returns its text. nullopt means that there is no notice yet.
  // May block for a few seconds. An error says why the source cannot be asked. Must be called by
  // one thread.
  virtual absl::StatusOr<std::optional<std::string>> Look() = 0;
};

}  // namespace lodestar::notice
