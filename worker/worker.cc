// SPDX-License-Identifier: Apache-2.0

#include "worker/worker.h"

#include <algorithm>
#include <thread>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "common/job/job_loss.h"
#include "common/net/host_port.h"
#include "common/runtime/status_macros.h"
#include "common/storage/file_system.h"
#include "proto/tls_doubts.h"
#include "worker/client/bulk_grpc_transport.h"
#include "worker/client/cluster_session.h"
#include "worker/device_metrics.h"
#include "worker/trainer/device_registry.h"
#include "worker/trainer/retry.h"
#include "worker/trainer/round_runner_factory.h"
#include "worker/trainer/state_pull.h"

namespace lodestar::worker {
namespace {

std::shared_ptr<client::CancellableTransport> MakeTransport(
    const messages::Registration& registration, const Worker::Config& settings,
    client::HostMemoryRegistry* registry, process::TraceRecorder* trace, bool outlives_process) {
  client::BulkGrpcTransportConfig config;
  config.outlives_process = outlives_process;
  config.trace = trace;
  config.security = settings.security;
  config.shared_memory = settings.shared_memory;
  config.on_shared_memory = [](int shard, const absl::Status& status) {
    if (status.ok()) {
      logging::LogInfo("server of shard {}: payloads go through shared memory", shard);
    } else if (!absl::IsUnavailable(status) && !absl::IsCancelled(status)) {
      // Unavailable means that the server was away, Cancelled that the life has ended. Memory may
      // still be shared later, so these errors are not logged.
      logging::LogInfo("server of shard {}: payloads go through TCP: {}", shard, status.message());
    }
  };
  if (!settings.shared_memory) logging::LogInfo("payloads go through TCP: --shared_memory=false");
  config.registry = registry;
  config.on_registered = [](int shard, const absl::Status& status) {
    if (status.ok()) {
      logging::LogInfo("server of shard {}: device copies go straight into shared memory", shard);
    } else {
      logging::LogWarn(
          "server of shard {}: device copies go through pinned memory, which is slower, because "
          "the device cannot use the shared memory itself: {}",
          shard, status.message());
    }
  };
  for (const messages::ServerAddress& server : registration.servers())
    config.servers.push_back(server.address);
  config.buckets = registration.buckets();
  config.worker = registration.life.worker;
  config.incarnation = registration.life.incarnation;
  config.life_secret = registration.life_secret;
  // The patience is two thirds of a lease. So a call without progress ends before the coordinator
  // decides that this worker delays the round.
  config.patience = 2 * registration.heartbeat_interval;
  return std::make_shared<client::CancellableTransport>(
      client::MakeBulkGrpcTransport(std::move(config)));
}

// Returns true if model or seed differ. If a job only restarts, neither changes.
bool IsOtherJob(const messages::Registration& before, const messages::Registration& now) {
  return before.layout().hash() != now.layout().hash() || before.job.seed != now.job.seed;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Worker>> Worker::Create(Config config,
                                                       std::unique_ptr<Workload> workload,
                                                       Clock* clock) {
  auto worker = std::unique_ptr<Worker>(new Worker(std::move(config), clock));
  const Config& settings = worker->config_;
  worker->started_at_ = settings.started_at.value_or(clock->Now());
  if (!settings.trace_path.empty()) {
    worker->trace_ = std::make_unique<process::TraceRecorder>(
        process::TraceRecorder::Options{.path = settings.trace_path,
                                        .process = absl::StrCat("worker ", settings.name),
                                        .num_rounds = settings.trace_rounds},
        clock);
  }
  if (!settings.tuning_path.empty()) {
    worker->tuning_file_ = std::make_unique<TuningFile>(settings.tuning_path, clock);
    worker->config_.device.tuning = worker->tuning_file_->TextForDevice();
  }
  std::string why_not_cuda;
  ASSIGN_OR_RETURN(worker->devices_, factory::MakeDevices(worker->config_.device, &why_not_cuda));
  worker->registry_ = trainer::MakeDeviceRegistry(&worker->devices_.first());
  const std::string device_name =
      settings.device_name.empty() ? worker->devices_.Name() : settings.device_name;
  worker->workload_ = std::move(workload);
  logging::LogInfo("worker '{}' computes on {}{}{}", worker->config_.name, device_name,
                   why_not_cuda.empty() ? "" : "; CUDA is not used: ", why_not_cuda);
  if (const kernels::DeviceGroup* group = worker->devices_.group.get(); group != nullptr) {
    logging::LogInfo("gradients and weights go from card to card through {}", group->Describe());
  }
  if (worker->tuning_file_ != nullptr) {
    for (const auto& device : worker->devices_.devices) worker->tuning_file_->Tell(*device);
  }
  if (!settings.residual_folder.empty() &&
      storage::FileSystem::Real().Exists(settings.residual_folder)) {
    worker->TakeResidualFolder();
  }
  worker->link_ = client::MakeClusterSession({.coordinator = worker->config_.coordinator,
                                              .security = worker->config_.security,
                                              .name = worker->config_.name,
                                              .device = device_name,
                                              .proposed = worker->workload_->proposed_settings(),
                                              .instance_id = worker->config_.instance_id,
                                              .request_process = settings.request_process,
                                              .leave_timeout = worker->config_.life.leave_timeout});
  worker->workload_->SetExtendGrant(
      [made = worker.get()](const messages::Grant& held) { return made->ExtendGrant(held); });
  return worker;
}

Worker::~Worker() { Disconnect(); }

absl::Status Worker::Run() {
  std::thread timekeeper([this] { KeepTime(); });
  {
    absl::MutexLock lock(&mutex_);
    Perform(lifecycle_.Start(clock_->Now()));
  }
  while (!outcome_.has_value()) {
    std::visit([this](const auto& task) { Do(task); }, NextTask());
  }
  {
    absl::MutexLock lock(&mutex_);
    run_is_over_ = true;
  }
  timekeeper.join();
  if (trace_ != nullptr) trace_->Finish();
  return *outcome_;
}

void Worker::RequestStop(const life::StopRequest& request) {
  absl::MutexLock lock(&mutex_);
  Perform(lifecycle_.OnStopRequested(clock_->Now(), request));
}

std::string Worker::activity() {
  absl::MutexLock lock(&mutex_);
  return lifecycle_.activity();
}

std::string Worker::standing() {
  absl::MutexLock lock(&mutex_);
  return lifecycle_.Standing();
}

ServiceReports::State Worker::service_state() {
  absl::MutexLock lock(&mutex_);
  ServiceReports::State state = {.is_stopping = lifecycle_.is_stopping(),
                                 .standing = lifecycle_.Standing()};
  const absl::string_view work = lifecycle_.OwnWork();
  if (work.empty()) return state;
  state.work = {.what = std::string(work), .progress = progress_count_};
  if (work == life::Lifecycle::kEndsLife) state.work->first_factor = 1;
  if (step_.has_value() && work == life::Lifecycle::kComputes) {
    // A step with more samples takes more time. All parts of an evaluation have the same size.
    const bool is_training = step_->samples.count > 0;
    state.work->what = is_training ? "computes a step" : "evaluates";
    state.work->size = is_training ? step_->samples.count : 1;
  }
  return state;
}

void Worker::NoteProgress() {
  absl::MutexLock lock(&mutex_);
  ++progress_count_;
}

void Worker::NoteStep(const trainer::RoundStep& step) {
  absl::MutexLock lock(&mutex_);
  ++progress_count_;
  step_ = step;
}

void Worker::KeepTime() {
  absl::MutexLock lock(&mutex_);
  while (!run_is_over_) {
    const uint64_t num_events = num_events_;
    const auto has_news = [this, num_events]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return run_is_over_ || num_events_ != num_events;
    };
    const absl::Duration rest = lifecycle_.next_wake() - clock_->Now();
    if (clock_->Await(mutex_, absl::Condition(&has_news), rest)) continue;
    Perform(lifecycle_.OnTick(clock_->Now()));
  }
}

void Worker::Perform(const life::Lifecycle::Effects& effects) {
  ++num_events_;
  for (const life::Lifecycle::Effect& effect : effects) {
    std::visit([this](const auto& what) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { Perform(what); },
               effect);
  }
}

void Worker::Perform(const life::Lifecycle::Task& task) {
  link_->Rearm();
  task_ = task;
  ++progress_count_;
}

void Worker::Perform(const life::Lifecycle::CancelCalls&) { link_->Cancel(); }

void Worker::Perform(const life::Lifecycle::CancelTransfers&) {
  if (transport_ != nullptr) transport_->Cancel();
  if (former_transport_ != nullptr) former_transport_->Cancel();
}

void Worker::Perform(const life::Lifecycle::Tell& tell) { logging::LogLine(tell.level, tell.text); }

void Worker::Perform(const life::Lifecycle::TellWait& wait) {
  if (wait.reason.empty()) {
    wait_logger_.Forget("wait");
  } else {
    wait_logger_.Log(logging::LogLevel::kInfo, "wait", absl::StrCat("waiting: ", wait.reason));
  }
}

life::Lifecycle::Task Worker::NextTask() {
  absl::MutexLock lock(&mutex_);
  const auto has_task = [this]()
                            ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return task_.has_value(); };
  mutex_.Await(absl::Condition(&has_task));
  return *std::exchange(task_, std::nullopt);
}

void Worker::Do(const life::Lifecycle::Connect&) {
  Disconnect();
  messages::ProcessHistory process;
  {
    absl::MutexLock lock(&mutex_);
    process.acknowledged = acknowledged_;
  }
  if (!has_contributed_) process.age = clock_->Now() - started_at_;
  absl::StatusOr<messages::Registration> registration =
      link_->Register(workload_->offered_layout(), process);
  if (absl::IsAborted(registration.status())) DropWhatServersLack(registration.status());
  absl::StatusOr<life::LifeId> life = life::LifeId();
  if (registration.ok()) {
    const job::JobSpec& job = registration->job;
    // If there are local steps without rosters, logs which weights the servers compare late
    // contributions with.
    const std::string anchor = job::HasLocalSteps(job) && !job::HasRosters(job)
                                   ? absl::StrCat(" anchor=", NameOf(job.anchor))
                                   : "";
    logging::LogInfo(
        "registered with {}: worker={} incarnation={} mode={}{} model={} parameters={}",
        registration->servers().front().address, registration->life.worker,
        registration->life.incarnation, NameOf(job.mode), anchor, job.model.name,
        registration->layout().num_elements());
    if (registration_.has_value() && IsOtherJob(*registration_, *registration)) {
      logging::LogWarn(
          "the servers at this address have another job than before, and this worker now trains "
          "with it: model={} seed={}, before model={} seed={}",
          job.model.name, job.seed, registration_->job.model.name, registration_->job.seed);
    }
    life = life::LifeId{registration->server_incarnation, registration->life.incarnation};
    registration_ = *std::move(registration);
    registered_at_ = clock_->Now();
  } else {
    life = registration.status();
  }
  TellTlsDoubts(life.status());
  absl::MutexLock lock(&mutex_);
  Perform(lifecycle_.OnRegistered(clock_->Now(), life));
}

void Worker::DropWhatServersLack(const absl::Status& reason) {
  logging::LogWarn(
      "{}; this worker drops its residual (what encodings had lost) and the saved data of its last "
      "round, and registers again",
      reason.message());
  {
    absl::MutexLock lock(&mutex_);
    acknowledged_.reset();
  }
  if (runner_ == nullptr) return;
  runner_->ForgetResidual();
  runner_.reset();
}

void Worker::TellTlsDoubts(const absl::Status& registered) {
  if (!absl::IsUnavailable(registered) || !config_.find_tls_doubts) {
    told_doubts_.clear();
    return;
  }
  const std::string doubts = config_.find_tls_doubts();
  if (doubts == told_doubts_) return;
  told_doubts_ = doubts;
  if (doubts.empty()) return;
  logging::LogWarn("{}", wire::TlsDoubtsLine(doubts, absl::Now()));
}

void Worker::Do(const life::Lifecycle::Prepare&) {
  StartHeartbeats();
  const absl::Status prepared = Prepare(*registration_);
  absl::MutexLock lock(&mutex_);
  Perform(lifecycle_.OnPrepared(clock_->Now(), prepared));
}

void Worker::Do(const life::Lifecycle::TryPaths&) {
  absl::Status tried = CurrentTransport()->StartTrial()->Wait();
  // NotFound means that the servers have no weights yet. It also shows that they can be reached.
  if (absl::IsNotFound(tried)) tried = absl::OkStatus();
  absl::MutexLock lock(&mutex_);
  Perform(lifecycle_.OnPathsTried(clock_->Now(), tried));
}

void Worker::Do(const life::Lifecycle::Join&) {
  absl::Status joined = HandInInitialWeights();
  if (joined.ok()) joined = link_->Join(registration_->layout().hash(), workload_->data_info());
  absl::MutexLock lock(&mutex_);
  Perform(lifecycle_.OnJoined(clock_->Now(), joined));
}

void Worker::Do(const life::Lifecycle::AskForGrant& ask) {
  const absl::Time asked = clock_->Now();
  const absl::StatusOr<messages::Grant> grant =
      link_->NextGrant(ask.report, ask.leaving, workload_->AsksWithoutSamples());
  if (grant.ok()) {
    TellProgress(*grant);
    workload_->OnLoss(grant->loss);
    if (grant->live_workers.has_value()) workload_->OnLiveWorkers(*grant->live_workers);
  }
  // A kWait grant may be the answer to an earlier request. So it does not prove that the servers
  // have the report.
  if (grant.ok() && grant->kind != messages::Grant::Kind::kWait && ask.report.has_value()) {
    absl::MutexLock lock(&mutex_);
    acknowledged_ = {.server_incarnation = registration_->server_incarnation,
                     .life = registration_->life.incarnation,
                     .round = ask.report->round};
  }
  if (grant.ok() && grant->kind == messages::Grant::Kind::kDone && !grant->has_failed) {
    TakeLastWeights(*grant);
    // If the worker was told to stop, it may be started again, and then needs its residual.
    if (!IsStopping()) runner_->ForgetResidual();
    has_rounds_left_ = grant->round.value() < grant->total_rounds;
  }
  const bool has_work = grant.ok() && (grant->kind == messages::Grant::Kind::kTrain ||
                                       grant->kind == messages::Grant::Kind::kEvaluate);
  if (trace_ != nullptr && has_work) {
    trace_->BeginRound(grant->round.value());
    trace_->Add("training", "grant wait", asked, clock_->Now());
  }
  absl::MutexLock lock(&mutex_);
  Perform(lifecycle_.OnGrant(clock_->Now(), grant));
}

void Worker::Do(const life::Lifecycle::CarryOut& order) {
  const messages::WorkerLife life = registration_->life;
  logging::LogDebug("round begun round={} worker={} incarnation={} samples={}", order.grant.round,
                    life.worker, life.incarnation, order.grant.num_samples);
  absl::StatusOr<messages::RoundReport> report = RunRound(order.grant);
  if (report.ok()) {
    logging::LogDebug("round delivered round={} worker={} incarnation={} samples={}", report->round,
                      life.worker, life.incarnation, report->num_samples);
    workload_->Complete(&*report);
    AddDeviceMetrics(devices_, &report->metrics);
    progress_->Add(clock_->Now(), *report);
    CountContribution(order.grant, *report);
  }
  const bool leaves_steps = report.ok() && order.grant.kind == messages::Grant::Kind::kTrain &&
                            job::DefersContributions(registration_->job) &&
                            !report->leaves_nothing_in_hand;
  absl::MutexLock lock(&mutex_);
  Perform(lifecycle_.OnCarriedOut(clock_->Now(), report, leaves_steps));
}

void Worker::Do(const life::Lifecycle::SayGoodbye& goodbye) {
  const absl::Status left = link_->Leave(goodbye.reason, goodbye.report);
  absl::MutexLock lock(&mutex_);
  Perform(lifecycle_.OnLeft(clock_->Now(), left));
}

void Worker::Do(const life::Lifecycle::Finish& finish) {
  Disconnect();
  KeepTuning(TuningFile::kPatience);
  if (runner_ != nullptr && finish.status.ok() && (IsStopping() || has_rounds_left_)) {
    if (const absl::Status kept = runner_->KeepOptimizerState(); !kept.ok()) {
      logging::LogWarn(
          "the state of the inner optimizer could not be saved and is reset at the next start: {}",
          kept.message());
    }
  }
  if (residuals_ != nullptr) {
    // The life is over, so no later process may continue it.
    if (const absl::Status removed = residuals_->RemoveInstance(); !removed.ok()) {
      logging::LogWarn("{}", removed.message());
    }
  }
  outcome_ = finish.status.ok() ? last_weights_ : finish.status;
}

void Worker::Disconnect() {
  if (link_ != nullptr) link_->StopHeartbeats();
  if (runner_ != nullptr) runner_->EndLife();
  absl::MutexLock lock(&mutex_);
  transport_.reset();
  former_transport_.reset();
}

void Worker::StartHeartbeats() {
  // If the residual is stored on disk, the next process of this name continues this life. So
  // servers must not end the life when this process ends.
  const bool goes_on =
      !config_.residual_folder.empty() && KeepsResidual(config_.keep_residuals, registration_->job);
  link_->StartHeartbeats(
      registration_->heartbeat_interval,
      {.stays_connected = config_.stays_connected && !goes_on,
       .activity = [this, life = registration_->life] { return CurrentActivity(life); },
       .on_waiting =
           [this](const std::string& reason) {
             absl::MutexLock lock(&mutex_);
             Perform(lifecycle_.OnHeartbeat(reason));
           },
       .on_live_workers =
           [this](const messages::LiveWorkers& workers) { workload_->OnLiveWorkers(workers); },
       .on_unanswered =
           [this](const absl::Status& status) {
             absl::MutexLock lock(&mutex_);
             lifecycle_.OnHeartbeatUnanswered(status);
           },
       .on_moved = [this](const messages::ServerAddresses& servers) { OnServersMoved(servers); },
       .on_lost =
           [this](const absl::Status& status) {
             absl::MutexLock lock(&mutex_);
             Perform(lifecycle_.OnLifeLost(clock_->Now(), status));
           }});
}

messages::HeartbeatCall Worker::CurrentActivity(const messages::WorkerLife& life) {
  absl::MutexLock lock(&mutex_);
  messages::HeartbeatCall result;
  result.activity = lifecycle_.activity();
  result.map_version = map_version_;
  if (acknowledged_.has_value() && acknowledged_->life == life.incarnation) {
    result.acknowledged = acknowledged_->round;
  }
  if (transport_ != nullptr) {
    result.bytes_pushed = transport_->bytes_pushed();
    result.bytes_pulled = transport_->bytes_pulled();
    result.standstill = transport_->standstill();
    result.path = transport_->path();
  }
  return result;
}

void Worker::OnServersMoved(const messages::ServerAddresses& servers) {
  std::shared_ptr<client::CancellableTransport> transport;
  {
    absl::MutexLock lock(&mutex_);
    // If there is no transport now, the next one begins with the addresses of the registration. The
    // next heartbeat reports their version, so the servers send newer addresses again.
    if (transport_ == nullptr) return;
    transport = transport_;
    map_version_ = servers.map_version;
  }
  for (const std::string& address : servers.addresses) {
    const absl::Status allowed = CheckServer(address);
    if (!allowed.ok())
      return logging::LogError("this worker keeps using the servers that it knows: {}",
                               allowed.message());
  }
  logging::LogInfo("the addresses of the servers are now {}",
                   absl::StrJoin(servers.addresses, ", "));
  transport->MoveTo(servers.addresses);
}

bool Worker::IsStopping() {
  absl::MutexLock lock(&mutex_);
  return lifecycle_.is_stopping();
}

bool Worker::IsLifeOver() {
  absl::MutexLock lock(&mutex_);
  return lifecycle_.is_life_over();
}

absl::Status Worker::CheckServer(const std::string& address) const {
  if (!config_.security.is_plain() || config_.insecure) return absl::OkStatus();
  const absl::StatusOr<net::HostPort> place = net::ParseHostPort("", address, /*lowest_port=*/1);
  if (place.ok() && place->IsLoopback()) return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrCat("a server is at ", address,
                   ", on another machine, and without --join the connection is plain text. Give "
                   "--join or --tls_cert. Or give --insecure; then anything on the network between "
                   "them can read and change the traffic"));
}

absl::Status Worker::Prepare(const messages::Registration& registration) {
  workload_->OnRegistered(registration);
  RETURN_IF_ERROR(PrepareWorkload(registration));
  RETURN_IF_ERROR(PrepareRunner(registration.job));
  const data::Dataset& dataset = *workload_->dataset();
  sample_order_.emplace(registration.job.seed, dataset.num_train_samples(), dataset.is_shuffled());
  for (const messages::ServerAddress& server : registration.servers()) {
    RETURN_IF_ERROR(CheckServer(server.address));
  }
  const bool outlives_process =
      residuals_ != nullptr && KeepsResidual(config_.keep_residuals, registration.job);
  auto transport =
      MakeTransport(registration, config_, registry_.get(), trace_.get(), outlives_process);
  absl::MutexLock lock(&mutex_);
  map_version_ = registration.map->version;
  transport_ = std::move(transport);
  if (lifecycle_.is_life_over()) transport_->Cancel();
  return absl::OkStatus();
}

absl::Status Worker::PrepareWorkload(const messages::Registration& registration) {
  if (workload_->Serves(registration)) return absl::OkStatus();
  runner_.reset();
  const auto stop_requested = [this](int64_t /*num_bytes*/) {
    // The workload calls this function before each piece of data that it reads.
    NoteProgress();
    return IsStopping();
  };
  RETURN_IF_ERROR(workload_->Prepare(registration, devices_, stop_requested));
  progress_.emplace(
      trainer::Progress::Config{.tokens_per_sample = workload_->dataset()->tokens_per_sample(),
                                .loss_unit = job::LossUnitOf(registration.job.model),
                                .interval = config_.progress_interval});
  return absl::OkStatus();
}

absl::Status Worker::HandInInitialWeights() {
  if (!registration_->needs_initial_weights) return absl::OkStatus();
  RETURN_IF_ERROR(workload_->CheckMaySupplyWeights(registration_->job));
  const trainer::InitialState* const given = workload_->initial_state();
  const trainer::InitialState zeros;
  const trainer::InitialState& state = given == nullptr ? zeros : *given;
  if (!state.vectors.empty() && !registration_->index.has_value()) {
    return absl::UnimplementedError(
        "the servers are of an earlier release, which begins no job with an optimizer's state. "
        "Upgrade the servers, and start this program again");
  }
  logging::LogInfo("the job begins with this worker's weights");
  return runner_->HandInInitialWeights(*registration_, state, CurrentTransport().get());
}

absl::StatusOr<std::vector<Version>> Worker::PullState(const messages::Registration& registration,
                                                       uint32_t state_vector,
                                                       absl::Span<float> state) {
  const std::shared_ptr<client::CancellableTransport> transport = CurrentTransport();
  if (transport == nullptr) {
    return absl::AbortedError("this worker is not connected to the servers at present");
  }
  return trainer::PullState(registration, state_vector, state, transport.get(), clock_);
}

void Worker::TakeResidualFolder() {
  absl::StatusOr<std::unique_ptr<ResidualFolder>> folder =
      ResidualFolder::Take(config_.residual_folder, config_.name, clock_);
  if (!folder.ok()) {
    return logging::LogWarn(
        "residuals and the state of the inner optimizer cannot be saved for the next process of "
        "this name: {}",
        folder.status().message());
  }
  residuals_ = *std::move(folder);
  // The instance number of the earlier process may be used only before the worker connects. After
  // that the servers know the worker by this process's number.
  if (link_ == nullptr && residuals_->former_instance() != 0) {
    config_.instance_id = residuals_->former_instance();
  }
}

trainer::ResidualStore* Worker::PrepareResiduals(const job::JobSpec& job) {
  const bool keeps = !config_.residual_folder.empty() && KeepsResidual(config_.keep_residuals, job);
  const bool keeps_state = !config_.residual_folder.empty() && job::HasLocalSteps(job);
  if ((keeps || keeps_state) && residuals_ == nullptr) TakeResidualFolder();
  if (residuals_ == nullptr) return nullptr;
  const absl::Status written =
      keeps ? residuals_->WriteInstance(config_.instance_id) : residuals_->RemoveInstance();
  if (!written.ok()) logging::LogWarn("{}", written.message());
  return keeps ? residuals_->store() : nullptr;
}

absl::Status Worker::PrepareRunner(const job::JobSpec& job) {
  if (runner_ != nullptr && trainer::HaveSameRunner(runner_job_, job)) return absl::OkStatus();
  // A program that wants the last weights also reads parameters between rounds and adds metrics to
  // reports. So for such a program the worker does not request grants or pull weights early.
  const bool looks_ahead = config_.overlap && !workload_->wants_last_weights();
  const std::function<void(const messages::RoundReport&)> ask_ahead =
      [this](const messages::RoundReport& report) {
        messages::RoundReport whole;
        {
          absl::MutexLock lock(&mutex_);
          whole = lifecycle_.WithWait(report);
        }
        AddDeviceMetrics(devices_, &whole.metrics);
        link_->AskAhead(whole);
      };
  trainer::ResidualStore* const residuals = PrepareResiduals(job);
  ASSIGN_OR_RETURN(
      runner_,
      trainer::MakeRoundRunner(
          job, {.model = workload_->model(),
                .device = &devices_.first(),
                .dataset = workload_->dataset(),
                .clock = clock_,
                .overlap = config_.overlap,
                .trace = trace_.get(),
                .pulls_ahead = looks_ahead,
                .model_has_optimizer = workload_->has_optimizer(),
                .on_contributed = looks_ahead ? ask_ahead : nullptr,
                .residuals = residuals,
                .inner_states = residuals_ == nullptr ? nullptr : residuals_->inner_states(),
                .on_step =
                    [this](const trainer::RoundStep& step) {
                      NoteStep(step);
                      workload_->OnStep(step);
                    },
                .on_steps_made = [this] { return workload_->OnStepsMade(); },
                .on_weights = workload_->on_weights(),
                .stop_requested = [this] { return IsStopping(); },
                .time_left =
                    [this] {
                      absl::MutexLock lock(&mutex_);
                      return lifecycle_.time_left(clock_->Now());
                    },
                .on_activity =
                    [this](absl::string_view activity) {
                      absl::MutexLock lock(&mutex_);
                      lifecycle_.OnActivity(clock_->Now(), activity);
                      ++num_events_;
                      ++progress_count_;
                    }}));
  runner_job_ = job;
  return absl::OkStatus();
}

absl::StatusOr<messages::RoundReport> Worker::RunRound(const messages::Grant& grant) {
  process::TraceSpan span(trace_.get(), "training", "round");
  workload_->OnGrant(grant);
  const std::shared_ptr<client::CancellableTransport> transport = CurrentTransport();
  return runner_->Run(ContextOf(transport.get()), grant);
}

absl::StatusOr<messages::Grant> Worker::ExtendGrant(const messages::Grant& held) {
  trainer::TransferRetry retry(clock_);
  while (true) {
    NoteProgress();
    absl::StatusOr<messages::Grant> more = link_->ExtendGrant(held);
    if (more.ok() || !retry.MayHelp(more.status())) return more;
    retry.BackOff(more.status(),
                  absl::StrCat("the request for more samples of round ", held.round.value()));
  }
}

void Worker::TakeLastWeights(const messages::Grant& done) {
  if (!workload_->wants_last_weights()) return;
  const Round min_round = job::HasRosters(registration_->job) ? done.round : Round(0);
  const std::shared_ptr<client::CancellableTransport> transport = CurrentTransport();
  const absl::Status pulled = runner_->PullWeights(ContextOf(transport.get()), min_round);
  if (pulled.ok()) return workload_->OnLastWeights();
  if (IsStopping()) {
    // The program leaves, and so it does not wait for these weights.
    logging::LogWarn("the job is done, but its last weights did not arrive: {}", pulled.message());
    return;
  }
  last_weights_ = absl::UnavailableError(
      absl::StrCat("the job is done, but its last weights did not arrive: ", pulled.message(),
                   "; get them with psctl export"));
}

std::shared_ptr<client::CancellableTransport> Worker::CurrentTransport() {
  absl::MutexLock lock(&mutex_);
  return transport_;
}

trainer::LifeContext Worker::ContextOf(client::ParameterTransport* transport) {
  return {.registration = &*registration_,
          .sample_order = &*sample_order_,
          .transport = transport,
          .is_over = [this] { return IsLifeOver(); },
          .transport_of = [this](const messages::WorkerLife& life,
                                 const std::string& secret) { return TransportOf(life, secret); }};
}

std::shared_ptr<client::ParameterTransport> Worker::TransportOf(const messages::WorkerLife& life,
                                                                const std::string& secret) {
  messages::Registration registration = *registration_;
  registration.life = life;
  registration.life_secret = secret;
  Config settings = config_;
  // Shared memory is not needed, because only a few bytes are sent.
  settings.shared_memory = false;
  auto transport = MakeTransport(registration, settings, /*registry=*/nullptr, /*trace=*/nullptr,
                                 /*outlives_process=*/false);
  absl::MutexLock lock(&mutex_);
  former_transport_ = transport;
  if (lifecycle_.is_life_over()) transport->Cancel();
  return transport;
}

void Worker::CountContribution(const messages::Grant& grant, const messages::RoundReport& report) {
  if (grant.kind != messages::Grant::Kind::kTrain || report.num_samples == 0 ||
      std::exchange(has_contributed_, true)) {
    return;
  }
  const absl::Time now = clock_->Now();
  const auto rounded = [](absl::Duration duration) {
    return absl::FormatDuration(absl::Trunc(duration, absl::Milliseconds(10)));
  };
  const int64_t pulls = runner_->num_pulls();
  logging::LogInfo(
      "the first contribution is delivered: round {}, {} samples, {} after the start of this "
      "process "
      "and {} after its registration; weights were pulled {}",
      report.round, report.num_samples, rounded(now - started_at_), rounded(now - registered_at_),
      pulls == 1 ? "once" : absl::StrCat(pulls, " times"));
}

void Worker::KeepTuning(absl::Duration patience) {
  if (tuning_file_ == nullptr) return;
  for (const auto& device : devices_.devices) tuning_file_->Keep(*device, patience);
}

void Worker::TellProgress(const messages::Grant& grant) {
  const std::string line = progress_->Tell(clock_->Now(), grant);
  if (line.empty()) return;
  logging::LogInfo("{}", line);
  KeepTuning(/*patience=*/absl::ZeroDuration());
  for (size_t i = 0; i < devices_.devices.size(); ++i) {
    const std::string choices = devices_.devices[i]->DescribeChoices();
    if (choices.empty()) continue;
    const std::string device =
        devices_.devices.size() == 1 ? "the device" : absl::StrCat("device ", i);
    const bool has_refused = devices_.devices[i]->num_refused_outputs() > 0;
    choices_logger_.Log(has_refused ? logging::LogLevel::kWarn : logging::LogLevel::kInfo,
                        absl::StrCat("choices of ", device),
                        absl::StrCat(device, " has chosen these kernels:\n", choices));
  }
}

}  // namespace lodestar::worker
