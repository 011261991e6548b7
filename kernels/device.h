// SPDX-License-Identifier: Apache-2.0

// Device offers the operations of all models on one accelerator or the CPU, and its memory, streams
// and events. Each kind of device has one implementation, which device_factory.h chooses. Every
// implementation passes testing/device_conformance.h, and includes device_operations.inc, which
// declares the overrides of the operations.
//
// Operations are asynchronous on their stream. They never allocate memory and never copy results to
// the host. They return nothing: the device stores the first error, and Synchronize() returns it.
// Sizes that do not match are bugs of the caller (CHECK). All matrices are row-major. Outputs must
// not overlap inputs unless an operation's comment allows it.
//
// Element types: activations, their gradients, and parameters that operations read (w, bias, gamma,
// beta, tables) have the compute dtype. Gradients of parameters, statistics and vectors of the
// optimizers have StatisticsDType(compute), which is f32 for bf16.
//
// Any thread may call Synchronize(), CopyNow(), the functions that register host memory, and those
// that describe, count or merge choices. All other functions may be called by only one thread at a
// time.
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
  bool memory_is_host = true;  // true if the host may read and write device memory directly
  size_t memory_bytes = 0;     // memory for this process; 0 means unknown
  // What limits memory_bytes, if it is main memory: "this machine", "the control group /jobs/7".
  // Empty for the memory of a card.
  std::string memory_limited_by{};
};

using EventId = int64_t;
using GraphId = int64_t;

// The beginning of every text of Device::MergeTuning(), in all versions.
inline constexpr absl::string_view kTuningTextBegin = "lodestar tuning ";

class Device {
 public:
  virtual ~Device() = default;
  virtual const DeviceCapabilities& capabilities() const = 0;
  // Describes the ways that this device has chosen for operations that can be run in several ways.
  // Returns one line per operation and shape, with the chosen way and the reason: "attention
  // forward 16 x 1024 tokens, 12 heads of 64, cuDNN 9.19.0: library (...)". The lines are about:
  // - operations that are fused into matrix products;
  // - attention by a library, or why no library is used;
  // - algorithms of matrix products, if DeviceOptions::tuning is set.
  //
  // A line is added at the first use of a shape, and changes if a library refuses a later call. An
  // empty text means that there was no choice. Any thread may call this function at any time.
  virtual std::string DescribeChoices() const { return ""; }
  // Returns the number of operations for which a library was refused because its outputs differ
  // from those of our kernels.
  virtual int64_t num_refused_outputs() const { return 0; }
  // Returns a text for DeviceOptions::tuning of a later device, which then makes the same choices
  // without measuring. The text has the choices of this device. It also has the choices in `kept`
  // that are for other cards, or are valid for this device. `kept` is empty, or the text of another
  // device or of an earlier run. An empty result means that the device makes no choices, or was
  // made without a text.
  virtual std::string MergeTuning(absl::string_view /*kept*/) const { return ""; }
  // Returns a line for each part of DeviceOptions::tuning that the device does not use, with the
  // reason.
  virtual std::string DescribeTuning() const { return ""; }

  // Allocates device memory, 64-byte aligned, with undefined contents. AllocateHost() does the same
  // for host memory, which is pinned if that helps copies. Errors: ResourceExhausted, with the
  // bytes that were asked for and the bytes that are free.
  virtual absl::StatusOr<void*> Allocate(size_t bytes) = 0;
  virtual void Release(void* memory) = 0;
  // Returns how many bytes could be allocated now, unless another program takes them first. 0 means
  // unknown.
  virtual size_t FreeMemoryBytes() { return 0; }
  virtual absl::StatusOr<void*> AllocateHost(size_t bytes) = 0;
  virtual void ReleaseHost(void* memory) = 0;
  // Pins memory of the host, so that copies use it directly. The memory must begin at a page, and
  // must stay mapped until it is unregistered. Does nothing if the device's memory is host memory.
  // Errors: the reason why the device or the system refuses the memory. In that case it is not
  // pinned.
  virtual absl::Status RegisterHostMemory(void* memory, size_t bytes);
  // Undoes RegisterHostMemory(). No copy to or from the memory may be running.
  virtual void UnregisterHostMemory(void* memory);

  // Streams and events let operations overlap. A CPU device runs each operation inline, before the
  // call returns.
  virtual EventId Record(StreamKind stream) = 0;
  virtual void Wait(StreamKind stream, EventId event) = 0;
  // Blocks until the event has happened. Returns the first error of any operation so far.
  virtual absl::Status Synchronize(EventId event) = 0;
  // Records an event for SecondsBetween().
  virtual EventId RecordTimed(StreamKind stream);
  // Returns the time between two events of RecordTimed(), by the device's clock. Blocks until both
  // have happened. Errors: Unimplemented (on devices that run operations inline; use the host's
  // clock for these).
  virtual absl::StatusOr<double> SecondsBetween(EventId from, EventId to);

  // Graphs: operations on the compute stream between BeginGraph() and EndGraph() are recorded and
  // not run. Each LaunchGraph() runs all of them, with the same arguments and memory. No other
  // function may be called between BeginGraph() and EndGraph(). If supports_graphs() is false, none
  // of the three functions may be called.
  virtual bool supports_graphs() const { return false; }
  virtual void BeginGraph();
  virtual absl::StatusOr<GraphId> EndGraph();
  virtual void LaunchGraph(GraphId graph);

  // Makes a group of `members`. This device must be the first member. All members must have been
  // made with the same options, and must outlive the group. Errors: Unimplemented (on devices that
  // are not cards); those of Allocate().
  virtual absl::StatusOr<std::unique_ptr<DeviceGroup>> MakeGroup(absl::Span<Device* const> members);

  // Copies `bytes` bytes. Source and destination may be in host or device memory.
  virtual void Copy(void* destination, const void* source, size_t bytes, StreamKind stream) = 0;
  // Copies `bytes` bytes between device memory and host memory. `stream` says the direction, and
  // must not be kCompute. The copy does not wait for work of any stream, so source and destination
  // must be ready. Pinned host memory is faster. Calls `meanwhile` while the copy runs. Blocks
  // until the copy is done. Returns the first error of any operation so far.
  virtual absl::Status CopyNow(void* destination, const void* source, size_t bytes,
                               StreamKind stream, absl::FunctionRef<void()> meanwhile);
  virtual void Fill(Buf y, double value) = 0;
  // Computes y = scale * x. x and y may each be f32, f64, bf16 or f16, if the device supports the
  // dtype.
  virtual void Cast(Buf y, Buf x, double scale, StreamKind stream) = 0;
  // Computes y += a * x. The vectors of AddScaled, Subtract and SumOfSquares are in
  // StatisticsDType.
  virtual void AddScaled(Buf y, Buf x, double a) = 0;
  // Computes z = x - y. z may be x or y.
  virtual void Subtract(Buf z, Buf x, Buf y) = 0;
  // Sets *sum (f64 [1], device memory) to the sum of squares of x, added in a fixed order.
  virtual void SumOfSquares(Buf sum, Buf x) = 0;

  // Encodes a vector for the wire: encoded = scale * values + residual. The encoding must not be
  // kFp32, which sends the bytes of the vector as they are. `encoded` is device memory, 4-byte
  // aligned, of EncodedBytes(encoding, values.num_elements) bytes (common/params/encoding.h).
  // `values` and `residual` are f32, and `residual` may be empty. Every device gives the same
  // bytes, except for the sign of a NaN.
  virtual void Encode(params::Encoding encoding, void* encoded, Buf values, float scale,
                      Buf residual, const Rounding& rounding, StreamKind stream) = 0;
  // Computes residual = decay * ((scale * values + residual) - decoded). The difference is the
  // error of Encode() with the same arguments. `decay` is the share of the error that is added to
  // the next vector.
  virtual void UpdateResidual(params::Encoding encoding, Buf residual, Buf values, float scale,
                              const void* encoded, float decay, StreamKind stream) = 0;
  // Does the same as Encode() with a residual, and sets `next_residual` to the result of
  // UpdateResidual(). `next_residual` must not overlap any other argument.
  virtual void EncodeAndUpdate(params::Encoding encoding, void* encoded, Buf next_residual,
                               Buf values, float scale, Buf residual, const Rounding& rounding,
                               float decay, StreamKind stream);

  // Computes y = act(x). y may be x. On the CPU, if x is pre_activation of LinearForward(), the
  // result has the same bits as y of LinearForward().
  virtual void Activate(Buf y, Buf x, Activation activation) = 0;
  // Computes y[i] = x[i] / (1 - rate) if the mask keeps element i, and y[i] = 0 otherwise. y may be
  // x. The backward pass is the same call with the gradient.
  virtual void Dropout(Buf y, Buf x, const DropoutMask& mask) = 0;

  // Computes c = alpha * op(a) op(b), or adds it to c. a and b have the compute dtype. c has the
  // compute dtype or StatisticsDType.
  virtual void MatMul(const MatMulShape& shape, Buf c, Buf a, Buf b, Accumulate accumulate) = 0;

  // Computes y[rows,out] = act(x[rows,in] w[out,in]^T + bias[out]). With WeightOrder::kInOut, w is
  // [in,out]. bias may be empty. If act is not kNone and pre_activation [rows,out] is not empty,
  // pre_activation is set to the arguments of act, which LinearBackward() needs. On the CPU both
  // orders give the same bits.
  virtual void LinearForward(Buf y, Buf pre_activation, Buf x, Buf w, Buf bias, int64_t rows,
                             int64_t in, int64_t out, Activation activation, WeightOrder order) = 0;
  // Computes dx, dw and db from dy.
  // - dy: if act is not kNone, dy is overwritten by the gradient of the activation's argument.
  // - dx is set. If dx is empty, it is not computed.
  // - dw has the order of w. db may be empty. `weights` says whether dw and db are set or added to.
  virtual void LinearBackward(Buf dx, Buf dw, Buf db, Buf dy, Buf pre_activation, Buf x, Buf w,
                              int64_t rows, int64_t in, int64_t out, Activation activation,
                              WeightOrder order, Accumulate weights) = 0;
  // Computes dx[rows,in] = (dy[rows,out] w) * act'(pre_activation[rows,in]), for two layers. Layer
  // 1 ends with the activation, which must not be kNone. Layer 2 has the weights w and no
  // activation.
  // - dy is the gradient of the output of layer 2.
  // - dx is the gradient of pre_activation, the argument of the activation.
  // - db (f32 [in], may be empty) is the gradient of the bias of layer 1: the sums of dx over the
  //   rows. `weights` says whether db is set or added to.
  virtual void LinearBackwardInput(Buf dx, Buf db, Buf dy, Buf pre_activation, Buf w, int64_t rows,
                                   int64_t in, int64_t out, Activation activation,
                                   WeightOrder order, Accumulate weights) = 0;

  // Computes sum = a + b, then y = (sum - mean) * rstd * gamma + beta for each row, with eps 1e-5.
  // If b is empty, sum = a, and sum may be a. y, sum, a, b are [rows,width]; gamma, beta [width].
  // mean, rstd [rows] are f32 (f64 on the oracle).
  virtual void ResidualNormForward(Buf y, Buf sum, Buf mean, Buf rstd, Buf a, Buf b, Buf gamma,
                                   Buf beta, int64_t rows, int64_t width) = 0;
  // Computes the gradients of the normalisation. dx is the gradient of `sum`. `input` says whether
  // dx is set or added to. `weights` says whether dgamma and dbeta are set or added to.
  virtual void NormBackward(Buf dx, Buf dgamma, Buf dbeta, Buf dy, Buf sum, Buf mean, Buf rstd,
                            Buf gamma, int64_t rows, int64_t width, Accumulate input,
                            Accumulate weights) = 0;

  // Computes causal self-attention with scale 1/sqrt(head_width).
  // - qkv is [batch, tokens, 3, heads, head_width], and y is [batch, tokens, heads, head_width].
  // - log_sum_exp [batch, heads, tokens] is set for the backward pass. It includes the scores of
  //   dropped probabilities.
  // - workspace has at least AttentionWorkspaceElements() elements of the compute dtype.
  // - With shape.dropout, some probabilities become 0 and the others are scaled. The results
  //   multiply the values.
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
  // Adds dy to dtoken_table [vocabulary,width] and dposition_table [context_tokens,width]. Equal
  // calls give equal bits.
  virtual void EmbedBackward(Buf dtoken_table, Buf dposition_table, Buf dy, Buf tokens,
                             int64_t rows, int64_t context_tokens, int64_t width,
                             int64_t vocabulary) = 0;

  // Computes losses[r] = -log softmax(logits[r,:])[targets[r]]. losses, correct, targets are
  // [rows], logits [rows,row_stride]. Columns from `classes` on are padding and are not read.
  // - correct[r] (i32) is 1 if the target has the largest logit, and 0 otherwise. Of several equal
  //   largest logits, the one with the lowest index counts. An empty `correct` is not computed.
  // - If `scale` is not 0, logits are overwritten by the gradient (softmax - onehot) * scale, and
  //   the padding by 0.
  virtual void SoftmaxCrossEntropy(Buf losses, Buf correct, Buf logits, Buf targets, int64_t rows,
                                   int64_t classes, int64_t row_stride, double scale) = 0;

  // Computes y = relu(conv(x, w) + bias). x is [samples,in,height,width], w [out,in,3,3], bias
  // [out], y [samples,out,height,width]. workspace has at least ConvWorkspaceElements().
  virtual int64_t ConvWorkspaceElements(const ConvShape& shape) = 0;
  virtual void ConvReluForward(Buf y, Buf x, Buf w, Buf bias, Buf workspace,
                               const ConvShape& shape) = 0;
  // Computes dx, dw and db from dy. dy is overwritten by the gradient of the ReLU's argument, which
  // is 0 where y is 0. dx may be empty.
  virtual void ConvReluBackward(Buf dx, Buf dw, Buf db, Buf dy, Buf y, Buf x, Buf w, Buf workspace,
                                const ConvShape& shape, Accumulate weights) = 0;
  // Computes the maximum of each 2x2 window with stride 2. x is [planes,height,width]. y and argmax
  // (u8) are [planes,height/2,width/2], rounded down. argmax is the place of the maximum in its
  // window, 0..3 in row-major order. Of equal maxima, the first one counts.
  virtual void MaxPoolForward(Buf y, Buf argmax, Buf x, int64_t planes, int64_t height,
                              int64_t width) = 0;
  // Sets dx to the gradient of x. Elements of x that are not the maximum of their window get 0.
  virtual void MaxPoolBackward(Buf dx, Buf dy, Buf argmax, int64_t planes, int64_t height,
                               int64_t width) = 0;

  // Updates vectors of StatisticsDType in place, by SGD with momentum: v = momentum * v + g; w -=
  // lr * (nesterov ? g + momentum * v : v). `state` is the momentum v. An empty `state` means plain
  // SGD. Weight decay is decoupled: w -= lr * weight_decay * w. Unless `narrow` is empty, it is set
  // to the new weights, rounded to its dtype.
  virtual void MomentumUpdate(Buf weights, Buf state, Buf gradient, Buf narrow,
                              const MomentumStep& step) = 0;
  // Updates vectors in place by AdamW (Loshchilov & Hutter 2019, arXiv:1711.05101, algorithm 2),
  // with epsilon at the same place as in PyTorch: w -= lr * weight_decay * w; w -= lr * m_hat /
  // (sqrt(v_hat) + epsilon). For `narrow` see MomentumUpdate().
  virtual void AdamWUpdate(Buf weights, Buf first_moment, Buf second_moment, Buf gradient,
                           Buf narrow, const AdamWStep& step) = 0;
};

}  // namespace lodestar::kernels
