// Worker: composition root of gpu_worker, and of programs that compute themselves. It owns link,
// transport, workload and device, and carries out what its Lifecycle decides: tasks on the thread
// of Run(), one at a time, everything else at once. Workload and device are kept from life to life.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "common/address_list.h"
#include "common/clock.h"
#include "common/logging.h"
#include "common/trace_recorder.h"
#include "kernels/device_factory.h"
#include "kernels/device_set.h"
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

namespace lodestar {

class Worker {
 public:
  struct Config {
    bool stays_connected = true;  // see CoordinatorLink::HeartbeatCalls
    AddressList coordinator = AddressList::Of("127.0.0.1:50051");
    TransportSecurity security = {};
    // Allows plain text to other machines.
    bool insecure = false;
    // What may keep TLS with the coordinator from working, in words; see FindTlsDoubts(). Null: the
    // wire is plain text.
    std::function<std::string()> find_tls_doubts;
    std::string name;
    uint64_t instance_id = 0;      // random, one per process
    uint32_t request_process = 0;  // random, too: see RequestIds
    DeviceOptions device;
    // Of what the device chooses by measuring, see TuningFile; empty: none.
    std::string tuning_path = {};
    // For people: where it computes. Empty: the name of the device.
    std::string device_name;
    bool shared_memory = true;  // with servers of this machine
    // Where the residual of error feedback is kept for the next process of this name, see
    // ResidualFolder; empty: nowhere.
    std::string residual_folder = {};
    KeepResiduals keep_residuals = KeepResiduals::kLocalSteps;
    // False: transfers do not overlap with computing, to measure what that is worth.
    bool overlap = true;
    std::string trace_path;  // of the file with the times of a few rounds; empty: none
    int64_t trace_rounds = 5;
    absl::Duration progress_interval = absl::Seconds(2);
    // By the worker's clock, which its status and log count from. Not set: Create().
    std::optional<absl::Time> started_at = {};
    // How long a worker that was told to stop waits for servers before it leaves without them, for
    // how long it pauses before it tries again, and when it gives up on servers that do not answer.
    // Create() fills in the addresses that are tried.
    Lifecycle::Config life;
  };

  // Errors: those of the device (an unknown one, or one that this machine lacks).
  static absl::StatusOr<std::unique_ptr<Worker>> Create(Config config,
                                                        std::unique_ptr<Workload> workload,
                                                        Clock* clock);
  ~Worker();

  // Blocks until the job is done or RequestStop() took effect (both OK).
  // Errors: Unavailable: no server has answered for the time of config.life.connect, or the last
  // weights did not come; DeadlineExceeded: told to stop, and the round at hand, or steps that the
  // next one was to take, were not handed over, within leave_timeout or because the life ended
  // first; else what reconnecting will not mend, with the code of the refusal.
  absl::Status Run();

  // Finishes the step at hand, and those of its round that fit into `request.grace`, hands over
  // what there is, leaves. A step takes its time; waiting for servers is given up after
  // leave_timeout, or when the machine goes. Again: the shortest time counts. Thread-safe.
  void RequestStop(const StopRequest& request = {});

  // What it does now: "wait", "pull", "compute", "push", ... Thread-safe.
  std::string activity() ABSL_LOCKS_EXCLUDED(mutex_);
  // See Lifecycle::Standing(). Thread-safe.
  std::string standing() ABSL_LOCKS_EXCLUDED(mutex_);
  // What a service manager is told. Thread-safe.
  ServiceReports::State service_state() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  static Config WithServersNamed(Config config) {
    config.life.connect.servers = config.coordinator.ToString();
    return config;
  }
  Worker(Config config, Clock* clock)
      : config_(WithServersNamed(std::move(config))), clock_(clock), lifecycle_(config_.life) {}

  // Does what `effects` say, in order; a task is left to the thread of Run().
  void Perform(const Lifecycle::Effects& effects) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Perform(const Lifecycle::Task& task) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Perform(const Lifecycle::CancelCalls&) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Perform(const Lifecycle::CancelTransfers&) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Perform(const Lifecycle::Tell& tell) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Perform(const Lifecycle::TellWait& wait) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Wakes the lifecycle when it wants to be woken; until Run() is over.
  void KeepTime() ABSL_LOCKS_EXCLUDED(mutex_);
  // The task that comes next, when it comes.
  Lifecycle::Task NextTask() ABSL_LOCKS_EXCLUDED(mutex_);
  // Each blocks, and tells the lifecycle the outcome.
  void Do(const Lifecycle::Connect&) ABSL_LOCKS_EXCLUDED(mutex_);
  void Do(const Lifecycle::Prepare&) ABSL_LOCKS_EXCLUDED(mutex_);
  void Do(const Lifecycle::TryPaths&) ABSL_LOCKS_EXCLUDED(mutex_);
  void Do(const Lifecycle::Join&) ABSL_LOCKS_EXCLUDED(mutex_);
  void Do(const Lifecycle::AskForGrant& ask) ABSL_LOCKS_EXCLUDED(mutex_);
  void Do(const Lifecycle::CarryOut& order) ABSL_LOCKS_EXCLUDED(mutex_);
  void Do(const Lifecycle::SayGoodbye& goodbye) ABSL_LOCKS_EXCLUDED(mutex_);
  void Do(const Lifecycle::Finish& finish);

  // The servers have gone back behind a round that was acknowledged to this worker.
  void DropWhatServersLack(const absl::Status& reason);
  // Once, and again when there are others: a connection that TLS refuses is closed without a word.
  void TellTlsDoubts(const absl::Status& registered);
  // Ends heartbeats and transfers of the last connection.
  void Disconnect() ABSL_LOCKS_EXCLUDED(mutex_);
  void StartHeartbeats();
  absl::Status PrepareWorkload(const Registration& registration);
  absl::Status PrepareRunner(const JobSpec& job);
  // Where the job's residual is kept; null: it is not. A folder that cannot be used is told.
  ResidualStore* PrepareResiduals(const JobSpec& job);
  void TakeResidualFolder();
  // Where the job begins with this worker's: in the transport of this life.
  absl::Status HandInInitialWeights();
  // Plain text stays on this machine. Errors: PermissionDenied.
  absl::Status CheckServer(const std::string& address) const;
  absl::Status Prepare(const Registration& registration);
  absl::StatusOr<RoundReport> RunRound(const Grant& grant);
  // The job is done; for whoever wants the weights.
  void TakeLastWeights(const Grant& done);
  std::shared_ptr<CancellableTransport> CurrentTransport() ABSL_LOCKS_EXCLUDED(mutex_);
  LifeContext ContextOf(ParameterTransport* transport);
  // See LifeContext::transport_of.
  std::shared_ptr<ParameterTransport> TransportOf(const WorkerLife& life, const std::string& secret)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void TellProgress(const Grant& grant);
  // What the devices have chosen by measuring, if there is a file for it.
  void KeepTuning(absl::Duration patience);
  // The servers have acknowledged what `report` tells of; of the first contribution the log says
  // how long it took.
  void CountContribution(const Grant& grant, const RoundReport& report);
  // What this process does by itself has got on.
  void NoteProgress() ABSL_LOCKS_EXCLUDED(mutex_);
  // A step of the model begins.
  void NoteStep(const RoundStep& step) ABSL_LOCKS_EXCLUDED(mutex_);
  HeartbeatCall CurrentActivity(const WorkerLife& life) ABSL_LOCKS_EXCLUDED(mutex_);
  void OnServersMoved(const ServerAddresses& servers) ABSL_LOCKS_EXCLUDED(mutex_);
  bool IsStopping() ABSL_LOCKS_EXCLUDED(mutex_);
  bool IsLifeOver() ABSL_LOCKS_EXCLUDED(mutex_);

  Config config_;
  Clock* const clock_;
  std::unique_ptr<TraceRecorder> trace_;     // null: no trace
  std::unique_ptr<TuningFile> tuning_file_;  // null: none
  DeviceSet devices_;
  std::unique_ptr<HostMemoryRegistry> registry_;  // of the first device; null: it needs none
  std::unique_ptr<Workload> workload_;
  std::unique_ptr<CoordinatorLink> link_;
  std::unique_ptr<ResidualFolder> residuals_;  // null: nothing is kept there, and nothing was

  // Of the thread of Run().
  std::optional<Registration> registration_;
  std::optional<SampleOrder> sample_order_;
  std::unique_ptr<RoundRunner> runner_;
  JobSpec runner_job_;                // that runner_ was made for
  std::optional<Progress> progress_;  // of training with workload_'s data
  absl::Status last_weights_;         // whether they came, where they were wanted
  bool has_rounds_left_ = false;      // the job was stopped, and may be gone on with
  std::optional<absl::Status> outcome_;
  ChangeLogger choices_logger_;

  std::string told_doubts_;  // of TellTlsDoubts()

  absl::Time started_at_;
  absl::Time registered_at_;      // in this life
  bool has_contributed_ = false;  // since this process began

  absl::Mutex mutex_;
  Lifecycle lifecycle_ ABSL_GUARDED_BY(mutex_);
  std::optional<Lifecycle::Task> task_ ABSL_GUARDED_BY(mutex_);  // that is to be done next
  uint64_t num_events_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t progress_count_ ABSL_GUARDED_BY(mutex_) = 0;  // see StallWatch::Work
  // The last one that has begun. Of overlapped rounds it may go on through several tasks.
  std::optional<RoundStep> step_ ABSL_GUARDED_BY(mutex_);
  bool run_is_over_ ABSL_GUARDED_BY(mutex_) = false;
  std::shared_ptr<CancellableTransport> transport_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<CancellableTransport> former_transport_ ABSL_GUARDED_BY(mutex_);
  uint64_t map_version_ ABSL_GUARDED_BY(mutex_) = 0;  // whose addresses transport_ has
  std::optional<AcknowledgedReport> acknowledged_ ABSL_GUARDED_BY(mutex_);
  ChangeLogger wait_logger_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lodestar
