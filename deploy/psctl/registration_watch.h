// Which workers of a launch have not come to its server, and when to say so. Pure.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "absl/time/time.h"

namespace lodestar {

class RegistrationWatch {
 public:
  static constexpr absl::Duration kFirstLook = absl::Seconds(20);
  static constexpr absl::Duration kLookAgain = absl::Minutes(1);

  struct Worker {
    std::string name;
    std::string host;
  };

  // `started_at`: when the workers were started.
  RegistrationWatch(std::vector<Worker> workers, absl::Time started_at);

  // Returns true if the server is to be asked which workers have registered, and Take() is to be
  // called with its answer. Returns false until kLookAgain later, and once all have registered.
  bool BeginLook(absl::Time now);
  // `registered`: the names of all workers that the server knows, also of those that have left.
  // Returns a sentence that names each worker, with its host, that has never registered. Empty if
  // there is none.
  std::string Take(const std::set<std::string>& registered, absl::Time now);

 private:
  const size_t num_workers_;
  const absl::Time started_at_;
  absl::Time next_look_;
  std::vector<Worker> missing_;  // as far as it is known
};

}  // namespace lodestar
