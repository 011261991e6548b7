// SPDX-License-Identifier: Apache-2.0

#include "site/site_uplink.h"

#include <utility>

#include "absl/time/clock.h"
#include "common/logging/logging.h"
#include "common/net/address_list.h"
#include "common/runtime/clock.h"
#include "common/runtime/remedy.h"
#include "common/runtime/status_hints.h"
#include "common/runtime/status_macros.h"
#include "site/site_workload.h"
#include "worker/client/cluster_session.h"

namespace lodestar::site {
namespace {

constexpr char kDeviceName[] = "the workers of a site";
// kPause is the pause between two tries to register. kLook is the interval at which a waiting call
// checks whether it must stop.
constexpr absl::Duration kPause = absl::Seconds(1);
constexpr absl::Duration kLook = absl::Milliseconds(50);

class SiteUplink final : public site::Uplink {
 public:
  static absl::StatusOr<std::unique_ptr<site::Uplink>> Start(const worker::Worker::Config& config,
                                                             const job::JobSpec& job,
                                                             site::Site* site) {
    auto uplink = std::unique_ptr<SiteUplink>(new SiteUplink(site, config.life.leave_timeout));
    auto workload = std::make_unique<SiteWorkload>(
        job,
        SiteWorkload::Deps{.site = site,
                           .is_stopping = [raw = uplink.get()] { return raw->is_stopping_.load(); },
                           .request_stop = [raw = uplink.get()] { raw->RequestStop(); }});
    ASSIGN_OR_RETURN(uplink->worker_,
                     worker::Worker::Create(config, std::move(workload), &Clock::Real()));
    uplink->thread_ = std::thread([raw = uplink.get()] { raw->Run(); });
    return uplink;
  }

  ~SiteUplink() override {
    is_leaving_ = true;
    if (worker_ != nullptr) RequestStop({.machine_goes = true});
    if (thread_.joinable()) thread_.join();
  }

  std::string Standing() override { return worker_->standing(); }

  void Leave(const site::Site::Interrupted& is_interrupted) override {
    // With `grace`, the worker first makes and hands in the steps that fit into leave_timeout_.
    if (!is_leaving_.exchange(true)) RequestStop({.grace = leave_timeout_});
    while (!is_over_.WaitForNotificationWithTimeout(kLook)) {
      if (is_interrupted()) return;
    }
  }

 private:
  SiteUplink(site::Site* site, absl::Duration leave_timeout)
      : site_(site), leave_timeout_(leave_timeout) {}

  void RequestStop(const life::StopRequest& request = {}) {
    is_stopping_ = true;
    worker_->RequestStop(request);
  }

  void Run() {
    const absl::Status outcome = worker_->Run();
    if (!outcome.ok()) logging::LogError("upstream: {}", outcome.message());
    if (!is_leaving_) site_->OnUpstreamEnd(outcome);
    is_over_.Notify();
  }

  site::Site* const site_;
  const absl::Duration leave_timeout_;
  std::unique_ptr<worker::Worker> worker_;
  std::atomic<bool> is_stopping_ = false;
  // True if Leave() has asked the worker to stop. If the worker ends while it is false, the worker
  // has ended by itself.
  std::atomic<bool> is_leaving_ = false;
  absl::Notification is_over_;
  std::thread thread_;
};

bool MayRegisterLater(const absl::Status& status) {
  const Remedy remedy = RemedyFor(status);
  return remedy != Remedy::kGiveUp && !IsJobOver(status);
}

}  // namespace

absl::StatusOr<std::unique_ptr<UpstreamEntry>> UpstreamEntry::Await(
    const Config& config, const std::function<bool()>& is_interrupted) {
  RETURN_IF_ERROR(worker::CheckMayEnter(config.entrance, "upstream"));
  auto entry = std::unique_ptr<UpstreamEntry>(new UpstreamEntry());
  worker::Worker::Config& worker = entry->worker_;
  ASSIGN_OR_RETURN(worker.coordinator,
                   net::AddressList::Parse("upstream", config.entrance.coordinator));
  // The servers upstream must not end the site's life when its connection ends. The site's own
  // workers continue to work, and starting a site again is expensive.
  worker.stays_connected = false;
  worker.insecure = config.entrance.security.insecure;
  worker.name = config.entrance.name.empty() ? worker::DefaultWorkerName() : config.entrance.name;
  worker.instance_id = worker::RandomInstanceId();
  worker.request_process = static_cast<uint32_t>(worker::RandomInstanceId());
  worker.device = {.kind = "cpu"};
  worker.device_name = kDeviceName;
  worker.life.leave_timeout = config.leave_timeout;
  ASSIGN_OR_RETURN(entry->credentials_,
                   worker::WorkerCredentials::Await(config.entrance, is_interrupted, &worker));
  RETURN_IF_ERROR(entry->Register(is_interrupted));
  return entry;
}

absl::Status UpstreamEntry::Register(const std::function<bool()>& is_interrupted) {
  const std::unique_ptr<client::CoordinatorLink> link =
      client::MakeClusterSession({.coordinator = worker_.coordinator,
                                  .security = worker_.security,
                                  .name = worker_.name,
                                  .device = worker_.device_name,
                                  .instance_id = worker_.instance_id,
                                  .request_process = worker_.request_process,
                                  .leave_timeout = worker_.life.leave_timeout});
  logging::ChangeLogger log;
  while (true) {
    absl::StatusOr<messages::Registration> registration =
        link->Register(/*offered=*/std::nullopt, /*process=*/{});
    if (registration.ok()) {
      registration_ = *std::move(registration);
      return absl::OkStatus();
    }
    if (!MayRegisterLater(registration.status())) return registration.status();
    log.Log(logging::LogLevel::kWarn, "upstream",
            absl::StrCat("waits for upstream ", worker_.coordinator.ToString(),
                         ", which gives this site its job: ", registration.status().message()));
    const absl::Time until = absl::Now() + kPause;
    while (absl::Now() < until) {
      if (is_interrupted())
        return absl::CancelledError("stopped on request before this site had joined upstream");
      absl::SleepFor(kLook);
    }
  }
}

absl::StatusOr<std::unique_ptr<site::Uplink>> UpstreamEntry::MakeUplink(site::Site* site) const {
  return SiteUplink::Start(worker_, registration_.job, site);
}

}  // namespace lodestar::site
