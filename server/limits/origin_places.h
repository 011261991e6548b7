// Places for something of which there may be a few at a time: in all, and of one origin, so that an
// origin that takes all that it can get leaves some to others.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"

namespace lodestar::limits {

// Thread-safe.
class OriginPlaces {
 public:
  struct Config {
    int in_all = 0;
    int of_origin = 0;
  };
  // One that is taken, until it is gone. May outlive the places.
  using Place = std::shared_ptr<const void>;

  explicit OriginPlaces(const Config& config) : state_(std::make_shared<State>(config)) {}

  // `origin`: see PeerOrigin(). Null: there is none left.
  Place Take(absl::string_view origin);
  const Config& config() const { return state_->config; }

 private:
  struct State {
    explicit State(const Config& the_config) : config(the_config) {}

    const Config config;
    absl::Mutex mutex;
    int num_taken ABSL_GUARDED_BY(mutex) = 0;
    std::map<std::string, int, std::less<>> of_origin ABSL_GUARDED_BY(mutex);
  };
  const std::shared_ptr<State> state_;
};

}  // namespace lodestar::limits
