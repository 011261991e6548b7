// SPDX-License-Identifier: Apache-2.0

// Device offers the operations of all models on one accelerator or the CPU, and its memory, streams
// and events. Each kind of device has one implementation, which device_factory.h chooses. Every
// implementation passes testing/device_conformance.h and takes its overrides of the operations from
// device_operations.inc.
//
// Operations are asynchronous on their stream, take plain shapes, never allocate and never read
// back to the host. They return nothing: the device keeps the first failure, and Synchronize()
// returns it. Sizes that do not fit are broken invariants of the caller (CHECK). All matrices are
// row-major. Outputs must not overlap inputs unless an operation's comment allows it.
//
// Element types: activations, their gradients and the parameters that operations read (w, bias,
// gamma, beta, tables) have the compute dtype. Gradients of parameters, statistics and vectors of
// the optimizers have StatisticsDType(compute), which is f32 for bf16.
//
// Any thread may call Synchronize(), CopyNow(), and the functions that register host memory, or
// that describe, count or merge choices. All other functions may be called by one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/params/encoding.h"
#include "kernels/buf.h"
#include "kernels/device_group.h"
#include "kernels/dropout_mask.h"
#include "kernels/operation_arguments.h"

namespace lodestar::kernels {

enum class StreamKind : uint8_t { kCompute, kDeviceToHost, kHostToDevice };

struct DeviceCapabilities {
  std::string name;  // "cpu (avx512, 2 threads)", "NVIDIA H200"
  DType compute = DType::kF32;
  bool has_bf16 = false;       // a device of this kind can also be made for bf16
  bool memory_is_host = true;  // the host may read and write device memory directly
  size_t memory_bytes = 0;     // memory for this process; 0 means unknown
  // Name of what limits the main memory: "this machine", "the control group /jobs/7". Empty for the
  // memory of a card.
  std::string memory_limited_by{};
};

using EventId = int64_t;
using GraphId = int64_t;

// The text of Device::MergeTuning() begins with this in every version.
inline constexpr absl::string_view kTuningTextBegin = "lodestar tuning ";

class Device {
 public:
  virtual ~Device() = default;
  virtual const DeviceCapabilities& capabilities() const = 0;
  // Lists the operations that this device could run in several ways. Each line names an operation,
  // the way that the device has chosen, and why: "attention forward 16 x 1024 tokens, 12 heads of
  // 64, cuDNN 9.19.0: library (...)". Lines are about operations fused into matrix products, and
  // about attention by a library or why no library is used. If the device was made with a text of
  // MergeTuning(), lines are also about algorithms of matrix products. A line is added at the first
  // use of a shape, and changes if a library refuses a later call. An empty text means that nothing
  // was chosen. Any thread may call this function at any time.
  virtual std::string DescribeChoices() const { return ""; }
  // Returns for how many operations a library was refused because its outputs differ from those of
  // our kernels.
  virtual int64_t num_refused_outputs() const { return 0; }
  // Returns a text for a device that is made later (DeviceOptions::tuning), so that it makes the
  // same choices without measuring. The text has the choices of this device, and those entries of
  // `kept` that are valid for this device or are about other cards. `kept` is empty, or the text of
  // another device or of an earlier run. An empty result means that the device chooses nothing, or
  // was made without a text.
  virtual std::string MergeTuning(absl::string_view /*kept*/) const { return ""; }
  // Returns a line for each part of DeviceOptions::tuning that the device does not use, with the
  // reason.
  virtual std::string DescribeTuning() const { return ""; }

  // Allocates memory, 64-byte aligned, with undefined contents. Host memory is pinned if that helps
  // copies. Errors: ResourceExhausted, naming the bytes asked for and free.
  virtual absl::StatusOr<void*> Allocate(size_t bytes) = 0;
  virtual void Release(void* memory) = 0;
  // Returns how many bytes could be allocated now, unless another program takes them first. 0 means
  // unknown.
  virtual size_t FreeMemoryBytes() { return 0; }
  virtual absl::StatusOr<void*> AllocateHost(size_t bytes) = 0;
  virtual void ReleaseHost(void* memory) = 0;
  // Pins memory that the caller has mapped, so that copies go straight to and from it. The memory
  // must begin at a page and stay mapped until it is unregistered. If the device's memory is the
  // host's, nothing happens. Errors: the reason why the device or the system refuses the memory;
  // the memory stays unpinned then.
  virtual absl::Status RegisterHostMemory(void* memory, size_t bytes);
  // Undoes RegisterHostMemory(). No copy of the memory may be running.
  virtual void UnregisterHostMemory(void* memory);

  // Streams and events let operations overlap. A CPU device runs each operation inline, before the
  // call returns.
  virtual EventId Record(StreamKind stream) = 0;
  virtual void Wait(StreamKind stream, EventId event) = 0;
  // Blocks until the event has happened. Returns the first failure of any operation so far.
  virtual absl::Status Synchronize(EventId event) = 0;
  // Records an event that SecondsBetween() takes.
  virtual EventId RecordTimed(StreamKind stream);
  // Returns the time on the device between two events of RecordTimed(). Blocks until both have
  // happened. Errors: Unimplemented on devices that run inline; use the host's clock for these.
  virtual absl::StatusOr<double> SecondsBetween(EventId from, EventId to);

  // Graphs: operations on the compute stream between BeginGraph() and EndGraph() are recorded, not
  // run. Each LaunchGraph() runs all of them, with the arguments and memory of the recording. No
  // other function may be called between BeginGraph() and EndGraph(). The three functions may be
  // called only if supports_graphs().
  virtual bool supports_graphs() const { return false; }
  virtual void BeginGraph();
  virtual absl::StatusOr<GraphId> EndGraph();
  virtual void LaunchGraph(GraphId graph);

  // Makes a group of `members`. This device must be the first of them, and all must have been made
  // with the same options. All members must outlive the group. Errors: Unimplemented on devices
  // that are not cards; those of Allocate().
  virtual absl::StatusOr<std::unique_ptr<DeviceGroup>> MakeGroup(absl::Span<Device* const> members);

  // Copies `bytes` from host or device memory to host or device memory.
  virtual void Copy(void* destination, const void* source, size_t bytes, StreamKind stream) = 0;
  // Copies `bytes` between device memory and host memory in the direction of `stream` (not
  // kCompute). The copy is not ordered with work of any stream, so both ends must be ready. Pinned
  // host memory is faster. Blocks until the copy is done, and calls `meanwhile` while it runs.
  // Returns the first failure of any operation so far.
  virtual absl::Status CopyNow(void* destination, const void* source, size_t bytes,
                               StreamKind stream, absl::FunctionRef<void()> meanwhile);
  virtual void Fill(Buf y, double value) = 0;
  // Computes y = scale * x. x and y may each be f32, f64, bf16 or f16, if the device supports the
  // dtype.
  virtual void Cast(Buf y, Buf x, double scale, StreamKind stream) = 0;
  // Computes y += a * x. AddScaled, Subtract and SumOfSquares take vectors of StatisticsDType.
  virtual void AddScaled(Buf y, Buf x, double a) = 0;
  // Computes z = x - y. z may be x or y.
  virtual void Subtract(Buf z, Buf x, Buf y) = 0;
  // Sets *sum (f64 [1], device memory) to the sum of squares of x, added in a fixed order.
  virtual void SumOfSquares(Buf sum, Buf x) = 0;

  // Encodes a vector for the wire: encoded = scale * values + residual. kFp32 is not allowed, as it
  // is the vector itself (common/params/encoding.h). `encoded` is device memory, 4-byte aligned, of
  // EncodedBytes() of values.num_elements. values and residual are f32; residual may be empty.
  // Every device gives the same bytes, except for the sign of a NaN.
  virtual void Encode(params::Encoding encoding, void* encoded, Buf values, float scale,
                      Buf residual, const Rounding& rounding, StreamKind stream) = 0;
  // Computes residual = decay * ((scale * values + residual) - decoded). The difference is what
  // Encode() with the same arguments has lost, and `decay` is the share of the loss that is carried
  // over.
  virtual void UpdateResidual(params::Encoding encoding, Buf residual, Buf values, float scale,
                              const void* encoded, float decay, StreamKind stream) = 0;
  // Runs Encode() with a residual, and sets `next_residual` to the result of UpdateResidual().
  // `next_residual` must not overlap any other argument.
  virtual void EncodeAndUpdate(params::Encoding encoding, void* encoded, Buf next_residual,
                               Buf values, float scale, Buf residual, const Rounding& rounding,
                               float decay, StreamKind stream);

  // Computes y = act(x). y may be x. On the CPU, if x has the pre-activation values of
  // LinearForward(), y has the same bits as LinearForward() gives.
  virtual void Activate(Buf y, Buf x, Activation activation) = 0;
  // Computes y[i] = x[i] / (1 - rate) if the mask keeps element i, else 0. y may be x. The backward
  // pass is the same call on the gradient.
  virtual void Dropout(Buf y, Buf x, const DropoutMask& mask) = 0;

  // Computes c (+)= alpha * op(a) op(b), as `shape` says. a and b have the compute dtype; c has the
  // compute dtype or StatisticsDType.
  virtual void MatMul(const MatMulShape& shape, Buf c, Buf a, Buf b, Accumulate accumulate) = 0;

  // Computes y[rows,out] = act(x[rows,in] w[out,in]^T + bias[out]). With WeightOrder::kInOut, w is
  // [in,out]. bias may be empty. If act is not kNone and pre_activation [rows,out] is not empty,
  // pre_activation is set to the values before the activation, which LinearBackward() needs. On the
  // CPU both orders give the same bits.
  virtual void LinearForward(Buf y, Buf pre_activation, Buf x, Buf w, Buf bias, int64_t rows,
                             int64_t in, int64_t out, Activation activation, WeightOrder order) = 0;
  // Computes dx, dw and db from dy. If act is not kNone, dy is overwritten by the gradient before
  // the activation. dx is set; an empty dx is not computed. dw has the order of w. dw and db are
  // set or added to, as `weights` says. db may be empty.
  virtual void LinearBackward(Buf dx, Buf dw, Buf db, Buf dy, Buf pre_activation, Buf x, Buf w,
                              int64_t rows, int64_t in, int64_t out, Activation activation,
                              WeightOrder order, Accumulate weights) = 0;
  // Computes the gradient between two layers: dx[rows,in] = (dy[rows,out] w) *
  // act'(pre_activation[rows,in]). The first layer has the activation, which must not be kNone; the
  // second layer has none. dy is the gradient of the second layer's output, w its weights, and dx
  // the gradient before the first layer's activation. db (f32 [in], may be empty) is the gradient
  // of the first layer's bias: the sums of dx over the rows, set or added to as `weights` says.
  virtual void LinearBackwardInput(Buf dx, Buf db, Buf dy, Buf pre_activation, Buf w, int64_t rows,
                                   int64_t in, int64_t out, Activation activation,
                                   WeightOrder order, Accumulate weights) = 0;

  // Computes sum = a + b, then y = (sum - mean) * rstd * gamma + beta for each row, with eps 1e-5.
  // If b is empty, sum = a, and sum may be a. y, sum, a, b are [rows,width]; gamma, beta [width].
  // mean, rstd [rows] are f32 (f64 on the oracle).
  virtual void ResidualNormForward(Buf y, Buf sum, Buf mean, Buf rstd, Buf a, Buf b, Buf gamma,
                                   Buf beta, int64_t rows, int64_t width) = 0;
  // Computes the gradients of the normalisation. dx is the gradient of `sum`, set or added to as
  // `input` says. dgamma and dbeta are set or added to as `weights` says.
  virtual void NormBackward(Buf dx, Buf dgamma, Buf dbeta, Buf dy, Buf sum, Buf mean, Buf rstd,
                            Buf gamma, int64_t rows, int64_t width, Accumulate input,
                            Accumulate weights) = 0;

  // Computes causal self-attention with scale 1/sqrt(head_width). qkv is [batch, tokens, 3, heads,
  // head_width], y [batch, tokens, heads, head_width]. log_sum_exp [batch, heads, tokens] is set
  // for the backward pass. workspace has at least AttentionWorkspaceElements() of the compute
  // dtype. With shape.dropout, the probabilities that mix the values are dropped and scaled;
  // log_sum_exp includes the dropped probabilities.
  virtual int64_t AttentionWorkspaceElements(const AttentionShape& shape) = 0;
  virtual void AttentionForward(Buf y, Buf log_sum_exp, Buf qkv, Buf workspace,
                                const AttentionShape& shape) = 0;
  // Sets dqkv to the gradient of qkv.
  virtual void AttentionBackward(Buf dqkv, Buf dy, Buf y, Buf log_sum_exp, Buf qkv, Buf workspace,
                                 const AttentionShape& shape) = 0;

  // Computes y[r,:] = token_table[tokens[r],:] + position_table[r % context_tokens,:]. tokens are
  // i32 [rows].
  virtual void EmbedForward(Buf y, Buf tokens, Buf token_table, Buf position_table, int64_t rows,
                            int64_t context_tokens, int64_t width) = 0;
  // Adds dy to dtoken_table [vocabulary,width] and dposition_table [context_tokens,width]. The same
  // call gives the same bits.
  virtual void EmbedBackward(Buf dtoken_table, Buf dposition_table, Buf dy, Buf tokens,
                             int64_t rows, int64_t context_tokens, int64_t width,
                             int64_t vocabulary) = 0;

  // Computes losses[r] = -log softmax(logits[r,:])[targets[r]]. correct[r] (i32) is 1 if the
  // largest logit is the target's, else 0; of equal largest logits, the lowest index counts. An
  // empty `correct` is not computed. If `scale` is not 0, logits are overwritten by the gradient
  // (softmax - onehot) * scale. losses, correct, targets are [rows], logits [rows,row_stride].
  // Columns from `classes` on are not read; with the gradient they are set to 0.
  virtual void SoftmaxCrossEntropy(Buf losses, Buf correct, Buf logits, Buf targets, int64_t rows,
                                   int64_t classes, int64_t row_stride, double scale) = 0;

  // Computes y = relu(conv(x, w) + bias). x is [samples,in,height,width], w [out,in,3,3], bias
  // [out], y [samples,out,height,width]. workspace has at least ConvWorkspaceElements().
  virtual int64_t ConvWorkspaceElements(const ConvShape& shape) = 0;
  virtual void ConvReluForward(Buf y, Buf x, Buf w, Buf bias, Buf workspace,
                               const ConvShape& shape) = 0;
  // Computes dx, dw and db from dy. dy is overwritten by the gradient before the ReLU, which was
  // active where y is above 0. dx may be empty.
  virtual void ConvReluBackward(Buf dx, Buf dw, Buf db, Buf dy, Buf y, Buf x, Buf w, Buf workspace,
                                const ConvShape& shape, Accumulate weights) = 0;
  // Takes the maximum of each 2x2 window with stride 2. x is [planes,height,width]; y and argmax
  // (u8) are [planes,height/2,width/2], rounded down. argmax is the place of the maximum in its
  // window, 0..3 in row-major order; of equal maxima, the first counts.
  virtual void MaxPoolForward(Buf y, Buf argmax, Buf x, int64_t planes, int64_t height,
                              int64_t width) = 0;
  // Sets dx to the gradient of x. dx is 0 for elements that were not the maximum.
  virtual void MaxPoolBackward(Buf dx, Buf dy, Buf argmax, int64_t planes, int64_t height,
                               int64_t width) = 0;

  // Updates vectors of StatisticsDType in place, by SGD with momentum: v = momentum * v + g; w -=
  // lr * (nesterov ? g + momentum * v : v). `state` is the momentum v; an empty `state` means plain
  // SGD. weight_decay is decoupled: w -= lr * weight_decay * w. `narrow` is set to the new weights,
  // rounded to its dtype, unless it is empty.
  virtual void MomentumUpdate(Buf weights, Buf state, Buf gradient, Buf narrow,
                              const MomentumStep& step) = 0;
  // Updates vectors in place by AdamW (Loshchilov & Hutter 2019, arXiv:1711.05101, algorithm 2)
  // with PyTorch's placement of epsilon: w -= lr * weight_decay * w; w -= lr * m_hat / (sqrt(v_hat)
  // + epsilon). `narrow` has the meaning that it has in MomentumUpdate().
  virtual void AdamWUpdate(Buf weights, Buf first_moment, Buf second_moment, Buf gradient,
                           Buf narrow, const AdamWStep& step) = 0;
};

}  // namespace lodestar::kernels
