// SPDX-License-Identifier: Apache-2.0

// Worker connects the parts of gpu_worker, or of a program that computes itself. It owns link,
// transport, workload and device. It carries out the Effects that its Lifecycle decides on. Tasks
// are carried out on the thread of Run(), one at a time, and all other effects at once on the
// calling thread. Workload and device are the same in all lives.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "common/logging/logging.h"
#include "common/net/address_list.h"
#include "common/process/trace_recorder.h"
#include "common/runtime/clock.h"
#include "kernels/device_set.h"
#include "kernels/factory/device_factory.h"
#include "proto/transport_security.h"
#include "worker/client/cancellable_transport.h"
#include "worker/client/coordinator_link.h"
#include "worker/client/device_payload.h"
#include "worker/data/sample_order.h"
#include "worker/life/lifecycle.h"
#include "worker/residual_folder.h"
#include "worker/service_reports.h"
#include "worker/trainer/progress.h"
#include "worker/trainer/round_runner.h"
#include "worker/tuning_file.h"
#include "worker/workload.h"

namespace lodestar::worker {

class Worker {
 public:
  struct Config {
    bool stays_connected = true;  // See CoordinatorLink::HeartbeatCalls.
    net::AddressList coordinator = net::AddressList::Of("127.0.0.1:50051");
    wire::TransportSecurity security = {};
    // True allows plain text to other machines. False allows it only on this machine.
    bool insecure = false;
    // Returns a message about possible reasons why TLS with the coordinator does not work; see
    // FindTlsDoubts(). Null means that the connection is plain text.
    std::function<std::string()> find_tls_doubts;
    std::string name;
    uint64_t instance_id = 0;      // Random, one per process.
    uint32_t request_process = 0;  // Random; see RequestIds.
    factory::DeviceOptions device;
    // The file that stores what the device chooses by measuring; see TuningFile. Empty means no
    // file.
    std::string tuning_path = {};
    // The name of the device in messages. Empty means the device's own name.
    std::string device_name;
    // True if memory is shared with servers of this machine.
    bool shared_memory = true;
    // The folder that stores the residual of error feedback for the next process of this name; see
    // ResidualFolder. Empty means that the residual is not stored.
    std::string residual_folder = {};
    KeepResiduals keep_residuals = KeepResiduals::kLocalSteps;
    // False means that transfers do not overlap with computing. Used to measure how much overlap
    // helps.
    bool overlap = true;
    // The file for the trace of a few rounds. Empty means no trace.
    std::string trace_path;
    int64_t trace_rounds = 5;
    absl::Duration progress_interval = absl::Seconds(2);
    // The time at which the worker started. Status and log show times since then. Not set means the
    // time of Create().
    std::optional<absl::Time> started_at = {};
    // Limits of waiting, see Lifecycle::Config. The constructor of Worker sets
    // life.connect.servers.
    life::Lifecycle::Config life;
  };

  // Makes a worker. Errors: those of the device, for example if its name is unknown or this machine
  // does not have it.
  static absl::StatusOr<std::unique_ptr<Worker>> Create(Config config,
                                                        std::unique_ptr<Workload> workload,
                                                        Clock* clock);
  ~Worker();

  // Blocks until the job is done or RequestStop() has taken effect. Both return OK. Errors:
  // - Unavailable: no server has answered for the time of config.life.connect, or the last weights
  //   did not come.
  // - DeadlineExceeded: the worker was told to stop, and could not hand in all its steps or its
  //   last report.
  // - Others: reconnecting does not help. The code is that of the refusal.
  absl::Status Run();

  // Tells the worker to stop. It finishes the present step, and makes further steps of its round if
  // they fit into `request.grace`. Then it hands in its work and leaves. It waits for servers for
  // at most leave_timeout. If request.machine_goes, it waits until shortly before the machine
  // stops. After several calls the earliest end counts. Thread-safe.
  void RequestStop(const life::StopRequest& request = {});

  // Does the same as trainer::PullState(). Errors: also Aborted (if the worker is not connected).
  // Thread-safe.
  absl::StatusOr<std::vector<Version>> PullState(const messages::Registration& registration,
                                                 uint32_t state_vector, absl::Span<float> state)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // Returns the present activity: "wait", "pull", "compute", "push" and others. Thread-safe.
  std::string activity() ABSL_LOCKS_EXCLUDED(mutex_);
  // See Lifecycle::Standing(). Thread-safe.
  std::string standing() ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns the state that is reported to a service manager. Thread-safe.
  ServiceReports::State service_state() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  static Config WithServersNamed(Config config) {
    config.life.connect.servers = config.coordinator.ToString();
    return config;
  }
  Worker(Config config, Clock* clock)
      : config_(WithServersNamed(std::move(config))), clock_(clock), lifecycle_(config_.life) {}

  // Carries out `effects`, in order. Tasks are passed to the thread of Run().
  void Perform(const life::Lifecycle::Effects& effects) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Perform(const life::Lifecycle::Task& task) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Perform(const life::Lifecycle::CancelCalls&) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Perform(const life::Lifecycle::CancelTransfers&) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Perform(const life::Lifecycle::Tell& tell) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Perform(const life::Lifecycle::TellWait& wait) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Calls Lifecycle::OnTick() at each Lifecycle::next_wake(). Returns when Run() is over.
  void KeepTime() ABSL_LOCKS_EXCLUDED(mutex_);
  // Waits for the next task and returns it.
  life::Lifecycle::Task NextTask() ABSL_LOCKS_EXCLUDED(mutex_);
  // Block until the task is done, and pass its result to the lifecycle.
  void Do(const life::Lifecycle::Connect&) ABSL_LOCKS_EXCLUDED(mutex_);
  void Do(const life::Lifecycle::Prepare&) ABSL_LOCKS_EXCLUDED(mutex_);
  void Do(const life::Lifecycle::TryPaths&) ABSL_LOCKS_EXCLUDED(mutex_);
  void Do(const life::Lifecycle::Join&) ABSL_LOCKS_EXCLUDED(mutex_);
  void Do(const life::Lifecycle::AskForGrant& ask) ABSL_LOCKS_EXCLUDED(mutex_);
  void Do(const life::Lifecycle::CarryOut& order) ABSL_LOCKS_EXCLUDED(mutex_);
  void Do(const life::Lifecycle::SayGoodbye& goodbye) ABSL_LOCKS_EXCLUDED(mutex_);
  void Do(const life::Lifecycle::Finish& finish);

  // Must be called when the servers have gone back to an earlier state and have lost a round that
  // they had acknowledged to this worker. Drops the residual and the kept contribution of the last
  // round.
  void DropWhatServersLack(const absl::Status& reason);
  // Logs the reasons why TLS may not work, once, and again if they change. This is needed because
  // TLS closes a refused connection without giving a reason.
  void TellTlsDoubts(const absl::Status& registered);
  // Ends heartbeats and transfers of the last connection.
  void Disconnect() ABSL_LOCKS_EXCLUDED(mutex_);
  void StartHeartbeats();
  absl::Status PrepareWorkload(const messages::Registration& registration);
  absl::Status PrepareRunner(const job::JobSpec& job);
  // Returns the store for the job's residual. Null means that the residual is not stored. If the
  // folder cannot be used, logs the reason.
  trainer::ResidualStore* PrepareResiduals(const job::JobSpec& job);
  void TakeResidualFolder();
  // If the job is to begin with this worker's weights, pushes them through the transport of this
  // life.
  absl::Status HandInInitialWeights();
  // If connections are plain text and config_.insecure is false, checks that `address` is on this
  // machine. Errors: PermissionDenied.
  absl::Status CheckServer(const std::string& address) const;
  absl::Status Prepare(const messages::Registration& registration);
  absl::StatusOr<messages::RoundReport> RunRound(const messages::Grant& grant);
  // Pulls the final weights of the job, if the workload wants them.
  void TakeLastWeights(const messages::Grant& done);
  // See Workload::SetExtendGrant().
  absl::StatusOr<messages::Grant> ExtendGrant(const messages::Grant& held);
  std::shared_ptr<client::CancellableTransport> CurrentTransport() ABSL_LOCKS_EXCLUDED(mutex_);
  trainer::LifeContext ContextOf(client::ParameterTransport* transport);
  // See LifeContext::transport_of.
  std::shared_ptr<client::ParameterTransport> TransportOf(const messages::WorkerLife& life,
                                                          const std::string& secret)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void TellProgress(const messages::Grant& grant);
  // Writes the choices of the devices to the tuning file, if there is one.
  void KeepTuning(absl::Duration patience);
  // Must be called when the servers have acknowledged the contribution that `report` describes. For
  // the first contribution of this process, logs the time since the start of the process.
  void CountContribution(const messages::Grant& grant, const messages::RoundReport& report);
  // Must be called when the work of this process has made progress.
  void NoteProgress() ABSL_LOCKS_EXCLUDED(mutex_);
  // Must be called when a step of the model begins.
  void NoteStep(const trainer::RoundStep& step) ABSL_LOCKS_EXCLUDED(mutex_);
  messages::HeartbeatCall CurrentActivity(const messages::WorkerLife& life)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void OnServersMoved(const messages::ServerAddresses& servers) ABSL_LOCKS_EXCLUDED(mutex_);
  bool IsStopping() ABSL_LOCKS_EXCLUDED(mutex_);
  bool IsLifeOver() ABSL_LOCKS_EXCLUDED(mutex_);

  Config config_;
  Clock* const clock_;
  // Null means no trace.
  std::unique_ptr<process::TraceRecorder> trace_;
  // Null means no tuning file.
  std::unique_ptr<TuningFile> tuning_file_;
  kernels::DeviceSet devices_;
  // Null means that the first device's memory is host memory, which needs no registry.
  std::unique_ptr<client::HostMemoryRegistry> registry_;
  std::unique_ptr<Workload> workload_;
  std::unique_ptr<client::CoordinatorLink> link_;
  // Null means that this process does not use the folder yet.
  std::unique_ptr<ResidualFolder> residuals_;

  // Only the thread of Run() uses the members from here to choices_logger_.
  std::optional<messages::Registration> registration_;
  std::optional<data::SampleOrder> sample_order_;
  std::unique_ptr<trainer::RoundRunner> runner_;
  // The job for which runner_ was made.
  job::JobSpec runner_job_;
  // The progress of training with workload_'s data.
  std::optional<trainer::Progress> progress_;
  // An error means that the workload wanted the last weights and did not get them.
  absl::Status last_weights_;
  // True if the job was stopped and may continue later.
  bool has_rounds_left_ = false;
  std::optional<absl::Status> outcome_;
  logging::ChangeLogger choices_logger_;

  std::string told_doubts_;  // The last message of TellTlsDoubts().

  absl::Time started_at_;
  // When this life registered.
  absl::Time registered_at_;
  // True if this process has contributed.
  bool has_contributed_ = false;

  absl::Mutex mutex_;
  life::Lifecycle lifecycle_ ABSL_GUARDED_BY(mutex_);
  // The task that comes next.
  std::optional<life::Lifecycle::Task> task_ ABSL_GUARDED_BY(mutex_);
  uint64_t num_events_ ABSL_GUARDED_BY(mutex_) = 0;
  // See StallWatch::Work.
  uint64_t progress_count_ ABSL_GUARDED_BY(mutex_) = 0;
  // The last step that has begun. If rounds overlap, a step may last longer than the task in which
  // it began.
  std::optional<trainer::RoundStep> step_ ABSL_GUARDED_BY(mutex_);
  bool run_is_over_ ABSL_GUARDED_BY(mutex_) = false;
  std::shared_ptr<client::CancellableTransport> transport_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<client::CancellableTransport> former_transport_ ABSL_GUARDED_BY(mutex_);
  // The version of the cluster map whose addresses transport_ uses.
  uint64_t map_version_ ABSL_GUARDED_BY(mutex_) = 0;
  std::optional<messages::AcknowledgedReport> acknowledged_ ABSL_GUARDED_BY(mutex_);
  logging::ChangeLogger wait_logger_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lodestar::worker
