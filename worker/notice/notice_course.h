// SPDX-License-Identifier: Apache-2.0

// NoticeCourse decides what to report after each look at a source of notices. It reports a warning
// if the source cannot be asked, or the notice with the time that is left. NoticeWatch makes the
// looks.
#pragma once

#include <optional>
#include <string>
#include <variant>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace lodestar::notice {

// A notice that the machine will be taken away.
struct MachineNotice {
  std::string text;
  absl::Duration left;  // Time until the machine stops.
};

class NoticeCourse {
 public:
  struct Warning {
    std::string text;
  };
  using Event = std::variant<Warning, MachineNotice>;

  // `grace` is the time between the notice and the end of the machine.
  explicit NoticeCourse(absl::Duration grace) : grace_(grace) {}

  // Must be called after a look that lasted from `begun` to `ended`. A notice may have come right
  // after the last look without a notice, so the remaining time is counted from that look. Errors
  // are reported only once, because a missing service stays missing.
  std::optional<Event> OnLook(absl::Time begun, absl::Time ended,
                              const absl::StatusOr<std::optional<std::string>>& found);

 private:
  const absl::Duration grace_;
  // Start of the latest look that found no notice.
  std::optional<absl::Time> last_without_;
  bool has_warned_ = false;
};

}  // namespace lodestar::notice
