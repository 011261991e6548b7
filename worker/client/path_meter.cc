// SPDX-License-Identifier: Apache-2.0

#include "worker/client/path_meter.h"

#include <algorithm>

namespace lodestar::client {

void PathMeter::Rates::Add(uint64_t bytes, absl::Duration took) {
  if (bytes < kLeastBytes || took <= absl::ZeroDuration()) return;
  rates_[next_] = static_cast<double>(bytes) / absl::ToDoubleSeconds(took);
  next_ = (next_ + 1) % kRemembered;
}

double PathMeter::Rates::Highest() const { return *std::max_element(rates_.begin(), rates_.end()); }

void PathMeter::OnSent(uint64_t bytes, absl::Duration sending, absl::Duration round_trip) {
  absl::MutexLock lock(&mutex_);
  round_trip_ = round_trip;
  up_.Add(bytes, sending - round_trip);
}

void PathMeter::OnReceived(uint64_t bytes, absl::Duration took) {
  absl::MutexLock lock(&mutex_);
  down_.Add(bytes, took);
}

messages::PathFacts PathMeter::facts() const {
  absl::MutexLock lock(&mutex_);
  return {.up_bytes_per_second = up_.Highest(),
          .down_bytes_per_second = down_.Highest(),
          .round_trip = round_trip_};
}

}  // namespace lodestar::client
