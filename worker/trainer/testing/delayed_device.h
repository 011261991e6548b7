// DelayedDevice: the CPU device behind streams that run as late as they may, with host memory of
// its own as a GPU has: what lacks an event computes from old values, and shows as another result.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "kernels/device.h"

namespace lodestar {

class DelayedDevice final : public Device {
 public:
  enum class Order : uint8_t {
    kLate,         // nothing runs before somebody waits for it
    kCopiesFirst,  // copies run as soon as events allow, ahead of all that is computed
  };

  explicit DelayedDevice(Order order);

  // From here on the `count`-th piece of work of the stream fails, and with it the device.
  void FailAt(StreamKind stream, int count);
  // Pieces of work that have run.
  int64_t num_run(StreamKind stream) const;
  // Who called Synchronize(), in order.
  std::vector<std::thread::id> waiters() const;

  const DeviceCapabilities& capabilities() const override { return capabilities_; }
  absl::StatusOr<void*> Allocate(size_t bytes) override;
  void Release(void* memory) override { cpu_->Release(memory); }
  size_t FreeMemoryBytes() override { return cpu_->FreeMemoryBytes(); }
  absl::StatusOr<void*> AllocateHost(size_t bytes) override { return Allocate(bytes); }
  void ReleaseHost(void* memory) override { Release(memory); }
  EventId Record(StreamKind stream) override;
  void Wait(StreamKind stream, EventId event) override;
  absl::Status Synchronize(EventId event) override;
  // A second per piece of work that ran between them, on whatever stream.
  absl::StatusOr<double> SecondsBetween(EventId from, EventId to) override;

  void Copy(void* destination, const void* source, size_t bytes, StreamKind stream) override {
    Queue(stream, [=](Device* cpu) { cpu->Copy(destination, source, bytes, stream); });
  }
  void Fill(Buf y, double value) override {
    Compute([=](Device* cpu) { cpu->Fill(y, value); });
  }
  void Cast(Buf y, Buf x, double scale, StreamKind stream) override {
    Queue(stream, [=](Device* cpu) { cpu->Cast(y, x, scale, stream); });
  }
  void AddScaled(Buf y, Buf x, double a) override {
    Compute([=](Device* cpu) { cpu->AddScaled(y, x, a); });
  }
  void Subtract(Buf z, Buf x, Buf y) override {
    Compute([=](Device* cpu) { cpu->Subtract(z, x, y); });
  }
  void SumOfSquares(Buf sum, Buf x) override {
    Compute([=](Device* cpu) { cpu->SumOfSquares(sum, x); });
  }
  void Encode(Encoding encoding, void* encoded, Buf values, float scale, Buf residual,
              const RoundingNoise& noise, StreamKind stream) override {
    Queue(stream, [=](Device* cpu) {
      cpu->Encode(encoding, encoded, values, scale, residual, noise, stream);
    });
  }
  void UpdateResidual(Encoding encoding, Buf residual, Buf values, float scale, const void* encoded,
                      StreamKind stream) override {
    Queue(stream, [=](Device* cpu) {
      cpu->UpdateResidual(encoding, residual, values, scale, encoded, stream);
    });
  }
  void Activate(Buf y, Buf x, Activation activation) override {
    Compute([=](Device* cpu) { cpu->Activate(y, x, activation); });
  }
  void Dropout(Buf y, Buf x, const DropoutMask& mask) override {
    Compute([=](Device* cpu) { cpu->Dropout(y, x, mask); });
  }
  void MatMul(const MatMulShape& shape, Buf c, Buf a, Buf b, Accumulate accumulate) override {
    Compute([=](Device* cpu) { cpu->MatMul(shape, c, a, b, accumulate); });
  }
  void LinearForward(Buf y, Buf pre_activation, Buf x, Buf w, Buf bias, int64_t rows, int64_t in,
                     int64_t out, Activation activation) override {
    Compute([=](Device* cpu) {
      cpu->LinearForward(y, pre_activation, x, w, bias, rows, in, out, activation);
    });
  }
  void LinearBackward(Buf dx, Buf dw, Buf db, Buf dy, Buf pre_activation, Buf x, Buf w,
                      int64_t rows, int64_t in, int64_t out, Activation activation,
                      Accumulate weights) override {
    Compute([=](Device* cpu) {
      cpu->LinearBackward(dx, dw, db, dy, pre_activation, x, w, rows, in, out, activation, weights);
    });
  }
  void ResidualNormForward(Buf y, Buf sum, Buf mean, Buf rstd, Buf a, Buf b, Buf gamma, Buf beta,
                           int64_t rows, int64_t width) override {
    Compute([=](Device* cpu) {
      cpu->ResidualNormForward(y, sum, mean, rstd, a, b, gamma, beta, rows, width);
    });
  }
  void NormBackward(Buf dx, Buf dgamma, Buf dbeta, Buf dy, Buf sum, Buf mean, Buf rstd, Buf gamma,
                    int64_t rows, int64_t width, Accumulate input, Accumulate weights) override {
    Compute([=](Device* cpu) {
      cpu->NormBackward(dx, dgamma, dbeta, dy, sum, mean, rstd, gamma, rows, width, input, weights);
    });
  }
  int64_t AttentionWorkspaceElements(const AttentionShape& shape) override {
    return cpu_->AttentionWorkspaceElements(shape);
  }
  void AttentionForward(Buf y, Buf log_sum_exp, Buf qkv, Buf workspace,
                        const AttentionShape& shape) override {
    Compute([=](Device* cpu) { cpu->AttentionForward(y, log_sum_exp, qkv, workspace, shape); });
  }
  void AttentionBackward(Buf dqkv, Buf dy, Buf y, Buf log_sum_exp, Buf qkv, Buf workspace,
                         const AttentionShape& shape) override {
    Compute([=](Device* cpu) {
      cpu->AttentionBackward(dqkv, dy, y, log_sum_exp, qkv, workspace, shape);
    });
  }
  void EmbedForward(Buf y, Buf tokens, Buf token_table, Buf position_table, int64_t rows,
                    int64_t context_tokens, int64_t width) override {
    Compute([=](Device* cpu) {
      cpu->EmbedForward(y, tokens, token_table, position_table, rows, context_tokens, width);
    });
  }
  void EmbedBackward(Buf dtoken_table, Buf dposition_table, Buf dy, Buf tokens, int64_t rows,
                     int64_t context_tokens, int64_t width, int64_t vocabulary) override {
    Compute([=](Device* cpu) {
      cpu->EmbedBackward(dtoken_table, dposition_table, dy, tokens, rows, context_tokens, width,
                         vocabulary);
    });
  }
  void SoftmaxCrossEntropy(Buf losses, Buf correct, Buf logits, Buf targets, int64_t rows,
                           int64_t classes, int64_t row_stride, double scale) override {
    Compute([=](Device* cpu) {
      cpu->SoftmaxCrossEntropy(losses, correct, logits, targets, rows, classes, row_stride, scale);
    });
  }
  // Image models are not run on it.
  int64_t ConvWorkspaceElements(const ConvShape&) override { return Unsupported(); }
  void ConvReluForward(Buf, Buf, Buf, Buf, Buf, const ConvShape&) override { Unsupported(); }
  void ConvReluBackward(Buf, Buf, Buf, Buf, Buf, Buf, Buf, Buf, const ConvShape&,
                        Accumulate) override {
    Unsupported();
  }
  void MaxPoolForward(Buf, Buf, Buf, int64_t, int64_t, int64_t) override { Unsupported(); }
  void MaxPoolBackward(Buf, Buf, Buf, int64_t, int64_t, int64_t) override { Unsupported(); }

  void MomentumUpdate(Buf weights, Buf state, Buf gradient, Buf shadow,
                      const MomentumStep& step) override {
    Compute([=](Device* cpu) { cpu->MomentumUpdate(weights, state, gradient, shadow, step); });
  }
  void AdamWUpdate(Buf weights, Buf first_moment, Buf second_moment, Buf gradient, Buf shadow,
                   const AdamWStep& step) override {
    Compute([=](Device* cpu) {
      cpu->AdamWUpdate(weights, first_moment, second_moment, gradient, shadow, step);
    });
  }

 private:
  using Work = std::function<void(Device*)>;
  // One of the three.
  struct Item {
    Work work;
    EventId waits_for = 0;
    EventId happens = 0;
  };
  static constexpr int kNumStreams = 3;

  void Compute(Work work) { Queue(StreamKind::kCompute, std::move(work)); }
  void Queue(StreamKind stream, Work work) ABSL_LOCKS_EXCLUDED(mutex_);
  int64_t Unsupported() const;
  bool HasHappened(EventId event) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RunNext(int stream) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RunUntil(EventId event) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RunCopies() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Order order_;
  const std::unique_ptr<Device> cpu_;
  DeviceCapabilities capabilities_;

  mutable absl::Mutex mutex_;
  std::deque<Item> queues_[kNumStreams] ABSL_GUARDED_BY(mutex_);
  int64_t num_run_[kNumStreams] ABSL_GUARDED_BY(mutex_) = {};
  int64_t fail_at_[kNumStreams] ABSL_GUARDED_BY(mutex_) = {-1, -1, -1};
  EventId last_event_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<EventId, int> pending_events_ ABSL_GUARDED_BY(mutex_);   // to their streams
  std::map<EventId, int64_t> event_times_ ABSL_GUARDED_BY(mutex_);  // of those that have happened
  std::vector<std::thread::id> waiters_ ABSL_GUARDED_BY(mutex_);
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lodestar
