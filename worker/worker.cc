#include "worker/worker.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/job_loss.h"
#include "common/logging.h"
#include "common/remedy.h"
#include "common/status_hints.h"
#include "common/status_macros.h"
#include "worker/client/bulk_grpc_transport.h"
#include "worker/client/cluster_session.h"
#include "worker/data/sample_order.h"
#include "worker/model/model_memory.h"
#include "worker/trainer/round_runner_factory.h"

namespace lodestar {
namespace {

// Samples of one step, if this worker has to do it alone.
int64_t LargestShare(const JobSpec& job) {
  return job.global_batch_size > 0 ? job.global_batch_size : job.batch_size;
}

std::shared_ptr<CancellableTransport> MakeTransport(const Registration& registration,
                                                    bool shared_memory, TraceRecorder* trace) {
  BulkGrpcTransportConfig config;
  config.trace = trace;
  config.shared_memory = shared_memory;
  config.on_shared_memory = [](int shard, const absl::Status& status) {
    if (status.ok()) {
      LogInfo("server of shard {}: payloads go through shared memory", shard);
    } else if (!absl::IsUnavailable(status) && !absl::IsCancelled(status)) {
      // Else the server is away, or the life ended while it was asked, and this is open.
      LogInfo("server of shard {}: payloads go through TCP: {}", shard, status.message());
    }
  };
  for (const ServerEndpoint& server : registration.servers)
    config.servers.push_back(server.address);
  config.buckets = registration.buckets;
  config.worker = registration.identity.worker;
  config.incarnation = registration.identity.incarnation;
  return std::make_shared<CancellableTransport>(MakeBulkGrpcTransport(std::move(config)));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Worker>> Worker::Create(Config config, Clock* clock) {
  // First what costs nothing to put right: nobody is connected yet.
  ASSIGN_OR_RETURN(DataSource data, OpenData(config.data));
  auto worker = std::unique_ptr<Worker>(new Worker(std::move(config), std::move(data), clock));
  const Config& settings = worker->config_;
  if (!settings.trace_path.empty()) {
    worker->trace_ = std::make_unique<TraceRecorder>(
        TraceRecorder::Options{.path = settings.trace_path,
                               .process = absl::StrCat("worker ", settings.name),
                               .num_rounds = settings.trace_rounds},
        clock);
  }
  std::string why_not_cuda;
  ASSIGN_OR_RETURN(worker->device_, MakeDevice(worker->config_.device, &why_not_cuda));
  const std::string& device_name = worker->device_->capabilities().name;
  LogInfo("worker '{}' computes on {}{}{}", worker->config_.name, device_name,
          why_not_cuda.empty() ? "" : "; no CUDA: ", why_not_cuda);
  worker->link_ = MakeClusterSession({.coordinator = worker->config_.coordinator,
                                      .name = worker->config_.name,
                                      .device = device_name,
                                      .instance_id = worker->config_.instance_id,
                                      .leave_timeout = worker->config_.leave_timeout});
  return worker;
}

Worker::~Worker() { EndLife(); }

void Worker::RequestStop() {
  absl::MutexLock lock(&mutex_);
  stop_requested_ = true;
  // A worker that computes finishes its step; one that waits stops at once, unless a grant crosses.
  if (activity_ == "start") {
    link_->Cancel();
  } else {
    link_->DeclineGrants();
  }
}

absl::Status Worker::Run() {
  std::thread guard([this] { GuardLeaving(); });
  const absl::Status status = RunLives();
  {
    absl::MutexLock lock(&mutex_);
    run_is_over_ = true;
  }
  guard.join();
  if (trace_ != nullptr) trace_->Finish();
  return status;
}

void Worker::GuardLeaving() {
  absl::MutexLock lock(&mutex_);
  const auto may_begin = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return stop_requested_ || run_is_over_;
  };
  mutex_.Await(absl::Condition(&may_begin));
  while (!run_is_over_) {
    const uint64_t count = activity_count_;
    const auto has_gone_on = [this, count]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return run_is_over_ || activity_count_ != count;
    };
    // Computing ends by itself.
    const absl::Duration patience =
        activity_ == "compute" ? absl::InfiniteDuration() : config_.leave_timeout;
    if (clock_->Await(mutex_, absl::Condition(&has_gone_on), patience)) continue;
    gave_up_ = true;
    link_->Cancel();
    if (transport_ != nullptr) transport_->Cancel();
    return;
  }
}

absl::Status Worker::RunLives() {
  while (true) {
    const absl::Status status = RunLife();
    bool stopping = false;
    bool gave_up = false;
    {
      absl::MutexLock lock(&mutex_);
      stopping = stop_requested_;
      gave_up = gave_up_;
    }
    if (gave_up && round_at_hand_.has_value()) {
      EndLife();
      return absl::DeadlineExceededError(
          absl::StrCat("told to stop, but the servers have kept this worker waiting for ",
                       absl::FormatDuration(config_.leave_timeout), " (--leave_timeout): round ",
                       round_at_hand_->value(), " is not handed in"));
    }
    const bool is_refusal = !status.ok() && RemedyFor(status) == Remedy::kGiveUp;
    if (status.ok() || (stopping && !is_refusal)) return Depart(status);
    if (is_refusal || !MayTryAgain(status)) {
      // The reason travels to the server's log; nobody waits for this worker's lease.
      link_->Leave(std::string(status.message()), unsent_report_).IgnoreError();
      EndLife();
      return status;
    }
    EndLife();
    BackOff(status);
  }
}

absl::Status Worker::Depart(const absl::Status& status) {
  const absl::Status left =
      link_->Leave(status.ok() ? "job is done" : "told to stop", unsent_report_);
  if (!left.ok()) LogWarn("could not say good-bye: {}", left.message());
  EndLife();
  if (status.ok()) return status;
  if (round_at_hand_.has_value()) {
    return absl::DeadlineExceededError(
        absl::StrCat("told to stop, but the servers have ended this worker's life: round ",
                     round_at_hand_->value(), " is not handed in (", status.message(), ")"));
  }
  if (unsent_report_.has_value() && !left.ok()) {
    return absl::DeadlineExceededError(absl::StrCat(
        "told to stop, but the coordinator has not taken the report of round ",
        unsent_report_->round.value(), ": it is not handed in (", left.message(), ")"));
  }
  return absl::OkStatus();
}

bool Worker::MayTryAgain(const absl::Status& status) {
  const Remedy remedy = RemedyFor(status);
  if (unknown_calls_.IsFinal(status, did_work_)) return false;
  if (remedy != Remedy::kAwaitLease) {
    name_is_free_at_.reset();
    return remedy != Remedy::kGiveUp;
  }
  // Mostly this worker before it was started again. If the holder lives, it renews its lease.
  const absl::Time now = clock_->Now();
  if (!name_is_free_at_.has_value()) {
    const absl::Duration rest = RetryAfterOf(status).value_or(config_.longest_backoff);
    name_is_free_at_ = now + rest + config_.longest_backoff;
    LogWarn("{}; waits up to {} for the end of that lease", status.message(),
            absl::FormatDuration(absl::Ceil(rest, absl::Seconds(1))));
  }
  return now < *name_is_free_at_;
}

void Worker::BackOff(const absl::Status& reason) {
  failed_lives_ = did_work_ ? 1 : failed_lives_ + 1;
  did_work_ = false;
  absl::Duration pause = config_.first_backoff;
  for (int i = 1; i < failed_lives_ && pause < config_.longest_backoff; ++i) pause *= 2;
  // Said once per outage, and then now and then: an unreachable server is the usual case when
  // starting in any order.
  const bool is_due = failed_lives_ == 1 || failed_lives_ % 16 == 0;
  if (is_due && !name_is_free_at_.has_value()) {
    LogWarn("not connected ({}); trying again", reason.message());
  }
  clock_->Sleep(std::min(pause, config_.longest_backoff));
}

void Worker::EndLife() {
  if (link_ != nullptr) link_->StopHeartbeats();
  SetActivity("start");
  absl::MutexLock lock(&mutex_);
  transport_.reset();
}

absl::Status Worker::RunLife() {
  {
    absl::MutexLock lock(&mutex_);
    if (stop_requested_) return absl::CancelledError("told to stop");
    life_is_over_ = false;
  }
  ASSIGN_OR_RETURN(const Registration registration, link_->Register());
  const Incarnation incarnation = registration.identity.incarnation;
  if (std::exchange(incarnation_, incarnation) != incarnation) {
    unsent_report_.reset();
    round_at_hand_.reset();
  }
  LogInfo("registered with {}: worker={} incarnation={} mode={} model={} parameters={}",
          registration.servers.front().address, registration.identity.worker,
          registration.identity.incarnation, ModeName(registration.job.mode),
          registration.job.model.name, registration.layout.num_elements());
  link_->StartHeartbeats(registration.heartbeat_interval,
                         {.activity = [this] { return CurrentActivity(); },
                          .on_waiting = [this](const std::string& reason) { TellWait(reason); },
                          .on_lost =
                              [this](const absl::Status& status) {
                                LogWarn("this life is over: {}", status.message());
                                link_->Cancel();
                                absl::MutexLock lock(&mutex_);
                                life_is_over_ = true;
                                if (transport_ != nullptr) transport_->Cancel();
                              }});
  name_is_free_at_.reset();
  const absl::Status prepared = Prepare(registration);
  if (absl::IsCancelled(prepared)) return prepared;  // told to stop
  RETURN_IF_ERROR(AsFinal(prepared));
  RETURN_IF_ERROR(link_->Join(registration.layout.hash(), FactsOfData()));
  return Train(registration);
}

CoordinatorLink::Activity Worker::CurrentActivity() {
  absl::MutexLock lock(&mutex_);
  CoordinatorLink::Activity result;
  result.activity = activity_;
  if (transport_ != nullptr) {
    result.bytes_pushed = transport_->bytes_pushed();
    result.bytes_pulled = transport_->bytes_pulled();
  }
  return result;
}

bool Worker::IsStopping() {
  absl::MutexLock lock(&mutex_);
  return stop_requested_;
}

void Worker::TellWait(const std::string& reason) {
  {
    absl::MutexLock lock(&mutex_);
    // A grant that is waited for brings the reason itself, and a worker that computes waits for
    // nobody: others may wait for it.
    if (activity_ != "push" && activity_ != "pull") return;
  }
  if (reason.empty()) {
    wait_logger_.Forget("wait");
  } else {
    wait_logger_.Log(LogLevel::kInfo, "wait", absl::StrCat("waiting: ", reason));
  }
}

void Worker::SetActivity(absl::string_view activity) {
  absl::MutexLock lock(&mutex_);
  activity_ = std::string(activity);
  ++activity_count_;
}

absl::Status Worker::Prepare(const Registration& registration) {
  RETURN_IF_ERROR(PrepareModel(registration));
  return PrepareData(registration.job);
}

absl::Status Worker::PrepareModel(const Registration& registration) {
  const JobSpec& job = registration.job;
  const int64_t share = LargestShare(job);
  if (!model_spec_.has_value() || !(*model_spec_ == job.model) || model_seed_ != job.seed ||
      model_share_ != share) {
    runner_.reset();
    model_.reset();
    dataset_.reset();
    ModelConfig config{.spec = job.model,
                       .max_batch = config_.max_micro_batch,
                       .recompute = config_.recompute,
                       .seed = job.seed};
    RETURN_IF_ERROR(PlanMemory(job, &config));
    ASSIGN_OR_RETURN(model_, MakeModel(config, device_.get()));
    model_spec_ = job.model;
    model_seed_ = job.seed;
    model_share_ = share;
  }
  return CheckSameLayout(registration.layout, "the server", model_->layout(), "this worker");
}

absl::Status Worker::PlanMemory(const JobSpec& job, ModelConfig* config) {
  ASSIGN_OR_RETURN(const Layout layout, BuildLayout(job.model));
  ASSIGN_OR_RETURN(const ModelMemory memory, EstimateModelMemory(*config, device_.get()));
  const int64_t runner_bytes = RunnerDeviceBytes(job, layout);
  if (config->max_batch == 0) {
    config->max_batch =
        ChooseMicroBatch(memory, {.largest_share = LargestShare(job),
                                  .free_bytes = static_cast<int64_t>(device_->FreeMemoryBytes()),
                                  .other_bytes = runner_bytes,
                                  .memory_is_host = device_->capabilities().memory_is_host});
  }
  LogInfo("memory: {}", DescribeModelMemory(memory, *config, runner_bytes, *device_));
  return CheckModelFits(memory, *config, runner_bytes, *device_);
}

absl::Status Worker::PrepareData(const JobSpec& job) {
  if (dataset_ != nullptr && data_seed_ == job.seed) return absl::OkStatus();
  runner_.reset();
  ASSIGN_OR_RETURN(dataset_,
                   MakeDataset(data_, job.model, job.seed, [this] { return IsStopping(); }));
  data_seed_ = job.seed;
  LogInfo("data: {}", dataset_->Describe());
  progress_.emplace(Progress::Config{.tokens_per_sample = dataset_->tokens_per_sample(),
                                     .loss_unit = LossUnitOf(job.model),
                                     .interval = config_.progress_interval});
  return absl::OkStatus();
}

DatasetFacts Worker::FactsOfData() const {
  return {.fingerprint = dataset_->fingerprint(),
          .num_train_samples = dataset_->num_train_samples(),
          .num_heldout_samples = dataset_->num_heldout_samples(),
          .tokens_per_sample = dataset_->tokens_per_sample(),
          .own_partition = config_.own_partition};
}

absl::Status Worker::Train(const Registration& registration) {
  std::shared_ptr<CancellableTransport> transport =
      MakeTransport(registration, config_.shared_memory, trace_.get());
  {
    absl::MutexLock lock(&mutex_);
    if (life_is_over_) return absl::AbortedError("the lease was lost while preparing");
    transport_ = transport;
  }
  const SampleOrder sample_order(registration.job.seed, dataset_->num_train_samples());
  RETURN_IF_ERROR(AsFinal(PrepareRunner(registration.job)));
  return CarryOutGrants({.registration = &registration,
                         .sample_order = &sample_order,
                         .transport = transport.get(),
                         .is_over = [this] {
                           absl::MutexLock lock(&mutex_);
                           return life_is_over_;
                         }});
}

absl::Status Worker::PrepareRunner(const JobSpec& job) {
  if (runner_ != nullptr && HaveSameRunner(runner_job_, job)) return absl::OkStatus();
  ASSIGN_OR_RETURN(
      runner_,
      MakeRoundRunner(
          job, {.model = model_.get(),
                .device = device_.get(),
                .dataset = dataset_.get(),
                .clock = clock_,
                .overlap = config_.overlap,
                .trace = trace_.get(),
                .stop_requested = [this] { return IsStopping(); },
                .on_activity = [this](absl::string_view activity) { SetActivity(activity); }}));
  runner_job_ = job;
  return absl::OkStatus();
}

absl::StatusOr<RoundReport> Worker::RunRound(const LifeContext& life, const WorkGrant& grant) {
  TraceSpan span(trace_.get(), "training", "round");
  return runner_->Run(life, grant);
}

absl::Status Worker::CarryOutGrants(const LifeContext& life) {
  ChangeLogger choices_logger;
  absl::Duration waited;
  while (true) {
    {
      absl::MutexLock lock(&mutex_);
      if (stop_requested_) link_->DeclineGrants();
      activity_ = "wait";
      ++activity_count_;
    }
    const absl::Time asked = clock_->Now();
    ASSIGN_OR_RETURN(const WorkGrant grant, link_->NextGrant(unsent_report_));
    unsent_report_.reset();  // the coordinator has it
    round_at_hand_.reset();  // unless it is granted again
    const absl::Time granted = clock_->Now();
    waited += granted - asked;
    if (const std::string line = progress_->Tell(granted, grant); !line.empty()) {
      LogInfo("{}", line);
      if (const std::string choices = device_->DescribeChoices(); !choices.empty()) {
        choices_logger.Log(LogLevel::kInfo, "choices",
                           absl::StrCat("the device measured and chose:\n", choices));
      }
    }
    if (grant.kind == GrantKind::kDone) {
      if (grant.has_failed) {
        return absl::FailedPreconditionError(absl::StrCat("the job has failed: ", grant.reason));
      }
      if (IsStopping()) return absl::CancelledError("told to stop");
      LogInfo("done: {}", grant.reason);
      return absl::OkStatus();
    }
    if (grant.kind == GrantKind::kWait) {
      wait_logger_.Log(LogLevel::kInfo, "wait", absl::StrCat("waiting: ", grant.reason));
      continue;
    }
    wait_logger_.Forget("wait");
    SetActivity("compute");
    if (trace_ != nullptr) {
      trace_->BeginRound(grant.round.value());
      trace_->Add("training", "grant wait", asked, granted);
    }
    round_at_hand_ = grant.round;
    ASSIGN_OR_RETURN(RoundReport report, RunRound(life, grant));
    round_at_hand_.reset();
    report.wait = waited;
    waited = absl::ZeroDuration();
    did_work_ = true;
    unsent_report_ = report;
    progress_->Add(clock_->Now(), report);
  }
}

}  // namespace lodestar
