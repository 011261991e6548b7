// SPDX-License-Identifier: Apache-2.0

#include "worker/capi/lodestar_worker.h"

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/checkpoints/same_tensors.h"
#include "common/crc32c/crc32c.h"
#include "common/logging/logging.h"
#include "common/process/process_setup.h"
#include "common/process/version.h"
#include "common/runtime/join_secret.h"
#include "common/runtime/status_macros.h"
#include "worker/capi/worker_session.h"

struct lodestar_worker {
  lodestar::capi::WorkerSession session;
  struct Samples {
    std::vector<int64_t> indices;
    std::vector<int64_t> epochs;
  };
  Samples at_hand;
  Samples expected;             // the samples of the last lodestar_expect()
  std::optional<int64_t> pass;  // set if a training step is present
};

namespace lodestar::capi {
namespace {

std::string& LastError() {
  static thread_local std::string text;
  return text;
}

int& LastCode() {
  static thread_local int code = 0;
  return code;
}

int Report(const absl::Status& status) {
  if (status.ok()) return 0;
  LastCode() = static_cast<int>(status.code());
  LastError() = WithoutJoinSecrets(status.message());
  return static_cast<int>(status.code());
}

// Stores `text` and returns a pointer to it, which is valid until the next call on this thread.
const char* Lend(std::string text) {
  static thread_local std::string lent;
  lent = std::move(text);
  return lent.c_str();
}

// Errors: InvalidArgument.
absl::Status CheckNotNull(const lodestar_worker* worker) {
  if (worker != nullptr) return absl::OkStatus();
  return absl::InvalidArgumentError("worker is null; make a worker with lodestar_new()");
}

// Errors: InvalidArgument (if the worker is null); FailedPrecondition (if the worker was started in
// the parent process, from which this process was forked).
absl::Status CheckWorker(const lodestar_worker* worker) {
  RETURN_IF_ERROR(CheckNotNull(worker));
  return worker->session.CheckProcess();
}

// IsThere() returns true if `worker` is not null: its memory can be read even in a forked process.
// IsUsable() also checks that the worker was not started in a parent process.
bool IsThere(const lodestar_worker* worker) { return Report(CheckNotNull(worker)) == 0; }
bool IsUsable(const lodestar_worker* worker) { return Report(CheckWorker(worker)) == 0; }

// Calls a method of the worker's session, and reports the status that the method returns.
template <typename Method, typename... Arguments>
int Call(lodestar_worker* worker, Method method, Arguments&&... arguments) {
  if (const absl::Status usable = CheckWorker(worker); !usable.ok()) return Report(usable);
  return Report((worker->session.*method)(std::forward<Arguments>(arguments)...));
}

absl::Status CheckArgument(const void* argument, const char* name) {
  if (argument != nullptr) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(name, " is null"));
}

struct Marks {
  bool decays = false;
  bool averaged = false;
  bool embedding = false;
};

absl::Status AddTensor(lodestar_worker* worker, const char* name, const int64_t* shape,
                       int num_dimensions, int block, Marks marks) {
  RETURN_IF_ERROR(CheckWorker(worker));
  if (name == nullptr || num_dimensions < 0 || (shape == nullptr && num_dimensions > 0)) {
    return absl::InvalidArgumentError("a tensor has no name or no shape; give both");
  }
  params::TensorSpec tensor;
  tensor.name = name;
  tensor.shape.assign(shape, shape + num_dimensions);
  tensor.block = block;
  tensor.decay = marks.decays;
  tensor.averaged = marks.averaged;
  tensor.embedding = marks.embedding;
  return worker->session.AddTensor(std::move(tensor));
}

// Returns null if there is no tensor of that name, or no layout yet.
const params::TensorSpec* FindTensor(lodestar_worker* worker, const char* name) {
  if (!IsThere(worker)) return nullptr;
  const std::optional<params::Layout>& layout = worker->session.layout();
  if (!layout.has_value() || name == nullptr) return nullptr;
  return checkpoints::FindTensorOfProgram(*layout, name);
}

// Copies the samples to `kept`, and points `step` to them.
void TellSamples(absl::Span<const data::SampleRef> samples, lodestar_worker::Samples* kept,
                 lodestar_step* step) {
  kept->indices.clear();
  kept->epochs.clear();
  for (const data::SampleRef& sample : samples) {
    kept->indices.push_back(sample.index);
    kept->epochs.push_back(sample.epoch);
  }
  step->num_samples = static_cast<int64_t>(kept->indices.size());
  step->samples = kept->indices.data();
  step->epochs = kept->epochs.data();
}

absl::Status CheckStep(const lodestar_step* step) {
  RETURN_IF_ERROR(CheckArgument(step, "step"));
  if (step->size == sizeof(lodestar_step)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("step.size is ", step->size,
                                                 ", but this library needs ", sizeof(lodestar_step),
                                                 "; use the header of the same release"));
}

absl::Status Expect(lodestar_worker* worker, int ahead, lodestar_step* step) {
  RETURN_IF_ERROR(CheckWorker(worker));
  RETURN_IF_ERROR(CheckStep(step));
  if (ahead < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("the argument ahead is ", ahead,
                     ", but must be at least 1; 1 means the step after the present one"));
  }
  *step = {};
  step->size = sizeof(lodestar_step);
  step->kind = LODESTAR_STEP_TRAIN;
  const trainer::StepForecast forecast = worker->session.Forecast();
  const std::optional<trainer::ExpectedStep> expected = forecast.Expect(ahead);
  if (!expected.has_value()) return absl::OkStatus();
  TellSamples(expected->samples, &worker->expected, step);
  step->step = expected->step;
  step->num_steps = expected->num_steps;
  step->round = forecast.last->round.value() + expected->rounds_ahead;
  return absl::OkStatus();
}

absl::Status TellStep(const std::optional<HandedStep>& handed, lodestar_worker* worker,
                      lodestar_step* step) {
  *step = {};
  step->size = sizeof(lodestar_step);
  step->kind = LODESTAR_STEP_END;
  worker->pass.reset();
  if (!handed.has_value()) return absl::OkStatus();
  TellSamples(handed->samples, &worker->at_hand, step);
  step->kind = handed->is_training ? LODESTAR_STEP_TRAIN : LODESTAR_STEP_EVALUATE;
  step->step = handed->step.step;
  step->num_steps = handed->step.num_steps;
  step->round = handed->step.round.value();
  step->learning_rate = handed->step.learning_rate;
  step->server_incarnation = handed->step.server_incarnation;
  step->first_position = handed->first_position;
  if (handed->is_training) worker->pass = handed->pass;
  return absl::OkStatus();
}

absl::Status Next(lodestar_worker* worker, lodestar_step* step) {
  RETURN_IF_ERROR(CheckWorker(worker));
  RETURN_IF_ERROR(CheckStep(step));
  const absl::StatusOr<std::optional<HandedStep>> handed = worker->session.Next();
  if (!handed.ok()) return handed.status();
  return TellStep(*handed, worker, step);
}

absl::Status Extend(lodestar_worker* worker, lodestar_step* step) {
  RETURN_IF_ERROR(CheckWorker(worker));
  RETURN_IF_ERROR(CheckStep(step));
  ASSIGN_OR_RETURN(const HandedStep handed, worker->session.Extend());
  return TellStep(handed, worker, step);
}

absl::Status TellPass(lodestar_worker* worker, int64_t* pass) {
  RETURN_IF_ERROR(CheckWorker(worker));
  RETURN_IF_ERROR(CheckArgument(pass, "pass"));
  if (!worker->pass.has_value()) {
    return absl::FailedPreconditionError(
        "the pass was asked for, but no training step is open; call lodestar_next() before");
  }
  *pass = *worker->pass;
  return absl::OkStatus();
}

absl::Status PullState(lodestar_worker* worker, int state_vector, float* state, int64_t* updates,
                       int* is_newer) {
  RETURN_IF_ERROR(CheckWorker(worker));
  RETURN_IF_ERROR(CheckArgument(state, "state"));
  RETURN_IF_ERROR(CheckArgument(updates, "updates"));
  RETURN_IF_ERROR(CheckArgument(is_newer, "is_newer"));
  bool newer = false;
  RETURN_IF_ERROR(worker->session.PullState(state_vector, state, updates, &newer));
  *is_newer = newer ? 1 : 0;
  return absl::OkStatus();
}

absl::Status TellPlace(lodestar_worker* worker, int64_t* index, int64_t* count, int* is_first) {
  RETURN_IF_ERROR(CheckWorker(worker));
  RETURN_IF_ERROR(CheckArgument(index, "index"));
  RETURN_IF_ERROR(CheckArgument(count, "count"));
  RETURN_IF_ERROR(CheckArgument(is_first, "is_first"));
  ASSIGN_OR_RETURN(const WorkerPlace place, worker->session.Place());
  *index = place.index;
  *count = place.count;
  *is_first = place.is_first ? 1 : 0;
  return absl::OkStatus();
}

}  // namespace
}  // namespace lodestar::capi

using lodestar::capi::Call;
using lodestar::capi::IsThere;
using lodestar::capi::IsUsable;
using lodestar::capi::Lend;
using lodestar::capi::Report;
using lodestar::capi::WorkerSession;

int lodestar_api_major(void) { return LODESTAR_API_MAJOR; }

int lodestar_api_minor(void) { return LODESTAR_API_MINOR; }

const char* lodestar_version(void) { return Lend(lodestar::process::SoftwareVersion()); }

const char* lodestar_last_error(void) { return lodestar::capi::LastError().c_str(); }

int lodestar_last_code(void) { return lodestar::capi::LastCode(); }

int lodestar_set_log_level(const char* level) {
  const absl::StatusOr<lodestar::logging::LogLevel> parsed =
      lodestar::logging::ParseLogLevel(level == nullptr ? "" : level);
  if (parsed.ok()) lodestar::logging::InitLogging("lodestar", *parsed);
  return Report(parsed.status());
}

uint32_t lodestar_crc32c(const void* data, size_t size) {
  return lodestar::crc32c::Crc32c(data, size);
}

lodestar_worker* lodestar_new(void) {
  // Other set-ups of process_setup.h change the whole process, which belongs to the program.
  lodestar::process::SetUpMutexes();
  lodestar::process::RaiseMallocThresholds();
  return new lodestar_worker();
}

void lodestar_free(lodestar_worker* worker) {
  if (worker == nullptr) return;
  // In a forked process, the worker is not destroyed, because its threads run only in the parent.
  if (worker->session.CheckProcess().ok()) delete worker;
}

int lodestar_set(lodestar_worker* worker, const char* setting, const char* value) {
  if (setting == nullptr || value == nullptr) {
    return Report(absl::InvalidArgumentError("a setting has no name or no value; give both"));
  }
  return Call(worker, &WorkerSession::Set, setting, value);
}

int lodestar_propose(lodestar_worker* worker, const char* setting, const char* value) {
  if (setting == nullptr || value == nullptr) {
    return Report(absl::InvalidArgumentError("a proposal has no name or no value; give both"));
  }
  return Call(worker, &WorkerSession::Propose, setting, value);
}

int lodestar_add_tensor(lodestar_worker* worker, const char* name, const int64_t* shape,
                        int num_dimensions, int block, int decays) {
  return Report(lodestar::capi::AddTensor(worker, name, shape, num_dimensions, block,
                                          {.decays = decays != 0}));
}

int lodestar_add_embedding(lodestar_worker* worker, const char* name, const int64_t* shape,
                           int num_dimensions, int block, int decays) {
  return Report(lodestar::capi::AddTensor(worker, name, shape, num_dimensions, block,
                                          {.decays = decays != 0, .embedding = true}));
}

int lodestar_add_averaged(lodestar_worker* worker, const char* name, const int64_t* shape,
                          int num_dimensions, int block) {
  return Report(
      lodestar::capi::AddTensor(worker, name, shape, num_dimensions, block, {.averaged = true}));
}

int lodestar_set_data(lodestar_worker* worker, const char* fingerprint, int64_t num_train_samples,
                      int64_t num_heldout_samples, int64_t predictions_per_sample, int is_own) {
  return Call(
      worker, &WorkerSession::SetData,
      lodestar::messages::DatasetInfo{.fingerprint = fingerprint == nullptr ? "" : fingerprint,
                                      .num_train_samples = num_train_samples,
                                      .num_heldout_samples = num_heldout_samples,
                                      .tokens_per_sample = predictions_per_sample,
                                      .own_partition = is_own != 0});
}

int lodestar_allocate(lodestar_worker* worker) {
  if (!IsUsable(worker)) return lodestar::capi::LastCode();
  return Report(worker->session.Allocate());
}

float* lodestar_parameters(lodestar_worker* worker) {
  if (!IsThere(worker)) return nullptr;
  auto& vector = worker->session.vectors()->parameters;
  return vector.empty() ? nullptr : vector.data();
}

float* lodestar_gradients(lodestar_worker* worker) {
  if (!IsThere(worker)) return nullptr;
  auto& vector = worker->session.vectors()->gradients;
  return vector.empty() ? nullptr : vector.data();
}

int64_t lodestar_num_elements(lodestar_worker* worker) {
  if (!IsThere(worker)) return 0;
  return static_cast<int64_t>(worker->session.vectors()->parameters.size());
}

int64_t lodestar_offset(lodestar_worker* worker, const char* name) {
  const lodestar::params::TensorSpec* const tensor = lodestar::capi::FindTensor(worker, name);
  return tensor == nullptr ? -1 : tensor->offset;
}

int64_t lodestar_num_blocks(lodestar_worker* worker) {
  if (!IsThere(worker)) return 0;
  const auto& layout = worker->session.layout();
  return layout.has_value() ? layout->num_blocks() : 0;
}

int lodestar_block(lodestar_worker* worker, const char* name) {
  const lodestar::params::TensorSpec* const tensor = lodestar::capi::FindTensor(worker, name);
  return tensor == nullptr ? -1 : tensor->block;
}

int lodestar_start(lodestar_worker* worker) { return Call(worker, &WorkerSession::Start); }

const char* lodestar_job(lodestar_worker* worker, const char* setting) {
  if (!IsUsable(worker)) return nullptr;
  absl::StatusOr<std::string> value = worker->session.JobSetting(setting == nullptr ? "" : setting);
  if (value.ok()) return Lend(*std::move(value));
  Report(value.status());
  return nullptr;
}

int lodestar_place(lodestar_worker* worker, int64_t* index, int64_t* count, int* is_first) {
  return Report(lodestar::capi::TellPlace(worker, index, count, is_first));
}

int lodestar_wait(lodestar_worker* worker, int for_job, int milliseconds) {
  if (!IsUsable(worker)) return 1;  // the call that is waited for would fail at once
  const absl::Duration timeout = absl::Milliseconds(milliseconds);
  return (for_job != 0 ? worker->session.AwaitJob(timeout) : worker->session.AwaitNews(timeout))
             ? 1
             : 0;
}

int lodestar_next(lodestar_worker* worker, lodestar_step* step) {
  return Report(lodestar::capi::Next(worker, step));
}

int64_t lodestar_weights_version(lodestar_worker* worker) {
  if (!IsThere(worker)) return -1;
  return worker->session.weights_version();
}

int lodestar_set_initial_state(lodestar_worker* worker, int state_vector, const float* state,
                               int64_t num_updates) {
  if (state == nullptr) return Report(lodestar::capi::CheckArgument(state, "state"));
  return Call(worker, &WorkerSession::SetInitialState, state_vector, state, num_updates);
}

int lodestar_pull_state(lodestar_worker* worker, int state_vector, float* state, int64_t* updates,
                        int* is_newer) {
  return Report(lodestar::capi::PullState(worker, state_vector, state, updates, is_newer));
}

int lodestar_keep_state(lodestar_worker* worker, int num_vectors) {
  return Call(worker, &WorkerSession::KeepState, num_vectors);
}

int64_t lodestar_evaluation(lodestar_worker* worker, double* loss, double* accuracy) {
  if (!IsUsable(worker)) return -1;
  const lodestar::job::JobLoss last = worker->session.Evaluation();
  if (!last.heldout.has_value()) return -1;
  *loss = *last.heldout;
  *accuracy = last.heldout_accuracy.value_or(std::numeric_limits<double>::quiet_NaN());
  return last.heldout_round.value();
}

int lodestar_expect(lodestar_worker* worker, int ahead, lodestar_step* step) {
  return Report(lodestar::capi::Expect(worker, ahead, step));
}

int lodestar_round_pass(lodestar_worker* worker, int64_t* pass) {
  return Report(lodestar::capi::TellPass(worker, pass));
}

int lodestar_extend(lodestar_worker* worker, lodestar_step* step) {
  return Report(lodestar::capi::Extend(worker, step));
}

int lodestar_keep_samples(lodestar_worker* worker) {
  return Call(worker, &WorkerSession::KeepSamples);
}

int lodestar_set_learning_rate(lodestar_worker* worker, int block, double learning_rate) {
  return Call(worker, &WorkerSession::SetLearningRate, block, learning_rate);
}

int lodestar_set_weight(lodestar_worker* worker, int64_t weight) {
  return Call(worker, &WorkerSession::SetWeight, weight);
}

int lodestar_block_ready(lodestar_worker* worker, int block) {
  return Call(worker, &WorkerSession::BlockReady, block);
}

int lodestar_step_done(lodestar_worker* worker, double loss_sum, int64_t num_correct,
                       int64_t num_predictions) {
  return Call(
      worker, &WorkerSession::FinishStep,
      lodestar::model::BatchResult{
          .loss_sum = loss_sum, .num_correct = num_correct, .num_predictions = num_predictions});
}

int lodestar_log(lodestar_worker* worker, const char* name, double value) {
  return Call(worker, &WorkerSession::Log, name == nullptr ? "" : name, value);
}

int lodestar_step_skipped(lodestar_worker* worker) {
  return Call(worker, &WorkerSession::SkipStep);
}

int lodestar_step_failed(lodestar_worker* worker, const char* why) {
  return Call(worker, &WorkerSession::FinishStep,
              absl::FailedPreconditionError(why == nullptr || *why == '\0'
                                                ? "the program reported that the step failed"
                                                : why));
}

const char* lodestar_state(lodestar_worker* worker) {
  return Lend(IsUsable(worker) ? worker->session.State() : "");
}

int lodestar_stop(lodestar_worker* worker) { return Call(worker, &WorkerSession::Stop); }

int lodestar_leave(lodestar_worker* worker) { return Call(worker, &WorkerSession::Leave); }
