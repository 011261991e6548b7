// Worker is the composition root of gpu_worker, and of programs that compute themselves. It owns
// link, transport, workload and device, and carries out what its Lifecycle decides. Tasks run on
// the thread of Run(), one at a time; everything else is done at once. Workload and device are kept
// from life to life.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
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
    bool stays_connected = true;  // see CoordinatorLink::HeartbeatCalls
    AddressList coordinator = AddressList::Of("127.0.0.1:50051");
    wire::TransportSecurity security = {};
    // True allows plain text to other machines.
    bool insecure = false;
    // Returns what may keep TLS with the coordinator from working, in words; see FindTlsDoubts().
    // Null means that the wire is plain text.
    std::function<std::string()> find_tls_doubts;
    std::string name;
    uint64_t instance_id = 0;      // random, one per process
    uint32_t request_process = 0;  // also random; see RequestIds
    factory::DeviceOptions device;
    // The file that keeps what the device chooses by measuring; see TuningFile. Empty means that
    // there is no such file.
    std::string tuning_path = {};
    // Tells people where the worker computes. Empty means the name of the device.
    std::string device_name;
    bool shared_memory = true;  // used with servers of this machine
    // The folder in which the residual of error feedback is kept for the next process of this name;
    // see ResidualFolder. Empty means that the residual is not kept.
    std::string residual_folder = {};
    KeepResiduals keep_residuals = KeepResiduals::kLocalSteps;
    // False means that transfers do not overlap with computing, to measure what that is worth.
    bool overlap = true;
    // The file that gets the times of a few rounds. Empty means that there is no such file.
    std::string trace_path;
    int64_t trace_rounds = 5;
    absl::Duration progress_interval = absl::Seconds(2);
    // The time, by the worker's clock, that its status and log count from. If it is not set, they
    // count from Create().
    std::optional<absl::Time> started_at = {};
    // Says how long a worker that was told to stop waits for servers before it leaves without them.
    // It also says how long the worker pauses before it tries again, and when it gives up on
    // servers that do not answer. The constructor fills in the addresses that are tried.
    life::Lifecycle::Config life;
  };

  // Errors: those of the device (an unknown one, or one that this machine lacks).
  static absl::StatusOr<std::unique_ptr<Worker>> Create(Config config,
                                                        std::unique_ptr<Workload> workload,
                                                        Clock* clock);
  ~Worker();

  // Blocks until the job is done or RequestStop() took effect (both return OK). Errors:
  // - Unavailable: no server has answered for the time of config.life.connect, or the last weights
  //   did not come.
  // - DeadlineExceeded: the worker was told to stop, and the round at hand, or steps that the next
  //   round was to take, were not handed over. Either leave_timeout was over, or the life ended.
  // - Others: what reconnecting will not mend, with the code of the refusal.
  absl::Status Run();

  // Makes the worker finish the step at hand and those of its round that fit into `request.grace`,
  // hand over what there is, and leave. A step is not cut short. The worker gives up waiting for
  // servers after leave_timeout, or when the machine goes. If this is called several times, the
  // shortest time counts. Thread-safe.
  void RequestStop(const life::StopRequest& request = {});

  // Returns what the worker does now: "wait", "pull", "compute", "push", ... Thread-safe.
  std::string activity() ABSL_LOCKS_EXCLUDED(mutex_);
  // See Lifecycle::Standing(). Thread-safe.
  std::string standing() ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns what a service manager is told. Thread-safe.
  ServiceReports::State service_state() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  static Config WithServersNamed(Config config) {
    config.life.connect.servers = config.coordinator.ToString();
    return config;
  }
  Worker(Config config, Clock* clock)
      : config_(WithServersNamed(std::move(config))), clock_(clock), lifecycle_(config_.life) {}

  // Does what `effects` say, in order. A task is left to the thread of Run().
  void Perform(const life::Lifecycle::Effects& effects) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Perform(const life::Lifecycle::Task& task) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Perform(const life::Lifecycle::CancelCalls&) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Perform(const life::Lifecycle::CancelTransfers&) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Perform(const life::Lifecycle::Tell& tell) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Perform(const life::Lifecycle::TellWait& wait) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Wakes the lifecycle when it wants to be woken. Returns when Run() is over.
  void KeepTime() ABSL_LOCKS_EXCLUDED(mutex_);
  // Waits for the next task and returns it.
  life::Lifecycle::Task NextTask() ABSL_LOCKS_EXCLUDED(mutex_);
  // Each Do() blocks until the task is done, and tells the lifecycle the outcome.
  void Do(const life::Lifecycle::Connect&) ABSL_LOCKS_EXCLUDED(mutex_);
  void Do(const life::Lifecycle::Prepare&) ABSL_LOCKS_EXCLUDED(mutex_);
  void Do(const life::Lifecycle::TryPaths&) ABSL_LOCKS_EXCLUDED(mutex_);
  void Do(const life::Lifecycle::Join&) ABSL_LOCKS_EXCLUDED(mutex_);
  void Do(const life::Lifecycle::AskForGrant& ask) ABSL_LOCKS_EXCLUDED(mutex_);
  void Do(const life::Lifecycle::CarryOut& order) ABSL_LOCKS_EXCLUDED(mutex_);
  void Do(const life::Lifecycle::SayGoodbye& goodbye) ABSL_LOCKS_EXCLUDED(mutex_);
  void Do(const life::Lifecycle::Finish& finish);

  // Handles servers that have gone back behind a round that was acknowledged to this worker.
  void DropWhatServersLack(const absl::Status& reason);
  // Logs what may keep TLS from working, once, and again when that changes: if TLS refuses a
  // connection, the connection is closed without a reason.
  void TellTlsDoubts(const absl::Status& registered);
  // Ends heartbeats and transfers of the last connection.
  void Disconnect() ABSL_LOCKS_EXCLUDED(mutex_);
  void StartHeartbeats();
  absl::Status PrepareWorkload(const Registration& registration);
  absl::Status PrepareRunner(const JobSpec& job);
  // Returns where the job's residual is kept, or null if it is not kept. Logs if the folder cannot
  // be used.
  trainer::ResidualStore* PrepareResiduals(const JobSpec& job);
  void TakeResidualFolder();
  // If the job is to begin with this worker's weights, hands them in by the transport of this life.
  absl::Status HandInInitialWeights();
  // Checks that plain text stays on this machine. Errors: PermissionDenied.
  absl::Status CheckServer(const std::string& address) const;
  absl::Status Prepare(const Registration& registration);
  absl::StatusOr<RoundReport> RunRound(const Grant& grant);
  // Pulls the weights of a job that is done, if the workload wants them.
  void TakeLastWeights(const Grant& done);
  std::shared_ptr<client::CancellableTransport> CurrentTransport() ABSL_LOCKS_EXCLUDED(mutex_);
  trainer::LifeContext ContextOf(client::ParameterTransport* transport);
  // See LifeContext::transport_of.
  std::shared_ptr<client::ParameterTransport> TransportOf(const WorkerLife& life,
                                                          const std::string& secret)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void TellProgress(const Grant& grant);
  // Writes down what the devices have chosen by measuring, if there is a file for it.
  void KeepTuning(absl::Duration patience);
  // To be called when the servers have acknowledged what `report` tells of. If that is the first
  // contribution of this process, logs how long it took.
  void CountContribution(const Grant& grant, const RoundReport& report);
  // Notes that the work that this process does by itself has got on.
  void NoteProgress() ABSL_LOCKS_EXCLUDED(mutex_);
  // Notes that a step of the model begins.
  void NoteStep(const trainer::RoundStep& step) ABSL_LOCKS_EXCLUDED(mutex_);
  HeartbeatCall CurrentActivity(const WorkerLife& life) ABSL_LOCKS_EXCLUDED(mutex_);
  void OnServersMoved(const ServerAddresses& servers) ABSL_LOCKS_EXCLUDED(mutex_);
  bool IsStopping() ABSL_LOCKS_EXCLUDED(mutex_);
  bool IsLifeOver() ABSL_LOCKS_EXCLUDED(mutex_);

  Config config_;
  Clock* const clock_;
  std::unique_ptr<TraceRecorder> trace_;     // null if there is no trace
  std::unique_ptr<TuningFile> tuning_file_;  // null if there is no such file
  kernels::DeviceSet devices_;
  std::unique_ptr<client::HostMemoryRegistry> registry_;  // null if the first device needs none
  std::unique_ptr<Workload> workload_;
  std::unique_ptr<client::CoordinatorLink> link_;
  std::unique_ptr<ResidualFolder> residuals_;  // null if the folder was not taken yet

  // Only the thread of Run() uses the members from here to choices_logger_.
  std::optional<Registration> registration_;
  std::optional<data::SampleOrder> sample_order_;
  std::unique_ptr<trainer::RoundRunner> runner_;
  JobSpec runner_job_;                         // the job that runner_ was made for
  std::optional<trainer::Progress> progress_;  // of training with workload_'s data
  absl::Status last_weights_;     // an error if the last weights were wanted and did not come
  bool has_rounds_left_ = false;  // true if the job was stopped, and may go on later
  std::optional<absl::Status> outcome_;
  ChangeLogger choices_logger_;

  std::string told_doubts_;  // what TellTlsDoubts() has logged last

  absl::Time started_at_;
  absl::Time registered_at_;      // in this life
  bool has_contributed_ = false;  // since this process began

  absl::Mutex mutex_;
  life::Lifecycle lifecycle_ ABSL_GUARDED_BY(mutex_);
  std::optional<life::Lifecycle::Task> task_ ABSL_GUARDED_BY(mutex_);  // the task to be done next
  uint64_t num_events_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t progress_count_ ABSL_GUARDED_BY(mutex_) = 0;  // see StallWatch::Work
  // The last step that has begun. If rounds overlap, a step may go on through several tasks.
  std::optional<trainer::RoundStep> step_ ABSL_GUARDED_BY(mutex_);
  bool run_is_over_ ABSL_GUARDED_BY(mutex_) = false;
  std::shared_ptr<client::CancellableTransport> transport_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<client::CancellableTransport> former_transport_ ABSL_GUARDED_BY(mutex_);
  uint64_t map_version_ ABSL_GUARDED_BY(mutex_) = 0;  // version of the map used by transport_
  std::optional<AcknowledgedReport> acknowledged_ ABSL_GUARDED_BY(mutex_);
  ChangeLogger wait_logger_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lodestar::worker
