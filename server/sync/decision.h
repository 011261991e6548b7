// SPDX-License-Identifier: Apache-2.0

// A Decision is the answer of a policy, with its reason. The log, the status page and the tests use
// the reason.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"

namespace lodestar::sync {

enum class Action : uint8_t {
  kApply,       // push: count it, then update with the round's sum. pull: answer. round: go on
  kApplyAlone,  // push: count it, then update with it alone
  kAccumulate,  // push: count it; its round still waits for other contributions
  kHold,        // not yet: ask again after the next change; `reason` names the members waited for
  kReject,      // do not count it; answer `code` with `reason`
  kDrop,        // push: answer OK, do not count it. roster change: next round without an update
};

struct Decision {
  Action action = Action::kHold;
  std::string reason;
  absl::StatusCode code = absl::StatusCode::kOk;  // for kReject
  // For kDrop. True: the contribution was counted before. False: it is late.
  bool duplicate = false;
  // True: the push is held only because contributions are summed in order of worker ids. So the
  // shard may receive its data already.
  bool is_due = false;

  static Decision Apply(std::string reason = "") { return {Action::kApply, std::move(reason)}; }
  static Decision ApplyAlone(std::string reason = "") {
    return {Action::kApplyAlone, std::move(reason)};
  }
  static Decision Accumulate(std::string reason = "") {
    return {Action::kAccumulate, std::move(reason)};
  }
  static Decision Hold(std::string reason) { return {Action::kHold, std::move(reason)}; }
  static Decision HoldForOrder(std::string reason) {
    return {Action::kHold, std::move(reason), absl::StatusCode::kOk, false, /*is_due=*/true};
  }
  static Decision Reject(absl::StatusCode code, std::string reason) {
    return {Action::kReject, std::move(reason), code};
  }
  static Decision Late(std::string reason) { return {Action::kDrop, std::move(reason)}; }
  static Decision Duplicate(std::string reason) {
    return {Action::kDrop, std::move(reason), absl::StatusCode::kOk, true};
  }

  bool counts() const {
    return action == Action::kApply || action == Action::kApplyAlone ||
           action == Action::kAccumulate;
  }
};

}  // namespace lodestar::sync
