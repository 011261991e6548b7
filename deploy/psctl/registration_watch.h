// SPDX-License-Identifier: Apache-2.0

// RegistrationWatch finds the workers of a launch that have not registered with its server, and
// decides when to say so. It does no input or output.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "absl/time/time.h"

namespace lodestar::psctl {

class RegistrationWatch {
 public:
  static constexpr absl::Duration kFirstLook = absl::Seconds(20);
  static constexpr absl::Duration kLookAgain = absl::Minutes(1);

  struct Worker {
    std::string name;
    std::string host;
  };

  // `started_at` is when the workers were started.
  RegistrationWatch(std::vector<Worker> workers, absl::Time started_at);

  // Returns true if it is time to ask the server which workers have registered. Then the caller
  // must ask, and pass the answer to Take(). The next true comes after kLookAgain at the earliest.
  // Once all workers have registered, always returns false.
  bool BeginLook(absl::Time now);
  // Takes the names of all workers that the server knows, including those that have left. Returns a
  // message with each worker that has never registered, and its host. Empty means that all have
  // registered.
  std::string Take(const std::set<std::string>& registered, absl::Time now);

 private:
  const size_t num_workers_;
  const absl::Time started_at_;
  absl::Time next_look_;
  std::vector<Worker> missing_;  // workers not known to have registered
};

}  // namespace lodestar::psctl
