// CommandOrder: whether every command of one stream from the coordinator has come. They are
// numbered from 1, because a connection can lose some of them and stay. Pure.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace lodestar::rpc {

class CommandOrder {
 public:
  // `number` is the number of the command that has come. 0 means that this coordinator does not
  // number its commands. Errors: DataLoss if others should have come before it. Then the stream is
  // to be ended: to the next one the coordinator repeats what was missed.
  absl::Status Take(uint64_t number) {
    if (number == 0) return absl::OkStatus();
    if (number != last_ + 1) {
      return absl::DataLossError(
          absl::StrCat("after command ", last_, " of the coordinator came ", number,
                       ": what was between them is lost; connects again, so that it is repeated"));
    }
    last_ = number;
    return absl::OkStatus();
  }

 private:
  uint64_t last_ = 0;
};

}  // namespace lodestar::rpc
