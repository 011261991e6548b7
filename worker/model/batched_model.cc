// SPDX-License-Identifier: Apache-2.0

#include "worker/model/batched_model.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/runtime/status_macros.h"

namespace lodestar::model {
namespace {

// Size of the elements of tokens, features and targets of a HostBatch.
constexpr int64_t kHostElementBytes = 4;

size_t NumBytes(const kernels::Buf& buf, int64_t num_elements) {
  return static_cast<size_t>(num_elements) * kernels::DTypeBytes(buf.dtype);
}

absl::Status CheckSize(const std::string& model, const char* what, size_t size, int64_t want,
                       const data::HostBatch& batch) {
  if (static_cast<int64_t>(size) == want) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      params::ModelInWords(model), " needs ", want, " ", what, " for ", batch.num_samples,
      " samples, but the batch has ", size, "; give data that fit the model"));
}

absl::Status CheckRange(const std::string& model, const char* what,
                        const std::vector<int32_t>& values, int64_t limit) {
  const auto bad = std::find_if(values.begin(), values.end(),
                                [limit](int32_t value) { return value < 0 || value >= limit; });
  if (bad == values.end()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      params::ModelInWords(model), " has ", what, " 0 to ", limit - 1, ", but the batch has ", *bad,
      " at position ", bad - values.begin(), "; give data that fit the model"));
}

template <typename T>
double SumOf(const void* values, int64_t count) {
  const T* begin = static_cast<const T*>(values);
  double sum = 0.0;
  for (int64_t i = 0; i < count; ++i) sum += static_cast<double>(begin[i]);
  return sum;
}

// Maximum model size for graphs: 16 MB of weights. gpt-nano, the MLPs and the CNNs are smaller. In
// a larger model, computing takes longer than launching the kernels. A larger model gains more if
// blocks are pulled and pushed during the step. This is impossible with a graph, because a graph
// runs as one piece.
constexpr int64_t kMostElementsForGraph = 4 << 20;

SampleShape WithStride(SampleShape sample) {
  if (sample.logits_stride == 0) sample.logits_stride = sample.classes;
  return sample;
}

}  // namespace

BatchedModel::BatchedModel(const ModelConfig& config, const SampleShape& sample,
                           std::unique_ptr<ParameterArena> parameter_arena, kernels::Device* device)
    : name_(config.spec.name),
      sample_(WithStride(sample)),
      max_batch_(config.max_batch),
      device_(device),
      parameter_arena_(std::move(parameter_arena)) {
  PlanBatchBuffers();
  if (device->supports_graphs() && !sample.has_dropout &&
      layout().num_elements() <= kMostElementsForGraph) {
    graphs_ = std::make_unique<StepGraphs>(device);
  }
}

void BatchedModel::RefreshNarrowParameters() {
  parameter_arena_->RefreshNarrowParameters({0, layout().num_elements()}, device_);
}

void BatchedModel::PlanBatchBuffers() {
  const int64_t inputs = max_batch_ * sample_.inputs;
  const int64_t predictions = max_batch_ * sample_.predictions;
  if (sample_.token_limit > 0) {
    activation_arena_.Plan(&inputs_, inputs, kernels::DType::kI32);
  } else {
    activation_arena_.Plan(&inputs_, inputs, dtype());
    if (dtype() != kernels::DType::kF32)
      activation_arena_.Plan(&staged_features_, inputs, kernels::DType::kF32);
  }
  activation_arena_.Plan(&targets_, predictions, kernels::DType::kI32);
  activation_arena_.Plan(&logits_, predictions * sample_.logits_stride, dtype());
  activation_arena_.Plan(&losses_, predictions, kernels::StatisticsDType(dtype()));
  activation_arena_.Plan(&correct_, predictions, kernels::DType::kI32);
}

int64_t BatchedModel::ResultBytes() const {
  const size_t bytes_each = kernels::DTypeBytes(kernels::StatisticsDType(dtype())) +
                            kernels::DTypeBytes(kernels::DType::kI32);  // losses_ and correct_
  return max_batch_ * sample_.predictions * static_cast<int64_t>(bytes_each);
}

int64_t BatchedModel::BatchBytes() const {
  return max_batch_ * (sample_.inputs + sample_.predictions) * kHostElementBytes;
}

int64_t BatchedModel::pinned_bytes() const {
  return device_->capabilities().memory_is_host ? 0 : ResultBytes() + BatchBytes();
}

absl::Status BatchedModel::AllocateActivations() {
  RETURN_IF_ERROR(
      activation_arena_.Allocate(absl::StrCat(name_, " for ", max_batch_, " samples"), device_));
  ASSIGN_OR_RETURN(host_results_, DeviceMemory::AllocateHost(device_, ResultBytes()));
  if (device_->capabilities().memory_is_host) return absl::OkStatus();
  ASSIGN_OR_RETURN(pinned_batch_, DeviceMemory::AllocateHost(device_, BatchBytes()));
  return absl::OkStatus();
}

absl::Status BatchedModel::WaitForBlock(WeightsGate* gate, int block) {
  if (gate == nullptr) return absl::OkStatus();
  RETURN_IF_ERROR(gate->WaitForBlock(block));
  parameter_arena_->RefreshNarrowParameters(layout().block(block), device_);
  return absl::OkStatus();
}

absl::Status BatchedModel::WaitForParts(WeightsGate* gate, int block,
                                        absl::Span<const params::ElementRange> parts) {
  if (gate == nullptr) return absl::OkStatus();
  RETURN_IF_ERROR(gate->WaitForParts(block, parts));
  RefreshNarrowParameters(parts);
  return absl::OkStatus();
}

absl::Status BatchedModel::WaitForRest(WeightsGate* gate, int block,
                                       absl::Span<const params::ElementRange> rest) {
  if (gate == nullptr) return absl::OkStatus();
  RETURN_IF_ERROR(gate->WaitForBlock(block));
  RefreshNarrowParameters(rest);
  return absl::OkStatus();
}

void BatchedModel::RefreshNarrowParameters(absl::Span<const params::ElementRange> ranges) {
  for (const params::ElementRange& range : ranges) {
    parameter_arena_->RefreshNarrowParameters(range, device_);
  }
}

absl::Status BatchedModel::ReportBlock(GradientSink* sink, int block) {
  return sink == nullptr ? absl::OkStatus() : sink->BlockReady(block);
}

absl::Status BatchedModel::ReportParts(GradientSink* sink, int block,
                                       absl::Span<const params::ElementRange> parts) {
  return sink == nullptr ? absl::OkStatus() : sink->PartsReady(block, parts);
}

absl::StatusOr<BatchResult> BatchedModel::TrainStep(const data::HostBatch& batch, WeightsGate* gate,
                                                    GradientSink* sink) {
  RETURN_IF_ERROR(CheckBatch(batch));
  OnBatch(batch);
  // The loss is a mean over the whole batch. So all micro-batches have the same scale, and their
  // gradients can be added.
  const double scale = 1.0 / static_cast<double>(batch.MeanOver());
  BatchResult result;
  for (int64_t begin = 0; begin < batch.num_samples; begin += max_batch_) {
    const int64_t samples = std::min(max_batch_, batch.num_samples - begin);
    const bool is_first = begin == 0;
    const bool is_last = begin + samples == batch.num_samples;
    Upload(batch, begin, samples);
    const Pass pass{samples, batch.first_position + begin, /*is_training=*/true};
    ASSIGN_OR_RETURN(
        const kernels::EventId losses_copied,
        TrainMicroBatch(pass, scale,
                        is_first ? kernels::Accumulate::kSet : kernels::Accumulate::kAdd,
                        is_first ? gate : nullptr, is_last ? sink : nullptr));
    RETURN_IF_ERROR(ReadLosses(losses_copied, samples, /*correct=*/{}, &result));
  }
  return result;
}

absl::StatusOr<kernels::EventId> BatchedModel::TrainMicroBatch(const Pass& pass, double scale,
                                                               kernels::Accumulate weights,
                                                               WeightsGate* gate,
                                                               GradientSink* sink) {
  if (graphs_ != nullptr) return TrainAsGraph(pass, scale, weights, gate, sink);
  RETURN_IF_ERROR(Forward(pass, gate));
  ComputeLoss(pass.samples, /*correct=*/{}, scale);
  const kernels::EventId losses_copied = CopyLossesToHost(pass.samples, /*correct=*/{});
  if (sink != nullptr) sink->BackwardBegins();
  RETURN_IF_ERROR(Backward(pass, weights, sink));
  return losses_copied;
}

absl::StatusOr<kernels::EventId> BatchedModel::TrainAsGraph(const Pass& pass, double scale,
                                                            kernels::Accumulate weights,
                                                            WeightsGate* gate, GradientSink* sink) {
  for (int block = 0; block < layout().num_blocks(); ++block) {
    RETURN_IF_ERROR(WaitForBlock(gate, block));
  }
  if (sink != nullptr) sink->BackwardBegins();
  RETURN_IF_ERROR(graphs_->Run({pass.samples, weights, scale}, [&] {
    RETURN_IF_ERROR(Forward(pass, /*gate=*/nullptr));
    ComputeLoss(pass.samples, /*correct=*/{}, scale);
    return Backward(pass, weights, /*sink=*/nullptr);
  }));
  const kernels::EventId losses_copied = CopyLossesToHost(pass.samples, /*correct=*/{});
  for (int block = layout().num_blocks() - 1; block >= 0; --block) {
    RETURN_IF_ERROR(ReportBlock(sink, block));
  }
  return losses_copied;
}

absl::StatusOr<BatchResult> BatchedModel::Evaluate(const data::HostBatch& batch,
                                                   WeightsGate* gate) {
  RETURN_IF_ERROR(CheckBatch(batch));
  OnBatch(batch);
  BatchResult result;
  for (int64_t begin = 0; begin < batch.num_samples; begin += max_batch_) {
    const int64_t samples = std::min(max_batch_, batch.num_samples - begin);
    Upload(batch, begin, samples);
    RETURN_IF_ERROR(Forward({.samples = samples}, begin == 0 ? gate : nullptr));
    ComputeLoss(samples, correct_, /*scale=*/0.0);
    RETURN_IF_ERROR(ReadLosses(CopyLossesToHost(samples, correct_), samples, correct_, &result));
  }
  return result;
}

absl::Status BatchedModel::CheckBatch(const data::HostBatch& batch) const {
  if (batch.num_samples < 1) {
    return absl::InvalidArgumentError(absl::StrCat(params::ModelInWords(name_), " got a batch of ",
                                                   batch.num_samples,
                                                   " samples; it needs at least 1"));
  }
  RETURN_IF_ERROR(CheckSizes(batch));
  if (sample_.token_limit > 0) {
    RETURN_IF_ERROR(CheckRange(name_, "tokens", batch.tokens, sample_.token_limit));
  }
  return CheckRange(name_, "classes", batch.targets, sample_.classes);
}

absl::Status BatchedModel::CheckSizes(const data::HostBatch& batch) const {
  const bool takes_tokens = sample_.token_limit > 0;
  const int64_t inputs = batch.num_samples * sample_.inputs;
  RETURN_IF_ERROR(
      CheckSize(name_, "tokens", batch.tokens.size(), takes_tokens ? inputs : 0, batch));
  RETURN_IF_ERROR(
      CheckSize(name_, "features", batch.features.size(), takes_tokens ? 0 : inputs, batch));
  return CheckSize(name_, "targets", batch.targets.size(), batch.num_samples * sample_.predictions,
                   batch);
}

void BatchedModel::Upload(const data::HostBatch& batch, int64_t begin, int64_t samples) {
  const int64_t first = begin * sample_.inputs;
  const int64_t count = samples * sample_.inputs;
  if (sample_.token_limit > 0) {
    CopyToDevice(inputs_, batch.tokens.data() + first, count, 0);
  } else if (!staged_features_) {
    CopyToDevice(inputs_, batch.features.data() + first, count, 0);
  } else {
    CopyToDevice(staged_features_, batch.features.data() + first, count, 0);
    device_->Cast(inputs_.Slice(0, count), staged_features_.Slice(0, count), 1.0,
                  kernels::StreamKind::kCompute);
  }
  CopyToDevice(targets_, batch.targets.data() + begin * sample_.predictions,
               samples * sample_.predictions, count * kHostElementBytes);
}

void BatchedModel::CopyToDevice(kernels::Buf to, const void* from, int64_t count,
                                int64_t pinned_place) {
  const size_t bytes = NumBytes(to, count);
  if (pinned_batch_.data() != nullptr) {
    from = std::memcpy(static_cast<char*>(pinned_batch_.data()) + pinned_place, from, bytes);
  }
  // The copy is queued on the compute stream, because backward of the previous micro-batch still
  // reads the buffers.
  device_->Copy(to.data, from, bytes, kernels::StreamKind::kCompute);
}

void BatchedModel::ComputeLoss(int64_t samples, kernels::Buf correct, double scale) {
  device_->SoftmaxCrossEntropy(losses_, correct, logits_, targets_, samples * sample_.predictions,
                               sample_.classes, sample_.logits_stride, scale);
}

kernels::EventId BatchedModel::CopyLossesToHost(int64_t samples, kernels::Buf correct) {
  const int64_t predictions = samples * sample_.predictions;
  device_->Wait(kernels::StreamKind::kDeviceToHost, device_->Record(kernels::StreamKind::kCompute));
  char* host = static_cast<char*>(host_results_.data());
  const size_t loss_bytes = NumBytes(losses_, predictions);
  device_->Copy(host, losses_.data, loss_bytes, kernels::StreamKind::kDeviceToHost);
  if (correct) {
    device_->Copy(host + loss_bytes, correct.data, NumBytes(correct, predictions),
                  kernels::StreamKind::kDeviceToHost);
  }
  return device_->Record(kernels::StreamKind::kDeviceToHost);
}

absl::Status BatchedModel::ReadLosses(kernels::EventId losses_copied, int64_t samples,
                                      kernels::Buf correct, BatchResult* result) {
  RETURN_IF_ERROR(device_->Synchronize(losses_copied));
  const int64_t predictions = samples * sample_.predictions;
  const char* host = static_cast<const char*>(host_results_.data());
  result->loss_sum += losses_.dtype == kernels::DType::kF64 ? SumOf<double>(host, predictions)
                                                            : SumOf<float>(host, predictions);
  if (correct) {
    result->num_correct +=
        static_cast<int64_t>(SumOf<int32_t>(host + NumBytes(losses_, predictions), predictions));
  }
  result->num_predictions += predictions;
  return absl::OkStatus();
}

}  // namespace lodestar::model
