// NoticeCourse: what follows from looks at a source of notices: a warning when it cannot be asked,
// and the notice, with the time that the machine has left. Decides only; NoticeWatch looks.
#pragma once

#include <optional>
#include <string>
#include <variant>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace lodestar::notice {

// The machine will be taken away.
struct MachineNotice {
  std::string text;
  absl::Duration left;  // until then
};

class NoticeCourse {
 public:
  struct Warning {
    std::string text;
  };
  using Event = std::variant<Warning, MachineNotice>;

  // `grace`: between the notice and the end of the machine.
  explicit NoticeCourse(absl::Duration grace) : grace_(grace) {}

  // A look that was begun and ended then has found this. The notice may have been there since the
  // last look that has found none. Trouble is told once: a service that is not there never will be.
  std::optional<Event> OnLook(absl::Time begun, absl::Time ended,
                              const absl::StatusOr<std::optional<std::string>>& found);

 private:
  const absl::Duration grace_;
  std::optional<absl::Time> last_without_;  // when that look began
  bool has_warned_ = false;
};

}  // namespace lodestar::notice
