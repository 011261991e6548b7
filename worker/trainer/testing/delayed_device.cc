// SPDX-License-Identifier: Apache-2.0

#include "worker/trainer/testing/delayed_device.h"

#include <cstring>
#include <utility>

#include "kernels/factory/device_factory.h"

namespace lodestar::trainer {

DelayedDevice::DelayedDevice(Order order)
    : order_(order),
      cpu_(*factory::MakeDevice("cpu", 1, nullptr)),
      capabilities_(cpu_->capabilities()) {
  capabilities_.name = "delayed cpu";
  capabilities_.memory_is_host = false;
}

void DelayedDevice::FailAt(kernels::StreamKind stream, int count) {
  absl::MutexLock lock(&mutex_);
  const int index = static_cast<int>(stream);
  fail_at_[index] = num_run_[index] + count;
}

int64_t DelayedDevice::num_run(kernels::StreamKind stream) const {
  absl::MutexLock lock(&mutex_);
  return num_run_[static_cast<int>(stream)];
}

std::vector<std::thread::id> DelayedDevice::waiters() const {
  absl::MutexLock lock(&mutex_);
  return waiters_;
}

absl::StatusOr<void*> DelayedDevice::Allocate(size_t bytes) {
  absl::StatusOr<void*> memory = cpu_->Allocate(bytes);
  // Fills memory with NaN, so that results show if a value is read before it is written.
  if (memory.ok()) std::memset(*memory, 0xff, bytes);
  return memory;
}

kernels::EventId DelayedDevice::Record(kernels::StreamKind stream) {
  absl::MutexLock lock(&mutex_);
  const kernels::EventId event = ++last_event_;
  pending_events_[event] = static_cast<int>(stream);
  queues_[static_cast<int>(stream)].push_back({.work = nullptr, .waits_for = 0, .happens = event});
  if (order_ == Order::kCopiesFirst) RunCopies();
  return event;
}

void DelayedDevice::Wait(kernels::StreamKind stream, kernels::EventId event) {
  absl::MutexLock lock(&mutex_);
  queues_[static_cast<int>(stream)].push_back({.work = nullptr, .waits_for = event, .happens = 0});
}

absl::Status DelayedDevice::Synchronize(kernels::EventId event) {
  absl::MutexLock lock(&mutex_);
  waiters_.push_back(std::this_thread::get_id());
  RunUntil(event);
  return failure_;
}

absl::StatusOr<double> DelayedDevice::SecondsBetween(kernels::EventId from, kernels::EventId to) {
  absl::MutexLock lock(&mutex_);
  RunUntil(from);
  RunUntil(to);
  if (!failure_.ok()) return failure_;
  return static_cast<double>(event_times_.at(to) - event_times_.at(from));
}

bool DelayedDevice::HasHappened(kernels::EventId event) const {
  return pending_events_.count(event) == 0;
}

void DelayedDevice::RunNext(int stream) {
  const Item item = std::move(queues_[stream].front());
  queues_[stream].pop_front();
  if (item.waits_for != 0) RunUntil(item.waits_for);
  if (item.happens != 0) {
    pending_events_.erase(item.happens);
    event_times_[item.happens] = num_run_[0] + num_run_[1] + num_run_[2];
  }
  if (item.work == nullptr) return;
  if (++num_run_[stream] == fail_at_[stream]) {
    failure_.Update(absl::InternalError("delayed cpu: this work was made to fail"));
  }
  if (failure_.ok()) item.work(cpu_.get());
}

void DelayedDevice::RunUntil(kernels::EventId event) {
  while (!HasHappened(event)) RunNext(pending_events_.at(event));
}

void DelayedDevice::RunCopies() {
  for (const kernels::StreamKind kind :
       {kernels::StreamKind::kHostToDevice, kernels::StreamKind::kDeviceToHost}) {
    const int stream = static_cast<int>(kind);
    std::deque<Item>& queue = queues_[stream];
    while (!queue.empty() && HasHappened(queue.front().waits_for)) RunNext(stream);
  }
}

template <typename... Params>
void DelayedDevice::Queue(kernels::StreamKind stream, void (Device::*operation)(Params...),
                          std::decay_t<Params>... arguments) {
  absl::MutexLock lock(&mutex_);
  queues_[static_cast<int>(stream)].push_back(
      {.work = [=](kernels::Device* cpu) { (cpu->*operation)(arguments...); },
       .waits_for = 0,
       .happens = 0});
  if (order_ == Order::kCopiesFirst) RunCopies();
}

template <typename... Params>
void DelayedDevice::Compute(void (Device::*operation)(Params...),
                            std::decay_t<Params>... arguments) {
  Queue(kernels::StreamKind::kCompute, operation, arguments...);
}

void DelayedDevice::Copy(void* destination, const void* source, size_t bytes,
                         kernels::StreamKind stream) {
  Queue(stream, &kernels::Device::Copy, destination, source, bytes, stream);
}
void DelayedDevice::Fill(kernels::Buf y, double value) {
  Compute(&kernels::Device::Fill, y, value);
}
void DelayedDevice::Cast(kernels::Buf y, kernels::Buf x, double scale, kernels::StreamKind stream) {
  Queue(stream, &kernels::Device::Cast, y, x, scale, stream);
}
void DelayedDevice::AddScaled(kernels::Buf y, kernels::Buf x, double a) {
  Compute(&kernels::Device::AddScaled, y, x, a);
}
void DelayedDevice::Subtract(kernels::Buf z, kernels::Buf x, kernels::Buf y) {
  Compute(&kernels::Device::Subtract, z, x, y);
}
void DelayedDevice::SumOfSquares(kernels::Buf sum, kernels::Buf x) {
  Compute(&kernels::Device::SumOfSquares, sum, x);
}
void DelayedDevice::Encode(params::Encoding encoding, void* encoded, kernels::Buf values,
                           float scale, kernels::Buf residual, const kernels::Rounding& rounding,
                           kernels::StreamKind stream) {
  Queue(stream, &kernels::Device::Encode, encoding, encoded, values, scale, residual, rounding,
        stream);
}
void DelayedDevice::UpdateResidual(params::Encoding encoding, kernels::Buf residual,
                                   kernels::Buf values, float scale, const void* encoded,
                                   float decay, kernels::StreamKind stream) {
  Queue(stream, &kernels::Device::UpdateResidual, encoding, residual, values, scale, encoded, decay,
        stream);
}
void DelayedDevice::Activate(kernels::Buf y, kernels::Buf x, kernels::Activation activation) {
  Compute(&kernels::Device::Activate, y, x, activation);
}
void DelayedDevice::Dropout(kernels::Buf y, kernels::Buf x, const kernels::DropoutMask& mask) {
  Compute(&kernels::Device::Dropout, y, x, mask);
}
void DelayedDevice::MatMul(const kernels::MatMulShape& shape, kernels::Buf c, kernels::Buf a,
                           kernels::Buf b, kernels::Accumulate accumulate) {
  Compute(&kernels::Device::MatMul, shape, c, a, b, accumulate);
}
void DelayedDevice::LinearForward(kernels::Buf y, kernels::Buf pre_activation, kernels::Buf x,
                                  kernels::Buf w, kernels::Buf bias, int64_t rows, int64_t in,
                                  int64_t out, kernels::Activation activation,
                                  kernels::WeightOrder order) {
  Compute(&kernels::Device::LinearForward, y, pre_activation, x, w, bias, rows, in, out, activation,
          order);
}
void DelayedDevice::LinearBackward(kernels::Buf dx, kernels::Buf dw, kernels::Buf db,
                                   kernels::Buf dy, kernels::Buf pre_activation, kernels::Buf x,
                                   kernels::Buf w, int64_t rows, int64_t in, int64_t out,
                                   kernels::Activation activation, kernels::WeightOrder order,
                                   kernels::Accumulate weights) {
  Compute(&kernels::Device::LinearBackward, dx, dw, db, dy, pre_activation, x, w, rows, in, out,
          activation, order, weights);
}
void DelayedDevice::LinearBackwardInput(kernels::Buf dx, kernels::Buf db, kernels::Buf dy,
                                        kernels::Buf pre_activation, kernels::Buf w, int64_t rows,
                                        int64_t in, int64_t out, kernels::Activation activation,
                                        kernels::WeightOrder order, kernels::Accumulate weights) {
  Compute(&kernels::Device::LinearBackwardInput, dx, db, dy, pre_activation, w, rows, in, out,
          activation, order, weights);
}
void DelayedDevice::ResidualNormForward(kernels::Buf y, kernels::Buf sum, kernels::Buf mean,
                                        kernels::Buf rstd, kernels::Buf a, kernels::Buf b,
                                        kernels::Buf gamma, kernels::Buf beta, int64_t rows,
                                        int64_t width) {
  Compute(&kernels::Device::ResidualNormForward, y, sum, mean, rstd, a, b, gamma, beta, rows,
          width);
}
void DelayedDevice::NormBackward(kernels::Buf dx, kernels::Buf dgamma, kernels::Buf dbeta,
                                 kernels::Buf dy, kernels::Buf sum, kernels::Buf mean,
                                 kernels::Buf rstd, kernels::Buf gamma, int64_t rows, int64_t width,
                                 kernels::Accumulate input, kernels::Accumulate weights) {
  Compute(&kernels::Device::NormBackward, dx, dgamma, dbeta, dy, sum, mean, rstd, gamma, rows,
          width, input, weights);
}
int64_t DelayedDevice::AttentionWorkspaceElements(const kernels::AttentionShape& shape) {
  return cpu_->AttentionWorkspaceElements(shape);
}
void DelayedDevice::AttentionForward(kernels::Buf y, kernels::Buf log_sum_exp, kernels::Buf qkv,
                                     kernels::Buf workspace, const kernels::AttentionShape& shape) {
  Compute(&kernels::Device::AttentionForward, y, log_sum_exp, qkv, workspace, shape);
}
void DelayedDevice::AttentionBackward(kernels::Buf dqkv, kernels::Buf dy, kernels::Buf y,
                                      kernels::Buf log_sum_exp, kernels::Buf qkv,
                                      kernels::Buf workspace,
                                      const kernels::AttentionShape& shape) {
  Compute(&kernels::Device::AttentionBackward, dqkv, dy, y, log_sum_exp, qkv, workspace, shape);
}
void DelayedDevice::EmbedForward(kernels::Buf y, kernels::Buf tokens, kernels::Buf token_table,
                                 kernels::Buf position_table, int64_t rows, int64_t context_tokens,
                                 int64_t width) {
  Compute(&kernels::Device::EmbedForward, y, tokens, token_table, position_table, rows,
          context_tokens, width);
}
void DelayedDevice::EmbedBackward(kernels::Buf dtoken_table, kernels::Buf dposition_table,
                                  kernels::Buf dy, kernels::Buf tokens, int64_t rows,
                                  int64_t context_tokens, int64_t width, int64_t vocabulary) {
  Compute(&kernels::Device::EmbedBackward, dtoken_table, dposition_table, dy, tokens, rows,
          context_tokens, width, vocabulary);
}
void DelayedDevice::SoftmaxCrossEntropy(kernels::Buf losses, kernels::Buf correct,
                                        kernels::Buf logits, kernels::Buf targets, int64_t rows,
                                        int64_t classes, int64_t row_stride, double scale) {
  Compute(&kernels::Device::SoftmaxCrossEntropy, losses, correct, logits, targets, rows, classes,
          row_stride, scale);
}
int64_t DelayedDevice::ConvWorkspaceElements(const kernels::ConvShape& shape) {
  return cpu_->ConvWorkspaceElements(shape);
}
void DelayedDevice::ConvReluForward(kernels::Buf y, kernels::Buf x, kernels::Buf w,
                                    kernels::Buf bias, kernels::Buf workspace,
                                    const kernels::ConvShape& shape) {
  Compute(&kernels::Device::ConvReluForward, y, x, w, bias, workspace, shape);
}
void DelayedDevice::ConvReluBackward(kernels::Buf dx, kernels::Buf dw, kernels::Buf db,
                                     kernels::Buf dy, kernels::Buf y, kernels::Buf x,
                                     kernels::Buf w, kernels::Buf workspace,
                                     const kernels::ConvShape& shape, kernels::Accumulate weights) {
  Compute(&kernels::Device::ConvReluBackward, dx, dw, db, dy, y, x, w, workspace, shape, weights);
}
void DelayedDevice::MaxPoolForward(kernels::Buf y, kernels::Buf argmax, kernels::Buf x,
                                   int64_t planes, int64_t height, int64_t width) {
  Compute(&kernels::Device::MaxPoolForward, y, argmax, x, planes, height, width);
}
void DelayedDevice::MaxPoolBackward(kernels::Buf dx, kernels::Buf dy, kernels::Buf argmax,
                                    int64_t planes, int64_t height, int64_t width) {
  Compute(&kernels::Device::MaxPoolBackward, dx, dy, argmax, planes, height, width);
}
void DelayedDevice::MomentumUpdate(kernels::Buf weights, kernels::Buf state, kernels::Buf gradient,
                                   kernels::Buf narrow, const kernels::MomentumStep& step) {
  Compute(&kernels::Device::MomentumUpdate, weights, state, gradient, narrow, step);
}
void DelayedDevice::AdamWUpdate(kernels::Buf weights, kernels::Buf first_moment,
                                kernels::Buf second_moment, kernels::Buf gradient,
                                kernels::Buf narrow, const kernels::AdamWStep& step) {
  Compute(&kernels::Device::AdamWUpdate, weights, first_moment, second_moment, gradient, narrow,
          step);
}

}  // namespace lodestar::trainer
