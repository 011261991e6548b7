// SPDX-License-Identifier: Apache-2.0

// OriginPlaces limits how many things, such as open calls, may exist at a time: in all, and per
// origin. So one origin cannot take all places.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"

namespace lodestar::limits {

// The class is thread-safe.
class OriginPlaces {
 public:
  struct Config {
    int in_all = 0;
    int of_origin = 0;
  };
  // A Place counts against the limits until it is destroyed. It may outlive the OriginPlaces.
  using Place = std::shared_ptr<const void>;

  explicit OriginPlaces(const Config& config) : state_(std::make_shared<State>(config)) {}

  // Takes a place. For `origin` see PeerOrigin(). Returns null if no place is left.
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
