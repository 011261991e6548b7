#include "worker/trainer/testing/delayed_device.h"

#include <cstring>
#include <utility>

#include "kernels/factory/device_factory.h"

namespace lodestar {

DelayedDevice::DelayedDevice(Order order)
    : order_(order), cpu_(*MakeDevice("cpu", 1, nullptr)), capabilities_(cpu_->capabilities()) {
  capabilities_.name = "delayed cpu";
  capabilities_.memory_is_host = false;
}

void DelayedDevice::FailAt(StreamKind stream, int count) {
  absl::MutexLock lock(&mutex_);
  const int index = static_cast<int>(stream);
  fail_at_[index] = num_run_[index] + count;
}

int64_t DelayedDevice::num_run(StreamKind stream) const {
  absl::MutexLock lock(&mutex_);
  return num_run_[static_cast<int>(stream)];
}

std::vector<std::thread::id> DelayedDevice::waiters() const {
  absl::MutexLock lock(&mutex_);
  return waiters_;
}

absl::StatusOr<void*> DelayedDevice::Allocate(size_t bytes) {
  absl::StatusOr<void*> memory = cpu_->Allocate(bytes);
  // NaN, so that values read before they are written show.
  if (memory.ok()) std::memset(*memory, 0xff, bytes);
  return memory;
}

EventId DelayedDevice::Record(StreamKind stream) {
  absl::MutexLock lock(&mutex_);
  const EventId event = ++last_event_;
  pending_events_[event] = static_cast<int>(stream);
  queues_[static_cast<int>(stream)].push_back({.work = nullptr, .waits_for = 0, .happens = event});
  if (order_ == Order::kCopiesFirst) RunCopies();
  return event;
}

void DelayedDevice::Wait(StreamKind stream, EventId event) {
  absl::MutexLock lock(&mutex_);
  queues_[static_cast<int>(stream)].push_back({.work = nullptr, .waits_for = event, .happens = 0});
}

absl::Status DelayedDevice::Synchronize(EventId event) {
  absl::MutexLock lock(&mutex_);
  waiters_.push_back(std::this_thread::get_id());
  RunUntil(event);
  return failure_;
}

absl::StatusOr<double> DelayedDevice::SecondsBetween(EventId from, EventId to) {
  absl::MutexLock lock(&mutex_);
  RunUntil(from);
  RunUntil(to);
  if (!failure_.ok()) return failure_;
  return static_cast<double>(event_times_.at(to) - event_times_.at(from));
}

bool DelayedDevice::HasHappened(EventId event) const { return pending_events_.count(event) == 0; }

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

void DelayedDevice::RunUntil(EventId event) {
  while (!HasHappened(event)) RunNext(pending_events_.at(event));
}

void DelayedDevice::RunCopies() {
  for (const StreamKind kind : {StreamKind::kHostToDevice, StreamKind::kDeviceToHost}) {
    const int stream = static_cast<int>(kind);
    std::deque<Item>& queue = queues_[stream];
    while (!queue.empty() && HasHappened(queue.front().waits_for)) RunNext(stream);
  }
}

template <typename... Params>
void DelayedDevice::Queue(StreamKind stream, void (Device::*operation)(Params...),
                          std::decay_t<Params>... arguments) {
  absl::MutexLock lock(&mutex_);
  queues_[static_cast<int>(stream)].push_back(
      {.work = [=](Device* cpu) { (cpu->*operation)(arguments...); },
       .waits_for = 0,
       .happens = 0});
  if (order_ == Order::kCopiesFirst) RunCopies();
}

template <typename... Params>
void DelayedDevice::Compute(void (Device::*operation)(Params...),
                            std::decay_t<Params>... arguments) {
  Queue(StreamKind::kCompute, operation, arguments...);
}

void DelayedDevice::Copy(void* destination, const void* source, size_t bytes, StreamKind stream) {
  Queue(stream, &Device::Copy, destination, source, bytes, stream);
}
void DelayedDevice::Fill(Buf y, double value) { Compute(&Device::Fill, y, value); }
void DelayedDevice::Cast(Buf y, Buf x, double scale, StreamKind stream) {
  Queue(stream, &Device::Cast, y, x, scale, stream);
}
void DelayedDevice::AddScaled(Buf y, Buf x, double a) { Compute(&Device::AddScaled, y, x, a); }
void DelayedDevice::Subtract(Buf z, Buf x, Buf y) { Compute(&Device::Subtract, z, x, y); }
void DelayedDevice::SumOfSquares(Buf sum, Buf x) { Compute(&Device::SumOfSquares, sum, x); }
void DelayedDevice::Encode(Encoding encoding, void* encoded, Buf values, float scale, Buf residual,
                           const Rounding& rounding, StreamKind stream) {
  Queue(stream, &Device::Encode, encoding, encoded, values, scale, residual, rounding, stream);
}
void DelayedDevice::UpdateResidual(Encoding encoding, Buf residual, Buf values, float scale,
                                   const void* encoded, float decay, StreamKind stream) {
  Queue(stream, &Device::UpdateResidual, encoding, residual, values, scale, encoded, decay, stream);
}
void DelayedDevice::Activate(Buf y, Buf x, Activation activation) {
  Compute(&Device::Activate, y, x, activation);
}
void DelayedDevice::Dropout(Buf y, Buf x, const DropoutMask& mask) {
  Compute(&Device::Dropout, y, x, mask);
}
void DelayedDevice::MatMul(const MatMulShape& shape, Buf c, Buf a, Buf b, Accumulate accumulate) {
  Compute(&Device::MatMul, shape, c, a, b, accumulate);
}
void DelayedDevice::LinearForward(Buf y, Buf pre_activation, Buf x, Buf w, Buf bias, int64_t rows,
                                  int64_t in, int64_t out, Activation activation,
                                  WeightOrder order) {
  Compute(&Device::LinearForward, y, pre_activation, x, w, bias, rows, in, out, activation, order);
}
void DelayedDevice::LinearBackward(Buf dx, Buf dw, Buf db, Buf dy, Buf pre_activation, Buf x, Buf w,
                                   int64_t rows, int64_t in, int64_t out, Activation activation,
                                   WeightOrder order, Accumulate weights) {
  Compute(&Device::LinearBackward, dx, dw, db, dy, pre_activation, x, w, rows, in, out, activation,
          order, weights);
}
void DelayedDevice::LinearBackwardInput(Buf dx, Buf db, Buf dy, Buf pre_activation, Buf w,
                                        int64_t rows, int64_t in, int64_t out,
                                        Activation activation, WeightOrder order,
                                        Accumulate weights) {
  Compute(&Device::LinearBackwardInput, dx, db, dy, pre_activation, w, rows, in, out, activation,
          order, weights);
}
void DelayedDevice::ResidualNormForward(Buf y, Buf sum, Buf mean, Buf rstd, Buf a, Buf b, Buf gamma,
                                        Buf beta, int64_t rows, int64_t width) {
  Compute(&Device::ResidualNormForward, y, sum, mean, rstd, a, b, gamma, beta, rows, width);
}
void DelayedDevice::NormBackward(Buf dx, Buf dgamma, Buf dbeta, Buf dy, Buf sum, Buf mean, Buf rstd,
                                 Buf gamma, int64_t rows, int64_t width, Accumulate input,
                                 Accumulate weights) {
  Compute(&Device::NormBackward, dx, dgamma, dbeta, dy, sum, mean, rstd, gamma, rows, width, input,
          weights);
}
int64_t DelayedDevice::AttentionWorkspaceElements(const AttentionShape& shape) {
  return cpu_->AttentionWorkspaceElements(shape);
}
void DelayedDevice::AttentionForward(Buf y, Buf log_sum_exp, Buf qkv, Buf workspace,
                                     const AttentionShape& shape) {
  Compute(&Device::AttentionForward, y, log_sum_exp, qkv, workspace, shape);
}
void DelayedDevice::AttentionBackward(Buf dqkv, Buf dy, Buf y, Buf log_sum_exp, Buf qkv,
                                      Buf workspace, const AttentionShape& shape) {
  Compute(&Device::AttentionBackward, dqkv, dy, y, log_sum_exp, qkv, workspace, shape);
}
void DelayedDevice::EmbedForward(Buf y, Buf tokens, Buf token_table, Buf position_table,
                                 int64_t rows, int64_t context_tokens, int64_t width) {
  Compute(&Device::EmbedForward, y, tokens, token_table, position_table, rows, context_tokens,
          width);
}
void DelayedDevice::EmbedBackward(Buf dtoken_table, Buf dposition_table, Buf dy, Buf tokens,
                                  int64_t rows, int64_t context_tokens, int64_t width,
                                  int64_t vocabulary) {
  Compute(&Device::EmbedBackward, dtoken_table, dposition_table, dy, tokens, rows, context_tokens,
          width, vocabulary);
}
void DelayedDevice::SoftmaxCrossEntropy(Buf losses, Buf correct, Buf logits, Buf targets,
                                        int64_t rows, int64_t classes, int64_t row_stride,
                                        double scale) {
  Compute(&Device::SoftmaxCrossEntropy, losses, correct, logits, targets, rows, classes, row_stride,
          scale);
}
int64_t DelayedDevice::ConvWorkspaceElements(const ConvShape& shape) {
  return cpu_->ConvWorkspaceElements(shape);
}
void DelayedDevice::ConvReluForward(Buf y, Buf x, Buf w, Buf bias, Buf workspace,
                                    const ConvShape& shape) {
  Compute(&Device::ConvReluForward, y, x, w, bias, workspace, shape);
}
void DelayedDevice::ConvReluBackward(Buf dx, Buf dw, Buf db, Buf dy, Buf y, Buf x, Buf w,
                                     Buf workspace, const ConvShape& shape, Accumulate weights) {
  Compute(&Device::ConvReluBackward, dx, dw, db, dy, y, x, w, workspace, shape, weights);
}
void DelayedDevice::MaxPoolForward(Buf y, Buf argmax, Buf x, int64_t planes, int64_t height,
                                   int64_t width) {
  Compute(&Device::MaxPoolForward, y, argmax, x, planes, height, width);
}
void DelayedDevice::MaxPoolBackward(Buf dx, Buf dy, Buf argmax, int64_t planes, int64_t height,
                                    int64_t width) {
  Compute(&Device::MaxPoolBackward, dx, dy, argmax, planes, height, width);
}
void DelayedDevice::MomentumUpdate(Buf weights, Buf state, Buf gradient, Buf narrow,
                                   const MomentumStep& step) {
  Compute(&Device::MomentumUpdate, weights, state, gradient, narrow, step);
}
void DelayedDevice::AdamWUpdate(Buf weights, Buf first_moment, Buf second_moment, Buf gradient,
                                Buf narrow, const AdamWStep& step) {
  Compute(&Device::AdamWUpdate, weights, first_moment, second_moment, gradient, narrow, step);
}

}  // namespace lodestar
