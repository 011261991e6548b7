// What a SyncPolicy answers, and why. The reason feeds the log, the status page and the tests.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"

namespace lodestar {

enum class Action : uint8_t {
  kApply,       // push: count it, then run the optimizer. pull: answer. round, grant: go on
  kAccumulate,  // count it; the round still waits for others
  kHold,        // not yet: ask again after the next change; `reason` names whom it waits for
  kReject,      // not counted; answer `code` with `reason`
  kDrop,        // push: answer OK, count nothing. roster change: next version without an update
};

struct Decision {
  Action action = Action::kHold;
  std::string reason;
  absl::StatusCode code = absl::StatusCode::kOk;  // of kReject
  bool duplicate = false;                         // of kDrop: counted before; otherwise late

  static Decision Apply(std::string reason = "") { return {Action::kApply, std::move(reason)}; }
  static Decision Accumulate(std::string reason = "") {
    return {Action::kAccumulate, std::move(reason)};
  }
  static Decision Hold(std::string reason) { return {Action::kHold, std::move(reason)}; }
  static Decision Reject(absl::StatusCode code, std::string reason) {
    return {Action::kReject, std::move(reason), code};
  }
  static Decision Late(std::string reason) { return {Action::kDrop, std::move(reason)}; }
  static Decision Duplicate(std::string reason) {
    return {Action::kDrop, std::move(reason), absl::StatusCode::kOk, true};
  }
};

}  // namespace lodestar
