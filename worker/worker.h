// Worker: composition root and life cycle of gpu_worker. A life runs from registration to the end
// of the job or to the loss of the lease; between lives it reconnects with back-off. Model, data
// and device are kept from life to life.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "common/clock.h"
#include "common/logging.h"
#include "common/remedy.h"
#include "common/trace_recorder.h"
#include "kernels/device.h"
#include "kernels/device_factory.h"
#include "worker/client/cancellable_transport.h"
#include "worker/client/coordinator_link.h"
#include "worker/data/data_config.h"
#include "worker/data/dataset.h"
#include "worker/data/dataset_factory.h"
#include "worker/model/model.h"
#include "worker/trainer/progress.h"
#include "worker/trainer/round_runner.h"

namespace lodestar {

class Worker {
 public:
  struct Config {
    std::string coordinator;  // host:port
    std::string name;
    uint64_t instance_id = 0;  // random, one per process
    DataConfig data;
    bool own_partition = false;  // the data is local to this worker
    DeviceOptions device;
    bool shared_memory = true;  // with servers of this machine
    // Samples per forward and backward; a larger share of the batch is accumulated piece by piece.
    // 0: what fits, see ChooseMicroBatch().
    int64_t max_micro_batch = 0;
    Recompute recompute = Recompute::kNone;
    // False: transfers do not overlap with computing, to measure what that is worth.
    bool overlap = true;
    std::string trace_path;  // of the file with the times of a few rounds; empty: none
    int64_t trace_rounds = 5;
    absl::Duration progress_interval = absl::Seconds(2);
    absl::Duration first_backoff = absl::Milliseconds(100);
    absl::Duration longest_backoff = absl::Seconds(1);
    // How long a worker that was told to stop waits for servers before it leaves without them.
    absl::Duration leave_timeout = absl::Seconds(30);
  };

  // Errors: those of OpenData(); those of the device (an unknown one, or one that this machine
  // lacks).
  static absl::StatusOr<std::unique_ptr<Worker>> Create(Config config, Clock* clock);
  ~Worker();

  // Blocks until the job is done or RequestStop() took effect (both OK).
  // Errors: DeadlineExceeded: told to stop, and the round at hand was not handed over, within
  // leave_timeout or because the life ended first; else what reconnecting will not mend, with the
  // code of the refusal.
  absl::Status Run();

  // Finishes the step at hand, hands over what there is, leaves. Computing takes its time; waiting
  // for servers is given up after leave_timeout. Thread-safe.
  void RequestStop();

 private:
  Worker(Config config, DataSource data, Clock* clock)
      : config_(std::move(config)), data_(std::move(data)), clock_(clock) {}

  absl::Status RunLives();
  // Leaves when the job is done (`status` is OK) or the worker was told to stop, which ended the
  // last life with `status`. Returns what Run() does.
  absl::Status Depart(const absl::Status& status);
  // One life. OK: the job is done.
  absl::Status RunLife();
  absl::Status Prepare(const Registration& registration);
  absl::Status PrepareModel(const Registration& registration);
  // Fills in config->max_batch if it is 0. Logs what model and runner will take; refuses what
  // cannot fit.
  absl::Status PlanMemory(const JobSpec& job, ModelConfig* config);
  absl::Status PrepareData(const JobSpec& job);
  absl::Status Train(const Registration& registration);
  absl::Status PrepareRunner(const JobSpec& job);
  absl::Status CarryOutGrants(const LifeContext& life);
  absl::StatusOr<RoundReport> RunRound(const LifeContext& life, const WorkGrant& grant);
  void EndLife();
  // Gives up on servers if they keep a worker that was told to stop; until Run() is over.
  void GuardLeaving() ABSL_LOCKS_EXCLUDED(mutex_);
  // After a life that was not begun, or that has ended.
  bool MayTryAgain(const absl::Status& status);
  void BackOff(const absl::Status& reason);
  DatasetFacts FactsOfData() const;
  bool IsStopping();
  CoordinatorLink::Activity CurrentActivity();
  void SetActivity(absl::string_view activity);
  // What a heartbeat has brought: why the cluster does not go on, or nothing.
  void TellWait(const std::string& reason);

  const Config config_;
  const DataSource data_;
  Clock* const clock_;
  std::unique_ptr<TraceRecorder> trace_;  // null: no trace
  std::unique_ptr<Device> device_;
  std::unique_ptr<CoordinatorLink> link_;
  std::unique_ptr<Dataset> dataset_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<RoundRunner> runner_;
  JobSpec runner_job_;  // that runner_ was made for
  std::optional<ModelSpec> model_spec_;
  uint64_t model_seed_ = 0;
  int64_t model_share_ = 0;  // most samples of a step that model_ was made for
  uint64_t data_seed_ = 0;
  std::optional<Progress> progress_;  // of training with dataset_
  // Of the life that was begun last: a reconnect goes on with it, and with what it still owes.
  Incarnation incarnation_;
  std::optional<Round> round_at_hand_;  // granted, and not handed over
  std::optional<RoundReport>
      unsent_report_;  // of the last contribution, until the coordinator has it
  std::optional<absl::Time> name_is_free_at_;  // while another process holds this worker's name
  UnknownCalls unknown_calls_;
  int failed_lives_ = 0;
  bool did_work_ = false;  // in this life
  ChangeLogger wait_logger_;

  absl::Mutex mutex_;
  bool stop_requested_ ABSL_GUARDED_BY(mutex_) = false;
  bool life_is_over_ ABSL_GUARDED_BY(mutex_) = false;
  std::shared_ptr<CancellableTransport> transport_ ABSL_GUARDED_BY(mutex_);
  std::string activity_ ABSL_GUARDED_BY(mutex_) = "start";
  uint64_t activity_count_ ABSL_GUARDED_BY(mutex_) = 0;  // activities begun
  bool run_is_over_ ABSL_GUARDED_BY(mutex_) = false;
  bool gave_up_ ABSL_GUARDED_BY(mutex_) = false;  // leaves without the servers
};

}  // namespace lodestar
