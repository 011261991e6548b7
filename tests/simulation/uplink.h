// SPDX-License-Identifier: Apache-2.0

// SimulatedUplink is the uplink of a simulated site, in the process of the site's server. It has a
// SimulatedWorker of the servers upstream, whose steps the site's workers make. It stands for
// SiteUplink (site/site_uplink.cc), and for the work of LocalSgdRounds and RoundRunner
// (worker/trainer) between pulled weights and pushed contribution. SiteWorkload, LocalSteps and
// ServedSite, the site's half, are the real ones.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/job/job_spec.h"
#include "site/site_workload.h"
#include "tests/simulation/server.h"
#include "tests/simulation/site_audit.h"
#include "tests/simulation/worker.h"
#include "worker/data/sample_order.h"
#include "worker/trainer/device_timeline.h"
#include "worker/trainer/local_steps.h"
#include "worker/trainer/round_runner.h"

namespace lodestar::simulation {

class SimulatedUplink final : public UplinkOfServer, public Computing {
 public:
  // `process` is that of the site's server. `audit` is that of the site.
  SimulatedUplink(ClusterContext* upstream, SimulatedWorker::Config config, Process* process,
                  Audit* audit);

  const SimulatedWorker& worker() const { return worker_; }
  // Damages contributions on their way upstream, for `duration`.
  void DamagePushes(absl::Duration duration) { worker_.DamagePushes(duration); }

  void Start(site::Site* site, BlockingCode* code, std::function<void()> look) override;
  void End() override;
  std::string Standing() override;
  void Leave(std::function<void()> left) override;

  void Prepare(const messages::Registration& registration,
               std::function<void(const absl::Status&)> done) override;
  messages::DatasetInfo data() const override;
  void CarryOut(const messages::Grant& grant, std::vector<float> weights,
                std::function<void(const absl::StatusOr<Window>&)> done) override;

 private:
  void RequestStop(const life::StopRequest& request = {});
  void OnExit();
  // Runs code that blocks, and later passes its result to `done`.
  template <typename Result>
  void Run(std::function<Result()> code, std::function<void(const Result&)> done);
  absl::Status PrepareWorkload(const messages::Registration& registration);
  absl::StatusOr<Window> CarryOutGrant(const messages::Grant& grant,
                                       const std::vector<float>& weights);
  absl::Status Evaluate(const messages::Grant& grant, messages::RoundReport* report);
  absl::Status Train(const messages::Grant& grant, messages::RoundReport* report);

  ClusterContext* const upstream_;
  Process* const process_;
  const absl::Duration leave_timeout_;
  SimulatedWorker worker_;
  AuditedSite site_;

  // The members below are for one life of the process.
  BlockingCode* code_ = nullptr;  // null if the process has ended
  bool is_stopping_ = false;
  bool is_leaving_ = false;  // the server wants the uplink to leave
  std::function<void()> left_;
  std::unique_ptr<site::SiteWorkload> workload_;
  messages::Registration registration_;
  std::optional<data::SampleOrder> order_;
  trainer::RoundRunnerDeps deps_;
  std::unique_ptr<trainer::DeviceTimeline> timeline_;
  std::unique_ptr<trainer::LocalSteps> steps_;  // null means not prepared
};

}  // namespace lodestar::simulation
