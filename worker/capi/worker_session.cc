// SPDX-License-Identifier: Apache-2.0

#include "worker/capi/worker_session.h"

#include <unistd.h>

#include <algorithm>
#include <new>
#include <utility>
#include <variant>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/checkpoints/same_tensors.h"
#include "common/job/learning_rate_schedule.h"
#include "common/logging/logging.h"
#include "common/messages/contribution.h"
#include "common/net/address_list.h"
#include "common/net/connect_patience.h"
#include "common/runtime/clock.h"
#include "common/runtime/local_path.h"
#include "common/runtime/status_macros.h"
#include "common/runtime/worker_name.h"
#include "worker/residual_folder.h"

namespace lodestar::capi {
namespace {

constexpr int kMaxThreads = 1024;

absl::Status BadSetting(absl::string_view setting, absl::string_view value,
                        absl::string_view allowed) {
  return absl::InvalidArgumentError(
      absl::StrCat("setting ", setting, "='", value, "' is wrong; allowed is ", allowed));
}

absl::StatusOr<bool> ParseSwitch(absl::string_view setting, absl::string_view value) {
  if (value == "0" || value == "1") return value == "1";
  return BadSetting(setting, value, "0 or 1");
}

absl::Status ForkedFrom(pid_t parent) {
  return absl::FailedPreconditionError(
      absl::StrCat("process ", getpid(), " was forked from process ", parent,
                   ", which had started a worker, and a fork does not have its threads and "
                   "connections. Fork before the first worker starts. Or start the child with "
                   "exec, or with the method spawn of Python's multiprocessing"));
}

// Errors: FailedPrecondition (if a parent process, from which this process was forked, has used
// gRPC: the state of gRPC is broken in a forked process).
absl::Status ClaimGrpc() {
  static std::atomic<pid_t> user = 0;  // the first process that has used gRPC
  pid_t process = 0;
  if (user.compare_exchange_strong(process, getpid()) || process == getpid()) {
    return absl::OkStatus();
  }
  return ForkedFrom(process);
}

// Returns the shortest text that reads back as the same number.
std::string NumberText(double value) {
  for (int digits = 6; digits < 17; ++digits) {
    std::string text = absl::StrFormat("%.*g", digits, value);
    double back = 0.0;
    if (absl::SimpleAtod(text, &back) && back == value) return text;
  }
  return absl::StrFormat("%.17g", value);
}

// Returns true if the weights of contributions have an effect.
bool CountsWeights(const job::JobSpec& job) {
  return job::HasRosters(job) && !job::DefersContributions(job);
}

// Returns a setting in the words of the server's flags. Errors: InvalidArgument (if there is no
// such setting).
absl::StatusOr<std::string> SettingOf(const job::JobSpec& job, absl::string_view setting) {
  if (setting == "mode") return std::string(NameOf(job.mode));
  if (setting == "has_local_steps") return std::string(job::HasLocalSteps(job) ? "1" : "0");
  if (setting == "local_steps") return absl::StrCat(job.local_steps);
  if (setting == "batch_size") return absl::StrCat(job.batch_size);
  if (setting == "global_batch_size") return absl::StrCat(job.global_batch_size);
  if (setting == "optimizer") return std::string(NameOf(job.optimizer.kind));
  if (setting == "learning_rate") return NumberText(job.schedule.peak);
  if (setting == "lr_schedule") return std::string(NameOf(job.schedule.kind));
  if (setting == "momentum") return NumberText(job.optimizer.momentum);
  if (setting == "beta1") return NumberText(job.optimizer.beta1);
  if (setting == "beta2") return NumberText(job.optimizer.beta2);
  if (setting == "epsilon") return NumberText(job.optimizer.epsilon);
  if (setting == "weight_decay") return NumberText(job.optimizer.weight_decay);
  if (setting == "clip_norm") return NumberText(job.clip_norm);
  if (setting == "rounds") return absl::StrCat(job.schedule.total_rounds);
  if (setting == "seed") return absl::StrCat(job.seed);
  if (setting == "model") return job.model.name;
  if (setting == "layout_is_own") {
    return std::string(
        std::holds_alternative<params::ClientModelSpec>(job.model.architecture) ? "1" : "0");
  }
  if (setting == "counts_weights") return std::string(CountsWeights(job) ? "1" : "0");
  return absl::InvalidArgumentError(
      absl::StrCat("a job has no setting called '", setting,
                   "'; see lodestar_job() in lodestar_worker.h for the settings that it has"));
}

}  // namespace

WorkerSession::WorkerSession() {
  config_.device = {.kind = "cpu", .threads = 1};
  config_.device_name = "a program of its own";
  config_.instance_id = worker::RandomInstanceId();
  config_.request_process = static_cast<uint32_t>(worker::RandomInstanceId());
  config_.name = worker::DefaultWorkerName();
  config_.life.connect.timeout = net::ConnectPatience::kDefault;
  config_.life.connect.setting = "connect_timeout";
  entrance_.coordinator = config_.coordinator.ToString();
}

WorkerSession::~WorkerSession() {
  if (thread_.joinable()) Leave().IgnoreError();
}

absl::Status WorkerSession::CheckProcess() const {
  const pid_t process = process_;
  return process == 0 || process == getpid() ? absl::OkStatus() : ForkedFrom(process);
}

absl::Status WorkerSession::CheckNotStarted() const {
  if (!has_started_) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "the worker has been started already; make this call once, before the start");
}

absl::Status WorkerSession::CheckStarted() const {
  if (has_started_) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "the worker has not been started; start the worker before this call");
}

absl::Status WorkerSession::Set(absl::string_view setting, absl::string_view value) {
  if (setting == "data_order") {
    if (data_.has_value()) {
      return absl::FailedPreconditionError(
          "data_order is set after the data was described; set it before lodestar_set_data()");
    }
    if (value != "shuffled" && value != "sequential") {
      return BadSetting(setting, value, "shuffled or sequential");
    }
    is_shuffled_ = value == "shuffled";
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(CheckNotStarted());
  const std::string text(value);
  for (const char* path : {"state_dir", "tls_cert", "tls_key", "tls_ca"}) {
    if (setting != path) continue;
    if (const absl::Status local = CheckLocalPath(text); !local.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("setting ", path, ": ", local.message()));
    }
  }
  if (setting == "coordinator") {
    ASSIGN_OR_RETURN(config_.coordinator, net::AddressList::Parse(setting, text));
    entrance_.coordinator = text;
    entrance_.has_coordinator = true;
  } else if (setting == "name") {
    RETURN_IF_ERROR(CheckWorkerName("setting name", text));
    config_.name = text;
    entrance_.name = text;
  } else if (setting == "join") {
    entrance_.security.join = text;
  } else if (setting == "state_dir") {
    entrance_.security.state_dir = text;
  } else if (setting == "keep_residuals") {
    ASSIGN_OR_RETURN(config_.keep_residuals,
                     worker::ParseKeepResiduals("setting keep_residuals", value));
  } else if (setting == "tls_cert") {
    entrance_.security.own.certificate = text;
  } else if (setting == "tls_key") {
    entrance_.security.own.key = text;
  } else if (setting == "tls_ca") {
    entrance_.security.own.authority = text;
  } else if (setting == "insecure") {
    ASSIGN_OR_RETURN(entrance_.security.insecure, ParseSwitch(setting, value));
  } else if (setting == "shared_memory") {
    ASSIGN_OR_RETURN(config_.shared_memory, ParseSwitch(setting, value));
  } else if (setting == "leave_timeout") {
    if (!absl::ParseDuration(value, &config_.life.leave_timeout) ||
        config_.life.leave_timeout < absl::Seconds(1)) {
      return BadSetting(setting, value, "a duration such as 30s or 5m, at least 1s");
    }
  } else if (setting == "connect_timeout") {
    absl::Duration given;
    if (!absl::ParseDuration(value, &given)) {
      return BadSetting(setting, value,
                        "0, which means to try for ever, or a duration such as 90s or 1h");
    }
    ASSIGN_OR_RETURN(config_.life.connect.timeout,
                     net::ConnectPatience::TimeoutOf("setting connect_timeout", given));
  } else if (setting == "threads") {
    int threads = 0;
    if (!absl::SimpleAtoi(value, &threads) || threads < 0 || threads > kMaxThreads) {
      return BadSetting(setting, value, absl::StrCat("0 (one per core) to ", kMaxThreads));
    }
    config_.device.threads = threads;
  } else if (setting == "device") {
    config_.device_name = text;
  } else if (setting == "frozen_hash") {
    frozen_hash_ = text;
  } else {
    return absl::InvalidArgumentError(absl::StrCat(
        "there is no setting '", setting,
        "'; the settings are: coordinator, name, join, state_dir, keep_residuals, tls_cert, "
        "tls_key, tls_ca, insecure, shared_memory, leave_timeout, connect_timeout, threads, "
        "device, frozen_hash, data_order"));
  }
  return absl::OkStatus();
}

absl::Status WorkerSession::Propose(absl::string_view setting, absl::string_view value) {
  RETURN_IF_ERROR(CheckNotStarted());
  job::ProposedSettings proposed = proposed_;
  RETURN_IF_ERROR(job::SetProposed(setting, value, proposed));
  RETURN_IF_ERROR(job::ValidateProposed(proposed));
  proposed_ = proposed;
  return absl::OkStatus();
}

absl::Status WorkerSession::AddTensor(params::TensorSpec tensor) {
  if (own_layout_.has_value()) {
    return absl::FailedPreconditionError(
        absl::StrCat("tensor '", tensor.name,
                     "' was added after the vectors were allocated or the worker started; add all "
                     "tensors before"));
  }
  tensors_.push_back(std::move(tensor));
  return absl::OkStatus();
}

absl::Status WorkerSession::SetData(const messages::DatasetInfo& data) {
  if (data_.has_value()) RETURN_IF_ERROR(CheckNotStarted());
  if (data.num_train_samples < 1 || data.num_heldout_samples < 0 || data.tokens_per_sample < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("the data have ", data.num_train_samples, " training samples, ",
                     data.num_heldout_samples, " held-out samples and ", data.tokens_per_sample,
                     " predictions per sample; give at least 1, 0 and 1"));
  }
  data_ = data;
  return absl::OkStatus();
}

absl::Status WorkerSession::Allocate() {
  if (layout_.has_value()) {
    return absl::FailedPreconditionError(
        "the vectors are already allocated; allocate them only once");
  }
  if (has_started_) return AllocateAsTheJob();
  ASSIGN_OR_RETURN(const params::Layout layout, params::Layout::FromTensors(tensors_));
  RETURN_IF_ERROR(Allocate(layout));
  own_layout_ = layout;
  return absl::OkStatus();
}

absl::Status WorkerSession::Allocate(params::Layout layout) {
  layout_ = std::move(layout);
  try {
    vectors_.parameters.assign(layout_->num_elements(), 0.0f);
    vectors_.gradients.assign(layout_->num_elements(), 0.0f);
  } catch (const std::bad_alloc&) {
    vectors_ = {};
    const int64_t elements = layout_->num_elements();
    layout_.reset();
    return absl::ResourceExhaustedError(
        absl::StrCat("there is not enough memory for two vectors of ", elements,
                     " floats; use a machine with more memory"));
  }
  return absl::OkStatus();
}

absl::Status WorkerSession::AllocateAsTheJob() {
  {
    absl::MutexLock lock(&mutex_);
    if (vectors_outcome_.has_value()) {
      return absl::FailedPreconditionError(
          "an earlier allocation of the vectors failed; make a new worker");
    }
  }
  std::shared_ptr<const messages::ClusterMap> map;
  bool has_decay = false;  // true if the servers apply weight decay
  AwaitJob(absl::InfiniteDuration());
  {
    absl::MutexLock lock(&mutex_);
    if (!registration_.has_value()) return EndBeforeTheJob();
    map = registration_->map;
    const job::JobSpec& job = registration_->job;
    has_decay =
        job.optimizer.weight_decay > 0.0 && !job::HasLocalSteps(job) && !job::ReducesOnly(job);
  }
  absl::Status status =
      checkpoints::CheckSameTensors(map->layout, "the job", *own_layout_, "this program");
  if (status.ok()) status = Allocate(map->layout);
  if (const std::string decay = checkpoints::DifferingDecay(map->layout, *own_layout_);
      status.ok() && has_decay && !decay.empty()) {
    logging::LogWarn("{}; this worker uses the job's settings for weight decay", decay);
  }
  if (status.ok()) return status;
  absl::MutexLock lock(&mutex_);
  vectors_outcome_ = status;
  return status;
}

absl::Status WorkerSession::HandOverVectors() {
  absl::MutexLock lock(&mutex_);
  if (vectors_outcome_.has_value() || outcome_.has_value()) return absl::OkStatus();
  if (!layout_.has_value()) {
    return absl::FailedPreconditionError(
        "the worker has started without its vectors; allocate them before the first step");
  }
  if (!data_.has_value()) {
    return absl::FailedPreconditionError(
        "the worker has started without its data; give the numbers of samples before the first "
        "step");
  }
  vectors_outcome_ = absl::OkStatus();
  return absl::OkStatus();
}

messages::OfferedLayout WorkerSession::Offer() {
  absl::MutexLock lock(&mutex_);
  const bool has_vectors = vectors_outcome_.has_value() && vectors_outcome_->ok();
  return {.layout = has_vectors ? *layout_ : *own_layout_,
          .adopts_order = !has_vectors,
          .frozen_hash = frozen_hash_};
}

absl::StatusOr<const params::Layout*> WorkerSession::AwaitVectors() {
  absl::MutexLock lock(&mutex_);
  const auto is_over = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return vectors_outcome_.has_value() || is_stopping_;
  };
  mutex_.Await(absl::Condition(&is_over));
  if (!vectors_outcome_.has_value()) {
    return absl::CancelledError("stopped on request before the program had allocated its vectors");
  }
  RETURN_IF_ERROR(*vectors_outcome_);
  return &*layout_;
}

absl::Status WorkerSession::Start() {
  RETURN_IF_ERROR(CheckNotStarted());
  if (tensors_.empty()) {
    return absl::FailedPreconditionError(
        "the worker has no tensors; add them before the worker starts");
  }
  ASSIGN_OR_RETURN(params::Layout own_layout, params::Layout::FromTensors(tensors_));
  config_.residual_folder = worker::ResidualFolderIn(entrance_.security.state_dir, entrance_.name);
  ASSIGN_OR_RETURN(entrance_.security,
                   security::CompleteSecurityFlags(std::move(entrance_.security)));
  config_.insecure = entrance_.security.insecure;
  RETURN_IF_ERROR(worker::CheckMayEnter(entrance_));
  RETURN_IF_ERROR(ClaimGrpc());
  own_layout_ = std::move(own_layout);
  if (layout_.has_value() && data_.has_value()) RETURN_IF_ERROR(HandOverVectors());
  process_ = getpid();
  has_started_ = true;
  thread_ = std::thread([this] { Run(); });
  return absl::OkStatus();
}

void WorkerSession::Run() {
  const absl::Status outcome = EnterAndRun();
  {
    absl::MutexLock lock(&mutex_);
    outcome_ = outcome;
  }
  handoff_.End(outcome);
  logging::FlushLog();
}

absl::Status WorkerSession::EnterAndRun() {
  const auto is_stopping = [this] {
    absl::MutexLock lock(&mutex_);
    return is_stopping_;
  };
  const absl::StatusOr<std::unique_ptr<worker::WorkerCredentials>> credentials =
      worker::WorkerCredentials::Await(entrance_, is_stopping, &config_);
  if (absl::IsCancelled(credentials.status())) return absl::OkStatus();
  RETURN_IF_ERROR(credentials.status());
  auto workload = std::make_unique<CallerWorkload>(
      proposed_,
      CallerWorkload::Deps{
          .data = &data_,
          .is_shuffled = &is_shuffled_,
          .vectors = &vectors_,
          .handoff = &handoff_,
          .on_registered =
              [this](const messages::Registration& registration) {
                absl::MutexLock lock(&mutex_);
                registration_ = registration;
                live_workers_ = registration.live_workers;
              },
          .on_weights = [this](const std::vector<Version>& versions) { OnWeights(versions); },
          .on_last_weights = [this] { KeepLastState(); },
          .on_loss =
              [this](const job::JobLoss& loss) {
                absl::MutexLock lock(&mutex_);
                if (loss.heldout.has_value()) loss_ = loss;
              },
          .on_live_workers =
              [this](const messages::LiveWorkers& workers) {
                absl::MutexLock lock(&mutex_);
                live_workers_ = workers;
              },
          .offered_layout = [this] { return Offer(); },
          .await_vectors = [this] { return AwaitVectors(); }});
  ASSIGN_OR_RETURN(std::unique_ptr<worker::Worker> made,
                   worker::Worker::Create(config_, std::move(workload), &Clock::Real()));
  worker::Worker* worker = nullptr;
  {
    absl::MutexLock lock(&mutex_);
    worker_ = std::move(made);
    worker = worker_.get();
    if (is_stopping_) worker->RequestStop();
  }
  const absl::Status outcome = worker->Run();
  (*credentials)->OnEnd(outcome);
  return outcome;
}

bool WorkerSession::AwaitNews(absl::Duration timeout) {
  return !has_started_ || !HandOverVectors().ok() || handoff_.AwaitNews(timeout);
}

absl::StatusOr<std::optional<HandedStep>> WorkerSession::Next() {
  RETURN_IF_ERROR(CheckStarted());
  RETURN_IF_ERROR(HandOverVectors());
  return handoff_.Next();
}

void WorkerSession::OnWeights(const std::vector<Version>& versions) {
  const bool are_equal =
      !versions.empty() && std::all_of(versions.begin(), versions.end(),
                                       [&](Version version) { return version == versions[0]; });
  weights_version_ = are_equal ? versions[0].value() : -1;
  absl::MutexLock lock(&mutex_);
  bucket_versions_ = versions;
}

absl::Status WorkerSession::SetInitialState(int state_vector, const float* state,
                                            int64_t num_updates) {
  std::vector<std::vector<float>>& vectors = vectors_.initial_state.vectors;
  const int num_given = static_cast<int>(vectors.size());
  if (num_updates < 0 || state_vector < 1 || state_vector > num_given + 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "vector ", state_vector, " of the initial state is given after ", num_given,
        " vectors, and has had ", num_updates,
        " updates; give vectors 1, 2, ... one after the other, with at least 0 updates"));
  }
  {
    absl::MutexLock lock(&mutex_);
    if (!layout_.has_value() || vectors_outcome_.has_value()) {
      return absl::FailedPreconditionError(
          "the initial state can be given only between the allocation of the vectors and the "
          "first step");
    }
  }
  try {
    vectors.resize(std::max(num_given, state_vector));
    vectors[state_vector - 1].assign(state, state + layout_->num_elements());
  } catch (const std::bad_alloc&) {
    vectors = {};
    return absl::ResourceExhaustedError(
        "there is not enough memory for the initial state of the optimizer; use a machine with "
        "more memory");
  }
  vectors_.initial_state.version = Version(num_updates);
  return absl::OkStatus();
}

absl::Status WorkerSession::PullState(int state_vector, float* state, int64_t* updates,
                                      bool* is_newer) {
  RETURN_IF_ERROR(CheckStarted());
  if (state_vector < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "vector ", state_vector, " of the optimizer's state is asked for; the first is 1"));
  }
  ASSIGN_OR_RETURN(const std::vector<Version> versions,
                   PullState(state_vector, {state, vectors_.parameters.size()}));
  absl::MutexLock lock(&mutex_);
  std::fill_n(updates, layout_->num_blocks(), 0);
  for (const params::Bucket& bucket : registration_->buckets()) {
    updates[bucket.block] = std::max(updates[bucket.block], versions[bucket.index].value());
  }
  *is_newer = versions != bucket_versions_;
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Version>> WorkerSession::PullState(int state_vector,
                                                              absl::Span<float> state) {
  std::optional<messages::Registration> registration;
  worker::Worker* worker = nullptr;
  {
    absl::MutexLock lock(&mutex_);
    if (outcome_.has_value()) {
      if (state_vector > static_cast<int>(last_state_.size())) {
        return absl::FailedPreconditionError(
            "the job is over for this worker, which has kept no state of the servers' optimizer; "
            "call lodestar_keep_state() during the job");
      }
      const StateVector& last = last_state_[state_vector - 1];
      std::copy(last.elements.begin(), last.elements.end(), state.begin());
      return last.versions;
    }
    registration = registration_;
    worker = worker_.get();
  }
  if (!handoff_.has_step()) {
    return absl::FailedPreconditionError(
        "the optimizer's state was asked for without a step; ask for it between lodestar_next() "
        "and lodestar_step_done()");
  }
  if (!registration->index.has_value()) {
    return absl::UnimplementedError(
        "the servers are of an earlier release, which does not tell the state of its optimizer. "
        "Upgrade the servers, and start this program again");
  }
  return worker->PullState(*registration, state_vector, state);
}

absl::Status WorkerSession::KeepState(int num_vectors) {
  RETURN_IF_ERROR(CheckStarted());
  absl::MutexLock lock(&mutex_);
  num_kept_vectors_ = num_vectors;
  return absl::OkStatus();
}

void WorkerSession::KeepLastState() {
  int count = 0;
  std::optional<messages::Registration> registration;
  worker::Worker* worker = nullptr;
  {
    absl::MutexLock lock(&mutex_);
    count = num_kept_vectors_;
    registration = registration_;
    worker = worker_.get();
  }
  std::vector<StateVector> last;
  for (int number = 1; number <= count; ++number) {
    StateVector& vector = last.emplace_back();
    absl::Status pulled;
    try {
      vector.elements.resize(layout_->num_elements());
      absl::StatusOr<std::vector<Version>> versions =
          worker->PullState(*registration, number, absl::MakeSpan(vector.elements));
      pulled = versions.status();
      if (versions.ok()) vector.versions = *std::move(versions);
    } catch (const std::bad_alloc&) {
      pulled = absl::ResourceExhaustedError("there is not enough memory");
    }
    if (!pulled.ok()) {
      return logging::LogWarn(
          "the job is done, but the last state of its optimizer did not arrive: {}",
          pulled.message());
    }
  }
  absl::MutexLock lock(&mutex_);
  last_state_ = std::move(last);
}

job::JobLoss WorkerSession::Evaluation() {
  absl::MutexLock lock(&mutex_);
  return loss_;
}

bool WorkerSession::AwaitJob(absl::Duration timeout) {
  if (!has_started_) return true;
  absl::MutexLock lock(&mutex_);
  const auto is_known = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return registration_.has_value() || outcome_.has_value();
  };
  return mutex_.AwaitWithTimeout(absl::Condition(&is_known), timeout);
}

absl::StatusOr<std::string> WorkerSession::JobSetting(absl::string_view setting) {
  RETURN_IF_ERROR(CheckStarted());
  absl::MutexLock lock(&mutex_);
  RETURN_IF_ERROR(AwaitRegistration());
  if (setting == "rounds_done") return absl::StrCat(registration_->rounds_completed);
  return SettingOf(registration_->job, setting);
}

absl::StatusOr<WorkerPlace> WorkerSession::Place() {
  RETURN_IF_ERROR(CheckStarted());
  absl::MutexLock lock(&mutex_);
  RETURN_IF_ERROR(AwaitRegistration());
  if (!registration_->index.has_value() || !live_workers_.has_value()) {
    return absl::UnimplementedError(
        "the servers are of an earlier release, which gives workers no index. Upgrade the servers, "
        "and start this program again");
  }
  return WorkerPlace{.index = *registration_->index,
                     .count = live_workers_->count,
                     .is_first = *registration_->index <= live_workers_->lowest_index};
}

absl::Status WorkerSession::AwaitRegistration() {
  const auto is_known = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return registration_.has_value() || outcome_.has_value();
  };
  mutex_.Await(absl::Condition(&is_known));
  return registration_.has_value() ? absl::OkStatus() : EndBeforeTheJob();
}

absl::Status WorkerSession::EndBeforeTheJob() const {
  if (!outcome_->ok()) return *outcome_;
  return absl::CancelledError("the worker was stopped on request before it knew the job");
}

absl::Status WorkerSession::SetLearningRate(int block, double rate) {
  const int num_blocks = layout_.has_value() ? layout_->num_blocks() : 0;
  if (block < -1 || block >= num_blocks) {
    return absl::InvalidArgumentError(absl::StrCat("a learning rate was set for block ", block,
                                                   ", but the number of blocks in the layout is ",
                                                   num_blocks, "; -1 means all blocks"));
  }
  if (!(rate >= 0.0 && rate <= job::kMaxLearningRate)) {
    return absl::InvalidArgumentError(absl::StrCat("the learning rate of a step is ", rate,
                                                   "; it must be 0 to ", job::kMaxLearningRate));
  }
  return handoff_.SetLearningRate(block, rate);
}

absl::Status WorkerSession::SetWeight(int64_t weight) {
  if (weight < 0 || weight > messages::kMaxContributionWeight) {
    return absl::InvalidArgumentError(absl::StrCat("the weight of a step is ", weight,
                                                   "; it must be 0 to ",
                                                   messages::kMaxContributionWeight));
  }
  {
    absl::MutexLock lock(&mutex_);
    if (registration_.has_value() && !registration_->index.has_value()) {
      return absl::UnimplementedError(
          "the servers are of an earlier release, which cannot take the weight of a step. Upgrade "
          "the servers, and start this program again");
    }
  }
  return handoff_.SetWeight(weight);
}

absl::Status WorkerSession::BlockReady(int block) {
  if (!layout_.has_value() || block < 0 || block >= layout_->num_blocks()) {
    return absl::InvalidArgumentError(
        absl::StrCat("block ", block, " was reported as ready, but the layout has blocks 0 to ",
                     layout_.has_value() ? layout_->num_blocks() - 1 : -1));
  }
  if (layout_->is_averaged(block)) {
    return absl::InvalidArgumentError(
        absl::StrCat("block ", block,
                     " has averaged tensors, which are sent at the end of the step; do not report "
                     "this block as ready"));
  }
  return handoff_.BlockReady(block);
}

absl::Status WorkerSession::FinishStep(absl::StatusOr<model::BatchResult> result) {
  return handoff_.Finish(std::move(result));
}

absl::Status WorkerSession::CheckHasNoLocalSteps(absl::string_view what) {
  absl::MutexLock lock(&mutex_);
  if (!registration_.has_value() || !job::HasLocalSteps(registration_->job)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("this job has local steps, so a step cannot be ", what,
                   ". Let the program's optimizer make any number of steps with the samples, and "
                   "report the step as done"));
}

absl::Status WorkerSession::SkipStep() {
  RETURN_IF_ERROR(CheckHasNoLocalSteps("skipped"));
  return handoff_.Skip();
}

absl::Status WorkerSession::KeepSamples() {
  RETURN_IF_ERROR(CheckHasNoLocalSteps("requested without samples"));
  handoff_.KeepSamples();
  return absl::OkStatus();
}

absl::StatusOr<HandedStep> WorkerSession::Extend() {
  RETURN_IF_ERROR(CheckStarted());
  RETURN_IF_ERROR(CheckHasNoLocalSteps("extended"));
  return handoff_.Extend();
}

std::string WorkerSession::State() {
  absl::MutexLock lock(&mutex_);
  if (outcome_.has_value()) return "ended";
  if (worker_ == nullptr) return "start";
  return worker_->activity();
}

absl::Status WorkerSession::Stop() {
  RETURN_IF_ERROR(CheckStarted());
  absl::MutexLock lock(&mutex_);
  is_stopping_ = true;
  if (worker_ != nullptr) worker_->RequestStop();
  return absl::OkStatus();
}

void WorkerSession::AwaitThread() {
  absl::MutexLock lock(&joining_);
  if (thread_.joinable()) thread_.join();
}

absl::Status WorkerSession::Leave() {
  RETURN_IF_ERROR(Stop());
  handoff_.Leave();
  AwaitThread();
  absl::MutexLock lock(&mutex_);
  return *outcome_;
}

}  // namespace lodestar::capi
