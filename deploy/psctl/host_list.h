// SPDX-License-Identifier: Apache-2.0

// Parses the text of the file for psctl launch --hosts. The file says on which machines workers
// run:
//
//   # comment
//   gpu1                 one worker, on any device
//   user@gpu2 workers=2  two workers
//   gpu3 cards=0,1,3     one worker for each of these cards
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace lodestar::psctl {

struct WorkerHost {
  std::string address;          // The address as ssh takes it.
  int workers = 1;              // If cards are named, there are as many workers as cards.
  std::vector<int> cards = {};  // The CUDA devices. Empty means that --device decides.
  friend bool operator==(const WorkerHost&, const WorkerHost&) = default;
};

// Parses the text of the file. Errors: InvalidArgument with the line's number, the wrong text and
// what is allowed.
absl::StatusOr<std::vector<WorkerHost>> ParseHostList(absl::string_view text);

}  // namespace lodestar::psctl
