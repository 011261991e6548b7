// SPDX-License-Identifier: Apache-2.0

// CommandOrder checks that every command of one stream from the coordinator has come. A connection
// can lose commands without breaking, so commands are numbered from 1. The class does no I/O and
// has no lock.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace lodestar::rpc {

class CommandOrder {
 public:
  // Checks that `number` is the next command. 0 means that this coordinator does not number its
  // commands. Errors: DataLoss (earlier commands are missing). Then the stream must be ended: the
  // coordinator repeats the missing commands on the next stream.
  absl::Status Take(uint64_t number) {
    if (number == 0) return absl::OkStatus();
    if (number != last_ + 1) {
      return absl::DataLossError(
          absl::StrCat("command ", number, " of the coordinator came after ", last_,
                       ", so commands were lost; the server connects again to get them"));
    }
    last_ = number;
    return absl::OkStatus();
  }

 private:
  uint64_t last_ = 0;
};

}  // namespace lodestar::rpc
