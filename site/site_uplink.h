// SPDX-License-Identifier: Apache-2.0

// The uplink of a site: a complete worker of the servers upstream, in the process of the site's
// server. Registration, leases, encodings with error feedback, reconnection and TLS work as in any
// worker.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/notification.h"
#include "common/job/job_spec.h"
#include "common/messages/cluster_messages.h"
#include "server/site/site.h"
#include "worker/worker.h"
#include "worker/worker_entry.h"

namespace lodestar::site {

// Registers a site with its servers upstream, and keeps the result of the registration.
class UpstreamEntry {
 public:
  struct Config {
    worker::WorkerEntrance entrance;
    // Maximum time that the site waits for the servers upstream when it is told to stop.
    absl::Duration leave_timeout = absl::Seconds(30);
  };

  // Registers the site. While no server answers, waits and logs that it waits. Errors: those of
  // WorkerCredentials::Await(); the permanent errors of registration; InvalidArgument (plain text
  // to another machine); Cancelled (interrupted).
  static absl::StatusOr<std::unique_ptr<UpstreamEntry>> Await(
      const Config& config, const std::function<bool()>& is_interrupted);

  // Returns the site's name at the servers upstream.
  const std::string& name() const { return worker_.name; }
  // Returns the registration at the time when the entry was made.
  const messages::Registration& registration() const { return registration_; }
  // Starts to work for the servers upstream. Errors: those of Worker::Create().
  absl::StatusOr<std::unique_ptr<site::Uplink>> MakeUplink(site::Site* site) const;

 private:
  UpstreamEntry() = default;
  absl::Status Register(const std::function<bool()>& is_interrupted);

  worker::Worker::Config worker_;
  std::unique_ptr<worker::WorkerCredentials> credentials_;
  messages::Registration registration_;
};

}  // namespace lodestar::site
