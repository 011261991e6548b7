// The file of psctl launch --hosts: on which machines workers run. Pure.
//
//   # comment
//   gpu1                 one worker, on any device
//   user@gpu2 workers=2  two
//   gpu3 cards=0,1,3     one for each of these cards
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace lodestar {

struct WorkerHost {
  std::string address;          // as ssh takes it
  int workers = 1;              // as many as there are cards, if they are named
  std::vector<int> cards = {};  // CUDA devices; empty: --device decides
  friend bool operator==(const WorkerHost&, const WorkerHost&) = default;
};

// Errors: InvalidArgument naming the line, what is there and what is wanted.
absl::StatusOr<std::vector<WorkerHost>> ParseHostList(absl::string_view text);

}  // namespace lodestar
