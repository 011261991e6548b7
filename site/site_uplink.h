// The uplink of a site: a complete worker of the servers upstream, in the process of the site's
// server. Registration, leases, encodings with error feedback, reconnection and TLS are those of
// any worker.
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

// How a site comes to its servers upstream, and what it finds there.
class UpstreamEntry {
 public:
  struct Config {
    worker::WorkerEntrance entrance;
    // How long the site, told to stop, waits for the servers upstream.
    absl::Duration leave_timeout = absl::Seconds(30);
  };

  // Comes in, and waits for as long as no server answers, which the log says. Errors: those of
  // WorkerCredentials::Await() and of registration that another try does not mend; InvalidArgument
  // for plain text to another machine; Cancelled once interrupted.
  static absl::StatusOr<std::unique_ptr<UpstreamEntry>> Await(
      const Config& config, const std::function<bool()>& is_interrupted);

  // The site is known under it upstream.
  const std::string& name() const { return worker_.name; }
  // As it was when the entry was made.
  const Registration& registration() const { return registration_; }
  // Begins to work. Errors: those of Worker::Create().
  absl::StatusOr<std::unique_ptr<site::Uplink>> MakeUplink(site::Site* site) const;

 private:
  UpstreamEntry() = default;
  absl::Status Register(const std::function<bool()>& is_interrupted);

  worker::Worker::Config worker_;
  std::unique_ptr<worker::WorkerCredentials> credentials_;
  Registration registration_;
};

}  // namespace lodestar::site
